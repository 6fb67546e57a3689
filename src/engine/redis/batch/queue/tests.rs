//! Tests of the batch queue: which requests are sent when, and which of them together.

use std::sync::LazyLock;

use super::*;
use crate::protocol::{Action, ClientId, Entry, OwnerId, PermitRequest, Subject};

const OLD: Generation = Generation(1);
const NEW: Generation = Generation(2);

/// One moment for all calls.
fn soon() -> Instant {
    static MOMENT: LazyLock<Instant> = LazyLock::new(Instant::now);
    *MOMENT
}

fn acquire() -> Request {
    let owner = OwnerId::new(ClientId::new([0; 16]), 1);
    Subject::new(Kind::Mutex, "a").request(Action::Acquire {
        owner,
        entry: Entry::Fresh,
        lease: Duration::from_secs(1),
        min_token: None,
        waiter_ttl: None,
        other_side: None,
        bypass_writers: false,
        permits: PermitRequest::ONE,
    })
}

fn release() -> Request {
    let owner = OwnerId::new(ClientId::new([0; 16]), 1);
    Subject::new(Kind::Mutex, "a").request(Action::Release { owner, left: 0 })
}

fn busy() -> BatchQueue {
    BatchQueue {
        in_flight: 1,
        ..BatchQueue::default()
    }
}

/// Admits an acquire: returns whether another flusher is needed, and the receiver of the reply.
fn admit_acquire(
    queue: &mut BatchQueue,
    generation: Generation,
) -> (bool, oneshot::Receiver<BatchResult>) {
    match queue.admit(acquire(), Some(generation), soon()) {
        Admission::Batched { reply, flusher, .. } => (flusher, reply),
        Admission::Single(_) => panic!("a call is under way"),
    }
}

#[test]
fn first_call_is_sent_alone_and_the_next_are_batched() {
    let mut queue = BatchQueue::default();
    assert!(matches!(
        queue.admit(acquire(), Some(OLD), soon()),
        Admission::Single(_)
    ));
    let second = queue.admit(acquire(), Some(OLD), soon());
    assert!(matches!(second, Admission::Batched { flusher: true, .. }));
    let third = queue.admit(release(), Some(OLD), soon());
    assert!(matches!(third, Admission::Batched { flusher: false, .. }));
    let items = queue.take_for(OLD, soon()).expect("two wait");
    assert_eq!(items.len(), 2);
    assert_eq!(items[0].request, release(), "what frees comes first");
    let next = queue.admit(acquire(), Some(OLD), soon());
    assert!(matches!(next, Admission::Batched { flusher: true, .. }));
}

#[test]
fn with_all_flushers_busy_the_first_to_return_drains_the_queue() {
    let mut queue = busy();
    for _ in 0..MAX_FLUSHERS {
        assert!(admit_acquire(&mut queue, OLD).0);
        assert!(queue.take_for(OLD, soon()).is_some());
    }
    assert!(!admit_acquire(&mut queue, OLD).0, "there are enough");
    assert!(queue.keep_flushing(OLD));
    assert!(!queue.keep_flushing(OLD), "one of them takes it");
    assert_eq!(
        queue.take_for(OLD, soon()).map(|items| items.len()),
        Some(1)
    );
    assert!(admit_acquire(&mut queue, OLD).0, "one of them has ended");
}

#[test]
fn call_after_a_quiet_interval_gets_a_new_flusher() {
    let mut queue = busy();
    for _ in 0..MAX_FLUSHERS {
        assert!(admit_acquire(&mut queue, OLD).0);
        assert!(queue.take_for(OLD, soon()).is_some());
    }
    let (flusher, _waits) = admit_acquire(&mut queue, OLD);
    assert!(!flusher, "one has just left");
    let later = queue.admit(acquire(), Some(OLD), soon() + QUIET_INTERVAL);
    assert!(matches!(later, Admission::Batched { flusher: true, .. }));
    let items = queue.take_for(OLD, soon() + QUIET_INTERVAL);
    assert_eq!(items.map(|items| items.len()), Some(2), "both go with it");
    assert!(!admit_acquire(&mut queue, OLD).0);
    // One flusher takes the newest item; then each ends once, and none is counted twice.
    for _ in 0..MAX_FLUSHERS + 2 {
        assert!(queue.keep_flushing(OLD));
        queue.take_for(OLD, soon());
    }
    assert_eq!(queue.flushers.count, 0);
}

#[test]
fn flusher_that_finds_an_empty_queue_ends() {
    let mut queue = busy();
    for _ in 0..2 * MAX_FLUSHERS {
        assert!(admit_acquire(&mut queue, OLD).0);
        assert!(queue.take_for(OLD, soon()).is_some());
        assert!(queue.keep_flushing(OLD));
        assert!(queue.take_for(OLD, soon()).is_none());
    }
}

#[test]
fn new_connection_does_not_wait_for_flushers_of_the_old_one() {
    let mut queue = busy();
    for _ in 0..MAX_FLUSHERS {
        admit_acquire(&mut queue, OLD);
        queue.take_for(OLD, soon());
    }
    let _waits = admit_acquire(&mut queue, OLD);
    assert!(admit_acquire(&mut queue, NEW).0);
    assert!(
        !queue.keep_flushing(OLD),
        "what waiter_ttl is not its to take"
    );
    assert_eq!(
        queue.take_for(NEW, soon()).map(|items| items.len()),
        Some(2)
    );
}

#[test]
fn items_of_flushers_whose_runtime_ended_are_taken_over() {
    let mut queue = busy();
    for _ in 0..MAX_FLUSHERS {
        admit_acquire(&mut queue, OLD);
        queue.take_for(OLD, soon());
    }
    let _waits = admit_acquire(&mut queue, OLD);
    assert_eq!(queue.take_abandoned(OLD).len(), 1);
    assert!(
        admit_acquire(&mut queue, OLD).0,
        "whoever comes then is min_token to as well"
    );
}

#[test]
fn without_a_connection_calls_are_not_batched() {
    let single = busy().admit(acquire(), None, soon());
    assert!(matches!(single, Admission::Single(_)));
}

#[test]
fn full_batch_is_sent_and_cancelled_calls_do_not_count() {
    let mut queue = busy();
    for _ in 0..3 * MAX_BATCH {
        let Admission::Batched { reply, full, .. } = queue.admit(acquire(), Some(OLD), soon())
        else {
            panic!("a call is under way");
        };
        assert!(full.is_none(), "nobody is there any more");
        drop(reply);
    }
    let mut waiting = Vec::new();
    let full = loop {
        let Admission::Batched { reply, full, .. } = queue.admit(acquire(), Some(OLD), soon())
        else {
            panic!("a call is under way");
        };
        waiting.push(reply);
        if let Some(full) = full {
            break full;
        }
    };
    assert_eq!((full.len(), waiting.len()), (MAX_BATCH, MAX_BATCH));
}

#[test]
fn flusher_of_an_old_connection_leaves_new_items_queued() {
    let mut queue = busy();
    let _old = queue.admit(acquire(), Some(OLD), soon());
    let new = queue.admit(acquire(), Some(NEW), soon());
    assert!(matches!(new, Admission::Batched { flusher: true, .. }));
    assert!(queue.take_for(OLD, soon()).is_none());
    assert_eq!(
        queue.take_for(NEW, soon()).map(|items| items.len()),
        Some(2)
    );
}
