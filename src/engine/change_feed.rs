//! The feed of changes to locks that a store delivers to a watch.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{BoxFuture, StoreError, StoreErrorKind, Subscriber, Subscription};
use crate::protocol::change::HoldChange;

/// How many items are kept for a watch that does not read them.
const CAPACITY: usize = 8192;

/// One item of a change feed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FeedItem {
    /// A hold of the lock with this name may have ended; the store does not say whose.
    MaybeReleased(String),
    /// Items may have been missed: a scan is needed.
    Lagged,
    /// A hold has changed.
    HoldChange(HoldChange),
}

/// A feed of changes to locks, which ends when it is dropped.
///
/// The items about one lock come in the order in which they happened.
pub struct ChangeFeed {
    subscription: Subscription,
    source: Box<dyn FeedSource>,
    /// The position up to which the source was read.
    cursor: i64,
    /// Whether the source may have more than was read.
    has_unread: bool,
    items: VecDeque<FeedItem>,
}

/// The source of a feed's items, where a store keeps them.
pub trait FeedSource: Send + Sync {
    /// Reports whether every action of a client is in the source: then only the expiry of a lease
    /// is not.
    fn is_complete(&self) -> bool;

    /// Reads the items behind the cursor. With `all`, every item is included that existed before
    /// the call. A dropped call has read nothing. An error ends the feed.
    fn read(&self, cursor: i64, all: bool) -> BoxFuture<Result<FeedBatch, StoreError>>;
}

/// The result of one read.
#[derive(Debug)]
pub struct FeedBatch {
    /// The items.
    pub items: Vec<FeedItem>,
    /// The position to read on from.
    pub cursor: i64,
}

impl ChangeFeed {
    /// Creates a feed that reads a `source` behind the `cursor` whenever the subscription is
    /// notified.
    pub fn new(subscription: Subscription, source: impl FeedSource + 'static, cursor: i64) -> Self {
        Self {
            subscription,
            source: Box::new(source),
            cursor,
            has_unread: false,
            items: VecDeque::new(),
        }
    }

    /// Reports whether every action of a client is in the feed: then only the expiry of a lease is
    /// not.
    pub fn is_complete(&self) -> bool {
        self.source.is_complete()
    }

    /// Returns the next item; `None` if the feed has ended. May be dropped at any await: no item is
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

    /// Returns an item that was read already, without waiting for more.
    pub fn try_next(&mut self) -> Option<FeedItem> {
        self.items.pop_front()
    }

    /// Returns all items up to now; `None` if the feed has ended. May be dropped at any await, as
    /// [`next`](Self::next).
    pub async fn drain(&mut self) -> Option<VecDeque<FeedItem>> {
        self.read(true).await.ok()?;
        Some(std::mem::take(&mut self.items))
    }

    async fn read(&mut self, all: bool) -> Result<(), StoreError> {
        let batch = self.source.read(self.cursor, all).await?;
        self.cursor = batch.cursor;
        // The subscription keeps a notification that arrived during the read: the next call reads
        // again.
        self.has_unread = false;
        self.items.extend(batch.items);
        Ok(())
    }
}

impl fmt::Debug for ChangeFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangeFeed")
            .field("cursor", &self.cursor)
            .field("items", &self.items)
            .finish_non_exhaustive()
    }
}

/// Keeps items until they are read, for stores that keep them nowhere else.
#[derive(Debug)]
pub struct FeedBuffer {
    subscriber: Arc<Subscriber>,
    items: Mutex<VecDeque<FeedItem>>,
    closed: AtomicBool,
}

impl FeedBuffer {
    /// Creates an empty buffer whose reader has this subscriber.
    pub fn new(subscriber: Arc<Subscriber>) -> Self {
        Self {
            subscriber,
            items: Mutex::default(),
            closed: AtomicBool::new(false),
        }
    }

    /// Adds an item.
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

    /// Ends the feed: no item comes any more.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.subscriber.notify();
    }

    /// Takes all items out.
    pub fn take(&self) -> Result<FeedBatch, StoreError> {
        if self.closed.load(Ordering::Acquire) {
            let why = "the subscription has ended";
            return Err(StoreError::new(StoreErrorKind::Unreachable, why));
        }
        let items = std::mem::take(&mut *self.lock()).into();
        Ok(FeedBatch { items, cursor: 0 })
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<FeedItem>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
