//! Those who watch a store in memory.

use std::sync::{Arc, Weak};

use foldhash::HashMap;

use crate::engine::feed::{Batch, Inbox, Notice, Source};
use crate::engine::names::Names;
use crate::engine::{Answer, Failure};
use crate::protocol::change::{Change, Changed};
use crate::protocol::{Kind, OwnerId};

/// All watches of a store.
#[derive(Debug, Default)]
pub(super) struct Watchers(Vec<Watcher>);

#[derive(Debug)]
struct Watcher {
    names: Names,
    inbox: Weak<Inbox>,
}

impl Watchers {
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Another one, for these names.
    pub(super) fn add(&mut self, names: Names, inbox: &Arc<Inbox>) {
        let inbox = Arc::downgrade(inbox);
        self.0.push(Watcher { names, inbox });
    }

    pub(super) fn remove(&mut self, gone: &Weak<Inbox>) {
        self.0.retain(|watcher| !watcher.inbox.ptr_eq(gone));
    }

    /// Tells what has happened to the locks under this key.
    pub(super) fn tell(
        &self,
        key: &str,
        kind: Option<Kind>,
        changes: impl Iterator<Item = (OwnerId, Change)>,
        labels: &HashMap<Arc<str>, Arc<str>>,
    ) {
        for (owner, change) in changes {
            let label = labels.get(&*owner.client().to_string());
            for watcher in &self.0 {
                let name = watcher.names.of_key(key);
                if let (Some(name), Some(inbox)) = (name, watcher.inbox.upgrade()) {
                    inbox.put(Notice::Changed(Changed {
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

/// Reads what was told to one of them.
pub(super) struct Reader(pub(super) Arc<Inbox>);

impl Source for Reader {
    fn tells_all(&self) -> bool {
        true
    }

    fn read(&self, _cursor: i64, _all: bool) -> Answer<Result<Batch, Failure>> {
        let inbox = self.0.clone();
        // Taken when it is polled, and answered in the same breath.
        Box::pin(async move { inbox.take() })
    }
}
