//! The server's record of each waiter of a fair lock: when it arrived, how often it sent a request, and when the lock was granted to it.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::monitor::Monitor;
use super::support::RedisServer;
use super::{ALIVE, NAME};

/// Everything that waiters have sent since the start of the record.
pub(crate) struct History(Monitor<Event>);

#[derive(Clone)]
struct Event {
    owner: String,
    kind: Kind,
    /// The time by the server's clock.
    at: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The first request of the waiter, whatever the server then does with it.
    Arrived,
    /// The waiter's place is kept for ten seconds from here.
    Marked,
    Granted,
}

impl History {
    pub(crate) async fn start(server: &RedisServer) -> Self {
        let mut known = HashSet::new();
        let monitor = Monitor::start(server, move |at, words| {
            let (owner, kind) = match words {
                // Each script first checks whether its request has been undone.
                ["ZSCORE", key, attempt] if key.starts_with("distlock_undone:") => {
                    let owner = attempt.strip_suffix("#1")?;
                    if !known.insert(owner.to_owned()) {
                        return None;
                    }
                    (owner, Kind::Arrived)
                }
                ["ZADD", key, _, owner] if *key == ALIVE => (*owner, Kind::Marked),
                ["HSET", key, owner, _] if *key == NAME => (*owner, Kind::Granted),
                _ => return None,
            };
            let owner = owner.to_owned();
            Some(Event { owner, kind, at })
        });
        Self(monitor.await)
    }

    /// Returns the waiters in order of arrival.
    pub(crate) fn came(&self) -> Vec<String> {
        self.of(Kind::Arrived)
    }

    /// Returns the waiters in the order in which the lock was granted to them.
    pub(crate) fn granted(&self) -> Vec<String> {
        self.of(Kind::Granted)
    }

    /// Returns the waiters that sent nothing for more than half of the time for which their places were kept: their processes stood still,
    /// and they may have lost their places.
    pub(crate) fn silent(&self) -> HashSet<String> {
        let mut last = HashMap::new();
        let mut silent = HashSet::new();
        for Event { owner, at, .. } in self.0.seen() {
            if let Some(before) = last.insert(owner.clone(), at)
                && at.saturating_sub(before) > KEPT / 2
            {
                silent.insert(owner);
            }
        }
        silent
    }

    /// Asserts that each waiter was granted the lock once, in order of arrival, except those that may have lost their places.
    pub(crate) fn is_in_order(&self) {
        let (mut came, mut granted) = (self.came(), self.granted());
        let silent = self.silent();
        let served: HashSet<String> = granted.iter().cloned().collect();
        assert_eq!(served.len(), granted.len(), "a waiter was served twice");
        came.retain(|owner| served.contains(owner) && !silent.contains(owner));
        granted.retain(|owner| !silent.contains(owner));
        assert_eq!(granted, came, "not in the order in which they came");
        eprintln!(
            "{} in order; {} sent nothing for a while",
            granted.len(),
            silent.len()
        );
    }

    fn of(&self, kind: Kind) -> Vec<String> {
        let events = self.0.seen().into_iter();
        let events = events.filter(|event| event.kind == kind);
        events.map(|event| event.owner).collect()
    }
}

/// The time for which a waiter keeps its place after its last request. It sends one every three seconds.
const KEPT: Duration = Duration::from_secs(10);
