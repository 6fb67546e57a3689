//! The judges of a scenario. They see what a user sees, and share nothing with the code that they judge.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use distlock::{Error, FencingToken};

use crate::workload::View;

/// How a guard may share the lock with others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Claim {
    /// With no other guard.
    Alone,
    /// With other readers.
    Shared,
    /// As one that has this many of all permits.
    Permits { count: usize, total: usize },
}

/// All guards of one lock, and what was seen of them. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    entered: u64,
    guards: BTreeMap<u64, Entry>,
    greatest: Option<FencingToken>,
    errors: u64,
    losses: u64,
    violations: Vec<String>,
}

struct Entry {
    /// The client's name and the owner.
    client: String,
    claim: Claim,
    view: Arc<dyn View>,
}

/// The result of a scenario.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Summary {
    pub(crate) grants: u64,
    pub(crate) errors: u64,
    pub(crate) losses: u64,
    /// Broken promises.
    pub(crate) violations: Vec<String>,
}

impl Ledger {
    /// A guard was granted. Every other that counts as held at this moment must be one that it may share with.
    pub(crate) fn enter(&self, client: &str, claim: Claim, view: &Arc<dyn View>) -> u64 {
        let mut state = self.lock();
        state.guards.retain(|_, entry| entry.view.is_held());
        let client = format!("{client} as {}", view.owner());
        let mut others = state.guards.values();
        let conflict = match claim {
            Claim::Alone => others.len() > 0,
            Claim::Shared => others.any(|entry| entry.claim == Claim::Alone),
            Claim::Permits { count, total } => {
                let others = others.map(|entry| match entry.claim {
                    Claim::Permits { count, .. } => count,
                    Claim::Alone | Claim::Shared => total,
                });
                others.sum::<usize>() + count > total
            }
        };
        if conflict && view.is_held() {
            let others = state.guards.values();
            let others: Vec<_> = others.map(|entry| entry.client.as_str()).collect();
            let violation = format!("{client} was granted {claim:?} while {others:?} held it");
            state.violations.push(violation);
        }
        state.entered += 1;
        let number = state.entered;
        let entry = Entry {
            client,
            claim,
            view: view.clone(),
        };
        state.guards.insert(number, entry);
        // Every grant has a greater token than all before.
        if let Some(token) = view.token() {
            if let Some(greatest) = state.greatest.filter(|greatest| *greatest >= token) {
                let violation = format!("token {token} was granted after {greatest}");
                state.violations.push(violation);
            }
            state.greatest = Some(token);
        }
        number
    }

    /// The guard is released, or dropped: from here on it protects nothing.
    pub(crate) fn leave(&self, number: u64) {
        self.lock().guards.remove(&number);
    }

    /// A call failed, which faults may cause for a while.
    pub(crate) fn error(&self, error: &Error) {
        let mut state = self.lock();
        state.errors += 1;
        if !error.is_transient() && !error.is_lost() {
            let violation = format!("no fault explains this error: {error}");
            state.violations.push(violation);
        }
    }

    pub(crate) fn loss(&self) {
        self.lock().losses += 1;
    }

    pub(crate) fn violation(&self, what: impl Into<String>) {
        self.lock().violations.push(what.into());
    }

    pub(crate) fn summary(&self) -> Summary {
        let state = self.lock();
        Summary {
            grants: state.entered,
            errors: state.errors,
            losses: state.losses,
            violations: state.violations.clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
