//! Several locks in one step.

use std::sync::Arc;

use super::{Memory, Store};
use crate::engine::ears::wake;
use crate::engine::{Before, Failure};
use crate::protocol::change::{Change, Holders, changes};
use crate::protocol::line::Queue;
use crate::protocol::state::State;
use crate::protocol::{Reply, Request};

/// What there was under some names.
type AsItWas = Vec<(Arc<str>, Option<State>, Option<Queue>)>;

impl Memory {
    /// Several at once, or none of them.
    pub(super) fn apply_all(
        &self,
        requests: &[Request],
        before: Before,
    ) -> Vec<Result<Reply, Failure>> {
        let now = self.now();
        let mut store = self.store();
        store.sweep(now);
        let as_it_was = (before == Before::RolledBack).then(|| self.of_these(&store, requests));
        // Who watches is told at the end, or never.
        let watchers = as_it_was
            .is_some()
            .then(|| std::mem::take(&mut store.watchers));
        let (mut replies, mut news, mut holders) = (Vec::new(), Vec::new(), Vec::new());
        for request in requests {
            let key = self.key(&request.subject.name);
            holders.push(store.holders(&key));
            let (reply, ears) = self.apply_in(&mut store, request, now);
            let granted = is_grant(&reply);
            news.extend(ears);
            replies.push(reply);
            if !granted {
                break;
            }
        }
        let all = replies.len() == requests.len() && replies.last().is_none_or(is_grant);
        if let Some(watchers) = watchers {
            store.watchers = watchers;
        }
        match as_it_was {
            Some(as_it_was) if !all => {
                store.restore(as_it_was);
                news.clear();
            }
            Some(_) if !store.watchers.is_empty() => {
                for (request, before) in requests.iter().zip(holders) {
                    let key = self.key(&request.subject.name);
                    let after = store.holders(&key);
                    let changes = changes(&before, &after, Change::by(&request.action), now);
                    let kind = Some(request.subject.kind);
                    store.watchers.tell(&key, kind, changes, &store.labels);
                }
            }
            Some(_) | None => {}
        }
        drop(store);
        wake(&news);
        replies
    }

    /// What there is under these names.
    fn of_these(&self, store: &Store, requests: &[Request]) -> AsItWas {
        let keys = requests
            .iter()
            .map(|request| self.key(&request.subject.name));
        keys.map(|key| {
            let (state, line) = (store.states.get(&key), store.lines.get(&key));
            (key.clone(), state.cloned(), line.cloned())
        })
        .collect()
    }
}

impl Store {
    fn holders(&self, key: &str) -> Holders {
        let state = self.states.get(key);
        state.map(State::holders).unwrap_or_default()
    }

    fn restore(&mut self, as_it_was: AsItWas) {
        for (key, state, line) in as_it_was {
            match state {
                Some(state) => self.states.insert(key.clone(), state),
                None => self.states.remove(&key),
            };
            match line {
                Some(line) => self.lines.insert(key, line),
                None => self.lines.remove(&key),
            };
        }
    }
}

fn is_grant(reply: &Result<Reply, Failure>) -> bool {
    matches!(reply, Ok(Reply::Granted { .. }))
}
