//! What the proxy saw of the watchdog: which owners' renewals arrived, and when.

use std::sync::{Arc, LazyLock, Mutex};
use std::time::Instant;

use super::{ChaosProxy, Fault, Match};

/// The renewals that arrive at a proxy from the moment this is made.
#[derive(Clone, Default)]
pub(crate) struct Journal {
    entries: Arc<Mutex<Vec<Renewal>>>,
}

/// One call, for one lock or many.
#[derive(Clone)]
pub(crate) struct Renewal {
    pub(crate) at: Instant,
    pub(crate) names: Vec<String>,
    pub(crate) owners: Vec<String>,
}

impl Journal {
    pub(crate) fn of(proxy: &ChaosProxy) -> Self {
        let journal = Self::default();
        let entries = journal.entries.clone();
        let look = Match::words(move |words| {
            if let Some(renewal) = read(words) {
                entries.lock().expect("nobody panics here").push(renewal);
            }
            // Only looks: the fault beside it never happens.
            false
        });
        proxy.rule(look, Fault::CutBefore);
        journal
    }

    pub(crate) fn all(&self) -> Vec<Renewal> {
        self.entries.lock().expect("nobody panics here").clone()
    }

    /// How many calls carried this owner's renewal.
    pub(crate) fn count(&self, owner: &str) -> usize {
        self.times(owner).len()
    }

    /// When they did.
    pub(crate) fn times(&self, owner: &str) -> Vec<Instant> {
        let of = |renewal: &Renewal| renewal.owners.iter().any(|found| found == owner);
        let all = self.all();
        all.iter()
            .filter(|entry| of(entry))
            .map(|entry| entry.at)
            .collect()
    }
}

/// Selects renewals, whatever they renew.
pub(crate) fn renewals() -> Match {
    Match::words(|words| read(words).is_some())
}

/// Takes a renewal apart: `EVALSHA hash n key… (owner lease)…`.
fn read(words: &[Vec<u8>]) -> Option<Renewal> {
    let at = Instant::now();
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
        at,
        names: names.iter().map(text).collect(),
        owners: rest.iter().step_by(2).map(text).collect(),
    })
}

/// Of the plain lock and of the simple one.
const RENEW: [&str; 2] = [
    include_str!("../../src/engine/redis/lua/mutex/renew.lua"),
    include_str!("../../src/engine/redis/lua/simple/renew.lua"),
];
static HASHES: LazyLock<[String; 2]> =
    LazyLock::new(|| RENEW.map(|renew| redis::Script::new(renew).get_hash().to_owned()));
