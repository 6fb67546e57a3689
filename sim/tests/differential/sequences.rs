//! One sequence of requests to both servers, from the same empty state.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use distlock_sim::{Fault, Server};

use crate::generator::{Generator, Request};
use crate::replies::{Origins, Reply};
use crate::scripts::Script;
use crate::servers::{Pair, Real};

/// The number of occurrences of each outcome, for each script or command.
pub(crate) type Outcomes = BTreeMap<(String, String), u64>;

/// The extent to which a real server is compared with the simulated one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Likeness {
    /// The server has the simulated version: everything is compared.
    Whole,
    /// Other versions have other commands and other error texts: the library's scripts and their effects are compared.
    Scripts,
    /// The same as `Scripts`, for a server that is older than sharded pub/sub.
    ScriptsWithoutShards,
}

impl Likeness {
    pub(crate) fn of(version: &str) -> Self {
        match version.get(..2) {
            _ if version.starts_with("7.0.") => Self::Whole,
            Some("5." | "6.") => Self::ScriptsWithoutShards,
            _ => Self::Scripts,
        }
    }
}

/// A sequence that is being played.
pub(crate) struct Sequence<'a> {
    pub(crate) asked: u64,
    generator: Generator,
    origins: Origins,
    /// Callers in version 2 of the protocol, and in version 3.
    callers: [Pair; 2],
    /// Subscribers, in either version.
    listeners: [Pair; 2],
    scripts: &'a [Script],
    hashes: Vec<String>,
    simulated: &'a Server,
    likeness: Likeness,
    outcomes: &'a mut Outcomes,
    /// The requests so far, to be shown with a difference.
    history: Vec<String>,
    seed: u64,
}

impl<'a> Sequence<'a> {
    pub(crate) async fn begin(
        real: &Real,
        simulated: &'a Server,
        scripts: &'a [Script],
        likeness: Likeness,
        seed: u64,
        outcomes: &'a mut Outcomes,
    ) -> Self {
        let pair = || Pair::connect(real, simulated);
        let mut callers = [pair(), pair()];
        let mut listeners = [pair(), pair()];
        callers[0].ask_words("FLUSHALL").await;
        if seed.is_multiple_of(3) {
            callers[0].ask_words("SCRIPT FLUSH").await;
        }
        for three in [&mut callers[1], &mut listeners[1]] {
            three.ask_words("HELLO 3").await;
        }
        let (one, two) = callers[0].ask_words("TIME").await;
        let milliseconds = |time: &Reply| -> i128 {
            let number = |place: usize| -> i128 {
                let text = time.items()[place].text();
                text.parse().expect("a time is two numbers")
            };
            number(0) * 1000 + number(1) / 1000
        };
        let origins = Origins {
            real: milliseconds(&one),
            simulated: milliseconds(&two),
            begun: Instant::now(),
        };
        let hashes = scripts
            .iter()
            .map(|script| sha1_smol::Sha1::from(&script.text).digest().to_string());
        let mut sequence = Self {
            asked: 0,
            generator: Generator::new(seed, likeness == Likeness::Whole),
            origins,
            callers,
            listeners,
            scripts,
            hashes: hashes.collect(),
            simulated,
            likeness,
            outcomes,
            history: Vec::new(),
            seed,
        };
        for place in 0..2 {
            for words in [
                "PSUBSCRIBE *",
                "SUBSCRIBE redisson_lock__channel:{a}",
                "SSUBSCRIBE redisson_lock__channel:{a}",
            ] {
                if likeness == Likeness::ScriptsWithoutShards && words.starts_with("SSUB") {
                    continue;
                }
                let (one, two) = sequence.listeners[place].ask_words(words).await;
                sequence.compare(words, &one, &two);
            }
        }
        sequence
    }

    pub(crate) async fn play(&mut self) {
        for step in 0..400 {
            match self.generator.below(100) {
                _ if self.likeness != Likeness::Whole => self.call_script().await,
                0..65 => self.call_script().await,
                65 => self.transaction().await,
                66 => self.without_memory().await,
                67 => self.read_only().await,
                68 => self.as_user().await,
                69 => self.subscribe().await,
                70..75 => {
                    let request = self.generator.snippet();
                    let name = shown(&request[1]);
                    self.ask_as(&request, &name).await;
                }
                _ => {
                    let request = self.generator.command();
                    self.ask(&request).await;
                }
            }
            if step % 20 == 19 {
                self.compare_keyspaces().await;
                self.compare_pushes().await;
            }
        }
    }

    async fn call_script(&mut self) {
        let place = self.generator.below(self.scripts.len());
        let request = self
            .generator
            .script_call(&self.scripts[place], &self.hashes[place]);
        let name = self.scripts[place].name.clone();
        let reply = self.ask_as(&request, &name).await;
        if reply.outline().starts_with("NOSCRIPT") && self.generator.percent(80) {
            let load = [
                b"SCRIPT".to_vec(),
                b"LOAD".to_vec(),
                self.scripts[place].text.clone().into_bytes(),
            ];
            self.ask(&load).await;
            self.ask_as(&request, &name).await;
        }
    }

    /// Subscribes the listeners to other channels. Their messages are compared before, since they would come between the replies.
    async fn subscribe(&mut self) {
        self.compare_pushes().await;
        let place = self.generator.below(2);
        let command = self.generator.one(&[
            "SUBSCRIBE",
            "PSUBSCRIBE",
            "SSUBSCRIBE",
            "UNSUBSCRIBE",
            "PUNSUBSCRIBE",
            "SUNSUBSCRIBE",
        ]);
        let channels = 1 + self.generator.below(2);
        let mut request = words(command);
        for _ in 0..channels {
            // The order of several matching patterns is not defined: only one of these matches anything.
            let channels = ["x", "1", "redisson_lock__channel:{b}"];
            let patterns = ["*", "nothing*", "nothing?"];
            let is_pattern = command.starts_with('P');
            let channel = self
                .generator
                .one(if is_pattern { &patterns } else { &channels });
            request.push(channel.into());
        }
        self.history
            .push(format!("listener {place}: {command} {channels}"));
        self.listeners[place].send(&request).await;
        for _ in 0..channels {
            let one = self.listeners[place].real_reply();
            let two = self.listeners[place].simulated_reply().await;
            self.compare(command, &one, &two);
        }
    }

    async fn any_request(&mut self) {
        if self.generator.percent(50) {
            self.call_script().await;
        } else {
            let request = self.generator.command();
            self.ask(&request).await;
        }
    }

    /// Sends a transaction, with watched keys that another connection may change.
    async fn transaction(&mut self) {
        let caller = self.generator.below(2);
        let other = 1 - caller;
        let watched = self.generator.percent(60);
        if watched {
            let mut request = self.generator.command();
            request[0] = b"WATCH".to_vec();
            self.ask_at(caller, &request, "WATCH").await;
            if self.generator.percent(50) {
                let request = self.generator.command();
                self.ask_at(other, &request, "").await;
            }
        }
        self.ask_at(caller, &words("MULTI"), "MULTI").await;
        for _ in 0..self.generator.below(5) {
            let place = self.generator.below(self.scripts.len());
            // A script that reports an age would report it within the transaction's reply.
            let says_ages = self.scripts[place].name.starts_with("promoted");
            let request = if self.generator.percent(30) && !says_ages {
                self.generator
                    .script_call(&self.scripts[place], &self.hashes[place])
            } else {
                self.generator.command()
            };
            self.ask_at(caller, &request, "").await;
        }
        let end = self
            .generator
            .one(&["EXEC", "EXEC", "EXEC", "DISCARD", "MULTI"]);
        self.ask_at(caller, &words(end), end).await;
        if end == "MULTI" {
            self.ask_at(caller, &words("WATCH a"), "WATCH").await;
            self.ask_at(caller, &words("DISCARD"), "DISCARD").await;
        }
        self.ask_at(caller, &words("UNWATCH"), "UNWATCH").await;
    }

    async fn without_memory(&mut self) {
        self.ask(&words("CONFIG SET maxmemory 1")).await;
        for _ in 0..self.generator.below(10) {
            self.any_request().await;
        }
        self.transaction().await;
        self.ask(&words("CONFIG SET maxmemory 0")).await;
    }

    /// Sends requests to a replica whose master cannot be reached.
    async fn read_only(&mut self) {
        let replicate = words("REPLICAOF 127.0.0.1 1");
        self.callers[0].send(&replicate).await;
        self.callers[0].real_reply();
        self.callers[0].simulated_reply().await;
        self.simulated.set_fault(Some(Fault::ReadOnly));
        for _ in 0..self.generator.below(10) {
            self.any_request().await;
        }
        self.transaction().await;
        self.simulated.set_fault(None);
        self.callers[0].send(&words("REPLICAOF NO ONE")).await;
        self.callers[0].real_reply();
        self.callers[0].simulated_reply().await;
    }

    /// Sends requests as a user with limited permissions.
    async fn as_user(&mut self) {
        let rules = [
            "~lock:* ~rw:* ~redisson* +@all",
            "~* &redisson* +@all -del -hset",
            "~* &* -@all +@read +eval +evalsha +script|load",
            "%R~lock:* %W~distlock* ~redisson* &* +@all",
            "~* &* +@all -@dangerous -config|set",
            "~* -@all +get +set +publish +multi +exec +eval",
            "~* &* +@all -evalsha -time",
        ];
        let rules = self.generator.one(&rules);
        let caller = self.generator.below(2);
        self.ask_at(
            caller,
            &words(&format!("ACL SETUSER u reset on >p {rules}")),
            "ACL SETUSER",
        )
        .await;
        self.ask_at(caller, &words("AUTH u wrong"), "AUTH").await;
        self.ask_at(caller, &words("AUTH u p"), "AUTH").await;
        self.ask_at(caller, &words("ACL WHOAMI"), "ACL WHOAMI")
            .await;
        for _ in 0..5 + self.generator.below(20) {
            let place = self.generator.below(self.scripts.len());
            let (request, name) = if self.generator.percent(50) {
                let script = &self.scripts[place];
                (
                    self.generator.script_call(script, &self.hashes[place]),
                    format!("{} as a user", script.name),
                )
            } else {
                (self.generator.command(), "as a user".to_owned())
            };
            self.ask_at(caller, &request, &name).await;
        }
        self.ask_at(caller, &words("AUTH default x"), "AUTH").await;
    }

    async fn ask(&mut self, request: &[Vec<u8>]) -> Reply {
        let name = String::from_utf8_lossy(&request[0]).to_uppercase();
        self.ask_as(request, &name).await
    }

    async fn ask_as(&mut self, request: &[Vec<u8>], name: &str) -> Reply {
        let caller = self.generator.below(2);
        self.ask_at(caller, request, name).await
    }

    async fn ask_at(&mut self, caller: usize, request: &[Vec<u8>], name: &str) -> Reply {
        self.asked += 1;
        let shown: Vec<String> = request.iter().map(|word| shown(word)).collect();
        self.history
            .push(format!("RESP{} {name}: {}", caller + 2, shown.join(" ")));
        if std::env::var_os("DISTLOCK_DIFFERENTIAL_TRACE").is_some() {
            eprintln!(
                "{}: {}",
                self.seed,
                self.history.last().expect("it was just added")
            );
        }
        // No two requests come in the same microsecond, as with the real server.
        tokio::time::advance(Duration::from_micros(5)).await;
        let (mut one, mut two) = self.callers[caller].ask(request).await;
        let command = request[0].to_ascii_uppercase();
        let is_unordered = matches!(
            command.as_slice(),
            b"KEYS" | b"SMEMBERS" | b"SSCAN" | b"PUBSUB"
        );
        if is_unordered {
            (one, two) = (one.sorted(), two.sorted());
        }
        if command == b"EXEC" {
            // One of the replies may have no defined order.
            (one, two) = (one.with_sorted_items(), two.with_sorted_items());
        }
        if name.starts_with("promoted") {
            // The reply contains how long ago that was.
            (one, two) = (since(one), since(two));
        }
        self.compare(name, &one, &two);
        let key = (name.to_owned(), one.outline());
        *self.outcomes.entry(key).or_default() += 1;
        one
    }

    #[track_caller]
    fn compare(&self, what: &str, real: &Reply, simulated: &Reply) {
        if self.origins.agree(real, simulated) || self.are_both_errors(real, simulated) {
            return;
        }
        let recent = self.history.len().saturating_sub(12);
        panic!(
            "seed {}, request {}, {what}:\n  real      {real:?}\n  simulated {simulated:?}\nbefore:\n  {}",
            self.seed,
            self.history.len(),
            self.history[recent..].join("\n  ")
        );
    }

    /// Returns whether both replies are errors, on a server with other texts.
    fn are_both_errors(&self, real: &Reply, simulated: &Reply) -> bool {
        let is_error = |reply: &Reply| matches!(reply, Reply::Line(b'-', _));
        self.likeness != Likeness::Whole && is_error(real) && is_error(simulated)
    }

    async fn compare_keyspaces(&mut self) {
        let (one, two) = self.callers[0].ask_words("KEYS *").await;
        let (one, two) = (one.sorted(), two.sorted());
        self.compare("KEYS", &one, &two);
        for key in one.items() {
            let key = key.bytes();
            let ask = |word: &str, rest: &[&str]| -> Request {
                let mut request = vec![word.as_bytes().to_vec(), key.to_vec()];
                request.extend(rest.iter().map(|word| word.as_bytes().to_vec()));
                request
            };
            let (kind, other) = self.callers[0].ask(&ask("TYPE", &[])).await;
            self.compare("TYPE", &kind, &other);
            let (one, two) = self.callers[0].ask(&ask("PTTL", &[])).await;
            self.compare(&format!("PTTL {}", shown(key)), &one, &two);
            let request = match kind.bytes() {
                b"string" => ask("GET", &[]),
                b"list" => ask("LRANGE", &["0", "-1"]),
                b"hash" => ask("HGETALL", &[]),
                b"set" => ask("SMEMBERS", &[]),
                b"zset" => ask("ZRANGE", &["0", "-1", "WITHSCORES"]),
                other => panic!("{}", other.escape_ascii()),
            };
            let (mut one, mut two) = self.callers[1].ask(&request).await;
            if kind.bytes() == b"set" {
                (one, two) = (one.sorted(), two.sorted());
            }
            self.compare(&format!("the value of {}", shown(key)), &one, &two);
        }
    }

    /// Compares the pushes to the subscribers: all of them come before the reply to the next request.
    async fn compare_pushes(&mut self) {
        for place in 0..2 {
            self.listeners[place].send(&words("PING")).await;
            let mut count = 0;
            loop {
                let one = self.listeners[place].real_reply();
                let two = self.listeners[place].simulated_reply().await;
                self.compare("a push", &one, &two);
                let is_answer = one == Reply::Line(b'+', b"PONG".to_vec())
                    || one
                        .items()
                        .first()
                        .is_some_and(|first| first.bytes() == b"pong");
                if is_answer {
                    break;
                }
                assert_eq!(one.is_push(), place == 1);
                count += 1;
            }
            *self
                .outcomes
                .entry(("pushes".to_owned(), String::new()))
                .or_default() += count;
        }
    }
}

fn since(reply: Reply) -> Reply {
    match reply {
        Reply::Line(b':', number) if !number.starts_with(b"-") => {
            Reply::Line(b':', b"elapsed".to_vec())
        }
        other => other,
    }
}

fn words(text: &str) -> Request {
    text.split(' ').map(Vec::from).collect()
}

fn shown(word: &[u8]) -> String {
    if word.len() > 120 {
        return format!("<{} bytes>", word.len());
    }
    format!("\"{}\"", word.escape_ascii())
}
