//! What a store tells a watch.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Answer, Cause, Ear, Failure, Listener};
use crate::protocol::change::Changed;

/// How many notices are kept for a watch that does not read them.
const MOST: usize = 8192;

/// What a store tells a watch.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Notice {
    /// A hold of the lock with this name may have ended; the store does not say whose.
    Freed(String),
    /// Something may have been missed: look at everything.
    Missed,
    /// Something became of a hold.
    Changed(Changed),
}

/// Hears what happens to locks until it is dropped.
///
/// What it tells of one lock comes in the order in which it happened.
pub struct Feed {
    listener: Listener,
    source: Box<dyn Source>,
    /// How far the source was read.
    cursor: i64,
    /// Perhaps there is more than was read.
    unread: bool,
    notices: VecDeque<Notice>,
}

/// Where a store keeps what it has to tell.
pub trait Source: Send + Sync {
    /// Whether it tells all that clients do: then only leases run out in silence.
    fn tells_all(&self) -> bool;

    /// What has come behind the cursor. With `all`, nothing is missing that happened before this was asked. Dropped, it
    /// has read nothing. A failure ends it.
    fn read(&self, cursor: i64, all: bool) -> Answer<Result<Batch, Failure>>;
}

/// What was read at once.
#[derive(Debug)]
pub struct Batch {
    /// What has happened.
    pub notices: Vec<Notice>,
    /// Where to read on.
    pub cursor: i64,
}

impl Feed {
    /// Tells what is read from a `source` behind the `cursor`, whenever the listener hears that there is something.
    pub fn new(listener: Listener, source: impl Source + 'static, cursor: i64) -> Self {
        Self {
            listener,
            source: Box::new(source),
            cursor,
            unread: false,
            notices: VecDeque::new(),
        }
    }

    /// Whether it tells all that clients do: then only leases run out in silence.
    pub fn tells_all(&self) -> bool {
        self.source.tells_all()
    }

    /// The next thing that happens; none if nothing can be heard here any more. May be dropped at any await: nothing is
    /// lost.
    pub async fn next(&mut self) -> Option<Notice> {
        loop {
            if let Some(notice) = self.notices.pop_front() {
                return Some(notice);
            }
            if !self.unread {
                self.listener.heard().await;
                self.unread = true;
            }
            self.read(false).await.ok()?;
        }
    }

    /// What was read already, without waiting for more.
    pub fn more(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// All that has happened until now; none if nothing can be heard here any more. May be dropped at any await, as
    /// [`next`](Self::next).
    pub async fn all(&mut self) -> Option<VecDeque<Notice>> {
        self.read(true).await.ok()?;
        Some(std::mem::take(&mut self.notices))
    }

    async fn read(&mut self, all: bool) -> Result<(), Failure> {
        let batch = self.source.read(self.cursor, all).await?;
        self.cursor = batch.cursor;
        // The listener keeps what it was told during the read: the next call reads again.
        self.unread = false;
        self.notices.extend(batch.notices);
        Ok(())
    }
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed")
            .field("cursor", &self.cursor)
            .field("notices", &self.notices)
            .finish_non_exhaustive()
    }
}

/// Keeps notices until they are read, for stores that keep them nowhere else.
#[derive(Debug)]
pub struct Inbox {
    ear: Arc<Ear>,
    notices: Mutex<VecDeque<Notice>>,
    closed: AtomicBool,
}

impl Inbox {
    /// An empty one, whose reader has this ear.
    pub fn new(ear: Arc<Ear>) -> Self {
        Self {
            ear,
            notices: Mutex::default(),
            closed: AtomicBool::new(false),
        }
    }

    /// Something has happened.
    pub fn put(&self, notice: Notice) {
        let mut waiting = self.lock();
        if waiting.len() >= MOST {
            waiting.clear();
            waiting.push_back(Notice::Missed);
        }
        waiting.push_back(notice);
        drop(waiting);
        self.ear.tell();
    }

    /// Nothing comes any more.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.ear.tell();
    }

    /// All that was put there.
    pub fn take(&self) -> Result<Batch, Failure> {
        if self.closed.load(Ordering::Acquire) {
            let why = "nothing can be heard any more";
            return Err(Failure::new(Cause::Unreachable, why));
        }
        let notices = std::mem::take(&mut *self.lock()).into();
        Ok(Batch { notices, cursor: 0 })
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Notice>> {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
