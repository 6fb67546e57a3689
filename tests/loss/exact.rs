//! `valid_until` is one moment, not an estimate of one.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use distlock::{Error, Lease, LostReason};

use super::{PATIENCE, SHARED, acquire, connect};

#[tokio::test]
async fn valid_until_is_the_same_moment_however_often_it_is_read_also_afterwards() {
    let client = connect(&SHARED.url()).await;
    let lease = Lease::Fixed(Duration::from_secs(4));
    let guard = acquire(client.lock("same-moment").with_lease(lease)).await;

    let first = guard.valid_until();
    let mut reads = 0_u64;
    while Instant::now() < first + Duration::from_millis(100) {
        assert_eq!(guard.valid_until(), first, "after {reads} reads");
        reads += 1;
    }
    assert!(reads > 1000, "only {reads} reads");
    assert!(!guard.is_held(), "read beyond its end");
    assert_eq!(
        guard.lost().await.map(|lost| lost.reason),
        Some(LostReason::Expired)
    );
    assert_eq!(guard.valid_until(), first);
}

/// The watchdog wakes up some time after the end, and the news of it takes its way; work that is polled
/// in between must not be let on, or a process that was stopped for an hour would first do the next step
/// and then hear that the lock is lost.
#[tokio::test]
async fn work_is_never_polled_once_its_lock_has_run_out() {
    let client = connect(&SHARED.url()).await;
    let lease = Lease::Fixed(Duration::from_secs(4));
    let guard = acquire(client.lock("never-polled").with_lease(lease)).await;
    let (polls, too_late) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));

    let work = poll_fn(|_| {
        polls.fetch_add(1, Ordering::Relaxed);
        if !guard.is_held() {
            too_late.fetch_add(1, Ordering::Relaxed);
        }
        Poll::<()>::Pending
    });
    let mut working = pin!(guard.while_held(work));
    let mut context = Context::from_waker(Waker::noop());
    let give_up = Instant::now() + PATIENCE;
    let ended = loop {
        match working.as_mut().poll(&mut context) {
            Poll::Ready(ended) => break ended,
            Poll::Pending => assert!(Instant::now() < give_up, "the work is never dropped"),
        }
    };

    assert!(matches!(
        ended.map_err(Error::from),
        Err(Error::Lost {
            reason: LostReason::Expired,
            ..
        })
    ));
    let (polls, too_late) = (
        polls.load(Ordering::Relaxed),
        too_late.load(Ordering::Relaxed),
    );
    eprintln!("{polls} polls, {too_late} of them after the end");
    assert!(polls > 1000, "it was let on while it was held");
    // This thread may be stopped between the last look at the clock and the work: once.
    assert!(too_late <= 1, "polled {too_late} times after its end");
}
