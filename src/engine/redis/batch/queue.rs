//! What goes out next, and with whom: decided here, carried out in `batch.rs`.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Answer;
use crate::engine::redis::connection::Generation;
use crate::engine::redis::scripts;
use crate::protocol::{Kind, Request};

/// How many items travel in one call: more gain little, and hold up the server for everyone else.
pub(super) const MOST: usize = 64;

/// How many carriers a connection has: with more, those who are answered together no longer ask together, and a
/// crowd travels in many short calls; with fewer, a handful of callers wait for each other (docs/decisions/009).
pub(super) const CARRIERS: usize = 6;

/// Where the last call left longer ago, the next one leaves beside them all: who comes so seldom gains nothing by waiting,
/// and a network may be slow.
const CALM: Duration = Duration::from_micros(200);

/// What waits for the next call.
///
/// It is taken by carriers, tasks that bring call after call to the server. While something waits, one of them has
/// been told to take it, or there are as many as there should be, one of which has just left, and the first to return
/// takes it.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// How many calls the server has not answered yet, each [`answered`](Self::answered) once.
    under_way: usize,
    /// A carrier of this connection has been told to take it.
    departing: Option<Generation>,
    /// When one last left.
    left: Option<Instant>,
    carriers: Carriers,
    /// What frees a lock comes before what takes one. Requests of one owner are put in order by the driver,
    /// and mean the same in any.
    giving: Vec<Item>,
    taking: Vec<Item>,
}

/// How many carriers the newest connection has. Those of others end when they return.
#[derive(Debug, Default)]
struct Carriers {
    connection: Option<Generation>,
    count: usize,
}

/// One caller's request.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) request: Request,
    pub(super) answer: oneshot::Sender<Answer>,
}

/// How a request goes out.
#[derive(Debug)]
pub(super) enum Way {
    /// At once, by itself.
    Alone(Request),
    Together {
        connection: Generation,
        answer: oneshot::Receiver<Answer>,
        /// Enough for a call, which leaves at once: behind a crowd of callers the server would have nothing
        /// to do.
        full: Option<Vec<Item>>,
        /// It takes another carrier to take what waits.
        carrier: bool,
    },
}

impl Queue {
    /// Finds a request's way on the newest connection, if there is one.
    pub(super) fn enter(
        &mut self,
        request: Request,
        newest: Option<Generation>,
        now: Instant,
    ) -> Way {
        let connection = match newest {
            Some(connection) if self.under_way > 0 => connection,
            _ => {
                self.under_way += 1;
                return Way::Alone(request);
            }
        };
        let (sender, answer) = oneshot::channel();
        self.push(Item {
            request,
            answer: sender,
        });
        let full = self.is_full().then(|| self.take());
        self.under_way += usize::from(full.is_some());
        let told = self.departing == Some(connection);
        let calm = self
            .left
            .is_none_or(|left| now.saturating_duration_since(left) >= CALM);
        let carrier = full.is_none() && !told && self.carriers.join(connection, calm);
        if carrier {
            self.departing = Some(connection);
        }
        Way::Together {
            connection,
            answer,
            full,
            carrier,
        }
    }

    /// What a carrier takes with it. It ends if there is nothing, or another has been told to take it since.
    pub(super) fn taken_by(&mut self, connection: Generation, now: Instant) -> Option<Vec<Item>> {
        let mut items = Vec::new();
        if self.departing == Some(connection) {
            self.departing = None;
            items = self.take();
        }
        if items.is_empty() {
            self.carriers.leave(connection);
            return None;
        }
        self.under_way += 1;
        self.left = Some(now);
        Some(items)
    }

    /// Whether a carrier that has returned is to take what waits by now. It ends if another has been told to.
    pub(super) fn goes_on(&mut self, connection: Generation) -> bool {
        let goes_on = self.carriers.are_of(connection) && self.departing != Some(connection);
        if goes_on {
            self.departing = Some(connection);
        } else {
            self.carriers.leave(connection);
        }
        goes_on
    }

    /// A carrier has gone with its runtime, and so will the others of its connection: what they were to take.
    pub(super) fn forsaken_by(&mut self, connection: Generation) -> Vec<Item> {
        if !self.carriers.are_of(connection) {
            return Vec::new();
        }
        self.carriers.leave(connection);
        self.departing = None;
        self.take()
    }

    /// What was to be one call has become another as well.
    pub(super) const fn another(&mut self) {
        self.under_way += 1;
    }

    /// A call is no longer under way.
    pub(super) const fn answered(&mut self) {
        self.under_way -= 1;
    }

    fn push(&mut self, item: Item) {
        if scripts::gives_back(&item.request) {
            self.giving.push(item);
        } else {
            self.taking.push(item);
        }
    }

    /// Those who have gone do not count: where nobody takes the queue they would pile up.
    fn is_full(&mut self) -> bool {
        if self.giving.len() + self.taking.len() < MOST {
            return false;
        }
        self.giving.retain(|item| !item.answer.is_closed());
        self.taking.retain(|item| !item.answer.is_closed());
        self.giving.len() + self.taking.len() >= MOST
    }

    fn take(&mut self) -> Vec<Item> {
        let mut items = std::mem::take(&mut self.giving);
        items.append(&mut self.taking);
        items
    }
}

/// Those of one kind, most often all, and those of each other: a call carries out one kind's requests.
pub(super) fn by_kind(mut items: Vec<Item>) -> (Vec<Item>, Vec<Vec<Item>>) {
    let kind_of = |item: &Item| item.request.subject.kind;
    let mut others = Vec::new();
    let kind = items.first().map(kind_of);
    if items.iter().any(|item| Some(kind_of(item)) != kind) {
        for other in Kind::ALL.into_iter().filter(|other| Some(*other) != kind) {
            let these: Vec<Item> = items
                .extract_if(.., |item| kind_of(item) == other)
                .collect();
            if !these.is_empty() {
                others.push(these);
            }
        }
    }
    (items, others)
}

impl Carriers {
    fn are_of(&self, connection: Generation) -> bool {
        self.connection == Some(connection)
    }

    /// One more, if there is room for it, or it is calm.
    fn join(&mut self, connection: Generation, calm: bool) -> bool {
        if !self.are_of(connection) {
            *self = Self {
                connection: Some(connection),
                count: 0,
            };
        }
        let room = self.count < CARRIERS || calm;
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
