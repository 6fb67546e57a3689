//! Tests of background tasks: a panic is noticed and loses no lock; large renewals take turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use uuid::Uuid;

use super::acquire::{AcquireParams, WaitLimit, acquire};
use super::background::Background;
use super::clock::Clock;
use super::hold_ref::HoldRef;
use super::label::Label;
use super::{ClientSettings, Core};
use crate::engine::memory::{Memory, MemoryStore};
use crate::engine::{BoxFuture, ChangeFeed, Diagnostic, Engine, Page, StoreError, Subscription};
use crate::protocol::acquire::WaitMode;
use crate::protocol::lease::{LeaseTerms, Risk};
use crate::protocol::{Channel, Kind, PermitRequest, Reply, Request, Subject};

const LEASE: Duration = Duration::from_secs(3);

/// A store in memory that panics once when a test requests it, in place of a reply.
#[derive(Debug)]
struct FaultyEngine {
    store: Arc<Memory>,
    in_a_batch: AtomicBool,
    in_the_watchdog: AtomicBool,
    /// How many calls of background tasks are in flight, and the most that ever were.
    under_way: AtomicUsize,
    most_under_way: AtomicUsize,
}

impl FaultyEngine {
    fn new(clock: &Clock) -> Arc<Self> {
        let clock = clock.clone();
        let shared = Arc::new(MemoryStore::new(Arc::new(move || clock.now())));
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

impl Engine for FaultyEngine {
    fn call(&self, request: Request) -> BoxFuture<Result<Reply, StoreError>> {
        self.store.call(request)
    }

    fn call_background(
        self: Arc<Self>,
        requests: Vec<Request>,
    ) -> BoxFuture<Vec<Result<Reply, StoreError>>> {
        panic_once(&self.in_a_batch);
        let now = self.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_under_way.fetch_max(now, Ordering::Relaxed);
        Box::pin(async move {
            // Other tasks could send their calls meanwhile.
            tokio::task::yield_now().await;
            let replies = self.store.clone().call_background(requests).await;
            self.under_way.fetch_sub(1, Ordering::Relaxed);
            replies
        })
    }

    fn shard(&self, _: &str) -> usize {
        panic_once(&self.in_the_watchdog);
        0
    }

    fn namespace_id(&self) -> String {
        self.store.namespace_id()
    }

    fn subscribe(self: Arc<Self>, channel: Channel) -> BoxFuture<Result<Subscription, StoreError>> {
        self.store.clone().subscribe(channel)
    }

    fn monitor(self: Arc<Self>, pattern: String) -> BoxFuture<Result<ChangeFeed, StoreError>> {
        self.store.clone().monitor(pattern)
    }

    fn scan(self: Arc<Self>, pattern: String, from: u64) -> BoxFuture<Result<Page, StoreError>> {
        self.store.clone().scan(pattern, from)
    }

    fn set_label(
        self: Arc<Self>,
        client: Arc<str>,
        label: Option<Arc<str>>,
        ttl: Duration,
    ) -> BoxFuture<Result<(), StoreError>> {
        self.store.clone().set_label(client, label, ttl)
    }

    fn labels(
        self: Arc<Self>,
        clients: Vec<String>,
    ) -> BoxFuture<Result<Vec<Option<String>>, StoreError>> {
        self.store.clone().labels(clients)
    }

    fn diagnose(self: Arc<Self>, probe: bool) -> BoxFuture<Result<Vec<Diagnostic>, StoreError>> {
        self.store.clone().diagnose(probe)
    }
}

fn client(engine: Arc<FaultyEngine>, clock: Clock, background: Background) -> Arc<Core> {
    let settings = ClientSettings {
        command_timeout: Duration::from_secs(20),
        handoff_limit: 0,
        handoff_window: Duration::ZERO,
        leases_expire: true,
        redisson_watchdog_timeout: None,
        longest_lease: None,
        label: Arc::new(Label::new(None)),
    };
    Core::start(Uuid::new_v4(), engine, clock, settings, background)
}

async fn held(core: &Arc<Core>, wait_limit: WaitLimit) -> Option<HoldRef> {
    claimed(core, Kind::Mutex, PermitRequest::ONE, wait_limit).await
}

async fn claimed(
    core: &Arc<Core>,
    kind: Kind,
    permits: PermitRequest,
    wait_limit: WaitLimit,
) -> Option<HoldRef> {
    let params = AcquireParams {
        subject: Subject {
            kind,
            name: "a".into(),
        },
        terms: LeaseTerms {
            lease: LEASE,
            keep_alive: true,
            max_hold: None,
            redisson_ttl_cap: None,
        },
        wait_mode: WaitMode::Subscribe,
        local_owner: None,
        other_side: None,
        permits,
    };
    acquire(core, &params, wait_limit)
        .await
        .expect("it is there")
}

/// Holds a lock in a client whose time is paused: it is at risk after the fault, and is not lost.
async fn survives(fault: impl Fn(&FaultyEngine)) {
    let clock = Clock::Tokio(Handle::current());
    let engine = FaultyEngine::new(&clock);
    let background = Background::Caller(Handle::current());
    let core = client(engine.clone(), clock.clone(), background);
    let hold_ref = held(&core, WaitLimit::TryOnce).await.expect("it is free");
    let hold = hold_ref.hold().clone();
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
    let engine = FaultyEngine::new(&Clock::Boot);
    let background = Background::thread().expect("there is a thread");
    let core = client(engine.clone(), Clock::Boot, background);
    let hold_ref = held(&core, WaitLimit::TryOnce).await.expect("it is free");
    engine.in_a_batch.store(true, Ordering::Relaxed);
    drop(hold_ref);
    let again = held(&core, WaitLimit::Forever).await;
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

/// A server runs the requests of one client without a pause, so that large renewals must not be sent together.
#[tokio::test(start_paused = true)]
async fn large_renewals_are_sent_one_after_the_other_and_small_ones_together() {
    for (count, together) in [(2000, 1), (600, 3)] {
        let clock = Clock::Tokio(Handle::current());
        let engine = FaultyEngine::new(&clock);
        let background = Background::Caller(Handle::current());
        let core = client(engine.clone(), clock.clone(), background);
        let wanted = PermitRequest {
            count,
            of: Some(10_000),
        };
        let mut hold_refs = Vec::new();
        for _ in 0..3 {
            let hold_ref = claimed(&core, Kind::Semaphore, wanted, WaitLimit::TryOnce).await;
            hold_refs.push(hold_ref.expect("there are enough"));
        }
        let later = clock.now() + 4 * LEASE;
        clock.sleep_until(Some(later)).await;
        let held = hold_refs.iter().all(|hold_ref| hold_ref.hold().is_held());
        assert!(held, "they are renewed");
        let most = engine.most_under_way.load(Ordering::Relaxed);
        assert_eq!(most, together, "of {count} permits each");
        drop(hold_refs);
        core.close(LEASE).await;
    }
}
