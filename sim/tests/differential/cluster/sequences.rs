//! One sequence of requests to the nodes of both clusters.

use std::collections::BTreeMap;

use distlock_sim::{Random, slot_of};

use super::clusters::{Both, NODES, Pair, until};
use crate::replies::Reply;

/// The number of occurrences of each outcome, for each command.
pub(crate) type Outcomes = BTreeMap<(String, String), u64>;

pub(crate) struct Sequence<'a> {
    pub(crate) asked: u64,
    both: &'a Both,
    random: Random,
    /// For each node a connection for requests, and one that has subscribed.
    callers: Vec<Pair>,
    listeners: Vec<Pair>,
    /// For each node a connection to inspect it.
    inspectors: Vec<Pair>,
    /// The hash tag of the slot that moves.
    moving: &'static str,
    /// The node that has this slot, and whether the slot is being moved to the other master.
    owner: usize,
    is_open: bool,
    outcomes: &'a mut Outcomes,
    history: Vec<String>,
    seed: u64,
}

/// The channel that all listeners have subscribed to.
const EVERYWHERE: &str = "everywhere";

/// Tags of three slots: two that stay, one of each master, and the one that moves.
const STAY: [&str; 2] = ["{b}", "{a}"];
const MOVING: [&str; 2] = ["{moving}", "{travelling}"];

/// Scripts that use their keys and arguments.
const SCRIPTS: [&str; 9] = [
    "return redis.call('GET', KEYS[1])",
    "return redis.call('SET', KEYS[1], 'x')",
    "return redis.call('MGET', KEYS[1], ARGV[1])",
    "return {redis.call('SET', KEYS[1], 'y'), redis.call('GET', ARGV[1])}",
    "return redis.pcall('GET', ARGV[1])",
    "return redis.call('SPUBLISH', ARGV[1], 'from a script')",
    "#!lua\nreturn {redis.call('EXISTS', KEYS[1]), redis.call('EXISTS', ARGV[1])}",
    "#!lua flags=no-cluster\nreturn 1",
    "#!lua flags=allow-cross-slot-keys\nreturn {redis.call('EXISTS', KEYS[1]), redis.call('EXISTS', ARGV[1])}",
];

impl<'a> Sequence<'a> {
    pub(crate) async fn begin(both: &'a mut Both, seed: u64, outcomes: &'a mut Outcomes) -> Self {
        let both = &*both;
        let mut random = Random::new(seed);
        let connect = || (0..NODES).map(|node| both.connect(node)).collect();
        let (mut callers, mut listeners): (Vec<Pair>, Vec<Pair>) = (connect(), connect());
        for pair in listeners.iter_mut().chain(callers.iter_mut().skip(1)) {
            pair.ask(&["HELLO", "3"]).await;
        }
        for caller in &mut callers[..2] {
            caller.ask(&["FLUSHALL"]).await;
        }
        for listener in &mut listeners {
            listener.ask(&["SUBSCRIBE", EVERYWHERE]).await;
        }
        for (tag, node) in STAY.into_iter().zip(0..) {
            assert_eq!(slot_of(tag) / 8192, node, "{tag}");
        }
        let moving = MOVING[usize::from(random.below(2) == 0)];
        let owner = both.simulated.owner(slot_of(moving));
        Self {
            asked: 0,
            both,
            random,
            callers,
            listeners,
            inspectors: (0..NODES).map(|node| both.connect(node)).collect(),
            moving,
            owner: owner.expect("a node has it"),
            is_open: false,
            outcomes,
            history: Vec::new(),
            seed,
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        let limit = limit.try_into().expect("it is small");
        usize::try_from(self.random.below(limit)).expect("it is small")
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn key(&mut self) -> String {
        let tags = [self.moving, self.moving, STAY[0], STAY[1]];
        let (tag, name) = (self.one(&tags), self.one(&["1", "2", "3"]));
        format!("{tag}{name}")
    }

    pub(crate) async fn play(&mut self) {
        for _ in 0..150 {
            match self.below(19) {
                0..2 => self.open_or_close().await,
                2..4 => self.move_key(),
                4 => self.finish_migration().await,
                5..7 => self.transaction().await,
                7..9 => self.subscribe().await,
                _ => {
                    let node = self.below(NODES);
                    let request = self.request();
                    if self.below(3) == 0 {
                        let before = ["ASKING", "ASKING", "READONLY", "READWRITE"];
                        let before = self.one(&before);
                        self.ask(node, &[before]).await;
                    }
                    self.ask_words(node, &request).await;
                }
            }
        }
        // The slot ends up whole in one place.
        self.finish_migration().await;
    }

    fn request(&mut self) -> Vec<String> {
        let (one, two) = (self.key(), self.key());
        let words = match self.below(18) {
            0 | 1 => vec!["GET", &one],
            2 | 3 => vec!["SET", &one, "1"],
            4 => vec!["DEL", &one, &two],
            5 => vec!["UNLINK", &one, &two],
            6 => vec!["MGET", &one, &two],
            7 => vec!["EXISTS", &one, &one],
            8 => vec!["RENAME", &one, &two],
            9..14 => {
                let script = self.one(&SCRIPTS);
                let count = self.one(&["0", "1", "1", "1", "2", "9"]);
                vec!["EVAL", script, count, &one, &two]
            }
            14 => vec!["CLUSTER", "COUNTKEYSINSLOT", "15495"],
            15 => {
                let other = self.one(&[
                    "SELECT 1",
                    "SELECT 0",
                    "CLUSTER KEYSLOT {x}y",
                    "CLUSTER SETSLOT 5 MIGRATING nobody",
                    "CLUSTER SETSLOT 9000 MIGRATING nobody",
                    "CLUSTER SETSLOT 5 IMPORTING nobody",
                    "CLUSTER SETSLOT 5 NODE nobody",
                    "CLUSTER SETSLOT 99999 STABLE",
                    "CLUSTER SETSLOT 5 SIDEWAYS",
                    "CLUSTER GETKEYSINSLOT 5 x",
                    "CLUSTER GETKEYSINSLOT 16384 1",
                    "CLUSTER COUNTKEYSINSLOT 16384",
                    "CLUSTER REPLICAS nobody",
                    "PUBSUB SHARDNUMSUB {b}1 {a}1",
                    "PUBSUB SHARDCHANNELS",
                    "DBSIZE",
                    "EVAL x",
                ]);
                other.split(' ').collect()
            }
            16 => vec!["SPUBLISH", &one, "message"],
            _ => vec!["WATCH", &one, &two],
        };
        words.into_iter().map(str::to_owned).collect()
    }

    async fn ask(&mut self, node: usize, words: &[&str]) -> Reply {
        self.asked += 1;
        self.history.push(format!("{node}: {}", words.join(" ")));
        if node == NODES - 1 {
            self.until_replicated();
        }
        let (one, two) = self.callers[node].ask(words).await;
        self.compare(words[0], &one, &two);
        let sends = words.iter().any(|word| word.contains("SPUBLISH"));
        if sends || words == ["EXEC"] {
            self.compare_pushes(node).await;
        }
        one
    }

    /// Waits until the real replica has all that its master has; the simulated one has no lag.
    fn until_replicated(&mut self) {
        let mut offset = |node: usize, field: &str| {
            let info = self.inspectors[node].ask_real("INFO replication").text();
            let mut lines = info.lines();
            lines.find_map(|line| Some(line.strip_prefix(field)?.to_owned()))
        };
        let sent = offset(0, "master_repl_offset:");
        until("the replica has it", || {
            offset(NODES - 1, "slave_repl_offset:") >= sent
        });
    }

    async fn ask_words(&mut self, node: usize, words: &[String]) -> Reply {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.ask(node, &words).await
    }

    fn compare(&mut self, command: &str, one: &Reply, two: &Reply) {
        let from = self.history.len().saturating_sub(30);
        // The order in which names are listed is not defined.
        let in_order = |reply: &Reply| match command {
            "EXEC" => reply.clone().with_sorted_items(),
            "PUBSUB" | "CLUSTER" => reply.clone().sorted(),
            _ => reply.clone(),
        };
        assert!(
            in_order(one) == in_order(two),
            "seed {}: {command}\n  real      {one:?}\n  simulated {two:?}\nafter\n{}",
            self.seed,
            self.history[from..].join("\n")
        );
        let outcome = (command.to_owned(), one.outline());
        *self.outcomes.entry(outcome).or_default() += 1;
    }

    fn target(&self) -> usize {
        1 - self.owner
    }

    /// Opens the slot at one end or both, or closes it again.
    async fn open_or_close(&mut self) {
        let slot = slot_of(self.moving).to_string();
        let ids = ["<id-0>", "<id-1>", "<id-2>"];
        let (from, to) = (self.owner, self.target());
        match self.below(6) {
            0 => {
                let node = self.below(NODES);
                let id = self.one(&ids);
                // Such a command would make a new owner of which only one node knows.
                let action = self.one(&["MIGRATING", "IMPORTING"]);
                let is_own = node == self.owner;
                if (action == "MIGRATING") != is_own || id == "<id-2>" {
                    self.ask(node, &["CLUSTER", "SETSLOT", &slot, action, id])
                        .await;
                    self.ask(node, &["CLUSTER", "SETSLOT", &slot, "STABLE"])
                        .await;
                    self.is_open = false;
                }
            }
            1 => {
                let node = self.one(&[from, to]);
                self.ask(node, &["CLUSTER", "SETSLOT", &slot, "STABLE"])
                    .await;
                self.is_open = false;
            }
            _ => {
                let importing = ["CLUSTER", "SETSLOT", &slot, "IMPORTING", ids[from]];
                self.ask(to, &importing).await;
                let migrating = ["CLUSTER", "SETSLOT", &slot, "MIGRATING", ids[to]];
                self.ask(from, &migrating).await;
                self.is_open = true;
            }
        }
    }

    fn move_key(&mut self) {
        let name = self.one(&["1", "2", "3"]);
        let key = format!("{}{name}", self.moving);
        if self.is_open {
            self.history.push(format!("MIGRATE {key}"));
            self.both.move_key(&key, self.owner, self.target());
        }
    }

    /// Completes the move of the slot. Channels in it end at the node that had it.
    async fn finish_migration(&mut self) {
        if !self.is_open {
            return;
        }
        for name in ["1", "2", "3"] {
            let key = format!("{}{name}", self.moving);
            self.both.move_key(&key, self.owner, self.target());
        }
        let slot = slot_of(self.moving).to_string();
        let id = format!("<id-{}>", self.target());
        for node in [self.target(), self.owner] {
            self.ask(node, &["CLUSTER", "SETSLOT", &slot, "NODE", &id])
                .await;
        }
        let before = self.owner;
        self.owner = self.target();
        self.is_open = false;
        // The replica is notified later, and ends its own subscriptions then.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        self.both.until_agreed();
        self.compare_pushes(before).await;
    }

    async fn transaction(&mut self) {
        let node = self.below(NODES);
        if self.below(3) == 0 {
            self.ask(node, &["ASKING"]).await;
        }
        self.ask(node, &["MULTI"]).await;
        for _ in 0..self.below(4) {
            let request = self.request();
            self.ask_words(node, &request).await;
            if self.below(4) == 0 && self.is_open {
                self.move_key();
            }
        }
        let last = self.one(&["EXEC", "EXEC", "EXEC", "DISCARD"]);
        self.ask(node, &[last]).await;
    }

    async fn subscribe(&mut self) {
        let node = self.below(NODES);
        let (one, two) = (self.key(), self.key());
        let word = self.one(&["SSUBSCRIBE", "SSUBSCRIBE", "SUNSUBSCRIBE", "SUBSCRIBE"]);
        let mut words = vec![word, &one];
        if self.below(3) == 0 {
            words.push(&two);
        }
        self.history
            .push(format!("listener {node}: {}", words.join(" ")));
        self.listeners[node].send(&words).await;
        let (one, two) = self.listeners[node].replies().await;
        self.compare(word, &one, &two);
        if words.len() == 3 && one.is_push() {
            let (one, two) = self.listeners[node].replies().await;
            self.compare(word, &one, &two);
        }
    }

    /// Compares the messages so far at all nodes. They arrive at different times, but messages of one node before its next, which this node
    /// publishes everywhere.
    async fn compare_pushes(&mut self, node: usize) {
        let last = format!("barrier {}", self.asked);
        let (one, two) = self.inspectors[node]
            .ask(&["PUBLISH", EVERYWHERE, &last])
            .await;
        self.compare("PUBLISH", &one, &two);
        for listener in 0..NODES {
            loop {
                let (one, two) = self.listeners[listener].replies().await;
                self.compare("a push", &one, &two);
                let text = one.items().last().map(Reply::text);
                if text.as_ref() == Some(&last) {
                    break;
                }
            }
        }
    }
}
