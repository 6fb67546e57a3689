//! Batch queue: decides which requests are sent next, and which of them together. `batch.rs` sends them.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::BatchResult;
use crate::engine::redis::connection::Generation;
use crate::engine::redis::scripts;
use crate::protocol::{Kind, Request};

/// Maximum number of items in one call: more gain little, and hold up the server for all others.
pub(super) const MAX_BATCH: usize = 64;

/// Number of flushers of a connection. With more, callers that are answered together no longer send their next requests
/// together, and many callers produce many short calls; with fewer, a handful of callers wait for each other
/// (docs/decisions/009).
pub(super) const MAX_FLUSHERS: usize = 6;

/// If the last call left longer ago than this, the next one is sent beside all others: a caller that is so infrequent
/// gains nothing by waiting, and a network may be slow.
const QUIET_INTERVAL: Duration = Duration::from_micros(200);

/// The requests that wait for the next call.
///
/// Flushers, tasks that send call after call to the server, drain the queue. A queued request always has a taker: a
/// scheduled flusher, or, if all are busy, the first one to finish.
#[derive(Debug, Default)]
pub(super) struct BatchQueue {
    /// Number of calls that the server has not replied to yet; [`on_reply`](Self::on_reply) is called once for each.
    in_flight: usize,
    /// The connection whose flusher is scheduled to drain the queue.
    flush_scheduled: Option<Generation>,
    /// When a flusher last sent a call.
    last_flush: Option<Instant>,
    flushers: Flushers,
    /// Releases are sent before acquires. The driver orders the requests of one owner, and they mean the same in any
    /// order here.
    releases: Vec<BatchItem>,
    acquires: Vec<BatchItem>,
}

/// Number of flushers of the newest connection. Flushers of other connections end when they return.
#[derive(Debug, Default)]
struct Flushers {
    generation: Option<Generation>,
    count: usize,
}

/// The request of one caller.
#[derive(Debug)]
pub(super) struct BatchItem {
    pub(super) request: Request,
    pub(super) reply_to: oneshot::Sender<BatchResult>,
}

/// How a request is sent.
#[derive(Debug)]
pub(super) enum Admission {
    /// At once, in a call of its own.
    Single(Request),
    Batched {
        generation: Generation,
        reply: oneshot::Receiver<BatchResult>,
        /// A full batch, which is sent at once: otherwise the server would be idle while many callers wait.
        full: Option<Vec<BatchItem>>,
        /// Whether another flusher is needed to drain the queue.
        flusher: bool,
    },
}

impl BatchQueue {
    /// Queues a request for the newest connection, or lets it through by itself if it does not have to wait.
    pub(super) fn admit(
        &mut self,
        request: Request,
        newest: Option<Generation>,
        now: Instant,
    ) -> Admission {
        let generation = match newest {
            Some(generation) if self.in_flight > 0 => generation,
            _ => {
                self.in_flight += 1;
                return Admission::Single(request);
            }
        };
        let (sender, reply) = oneshot::channel();
        self.push(BatchItem {
            request,
            reply_to: sender,
        });
        let full = self.is_full().then(|| self.drain());
        self.in_flight += usize::from(full.is_some());
        let is_scheduled = self.flush_scheduled == Some(generation);
        let is_quiet = self
            .last_flush
            .is_none_or(|last_flush| now.saturating_duration_since(last_flush) >= QUIET_INTERVAL);
        let flusher = full.is_none() && !is_scheduled && self.flushers.join(generation, is_quiet);
        if flusher {
            self.flush_scheduled = Some(generation);
        }
        Admission::Batched {
            generation,
            reply,
            full,
            flusher,
        }
    }

    /// Returns the items that a flusher sends next. The flusher ends if there are none, or if another one has been
    /// scheduled to take them.
    pub(super) fn take_for(
        &mut self,
        generation: Generation,
        now: Instant,
    ) -> Option<Vec<BatchItem>> {
        let mut items = Vec::new();
        if self.flush_scheduled == Some(generation) {
            self.flush_scheduled = None;
            items = self.drain();
        }
        if items.is_empty() {
            self.flushers.leave(generation);
            return None;
        }
        self.in_flight += 1;
        self.last_flush = Some(now);
        Some(items)
    }

    /// Returns whether a flusher that has returned drains the requests that are queued by now. It ends if another one is
    /// scheduled.
    pub(super) fn keep_flushing(&mut self, generation: Generation) -> bool {
        let keep_flushing =
            self.flushers.are_of(generation) && self.flush_scheduled != Some(generation);
        if keep_flushing {
            self.flush_scheduled = Some(generation);
        } else {
            self.flushers.leave(generation);
        }
        keep_flushing
    }

    /// Returns the items that a flusher would have sent that was dropped with its runtime. The other flushers of its
    /// connection run on the same runtime, and are dropped as well.
    pub(super) fn take_abandoned(&mut self, generation: Generation) -> Vec<BatchItem> {
        if !self.flushers.are_of(generation) {
            return Vec::new();
        }
        self.flushers.leave(generation);
        self.flush_scheduled = None;
        self.drain()
    }

    /// Counts one more call: a batch was split into two.
    pub(super) const fn on_sent(&mut self) {
        self.in_flight += 1;
    }

    /// Counts a call as completed.
    pub(super) const fn on_reply(&mut self) {
        self.in_flight -= 1;
    }

    fn push(&mut self, item: BatchItem) {
        if scripts::is_release(&item.request) {
            self.releases.push(item);
        } else {
            self.acquires.push(item);
        }
    }

    /// Returns whether the queue holds a full batch. Cancelled items do not count: if no flusher drained the queue, they
    /// would pile up.
    fn is_full(&mut self) -> bool {
        if self.releases.len() + self.acquires.len() < MAX_BATCH {
            return false;
        }
        self.releases.retain(|item| !item.reply_to.is_closed());
        self.acquires.retain(|item| !item.reply_to.is_closed());
        self.releases.len() + self.acquires.len() >= MAX_BATCH
    }

    fn drain(&mut self) -> Vec<BatchItem> {
        let mut items = std::mem::take(&mut self.releases);
        items.append(&mut self.acquires);
        items
    }
}

/// Splits items by kind, since a call carries out the requests of one kind: the items of the first one's kind, most
/// often all, and those of each other kind.
pub(super) fn by_kind(mut items: Vec<BatchItem>) -> (Vec<BatchItem>, Vec<Vec<BatchItem>>) {
    let kind_of = |item: &BatchItem| item.request.subject.kind;
    let mut others = Vec::new();
    let kind = items.first().map(kind_of);
    if items.iter().any(|item| Some(kind_of(item)) != kind) {
        for other in Kind::ALL.into_iter().filter(|other| Some(*other) != kind) {
            let of_kind: Vec<BatchItem> = items
                .extract_if(.., |item| kind_of(item) == other)
                .collect();
            if !of_kind.is_empty() {
                others.push(of_kind);
            }
        }
    }
    (items, others)
}

impl Flushers {
    fn are_of(&self, generation: Generation) -> bool {
        self.generation == Some(generation)
    }

    /// Adds a flusher, if there are fewer than the maximum or the queue is quiet.
    fn join(&mut self, generation: Generation, is_quiet: bool) -> bool {
        if !self.are_of(generation) {
            *self = Self {
                generation: Some(generation),
                count: 0,
            };
        }
        let has_capacity = self.count < MAX_FLUSHERS || is_quiet;
        self.count += usize::from(has_capacity);
        has_capacity
    }

    fn leave(&mut self, generation: Generation) {
        if self.are_of(generation) {
            self.count -= 1;
        }
    }
}

#[cfg(test)]
mod tests;
