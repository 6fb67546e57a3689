//! What a store tells a watch.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{BoxFuture, StoreError, StoreErrorKind, Subscriber, Subscription};
use crate::protocol::change::HoldChange;

/// How many notices are kept for a watch that does not read them.
const CAPACITY: usize = 8192;

/// What a store tells a watch.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FeedItem {
    /// A hold of the lock with this name may have ended; the store does not say whose.
    MaybeReleased(String),
    /// Something may have been missed: look at everything.
    Lagged,
    /// Something became of a hold.
    HoldChange(HoldChange),
}

/// Hears what happens to locks until it is dropped.
///
/// What it tells of one lock comes in the order in which it happened.
pub struct ChangeFeed {
    subscription: Subscription,
    source: Box<dyn FeedSource>,
    /// How far the source was read.
    cursor: i64,
    /// Perhaps there is more than was read.
    has_unread: bool,
    items: VecDeque<FeedItem>,
}

/// Where a store keeps what it has to tell.
pub trait FeedSource: Send + Sync {
    /// Whether it tells all that clients do: then only leases run out in silence.
    fn is_complete(&self) -> bool;

    /// What has come behind the cursor. With `all`, nothing is missing that happened before this was asked. Dropped, it
    /// has read nothing. A failure ends it.
    fn read(&self, cursor: i64, all: bool) -> BoxFuture<Result<FeedBatch, StoreError>>;
}

/// What was read at once.
#[derive(Debug)]
pub struct FeedBatch {
    /// What has happened.
    pub items: Vec<FeedItem>,
    /// Where to read on.
    pub cursor: i64,
}

impl ChangeFeed {
    /// Tells what is read from a `source` behind the `cursor`, whenever the listener hears that there is something.
    pub fn new(subscription: Subscription, source: impl FeedSource + 'static, cursor: i64) -> Self {
        Self {
            subscription,
            source: Box::new(source),
            cursor,
            has_unread: false,
            items: VecDeque::new(),
        }
    }

    /// Whether it tells all that clients do: then only leases run out in silence.
    pub fn is_complete(&self) -> bool {
        self.source.is_complete()
    }

    /// The next thing that happens; none if nothing can be heard here any more. May be dropped at any await: nothing is
    /// lost.
    pub async fn next(&mut self) -> Option<FeedItem> {
        loop {
            if let Some(item) = self.items.pop_front() {
                return Some(item);
            }
            if !self.has_unread {
                self.subscription.notified().await;
                self.has_unread = true;
            }
            self.read(false).await.ok()?;
        }
    }

    /// What was read already, without waiting for more.
    pub fn try_next(&mut self) -> Option<FeedItem> {
        self.items.pop_front()
    }

    /// All that has happened until now; none if nothing can be heard here any more. May be dropped at any await, as
    /// [`next`](Self::next).
    pub async fn drain(&mut self) -> Option<VecDeque<FeedItem>> {
        self.read(true).await.ok()?;
        Some(std::mem::take(&mut self.items))
    }

    async fn read(&mut self, all: bool) -> Result<(), StoreError> {
        let batch = self.source.read(self.cursor, all).await?;
        self.cursor = batch.cursor;
        // The listener keeps what it was told during the read: the next call reads again.
        self.has_unread = false;
        self.items.extend(batch.items);
        Ok(())
    }
}

impl fmt::Debug for ChangeFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed")
            .field("cursor", &self.cursor)
            .field("notices", &self.items)
            .finish_non_exhaustive()
    }
}

/// Keeps notices until they are read, for stores that keep them nowhere else.
#[derive(Debug)]
pub struct FeedBuffer {
    subscriber: Arc<Subscriber>,
    items: Mutex<VecDeque<FeedItem>>,
    closed: AtomicBool,
}

impl FeedBuffer {
    /// An empty one, whose reader has this ear.
    pub fn new(subscriber: Arc<Subscriber>) -> Self {
        Self {
            subscriber,
            items: Mutex::default(),
            closed: AtomicBool::new(false),
        }
    }

    /// Something has happened.
    pub fn push(&self, item: FeedItem) {
        let mut waiting = self.lock();
        if waiting.len() >= CAPACITY {
            waiting.clear();
            waiting.push_back(FeedItem::Lagged);
        }
        waiting.push_back(item);
        drop(waiting);
        self.subscriber.notify();
    }

    /// Nothing comes any more.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.subscriber.notify();
    }

    /// All that was put there.
    pub fn take(&self) -> Result<FeedBatch, StoreError> {
        if self.closed.load(Ordering::Acquire) {
            let why = "nothing can be heard any more";
            return Err(StoreError::new(StoreErrorKind::Unreachable, why));
        }
        let items = std::mem::take(&mut *self.lock()).into();
        Ok(FeedBatch { items, cursor: 0 })
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<FeedItem>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
