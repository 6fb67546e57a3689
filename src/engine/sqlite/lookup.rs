//! Administrative requests to a file: the locks that are held in it, its clients' labels, whether
//! it is fit for locks.

use std::time::Duration;

use super::diagnose;
use super::store::SqliteStore;
use crate::engine::name_filter::NameFilter;
use crate::engine::probe::ProbeLock;
use crate::engine::{Diagnostic, Page, StoreError};

/// The number of names that one step of a scan examines.
const PAGE_SIZE: u32 = 500;

impl SqliteStore {
    /// Returns a part of the locks that are held under names that match.
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

    /// Sets the label of this client.
    pub(super) fn set_label(
        &mut self,
        label: Option<&str>,
        ttl: Duration,
    ) -> Result<(), StoreError> {
        self.transact(|store, rows, _| {
            rows.set_label(&store.client, label, store.clock.now() + ttl)
        })
    }

    /// Returns the labels of clients.
    pub(super) fn labels(&self, clients: &[String]) -> Result<Vec<Option<String>>, StoreError> {
        self.read_only(|store, rows| {
            let now = store.clock.now();
            clients
                .iter()
                .map(|client| rows.label_of(client, now))
                .collect()
        })
    }

    /// Reports what an operator should know about the file.
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
