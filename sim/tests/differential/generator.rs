//! Requests at random: scripts with arguments of the right kinds, commands with arguments of any, and junk.

use std::collections::BTreeSet;

use crate::scripts::Script;

/// Draws what is asked next. The same seed draws the same.
#[derive(Debug)]
pub(crate) struct Generator {
    state: u64,
    /// The leases that were drawn. Each differs by minutes from all others, so that their order never depends on how fast a
    /// server is.
    leases: BTreeSet<u64>,
    /// Whose turn it is: other arguments of the same request belong to it.
    owner: usize,
}

pub(crate) type Request = Vec<Vec<u8>>;

impl Generator {
    pub(crate) const fn new(seed: u64) -> Self {
        Self {
            state: seed,
            leases: BTreeSet::new(),
            owner: 0,
        }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).expect("it is small");
        usize::try_from(self.next() % limit).expect("it is small")
    }

    pub(crate) fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn one<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    fn lease(&mut self) -> u64 {
        loop {
            // Between an hour and a month, in steps that no sequence takes as long as.
            let lease = 3_600_000 + 600_000 * (self.next() % 4000);
            if self.leases.insert(lease) {
                return lease;
            }
        }
    }

    /// A key of a kind, of one of two names; now and then of another kind.
    fn key(&mut self, kind: char) -> String {
        let kind = if self.percent(2) {
            self.one(&KINDS)
        } else {
            kind
        };
        let name = self.one(&["a", "b"]);
        match kind {
            'l' => format!("lock:{{{name}}}"),
            'r' => format!("rw:{{{name}}}"),
            's' => format!("simple:{{{name}}}"),
            'u' => format!("distlock_undone:{{{name}}}"),
            't' => format!("redisson_lock_token:{{{name}}}"),
            'q' => format!("redisson_lock_queue:{{{name}}}"),
            'T' => format!("redisson_lock_timeout:{{{name}}}"),
            'A' => format!("distlock_alive:{{{name}}}"),
            'W' => format!("distlock_writers:{{{name}}}"),
            'P' => format!("permits:{{{name}}}"),
            'O' => format!("{{{name}}}:timeout"),
            'N' => format!("distlock_line:{{{name}}}"),
            'B' => format!("distlock_present:{{{name}}}"),
            'C' => format!("distlock_clients:{{{name}}}"),
            'n' => format!("number:{{{name}}}"),
            'd' => format!("distlock_done:{{{name}}}"),
            _ => "distlock_promoted".to_owned(),
        }
    }

    fn argument(&mut self, kind: char) -> Vec<u8> {
        if self.percent(2) {
            // A script may count to a number that it is told: it would never end. And a lease is not to be so short that it
            // runs out by itself, nor so great that it is written in other digits with each of the two clocks.
            return match kind {
                'n' | 'h' => self.one(&["", "x", "-1", "1.5", "0"]).into(),
                'L' | 'm' | 'w' => self.one(&["", "x", "-7200000"]).into(),
                _ => self.junk(),
            };
        }
        let uuid = |owner: usize| format!("0000000{owner}-0000-4000-8000-000000000000:{owner}");
        let text = match kind {
            'o' | 'O' | 'V' => {
                let other = self.below(4);
                // The second owner of a request is another one.
                if kind != 'O' {
                    self.owner = other;
                }
                let writes = if kind == 'V' { ":write" } else { "" };
                format!("{}{writes}", uuid(other))
            }
            'v' => {
                let owner = uuid(self.owner);
                self.one(&["", &format!("{owner}:write")]).to_owned()
            }
            'a' => self.one(&["1", "1", "1", "2", "3"]).to_owned(),
            'n' => self.one(&["0", "1", "1", "2", "3"]).to_owned(),
            'g' => self.one(&["0", "1"]).to_owned(),
            'L' | 'm' => self.lease().to_string(),
            'w' if self.percent(40) => "0".to_owned(),
            'w' => self.lease().to_string(),
            'c' => self
                .one(&["redisson_lock__channel:{a}", "redisson_lock__channel:{b}"])
                .to_owned(),
            'x' => self.one(&["", "", "", "", "twin"]).to_owned(),
            'k' => self.one(&["0", "0", "7", "9007199254740000"]).to_owned(),
            'b' => self.one(&["rw:{a}:", "{rw:{a}}:", ""]).to_owned(),
            'p' => format!("cli{}permits.", self.owner),
            'h' => self.one(&["", "2", "5"]).to_owned(),
            'z' => self.one(&["once", "set", "return", "forget"]).to_owned(),
            'y' => self.one(&["once", "once", "down", "forget"]).to_owned(),
            'Y' => self
                .one(&["add", "drain", "forget", "once", "set"])
                .to_owned(),
            'i' | 'e' => self.below(40).to_string(),
            'j' => format!(
                "0000000{}-0000-4000-8000-000000000000:{}",
                self.below(4),
                self.below(40)
            ),
            'f' => self.one(&["abc", "def"]).to_owned(),
            literal => literal.to_string(),
        };
        text.into_bytes()
    }

    fn junk(&mut self) -> Vec<u8> {
        self.one(&JUNK).to_vec()
    }

    /// One call of a script, by its text or its hash.
    pub(crate) fn script_call(&mut self, script: &Script, hash: &str) -> Request {
        let (mut keys, mut arguments): (Vec<String>, Vec<Vec<u8>>) = (Vec::new(), Vec::new());
        let times = if script.repeats { 1 + self.below(3) } else { 1 };
        for _ in 0..times {
            keys.extend(
                script
                    .keys
                    .chars()
                    .filter(|&kind| kind != '?')
                    .map(|kind| self.key(kind)),
            );
            arguments.extend(script.arguments.chars().map(|kind| self.argument(kind)));
        }
        if script.keys == "?" {
            // The letters say what each key is.
            let lock = self.one(&['l', 'r', 's', 'P', 'n']);
            let beside = ['t', 'q', 'W', 'O', 'C', 'N'];
            let chosen: Vec<char> = beside.into_iter().filter(|_| self.percent(70)).collect();
            keys.push(self.key(lock));
            keys.extend(chosen.iter().map(|&kind| self.key(kind)));
            let letters: String = chosen
                .iter()
                .map(|kind| kind.to_ascii_lowercase())
                .collect();
            let cursor = self.one(&["0", "0", "0", "1", "x"]);
            arguments.push(cursor.as_bytes().to_vec());
            arguments.push(format!("l{letters}").into_bytes());
        }
        if !script.passengers.is_empty() {
            for _ in 0..=self.below(4) {
                let place = self.below(script.passengers.len());
                let (kinds, letters) = script.passengers[place];
                keys.extend(kinds.chars().map(|kind| self.key(kind)));
                arguments.push((place + 1).to_string().into_bytes());
                let brought = letters.chars().filter(|letter| !letter.is_ascii_digit());
                arguments.extend(brought.map(|kind| self.argument(kind)));
            }
        }
        let by_hash = self.percent(50);
        let read_only = if self.percent(3) { "_RO" } else { "" };
        let (word, body) = if by_hash {
            ("EVALSHA", hash)
        } else {
            ("EVAL", script.text.as_str())
        };
        let count = if self.percent(1) {
            "1"
        } else {
            &keys.len().to_string()
        };
        let head = [
            format!("{word}{read_only}"),
            body.to_owned(),
            count.to_owned(),
        ];
        let head = head.into_iter().chain(keys).map(String::into_bytes);
        head.chain(arguments).collect()
    }

    /// One command by itself.
    pub(crate) fn command(&mut self) -> Request {
        let template = self.one(&COMMANDS);
        let mut request: Request = Vec::new();
        for word in template.split(' ') {
            let word = match word {
                "K" => {
                    let kind = self.one(&KINDS);
                    self.key(kind).into_bytes()
                }
                "V" => self.one(&VALUES).to_vec(),
                "I" => self
                    .one(&["0", "1", "-1", "2", "-2", "5", "-100", "100"])
                    .into(),
                "S" => self
                    .one(&["0", "1.5", "-3", "(1", "+inf", "-inf", "(2.5", ""])
                    .into(),
                "X" => self.one(&["-", "+", "[a", "(b", "[", "x"]).into(),
                "E" => (self.lease() / 1000).to_string().into_bytes(),
                "L" => self.lease().to_string().into_bytes(),
                "H" => self.one(&["a*", "*", "lock:*", "[lr]*", "x"]).into(),
                other => other.into(),
            };
            request.push(if self.percent(2) { self.junk() } else { word });
        }
        if self.percent(2) {
            request.push(self.junk());
        }
        if self.percent(2) && request.len() > 1 {
            request.pop();
        }
        request
    }
}

const KINDS: [char; 17] = [
    'l', 'r', 's', 'u', 't', 'q', 'T', 'A', 'W', 'P', 'O', 'N', 'B', 'C', 'n', 'd', 'R',
];

const JUNK: [&[u8]; 18] = [
    b"",
    b"0",
    b"-1",
    b"1",
    b"x",
    b"1.5",
    b"nan",
    b"inf",
    b"-0",
    b"01",
    b" 1",
    b"9223372036854775807",
    b"9223372036854775808",
    b"\x00\xff\r\n",
    b"0x10",
    b"1e3",
    b"lock:{a}",
    b"-9223372036854775808",
];

const VALUES: [&[u8]; 10] = [
    b"",
    b"1",
    b"2",
    b"a",
    b"b",
    b"hello world",
    b"3",
    b"-7",
    b"00000001-0000-4000-8000-000000000000:1",
    b"\x00\xff binary \r\n",
];

/// Commands with places for what is drawn: keys, values, indexes, scores, bounds of bytes, leases in seconds and in
/// milliseconds, and patterns.
const COMMANDS: [&str; 132] = [
    "GET K",
    "SET K V",
    "SET K V PX L",
    "SET K V NX PX L",
    "SET K V XX GET",
    "SET K V KEEPTTL",
    "SET K V NX XX",
    "SET K V EX E PX L",
    "SETNX K V",
    "SETEX K E V",
    "PSETEX K L V",
    "GETSET K V",
    "GETDEL K",
    "MGET K K K",
    "MSET K V K V",
    "MSETNX K V K V",
    "APPEND K V",
    "STRLEN K",
    "GETRANGE K I I",
    "SETRANGE K I V",
    "INCR K",
    "DECR K",
    "INCRBY K I",
    "DECRBY K I",
    "SETBIT K I 1",
    "DEL K",
    "DEL K K",
    "UNLINK K",
    "EXISTS K K",
    "TYPE K",
    "TTL K",
    "PTTL K",
    "EXPIRETIME K",
    "PEXPIRETIME K",
    "EXPIRE K E",
    "PEXPIRE K L",
    "PEXPIRE K 0",
    "PEXPIRE K L GT",
    "PEXPIRE K L NX",
    "PEXPIRE K L LT",
    "PEXPIRE K L XX",
    "EXPIRE K E GT LT",
    "PEXPIRE K -1",
    "PEXPIREAT K 1000",
    "PERSIST K",
    "RENAME K K",
    "RENAMENX K K",
    "COPY K K",
    "COPY K K REPLACE",
    "KEYS H",
    "DBSIZE",
    "TOUCH K K",
    "HSET K V V",
    "HSET K V V V V",
    "HSETNX K V V",
    "HMSET K V V",
    "HGET K V",
    "HMGET K V V",
    "HGETALL K",
    "HKEYS K",
    "HVALS K",
    "HLEN K",
    "HSTRLEN K V",
    "HEXISTS K V",
    "HDEL K V V",
    "HINCRBY K V I",
    "LPUSH K V V",
    "RPUSH K V V",
    "LPUSHX K V",
    "RPUSHX K V",
    "LPOP K",
    "RPOP K",
    "LPOP K I",
    "RPOP K I",
    "LLEN K",
    "LINDEX K I",
    "LRANGE K I I",
    "LSET K I V",
    "LREM K I V",
    "LTRIM K I I",
    "LINSERT K BEFORE V V",
    "LINSERT K AFTER V V",
    "LPOS K V",
    "LPOS K V RANK I COUNT I",
    "LPOS K V MAXLEN I",
    "LMOVE K K LEFT RIGHT",
    "RPOPLPUSH K K",
    "SADD K V V",
    "SREM K V",
    "SCARD K",
    "SISMEMBER K V",
    "SMEMBERS K",
    "ZADD K S V S V",
    "ZADD K NX S V",
    "ZADD K XX GT CH S V",
    "ZADD K LT S V",
    "ZADD K INCR S V",
    "ZADD K NX GT S V",
    "ZINCRBY K S V",
    "ZREM K V V",
    "ZCARD K",
    "ZSCORE K V",
    "ZMSCORE K V V",
    "ZRANK K V",
    "ZREVRANK K V",
    "ZPOPMIN K",
    "ZPOPMAX K I",
    "ZRANGE K I I",
    "ZRANGE K I I WITHSCORES",
    "ZRANGE K I I REV",
    "ZRANGE K S S BYSCORE LIMIT I I",
    "ZRANGE K X X BYLEX",
    "ZREVRANGE K I I WITHSCORES",
    "ZRANGEBYSCORE K S S WITHSCORES",
    "ZRANGEBYSCORE K S S LIMIT I I",
    "ZREVRANGEBYSCORE K S S",
    "ZCOUNT K S S",
    "ZLEXCOUNT K X X",
    "ZREMRANGEBYSCORE K S S",
    "ZREMRANGEBYRANK K I I",
    "PUBLISH V V",
    "SPUBLISH V V",
    "PUBSUB NUMSUB redisson_lock__channel:{a} x",
    "PUBSUB SHARDNUMSUB redisson_lock__channel:{a}",
    "PUBSUB CHANNELS H",
    "PUBSUB NUMPAT",
    "HSCAN K 0 COUNT 1000",
    "SSCAN K 0 MATCH H",
    "ZSCAN K 0",
    "SCRIPT EXISTS x",
    "ECHO V",
    "PING V",
];
