//! Who leaves when, and with whom.

use std::sync::LazyLock;

use super::*;
use crate::protocol::{Action, ClientId, Entry, OwnerId, Subject, Wanted};

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
        seen: None,
        waits: None,
        beside: None,
        past: false,
        permits: Wanted::ONE,
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
        let Way::Together { answer, full, .. } = queue.enter(acquire(), Some(OLD), soon()) else {
            panic!("a call is under way");
        };
        assert!(full.is_none(), "nobody is there any more");
        drop(answer);
    }
    let mut waiting = Vec::new();
    let full = loop {
        let Way::Together { answer, full, .. } = queue.enter(acquire(), Some(OLD), soon()) else {
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
