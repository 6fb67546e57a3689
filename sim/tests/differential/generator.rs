//! The generator of random requests: scripts with arguments of the right kinds, commands with arguments of any, and junk.

use std::collections::BTreeSet;

use distlock_sim::Random;

use crate::scripts::Script;
use crate::words::{COMMANDS, JUNK, KINDS, KINDS_WITHOUT_MOMENTS, SNIPPETS, VALUES};

/// A generator of the next requests. The same seed gives the same requests.
#[derive(Debug)]
pub(crate) struct Generator {
    random: Random,
    /// The leases that were drawn. Each differs by minutes from all others, so that their order never depends on how fast a server is.
    leases: BTreeSet<u64>,
    /// The owner in the script or command that is being composed: other arguments of the same request belong to it.
    owner: usize,
    /// Whether requests may be such that servers of different versions refuse them in different ways.
    has_junk: bool,
}

pub(crate) type Request = Vec<Vec<u8>>;

impl Generator {
    pub(crate) const fn new(seed: u64, has_junk: bool) -> Self {
        Self {
            random: Random::new(seed),
            leases: BTreeSet::new(),
            owner: 0,
            has_junk,
        }
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).expect("it is small");
        usize::try_from(self.random.next() % limit).expect("it is small")
    }

    pub(crate) fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn one<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    fn lease(&mut self) -> u64 {
        loop {
            // Leases are between an hour and a month, in steps that are longer than any sequence takes.
            let lease = 3_600_000 + 600_000 * (self.random.next() % 4000);
            if self.leases.insert(lease) {
                return lease;
            }
        }
    }

    /// Returns a key of a kind, with one of two names; now and then of another kind.
    fn key(&mut self, kind: char) -> String {
        let kind = if self.percent(2) {
            self.one(&KINDS)
        } else {
            kind
        };
        self.key_of(kind)
    }

    fn key_of(&mut self, kind: char) -> String {
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
        if self.has_junk && self.percent(2) {
            // A script may count up to a number in its arguments, and would never end with a great one. A lease must not be so short that
            // it expires by itself, nor so great that it has different digits with each of the two clocks.
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

    /// Returns one call of a script, by its text or its hash.
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
            // The letters are the kinds of the keys.
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
        let read_only = if self.has_junk && self.percent(3) {
            "_RO"
        } else {
            ""
        };
        let (word, body) = if by_hash {
            ("EVALSHA", hash)
        } else {
            ("EVAL", script.text.as_str())
        };
        let count = if self.has_junk && self.percent(1) {
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

    /// Returns a small script of the test's own, which shows the environment that Redis gives to scripts, and the form of results and
    /// errors.
    pub(crate) fn snippet(&mut self) -> Request {
        let text = self.one(SNIPPETS);
        let (kind, value) = (self.one(&KINDS), self.one(&VALUES));
        let read_only = if self.percent(10) { "_RO" } else { "" };
        let head = [
            format!("EVAL{read_only}"),
            text.to_owned(),
            "1".to_owned(),
            self.key(kind),
        ];
        let head = head.into_iter().map(String::into_bytes);
        head.chain([value.to_vec()]).collect()
    }

    /// Returns one command.
    pub(crate) fn command(&mut self) -> Request {
        let template = self.one(&COMMANDS);
        let mut request: Request = Vec::new();
        for word in template.split(' ') {
            let word = match word {
                "K" => {
                    let kind = self.one(&KINDS);
                    self.key(kind).into_bytes()
                }
                // The key holds no moment: a part of one could not be compared.
                "N" => {
                    let kind = self.one(&KINDS_WITHOUT_MOMENTS);
                    self.key_of(kind).into_bytes()
                }
                "V" => self.one(&VALUES).to_vec(),
                "I" => self
                    .one(&["0", "1", "-1", "2", "-2", "5", "-100", "100"])
                    .into(),
                "S" => self
                    .one(&["0", "1.5", "-3", "(1", "+inf", "-inf", "(2.5", ""])
                    .into(),
                "E" => (self.lease() / 1000).to_string().into_bytes(),
                "L" => self.lease().to_string().into_bytes(),
                "H" => self.one(&["a*", "*", "lock:*", "[lr]*", "x"]).into(),
                other => other.into(),
            };
            // As with scripts, no time is so short that it expires by itself.
            let is_time = template.contains("EX") || template.contains("PX");
            request.push(if !self.percent(2) {
                word
            } else if is_time && request.len() > 1 {
                self.one(&["", "x", "-7200000"]).into()
            } else {
                self.junk()
            });
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
