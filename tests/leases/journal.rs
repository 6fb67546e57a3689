//! The renewals that a proxy has seen: their holds, and their times.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use tokio::time::Instant;

use crate::support::{ChaosProxy, Fault, Match};

/// The renewals that arrive at a proxy from the moment this journal is made.
#[derive(Clone, Default)]
pub(crate) struct Journal(Arc<Mutex<Vec<Renewal>>>);

/// One renewal call, for one lock or many.
#[derive(Clone)]
pub(crate) struct Renewal {
    at: Instant,
    pub(crate) names: Vec<String>,
    owners: Vec<String>,
}

impl Journal {
    pub(crate) fn of(proxy: &ChaosProxy) -> Self {
        let journal = Self::default();
        let calls = journal.0.clone();
        let look = Match::words(move |words| {
            let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
            calls.extend(read(words));
            // The rule never matches, so its fault never happens.
            false
        });
        proxy.rule(look, Fault::CutBefore);
        journal
    }

    pub(crate) fn calls(&self) -> Vec<Renewal> {
        let calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.clone()
    }

    /// Returns the times at which this owner's renewals arrived.
    pub(crate) fn times(&self, owner: &str) -> Vec<Instant> {
        let calls = self.calls().into_iter();
        let calls = calls.filter(|call| call.owners.iter().any(|found| found == owner));
        calls.map(|call| call.at).collect()
    }

    pub(crate) fn count(&self, owner: &str) -> usize {
        self.times(owner).len()
    }
}

/// Selects renewals, whatever they renew.
pub(crate) fn renewals() -> Match {
    Match::words(|words| read(words).is_some())
}

/// Parses a renewal: `EVALSHA hash n key… (owner lease)…`.
fn read(words: &[Vec<u8>]) -> Option<Renewal> {
    let text = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
    let [_, script, count, rest @ ..] = words else {
        return None;
    };
    let script = text(script);
    if !RENEW.contains(&script.as_str()) && !HASHES.contains(&script) {
        return None;
    }
    let (names, rest) = rest.split_at(text(count).parse().ok()?);
    Some(Renewal {
        at: Instant::now(),
        names: names.iter().map(text).collect(),
        owners: rest.iter().step_by(2).map(text).collect(),
    })
}

/// The renewal scripts of the plain lock and of the simple one.
const RENEW: [&str; 2] = [
    include_str!("../../src/engine/redis/lua/mutex/renew.lua"),
    include_str!("../../src/engine/redis/lua/simple/renew.lua"),
];
static HASHES: LazyLock<[String; 2]> =
    LazyLock::new(|| RENEW.map(|renew| redis::Script::new(renew).get_hash().to_owned()));
