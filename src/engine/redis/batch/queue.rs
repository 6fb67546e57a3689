//! What goes out next, and with whom: decided here, carried out in `batch.rs`.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::BatchResult;
use crate::engine::redis::connection::Generation;
use crate::engine::redis::scripts;
use crate::protocol::{Kind, Request};

/// How many items travel in one call: more gain little, and hold up the server for everyone else.
pub(super) const MAX_BATCH: usize = 64;

/// How many carriers a connection has: with more, those who are answered together no longer ask together, and a
/// crowd travels in many short calls; with fewer, a handful of callers wait for each other (docs/decisions/009).
pub(super) const MAX_FLUSHERS: usize = 6;

/// Where the last call left longer ago, the next one leaves beside them all: who comes so seldom gains nothing by waiting,
/// and a network may be slow.
const QUIET_INTERVAL: Duration = Duration::from_micros(200);

/// What waits for the next call.
///
/// It is taken by carriers, tasks that bring call after call to the server. While something waits, one of them has
/// been told to take it, or there are as many as there should be, one of which has just left, and the first to return
/// takes it.
#[derive(Debug, Default)]
pub(super) struct BatchQueue {
    /// How many calls the server has not answered yet, each [`answered`](Self::answered) once.
    in_flight: usize,
    /// A carrier of this connection has been told to take it.
    flush_scheduled: Option<Generation>,
    /// When one last left.
    last_flush: Option<Instant>,
    flushers: Flushers,
    /// What frees a lock comes before what takes one. Requests of one owner are put in order by the driver,
    /// and mean the same in any.
    releases: Vec<BatchItem>,
    acquires: Vec<BatchItem>,
}

/// How many carriers the newest connection has. Those of others end when they return.
#[derive(Debug, Default)]
struct Flushers {
    connection: Option<Generation>,
    count: usize,
}

/// One caller's request.
#[derive(Debug)]
pub(super) struct BatchItem {
    pub(super) request: Request,
    pub(super) answer: oneshot::Sender<BatchResult>,
}

/// How a request goes out.
#[derive(Debug)]
pub(super) enum Admission {
    /// At once, by itself.
    Single(Request),
    Batched {
        connection: Generation,
        answer: oneshot::Receiver<BatchResult>,
        /// Enough for a call, which leaves at once: behind a crowd of callers the server would have nothing
        /// to do.
        full: Option<Vec<BatchItem>>,
        /// It takes another carrier to take what waits.
        flusher: bool,
    },
}

impl BatchQueue {
    /// Finds a request's way on the newest connection, if there is one.
    pub(super) fn admit(
        &mut self,
        request: Request,
        newest: Option<Generation>,
        now: Instant,
    ) -> Admission {
        let connection = match newest {
            Some(connection) if self.in_flight > 0 => connection,
            _ => {
                self.in_flight += 1;
                return Admission::Single(request);
            }
        };
        let (sender, answer) = oneshot::channel();
        self.push(BatchItem {
            request,
            answer: sender,
        });
        let full = self.is_full().then(|| self.take());
        self.in_flight += usize::from(full.is_some());
        let is_scheduled = self.flush_scheduled == Some(connection);
        let is_quiet = self
            .last_flush
            .is_none_or(|last_flush| now.saturating_duration_since(last_flush) >= QUIET_INTERVAL);
        let flusher = full.is_none() && !is_scheduled && self.flushers.join(connection, is_quiet);
        if flusher {
            self.flush_scheduled = Some(connection);
        }
        Admission::Batched {
            connection,
            answer,
            full,
            flusher,
        }
    }

    /// What a carrier takes with it. It ends if there is nothing, or another has been told to take it since.
    pub(super) fn take_for(
        &mut self,
        connection: Generation,
        now: Instant,
    ) -> Option<Vec<BatchItem>> {
        let mut items = Vec::new();
        if self.flush_scheduled == Some(connection) {
            self.flush_scheduled = None;
            items = self.take();
        }
        if items.is_empty() {
            self.flushers.leave(connection);
            return None;
        }
        self.in_flight += 1;
        self.last_flush = Some(now);
        Some(items)
    }

    /// Whether a carrier that has returned is to take what waits by now. It ends if another has been told to.
    pub(super) fn keep_flushing(&mut self, connection: Generation) -> bool {
        let keep_flushing =
            self.flushers.are_of(connection) && self.flush_scheduled != Some(connection);
        if keep_flushing {
            self.flush_scheduled = Some(connection);
        } else {
            self.flushers.leave(connection);
        }
        keep_flushing
    }

    /// A carrier has gone with its runtime, and so will the others of its connection: what they were to take.
    pub(super) fn take_abandoned(&mut self, connection: Generation) -> Vec<BatchItem> {
        if !self.flushers.are_of(connection) {
            return Vec::new();
        }
        self.flushers.leave(connection);
        self.flush_scheduled = None;
        self.take()
    }

    /// What was to be one call has become another as well.
    pub(super) const fn on_sent(&mut self) {
        self.in_flight += 1;
    }

    /// A call is no longer under way.
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

    /// Those who have gone do not count: where nobody takes the queue they would pile up.
    fn is_full(&mut self) -> bool {
        if self.releases.len() + self.acquires.len() < MAX_BATCH {
            return false;
        }
        self.releases.retain(|item| !item.answer.is_closed());
        self.acquires.retain(|item| !item.answer.is_closed());
        self.releases.len() + self.acquires.len() >= MAX_BATCH
    }

    fn take(&mut self) -> Vec<BatchItem> {
        let mut items = std::mem::take(&mut self.releases);
        items.append(&mut self.acquires);
        items
    }
}

/// Those of one kind, most often all, and those of each other: a call carries out one kind's requests.
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
    fn are_of(&self, connection: Generation) -> bool {
        self.connection == Some(connection)
    }

    /// One more, if there is room for it, or it is calm.
    fn join(&mut self, connection: Generation, is_quiet: bool) -> bool {
        if !self.are_of(connection) {
            *self = Self {
                connection: Some(connection),
                count: 0,
            };
        }
        let room = self.count < MAX_FLUSHERS || is_quiet;
        self.count += usize::from(room);
        room
    }

    fn leave(&mut self, connection: Generation) {
        if self.are_of(connection) {
            self.count -= 1;
        }
    }
}

#[cfg(test)]
mod tests;
