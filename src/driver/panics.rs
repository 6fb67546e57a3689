//! Tests of background tasks: a panic is noticed, and costs nobody a lock; large renewals take turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use uuid::Uuid;

use super::acquire::{Patience, Wish, acquire};
use super::background::Background;
use super::claim::Claim;
use super::clock::Clock;
use super::label::Label;
use super::{Core, Settings};
use crate::engine::memory::{Memory, Shared};
use crate::engine::{Answer, Engine, Failure, Feed, Finding, Listener, Page};
use crate::protocol::acquire::Hearing;
use crate::protocol::lease::{Risk, Terms};
use crate::protocol::{Channel, Kind, Reply, Request, Subject, Wanted};

const LEASE: Duration = Duration::from_secs(3);

/// A store in memory that panics once when it is told to, in place of an answer.
#[derive(Debug)]
struct Faulty {
    store: Arc<Memory>,
    in_a_batch: AtomicBool,
    in_the_watchdog: AtomicBool,
    /// How many calls of background tasks are under way, and the most that ever were.
    under_way: AtomicUsize,
    most_under_way: AtomicUsize,
}

impl Faulty {
    fn new(clock: &Clock) -> Arc<Self> {
        let clock = clock.clone();
        let shared = Arc::new(Shared::new(Arc::new(move || clock.now())));
        Arc::new(Self {
            store: Arc::new(Memory::of(shared, "".into(), false)),
            in_a_batch: AtomicBool::new(false),
            in_the_watchdog: AtomicBool::new(false),
            under_way: AtomicUsize::new(0),
            most_under_way: AtomicUsize::new(0),
        })
    }
}

fn panic_once(fault: &AtomicBool) {
    assert!(!fault.swap(false, Ordering::Relaxed), "as it was told to");
}

impl Engine for Faulty {
    fn call(&self, request: Request) -> Answer<Result<Reply, Failure>> {
        self.store.call(request)
    }

    fn call_apart(self: Arc<Self>, requests: Vec<Request>) -> Answer<Vec<Result<Reply, Failure>>> {
        panic_once(&self.in_a_batch);
        let now = self.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_under_way.fetch_max(now, Ordering::Relaxed);
        Box::pin(async move {
            // Other tasks could send theirs meanwhile.
            tokio::task::yield_now().await;
            let answers = self.store.clone().call_apart(requests).await;
            self.under_way.fetch_sub(1, Ordering::Relaxed);
            answers
        })
    }

    fn part(&self, _: &str) -> usize {
        panic_once(&self.in_the_watchdog);
        0
    }

    fn place(&self) -> String {
        self.store.place()
    }

    fn listen(self: Arc<Self>, channel: Channel) -> Answer<Result<Listener, Failure>> {
        self.store.clone().listen(channel)
    }

    fn overhear(self: Arc<Self>, pattern: String) -> Answer<Result<Feed, Failure>> {
        self.store.clone().overhear(pattern)
    }

    fn find(self: Arc<Self>, pattern: String, from: u64) -> Answer<Result<Page, Failure>> {
        self.store.clone().find(pattern, from)
    }

    fn announce(
        self: Arc<Self>,
        client: Arc<str>,
        label: Option<Arc<str>>,
        ttl: Duration,
    ) -> Answer<Result<(), Failure>> {
        self.store.clone().announce(client, label, ttl)
    }

    fn labels(
        self: Arc<Self>,
        clients: Vec<String>,
    ) -> Answer<Result<Vec<Option<String>>, Failure>> {
        self.store.clone().labels(clients)
    }

    fn examine(self: Arc<Self>, probe: bool) -> Answer<Result<Vec<Finding>, Failure>> {
        self.store.clone().examine(probe)
    }
}

fn client(engine: Arc<Faulty>, clock: Clock, background: Background) -> Arc<Core> {
    let settings = Settings {
        command_timeout: Duration::from_secs(20),
        handoff_limit: 0,
        handoff_window: Duration::ZERO,
        lapses: true,
        peer_watchdog: None,
        longest_lease: None,
        label: Arc::new(Label::new(None)),
    };
    Core::start(Uuid::new_v4(), engine, clock, settings, background)
}

async fn held(core: &Arc<Core>, patience: Patience) -> Option<Claim> {
    claimed(core, Kind::Mutex, Wanted::ONE, patience).await
}

async fn claimed(
    core: &Arc<Core>,
    kind: Kind,
    permits: Wanted,
    patience: Patience,
) -> Option<Claim> {
    let wish = Wish {
        subject: Subject {
            kind,
            name: "a".into(),
        },
        terms: Terms {
            lease: LEASE,
            keep_alive: true,
            max_hold: None,
            cut: None,
        },
        hearing: Hearing::Notify,
        user: None,
        beside: None,
        permits,
    };
    acquire(core, &wish, patience).await.expect("it is there")
}

/// Two holds in a client whose time is paused: one is at risk after the fault, and none is lost.
async fn survives(fault: impl Fn(&Faulty)) {
    let clock = Clock::Tokio(Handle::current());
    let engine = Faulty::new(&clock);
    let background = Background::Caller(Handle::current());
    let core = client(engine.clone(), clock.clone(), background);
    let claim = held(&core, Patience::Once).await.expect("it is free");
    let hold = claim.hold().clone();
    fault(&engine);
    let begun = clock.now();
    let mut was_at_risk = false;
    while clock.now().since(begun) < 4 * LEASE {
        let soon = clock.now() + Duration::from_millis(10);
        clock.sleep_until(Some(soon)).await;
        assert!(hold.is_held(), "after {:?}", clock.now().since(begun));
        was_at_risk |= hold.risk() == Some(Risk::RenewalFailed);
    }
    assert!(
        was_at_risk,
        "whoever holds it can see that a renewal failed"
    );
    assert_eq!(hold.risk(), None, "renewed again, it is not at risk");
    assert!(core.close(LEASE).await, "everything is given back");
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_renewal_puts_its_locks_at_risk_and_they_are_renewed_again() {
    survives(|engine| engine.in_a_batch.store(true, Ordering::Relaxed)).await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_watchdog_restarts_it_and_no_lock_is_forgotten() {
    survives(|engine| engine.in_the_watchdog.store(true, Ordering::Relaxed)).await;
}

#[tokio::test]
async fn a_panic_in_cleanup_does_not_forget_a_release() {
    let engine = Faulty::new(&Clock::Boot);
    let background = Background::thread().expect("there is a thread");
    let core = client(engine.clone(), Clock::Boot, background);
    let claim = held(&core, Patience::Once).await.expect("it is free");
    engine.in_a_batch.store(true, Ordering::Relaxed);
    drop(claim);
    let again = held(&core, Patience::Endless).await;
    assert!(again.is_some(), "it was given back");
    assert!(
        !engine.in_a_batch.load(Ordering::Relaxed),
        "it has panicked"
    );
    engine.in_a_batch.store(true, Ordering::Relaxed);
    drop(again);
    let closed = core.close(Duration::from_secs(20)).await;
    assert!(closed, "nothing is left to do");
}

/// A server runs what one client has sent without a pause, so that large renewals must not be sent together.
#[tokio::test(start_paused = true)]
async fn large_renewals_are_sent_one_after_the_other_and_small_ones_together() {
    for (count, together) in [(2000, 1), (600, 3)] {
        let clock = Clock::Tokio(Handle::current());
        let engine = Faulty::new(&clock);
        let background = Background::Caller(Handle::current());
        let core = client(engine.clone(), clock.clone(), background);
        let wanted = Wanted {
            count,
            of: Some(10_000),
        };
        let mut claims = Vec::new();
        for _ in 0..3 {
            let claim = claimed(&core, Kind::Semaphore, wanted, Patience::Once).await;
            claims.push(claim.expect("there are enough"));
        }
        let later = clock.now() + 4 * LEASE;
        clock.sleep_until(Some(later)).await;
        let held = claims.iter().all(|claim| claim.hold().is_held());
        assert!(held, "they are renewed");
        let most = engine.most_under_way.load(Ordering::Relaxed);
        assert_eq!(most, together, "of {count} permits each");
        drop(claims);
        core.close(LEASE).await;
    }
}
