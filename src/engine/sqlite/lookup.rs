//! Looks at a file from outside: what is held in it, its clients' labels, whether it is fit for locks.

use std::time::Duration;

use super::examine;
use super::store::Store;
use crate::engine::names::Names;
use crate::engine::trial::Trial;
use crate::engine::{Failure, Finding, Page};

/// How many names are looked at in one step of a search.
const PAGE: u32 = 500;

impl Store {
    /// What is held under names that match, some at a time.
    pub(super) fn find(&self, pattern: &str, from: u64) -> Result<Page, Failure> {
        let names = Names::new(&self.prefix, pattern);
        let from = i64::try_from(from).unwrap_or(i64::MAX);
        self.look(|store, rows| {
            let now = store.clock.now();
            let (read, next) = rows.page(from, PAGE)?;
            let mut found = Vec::new();
            for (key, mut read) in read {
                let name = names.of_key(&key);
                found.extend(name.and_then(|name| read.state.held(name, now)));
            }
            let next = next.and_then(|next| u64::try_from(next).ok());
            Ok(Page {
                found,
                next,
                scanned: 0,
            })
        })
    }

    /// Says what we call ourselves.
    pub(super) fn announce(&mut self, label: Option<&str>, ttl: Duration) -> Result<(), Failure> {
        self.transact(|store, rows, _| rows.label(&store.client, label, store.clock.now() + ttl))
    }

    /// What clients call themselves.
    pub(super) fn labels(&self, clients: &[String]) -> Result<Vec<Option<String>>, Failure> {
        self.look(|store, rows| {
            let now = store.clock.now();
            clients
                .iter()
                .map(|client| rows.label_of(client, now))
                .collect()
        })
    }

    /// What an operator should know.
    pub(super) fn examine(&mut self, probe: bool) -> Result<Vec<Finding>, Failure> {
        let mut findings = examine::examine(&self.path, &self.db)?;
        if probe {
            let trial = Trial::new(self.id);
            let tried = [self.call(&trial.acquire), self.call(&trial.release)];
            findings.push(examine::locking(tried));
        }
        Ok(findings)
    }
}
