//! What a store tells those who watch it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Answer, Cause, Ear, Failure, Listener};
use crate::protocol::change::Changed;

/// How much is kept for one who does not come to read it.
const MOST: usize = 8192;

/// Something that happened.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Heard {
    /// Somebody's hold of the lock with this name has ended; the store does not say whose.
    Freed(String),
    /// Something may have been missed: look at everything.
    Missed,
    /// Something became of a hold.
    Changed(Changed),
}

/// Hears what happens to locks until it is dropped.
///
/// What it tells of one lock comes in the order in which it happened.
pub struct Overheard {
    listener: Listener,
    source: Box<dyn Source>,
    /// How far it was read.
    place: i64,
    /// Perhaps there is more than was read.
    unread: bool,
    heard: VecDeque<Heard>,
}

/// Where a store keeps what it has to tell.
pub trait Source: Send + Sync {
    /// Whether it tells all that clients do: then only leases run out in silence.
    fn tells_all(&self) -> bool;

    /// What has come behind this place. With `all`, nothing is missing that happened before this was asked. Dropped, it
    /// has read nothing. A failure ends it.
    fn read(&self, place: i64, all: bool) -> Answer<Result<Batch, Failure>>;
}

/// What was read at once.
#[derive(Debug)]
pub struct Batch {
    /// What has happened.
    pub heard: Vec<Heard>,
    /// Where to read on.
    pub place: i64,
}

impl Overheard {
    /// Tells what is read from a `source` behind this `place`, whenever the listener hears that there is something.
    pub fn new(listener: Listener, source: impl Source + 'static, place: i64) -> Self {
        Self {
            listener,
            source: Box::new(source),
            place,
            unread: false,
            heard: VecDeque::new(),
        }
    }

    /// Whether it tells all that clients do: then only leases run out in silence.
    pub fn tells_all(&self) -> bool {
        self.source.tells_all()
    }

    /// The next thing that happens; none if nothing can be heard here any more. May be dropped at any await: nothing is
    /// lost.
    pub async fn next(&mut self) -> Option<Heard> {
        loop {
            if let Some(heard) = self.heard.pop_front() {
                return Some(heard);
            }
            if !self.unread {
                self.listener.heard().await;
                self.unread = true;
            }
            self.read(false).await.ok()?;
        }
    }

    /// What was read already, without waiting for more.
    pub fn more(&mut self) -> Option<Heard> {
        self.heard.pop_front()
    }

    /// All that has happened until now; none if nothing can be heard here any more. May be dropped at any await, as
    /// [`next`](Self::next).
    pub async fn all(&mut self) -> Option<VecDeque<Heard>> {
        self.read(true).await.ok()?;
        Some(std::mem::take(&mut self.heard))
    }

    async fn read(&mut self, all: bool) -> Result<(), Failure> {
        let batch = self.source.read(self.place, all).await?;
        self.place = batch.place;
        // Whoever was told while it was read is told again.
        self.unread = false;
        self.heard.extend(batch.heard);
        Ok(())
    }
}

impl fmt::Debug for Overheard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overheard")
            .field("place", &self.place)
            .field("heard", &self.heard)
            .finish_non_exhaustive()
    }
}

/// A place for what happens until it is read, for stores that keep it nowhere else.
#[derive(Debug)]
pub struct Inbox {
    ear: Arc<Ear>,
    heard: Mutex<VecDeque<Heard>>,
    closed: AtomicBool,
}

impl Inbox {
    /// An empty one, whose reader has this ear.
    pub fn new(ear: Arc<Ear>) -> Self {
        Self {
            ear,
            heard: Mutex::default(),
            closed: AtomicBool::new(false),
        }
    }

    /// Something has happened.
    pub fn put(&self, heard: Heard) {
        let mut waiting = self.lock();
        if waiting.len() >= MOST {
            waiting.clear();
            waiting.push_back(Heard::Missed);
        }
        waiting.push_back(heard);
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
        let heard = std::mem::take(&mut *self.lock()).into();
        Ok(Batch { heard, place: 0 })
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Heard>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
