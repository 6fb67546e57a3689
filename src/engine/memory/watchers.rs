//! The watches of a store in memory.

use std::sync::{Arc, Weak};

use foldhash::HashMap;

use crate::engine::change_feed::{FeedBatch, FeedBuffer, FeedItem, FeedSource};
use crate::engine::name_filter::NameFilter;
use crate::engine::{BoxFuture, StoreError};
use crate::protocol::change::{Change, HoldChange};
use crate::protocol::{Kind, OwnerId};

/// All watches of a store.
#[derive(Debug, Default)]
pub(super) struct Watchers(Vec<Watcher>);

#[derive(Debug)]
struct Watcher {
    names: NameFilter,
    buffer: Weak<FeedBuffer>,
}

impl Watchers {
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a watch for these names.
    pub(super) fn add(&mut self, names: NameFilter, buffer: &Arc<FeedBuffer>) {
        let buffer = Arc::downgrade(buffer);
        self.0.push(Watcher { names, buffer });
    }

    pub(super) fn remove(&mut self, buffer: &Weak<FeedBuffer>) {
        self.0.retain(|watcher| !watcher.buffer.ptr_eq(buffer));
    }

    /// Passes changes of the lock under this key to the watches.
    pub(super) fn notify(
        &self,
        key: &str,
        kind: Option<Kind>,
        changes: impl Iterator<Item = (OwnerId, Change)>,
        labels: &HashMap<Arc<str>, Arc<str>>,
    ) {
        for (owner, change) in changes {
            let label = labels.get(&*owner.client().to_string());
            for watcher in &self.0 {
                let name = watcher.names.name_of(key);
                if let (Some(name), Some(buffer)) = (name, watcher.buffer.upgrade()) {
                    buffer.push(FeedItem::HoldChange(HoldChange {
                        name: name.to_owned(),
                        kind,
                        owner: owner.to_string(),
                        label: label.map(ToString::to_string),
                        change,
                    }));
                }
            }
        }
    }
}

/// Reads the items of one watch.
pub(super) struct WatcherSource(pub(super) Arc<FeedBuffer>);

impl FeedSource for WatcherSource {
    fn is_complete(&self) -> bool {
        true
    }

    fn read(&self, _cursor: i64, _all: bool) -> BoxFuture<Result<FeedBatch, StoreError>> {
        let buffer = self.0.clone();
        // The items are taken when the future is polled, and it is ready at once: a dropped future
        // has taken nothing.
        Box::pin(async move { buffer.take() })
    }
}
