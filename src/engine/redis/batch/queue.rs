//! What goes out next, and with whom: decided here, carried out in `batch.rs`.

use tokio::sync::oneshot;

use super::Answer;
use crate::engine::redis::scripts;
use crate::protocol::{Kind, Request};

/// How many items travel in one call: more gain little, and hold up the server for everyone else.
pub(super) const MOST: usize = 64;

/// What waits for the next call.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// How many calls the server has not answered yet.
    pub(super) under_way: usize,
    /// Somebody has been told to take it, on the runtime of the connection with this number.
    departing: Option<u64>,
    /// What frees a lock comes before what takes one. Requests of one owner are put in order by the driver,
    /// and mean the same in any.
    giving: Vec<Item>,
    taking: Vec<Item>,
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
        answer: oneshot::Receiver<Answer>,
        /// Enough for a call, which leaves at once: behind a crowd of callers the server would have nothing
        /// to do.
        full: Option<Vec<Item>>,
        /// Nobody has been told yet to take what waits.
        first: bool,
    },
}

impl Queue {
    /// Finds a request's way, on the connection with this number if there is one.
    pub(super) fn enter(&mut self, request: Request, connection: Option<u64>) -> Way {
        if self.under_way == 0 || connection.is_none() {
            self.under_way += 1;
            return Way::Alone(request);
        }
        let (sender, answer) = oneshot::channel();
        self.push(Item {
            request,
            answer: sender,
        });
        let first = self.departing != connection;
        self.departing = connection;
        let full = self.is_full().then(|| self.take());
        Way::Together {
            answer,
            full,
            first,
        }
    }

    /// Whoever was told to take what waits here does so, unless somebody else has been told since.
    pub(super) fn taken_by(&mut self, connection: Option<u64>) -> Vec<Item> {
        if self.departing != connection {
            return Vec::new();
        }
        self.departing = None;
        self.take()
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::protocol::{Action, ClientId, Entry, OwnerId, Subject};

    fn acquire() -> Request {
        let owner = OwnerId::new(ClientId::new([0; 16]), 1);
        Subject::new(Kind::Mutex, "a").request(Action::Acquire {
            owner,
            entry: Entry::First,
            lease: Duration::from_secs(1),
            seen: None,
            waits: None,
        })
    }

    fn release() -> Request {
        let owner = OwnerId::new(ClientId::new([0; 16]), 1);
        Subject::new(Kind::Mutex, "a").request(Action::Release { owner, left: 0 })
    }

    fn busy() -> Queue {
        Queue {
            under_way: 1,
            ..Queue::default()
        }
    }

    #[test]
    fn the_first_goes_alone_and_the_next_wait_for_each_other() {
        let mut queue = Queue::default();
        assert!(matches!(queue.enter(acquire(), Some(1)), Way::Alone(_)));
        let second = queue.enter(acquire(), Some(1));
        assert!(matches!(second, Way::Together { first: true, .. }));
        let third = queue.enter(release(), Some(1));
        assert!(matches!(third, Way::Together { first: false, .. }));
        let items = queue.taken_by(Some(1));
        assert_eq!(items.len(), 2);
        assert_eq!(items[0].request, release(), "what frees comes first");
        let next = queue.enter(acquire(), Some(1));
        assert!(matches!(next, Way::Together { first: true, .. }));
    }

    #[test]
    fn without_a_connection_everybody_goes_alone() {
        let alone = busy().enter(acquire(), None);
        assert!(matches!(alone, Way::Alone(_)));
    }

    #[test]
    fn a_full_call_leaves_and_those_who_have_gone_do_not_fill_it() {
        let mut queue = busy();
        for _ in 0..3 * MOST {
            let Way::Together { answer, full, .. } = queue.enter(acquire(), Some(1)) else {
                panic!("a call is under way");
            };
            assert!(full.is_none(), "nobody is there any more");
            drop(answer);
        }
        let mut waiting = Vec::new();
        let full = loop {
            let Way::Together { answer, full, .. } = queue.enter(acquire(), Some(1)) else {
                panic!("a call is under way");
            };
            waiting.push(answer);
            if let Some(full) = full {
                break full;
            }
        };
        assert_eq!((full.len(), waiting.len()), (MOST, MOST));
    }

    #[test]
    fn an_old_connections_departure_leaves_the_new_ones_callers_alone() {
        let mut queue = busy();
        let _old = queue.enter(acquire(), Some(1));
        let new = queue.enter(acquire(), Some(2));
        assert!(matches!(new, Way::Together { first: true, .. }));
        assert!(queue.taken_by(Some(1)).is_empty());
        assert_eq!(queue.taken_by(Some(2)).len(), 2);
    }
}
