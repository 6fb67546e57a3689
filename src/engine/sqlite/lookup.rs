//! Looks at a file from outside: what is held in it, its clients' labels, whether it is fit for locks.

use std::time::Duration;

use super::diagnose;
use super::store::SqliteStore;
use crate::engine::name_filter::NameFilter;
use crate::engine::probe::ProbeLock;
use crate::engine::{Diagnostic, Page, StoreError};

/// How many names are looked at in one step of a search.
const PAGE_SIZE: u32 = 500;

impl SqliteStore {
    /// What is held under names that match, some at a time.
    pub(super) fn scan(&self, pattern: &str, from: u64) -> Result<Page, StoreError> {
        let names = NameFilter::new(&self.prefix, pattern);
        let from = i64::try_from(from).unwrap_or(i64::MAX);
        self.read_only(|store, rows| {
            let now = store.clock.now();
            let (read, next) = rows.page(from, PAGE_SIZE)?;
            let mut found = Vec::new();
            for (key, mut read) in read {
                let name = names.name_of(&key);
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
    pub(super) fn set_label(
        &mut self,
        label: Option<&str>,
        ttl: Duration,
    ) -> Result<(), StoreError> {
        self.transact(|store, rows, _| {
            rows.set_label(&store.client, label, store.clock.now() + ttl)
        })
    }

    /// What clients call themselves.
    pub(super) fn labels(&self, clients: &[String]) -> Result<Vec<Option<String>>, StoreError> {
        self.read_only(|store, rows| {
            let now = store.clock.now();
            clients
                .iter()
                .map(|client| rows.label_of(client, now))
                .collect()
        })
    }

    /// What an operator should know.
    pub(super) fn diagnose(&mut self, probe: bool) -> Result<Vec<Diagnostic>, StoreError> {
        let mut diagnostics = diagnose::diagnose(&self.path, &self.db)?;
        if probe {
            let probe_lock = ProbeLock::new(self.id);
            let tried = [
                self.call(&probe_lock.acquire),
                self.call(&probe_lock.release),
            ];
            diagnostics.push(diagnose::locking(tried));
        }
        Ok(diagnostics)
    }
}
