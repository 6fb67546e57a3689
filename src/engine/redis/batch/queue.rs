//! What goes out next, and with whom: decided here, carried out in `batch.rs`.

use std::time::{Duration, Instant};

use tokio::sync::oneshot;

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
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::protocol::{Action, ClientId, Entry, OwnerId, Subject};

    const OLD: Generation = Generation(1);
    const NEW: Generation = Generation(2);

    /// All within the same moment.
    fn soon() -> Instant {
        static MOMENT: LazyLock<Instant> = LazyLock::new(Instant::now);
        *MOMENT
    }

    fn acquire() -> Request {
        let owner = OwnerId::new(ClientId::new([0; 16]), 1);
        Subject::new(Kind::Mutex, "a").request(Action::Acquire {
            owner,
            entry: Entry::First,
            lease: Duration::from_secs(1),
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

    /// Lets a caller in: whether it takes another carrier, and what it listens to.
    fn comes(queue: &mut Queue, connection: Generation) -> (bool, oneshot::Receiver<Answer>) {
        match queue.enter(acquire(), Some(connection), soon()) {
            Way::Together {
                answer, carrier, ..
            } => (carrier, answer),
            Way::Alone(_) => panic!("a call is under way"),
        }
    }

    #[test]
    fn the_first_goes_alone_and_the_next_wait_for_each_other() {
        let mut queue = Queue::default();
        assert!(matches!(
            queue.enter(acquire(), Some(OLD), soon()),
            Way::Alone(_)
        ));
        let second = queue.enter(acquire(), Some(OLD), soon());
        assert!(matches!(second, Way::Together { carrier: true, .. }));
        let third = queue.enter(release(), Some(OLD), soon());
        assert!(matches!(third, Way::Together { carrier: false, .. }));
        let items = queue.taken_by(OLD, soon()).expect("two wait");
        assert_eq!(items.len(), 2);
        assert_eq!(items[0].request, release(), "what frees comes first");
        let next = queue.enter(acquire(), Some(OLD), soon());
        assert!(matches!(next, Way::Together { carrier: true, .. }));
    }

    #[test]
    fn when_every_carrier_is_under_way_the_first_to_return_takes_what_waits() {
        let mut queue = busy();
        for _ in 0..CARRIERS {
            assert!(comes(&mut queue, OLD).0);
            assert!(queue.taken_by(OLD, soon()).is_some());
        }
        assert!(!comes(&mut queue, OLD).0, "there are enough");
        assert!(queue.goes_on(OLD));
        assert!(!queue.goes_on(OLD), "one of them takes it");
        assert_eq!(
            queue.taken_by(OLD, soon()).map(|items| items.len()),
            Some(1)
        );
        assert!(comes(&mut queue, OLD).0, "one of them has ended");
    }

    #[test]
    fn who_comes_later_does_not_wait_for_those_under_way() {
        let mut queue = busy();
        for _ in 0..CARRIERS {
            assert!(comes(&mut queue, OLD).0);
            assert!(queue.taken_by(OLD, soon()).is_some());
        }
        let (carrier, _waits) = comes(&mut queue, OLD);
        assert!(!carrier, "one has just left");
        let later = queue.enter(acquire(), Some(OLD), soon() + CALM);
        assert!(matches!(later, Way::Together { carrier: true, .. }));
        let items = queue.taken_by(OLD, soon() + CALM);
        assert_eq!(items.map(|items| items.len()), Some(2), "both go with it");
        assert!(!comes(&mut queue, OLD).0);
        // One takes who has just come; then each ends once, and none is counted twice.
        for _ in 0..CARRIERS + 2 {
            assert!(queue.goes_on(OLD));
            queue.taken_by(OLD, soon());
        }
        assert_eq!(queue.carriers.count, 0);
    }

    #[test]
    fn a_carrier_that_finds_nothing_makes_room_for_another() {
        let mut queue = busy();
        for _ in 0..2 * CARRIERS {
            assert!(comes(&mut queue, OLD).0);
            assert!(queue.taken_by(OLD, soon()).is_some());
            assert!(queue.goes_on(OLD));
            assert!(queue.taken_by(OLD, soon()).is_none());
        }
    }

    #[test]
    fn a_new_connection_does_not_wait_for_the_old_ones_carriers() {
        let mut queue = busy();
        for _ in 0..CARRIERS {
            comes(&mut queue, OLD);
            queue.taken_by(OLD, soon());
        }
        let _waits = comes(&mut queue, OLD);
        assert!(comes(&mut queue, NEW).0);
        assert!(!queue.goes_on(OLD), "what waits is not its to take");
        assert_eq!(
            queue.taken_by(NEW, soon()).map(|items| items.len()),
            Some(2)
        );
    }

    #[test]
    fn what_waits_for_carriers_that_go_with_their_runtime_is_not_left_to_itself() {
        let mut queue = busy();
        for _ in 0..CARRIERS {
            comes(&mut queue, OLD);
            queue.taken_by(OLD, soon());
        }
        let _waits = comes(&mut queue, OLD);
        assert_eq!(queue.forsaken_by(OLD).len(), 1);
        assert!(
            comes(&mut queue, OLD).0,
            "whoever comes then is seen to as well"
        );
    }

    #[test]
    fn without_a_connection_everybody_goes_alone() {
        let alone = busy().enter(acquire(), None, soon());
        assert!(matches!(alone, Way::Alone(_)));
    }

    #[test]
    fn a_full_call_leaves_and_those_who_have_gone_do_not_fill_it() {
        let mut queue = busy();
        for _ in 0..3 * MOST {
            let Way::Together { answer, full, .. } = queue.enter(acquire(), Some(OLD), soon())
            else {
                panic!("a call is under way");
            };
            assert!(full.is_none(), "nobody is there any more");
            drop(answer);
        }
        let mut waiting = Vec::new();
        let full = loop {
            let Way::Together { answer, full, .. } = queue.enter(acquire(), Some(OLD), soon())
            else {
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
    fn an_old_connections_carrier_leaves_the_new_ones_callers_alone() {
        let mut queue = busy();
        let _old = queue.enter(acquire(), Some(OLD), soon());
        let new = queue.enter(acquire(), Some(NEW), soon());
        assert!(matches!(new, Way::Together { carrier: true, .. }));
        assert!(queue.taken_by(OLD, soon()).is_none());
        assert_eq!(
            queue.taken_by(NEW, soon()).map(|items| items.len()),
            Some(2)
        );
    }
}
