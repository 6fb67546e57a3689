//! A holder is notified when it loses the lock: in time, with the reason, however it was lost.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant as StdInstant};

use distlock::{Error, Guard, Held, Lease, Lost, LostReason, Risk};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::{COMMAND, GONE, LEASE, LeaseFixture, PERIOD, ROUND_TRIP, connect, renewed};
use crate::support::{PATIENCE, RedisServer, eventually, simulated};

/// A hold that is sampled, and under which work runs that never ends by itself.
struct Observed {
    sampling: JoinHandle<Samples>,
    signal: JoinHandle<(Option<Lost>, StdInstant)>,
    work: JoinHandle<(Guard, Result<(), Error>)>,
    /// Steps of the work, which has a clone of this counter.
    steps: Arc<AtomicU64>,
}

struct Samples {
    /// The latest `valid_until` that the hold reported while it was held.
    valid_until: StdInstant,
    /// The moment at which the hold was first found not to be held.
    over_at: StdInstant,
    at_risk_at: Option<StdInstant>,
}

/// All observations of a hold that was lost.
struct Loss {
    guard: Guard,
    lost: Lost,
    told_at: StdInstant,
    samples: Samples,
}

impl Observed {
    fn begin(guard: Guard) -> Self {
        let (sampled, signalled, steps) = (guard.held(), guard.held(), Arc::<AtomicU64>::default());
        let works = steps.clone();
        Self {
            sampling: tokio::spawn(sample(sampled)),
            signal: tokio::spawn(async move { (signalled.lost().await, now()) }),
            work: tokio::spawn(async move {
                let work = async move {
                    loop {
                        works.fetch_add(1, Ordering::Relaxed);
                        sleep(SAMPLES).await;
                    }
                };
                let worked = guard.while_held(work).await;
                (guard, worked.map_err(Error::from))
            }),
            steps,
        }
    }

    /// Waits until the hold is lost, and checks the properties that every loss has.
    async fn lost(self) -> Loss {
        let all = async { tokio::join!(self.signal, self.work, self.sampling) };
        let (signal, work, samples) = timeout(PATIENCE, all).await.expect("it is lost");
        let ((lost, told_at), (guard, worked)) = (signal.unwrap(), work.unwrap());
        let lost = lost.expect("it was not released");
        for error in [worked.unwrap_err(), guard.check().unwrap_err()] {
            assert!(is_lost(&error, lost.reason), "{error}");
        }
        assert_eq!(guard.remaining(), Duration::ZERO);
        assert_eq!(guard.at_risk(), None, "the risk is over: it has happened");
        assert!(self.steps.load(Ordering::Relaxed) > 0);
        assert_eq!(Arc::strong_count(&self.steps), 1, "the work was dropped");
        Loss {
            guard,
            lost,
            told_at,
            samples: samples.unwrap(),
        }
    }
}

impl Loss {
    /// Checks that the lease expired: the lock was held to the very end and not a moment longer.
    fn assert_expired(&self) {
        assert_eq!(self.lost.reason, LostReason::Expired);
        assert_eq!(self.samples.over_at, self.samples.valid_until);
        assert_eq!(self.guard.valid_until(), self.samples.valid_until);
        let late = self.told_at.duration_since(self.samples.valid_until);
        assert!(late <= TICK, "told {late:?} later");
    }
}

async fn sample(held: Held) -> Samples {
    let (mut at_risk_at, mut claimed) = (None, held.valid_until());
    loop {
        let (now, until) = (now(), held.valid_until());
        if !held.is_held() {
            return Samples {
                valid_until: claimed,
                over_at: now,
                at_risk_at,
            };
        }
        assert!(now < until, "held {:?} too long", now - until);
        assert!(until >= claimed, "`valid_until` moved back");
        claimed = until;
        if held.at_risk().is_some() {
            at_risk_at.get_or_insert(now);
        }
        let is_near = until - now < 2 * SAMPLES;
        let pause = if is_near { TICK } else { SAMPLES };
        sleep(pause).await;
    }
}

/// The time between two samples. Around the end of the lease samples are taken at every tick of the virtual clock.
const SAMPLES: Duration = Duration::from_millis(10);
const TICK: Duration = Duration::from_millis(1);

/// Checks that the same client can acquire the lock again, and that it is kept alive.
async fn assert_is_free(scene: &LeaseFixture, name: &str) {
    let again = timeout(PATIENCE, async {
        loop {
            match scene.client.lock(name).acquire().await {
                Ok(guard) => return guard,
                // A lost connection is discovered by the first call.
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
        }
    });
    let again = again.await.expect("the lock is free");
    renewed(&again).await;
    let owners = scene.server.hgetall(name);
    assert_eq!(owners.into_keys().collect::<Vec<_>>(), [again.owner()]);
    again.release().await.expect("it is held");
    assert_eq!(scene.server.keys(), Vec::<String>::new());
}

/// The ways in which a lock is lost on a server that can be reached.
#[derive(Clone, Copy, Debug, PartialEq)]
enum LossCause {
    Deleted,
    Flushed,
    Restarted,
    ForcedOpen,
    Overwritten,
}

impl LossCause {
    async fn strike(self, scene: &LeaseFixture) {
        match self {
            Self::Deleted => drop(scene.server.cmd(&["DEL", NAME])),
            Self::Flushed => scene.server.flushall(),
            Self::Restarted => scene.server.restart(),
            Self::ForcedOpen => {
                let operator = connect(&scene.server.url(), LEASE, COMMAND).await;
                assert!(operator.admin().force_release(NAME).await.unwrap());
            }
            Self::Overwritten => take_over(&scene.server),
        }
    }
}

#[test]
fn a_lock_taken_over_is_reported_within_a_renewal_period_with_the_reason() {
    simulated(async || {
        for taken in [
            LossCause::Deleted,
            LossCause::Flushed,
            LossCause::Restarted,
            LossCause::ForcedOpen,
            LossCause::Overwritten,
        ] {
            // The loss falls at several moments between two renewals.
            for part in 0..5 {
                let scene = LeaseFixture::new().await;
                let observed = Observed::begin(scene.hold(NAME).await);
                sleep(PERIOD + PERIOD * part / 5).await;
                taken.strike(&scene).await;
                let struck = now();
                let loss = observed.lost().await;

                let took = loss.told_at.duration_since(struck);
                assert!(took < PERIOD + ROUND_TRIP, "{taken:?}: {took:?}");
                let is_restart = taken == LossCause::Restarted;
                assert_eq!(loss.samples.at_risk_at.is_some(), is_restart, "{taken:?}");
                let reason = match taken {
                    LossCause::Overwritten => LostReason::TakenOver,
                    _ => LostReason::Removed,
                };
                let error = loss.guard.release().await.unwrap_err();
                assert!(is_lost(&error, reason), "{taken:?}: {error}");
                if taken == LossCause::Overwritten {
                    let busy = scene.client.lock(NAME).try_acquire().await.unwrap();
                    assert!(busy.is_none(), "another holds it");
                    assert_eq!(scene.server.hgetall(NAME)[STRANGER], "1");
                    assert!(scene.server.pttl(NAME) > 30_000, "its lease is its own");
                    scene.server.cmd(&["DEL", NAME]);
                }
                assert_is_free(&scene, NAME).await;
            }
        }
    });
}

/// The ways in which a client cannot reach its server.
#[derive(Clone, Copy, Debug)]
enum Outage {
    Killed,
    Hanging,
    Partition,
    Refused,
}

impl Outage {
    fn begin(self, scene: &LeaseFixture) {
        match self {
            Self::Killed => scene.server.kill(),
            Self::Hanging => scene.server.stop_process(),
            Self::Partition => scene.proxy.partition(true),
            Self::Refused => {
                scene.proxy.refuse(true);
                scene.proxy.cut_all();
            }
        }
    }

    fn end(self, scene: &LeaseFixture) {
        match self {
            Self::Killed => scene.server.restart(),
            Self::Hanging => scene.server.continue_process(),
            Self::Partition => scene.proxy.partition(false),
            Self::Refused => scene.proxy.refuse(false),
        }
    }
}

const OUTAGES: [Outage; 4] = [
    Outage::Killed,
    Outage::Hanging,
    Outage::Partition,
    Outage::Refused,
];

#[test]
fn a_holder_without_its_server_is_warned_and_loses_the_lock_exactly_at_valid_until() {
    simulated(async || {
        for outage in OUTAGES {
            for part in 0..3 {
                let scene = LeaseFixture::new().await;
                let observed = Observed::begin(scene.hold(NAME).await);
                sleep(PERIOD * part / 3).await;
                outage.begin(&scene);
                let began = now();
                let loss = observed.lost().await;

                loss.assert_expired();
                let warned = loss.samples.at_risk_at.expect("at risk before it is lost");
                let took = warned.duration_since(began);
                assert!(took < PERIOD + COMMAND + ROUND_TRIP, "{outage:?}: {took:?}");
                // The error of the loss carries the error of the last renewal as its cause.
                let cause = loss.lost.cause.clone().expect("renewals failed");
                for error in [loss.lost.into(), loss.guard.check().unwrap_err()] {
                    assert!(error.to_string().ends_with(&*cause), "{error}");
                    assert!(matches!(error, Error::Lost { cause: Some(why), .. } if why == cause));
                }
                outage.end(&scene);
                // This is Redisson's testLockAfterTimeout.
                assert_is_free(&scene, NAME).await;
            }
        }
    });
}

#[test]
fn a_holder_whose_network_heals_in_time_was_at_risk_and_keeps_the_lock() {
    simulated(async || {
        for outage in &OUTAGES[1..] {
            let scene = LeaseFixture::new().await;
            let guard = scene.hold(NAME).await;
            let (held, granted) = (guard.held(), guard.valid_until());
            let observed = Observed::begin(guard);
            outage.begin(&scene);
            eventually(PATIENCE, "it is at risk", async || held.at_risk().is_some()).await;
            assert_eq!(held.at_risk(), Some(Risk::RenewalFailed));
            held.check().expect("a risk is not a loss");
            outage.end(&scene);
            let renewed = async || held.at_risk().is_none() && held.valid_until() > granted;
            eventually(PATIENCE, "it is renewed again", renewed).await;
            sleep(2 * LEASE).await;
            held.check().expect("it is kept alive");
            assert!(!observed.sampling.is_finished());
            assert!(!observed.signal.is_finished() && !observed.work.is_finished());
        }
    });
}

#[test]
fn a_fixed_lease_ends_exactly_at_valid_until_in_any_state_of_the_key() {
    simulated(async || {
        let ends = [None, Some(LostReason::TakenOver), None];
        for (fault, taken_over) in ["none", "taken over", "partition"].into_iter().zip(ends) {
            let scene = LeaseFixture::new().await;
            let lock = scene.client.lock(NAME).with_lease(Lease::Fixed(LEASE));
            let observed = Observed::begin(lock.acquire().await.unwrap());
            match fault {
                "taken over" => take_over(&scene.server),
                fault => scene.proxy.partition(fault == "partition"),
            }
            let loss = observed.lost().await;
            loss.assert_expired();
            assert_eq!(loss.samples.at_risk_at, None, "nothing was to be renewed");
            scene.proxy.partition(false);
            let error = loss.guard.release().await.unwrap_err();
            let reason = taken_over.unwrap_or(LostReason::Expired);
            assert!(is_lost(&error, reason), "{error}");
            assert_eq!(scene.server.pttl(NAME) == GONE, taken_over.is_none());
        }
    });
}

/// A process that was stopped must not do the next step of its work and only then be notified that the lock is lost: the task that notices
/// the loss may run later.
#[test]
fn work_is_never_polled_after_its_lock_has_expired() {
    simulated(async || {
        let scene = LeaseFixture::new().await;
        let lock = scene.client.lock(NAME).with_lease(Lease::Fixed(LEASE));
        let guard = lock.acquire().await.unwrap();
        let polls = AtomicU64::new(0);
        let work = poll_fn(|_| {
            polls.fetch_add(1, Ordering::Relaxed);
            std::task::Poll::<()>::Pending
        });
        let mut working = pin!(guard.while_held(work));
        let mut context = Context::from_waker(Waker::noop());
        for (left, begun) in [
            (LEASE, 1),
            (Duration::from_millis(1), 2),
            (Duration::ZERO, 2),
        ] {
            let left = guard.remaining().saturating_sub(left);
            {
                // The clock advances, and no other task runs before the work is polled.
                let mut moving = pin!(tokio::time::advance(left));
                assert!(moving.as_mut().poll(&mut context).is_pending());
            }
            let polled = working.as_mut().poll(&mut context);
            assert_eq!(polls.load(Ordering::Relaxed), begun);
            assert_eq!(polled.is_ready(), guard.remaining().is_zero());
            if let std::task::Poll::Ready(ended) = polled {
                let error = Error::from(ended.unwrap_err());
                assert!(is_lost(&error, LostReason::Expired), "{error}");
                return;
            }
        }
        panic!("the work is never dropped");
    });
}

/// By the clock the lock was held until the work ended: a missing reply is no loss.
#[test]
fn run_succeeds_though_the_server_does_not_answer_its_release() {
    simulated(async || {
        for outage in OUTAGES {
            let scene = LeaseFixture::with("", PATIENCE * 10, COMMAND).await;
            let lock = scene.client.lock(NAME);
            let done = lock.run(async |held| {
                outage.begin(&scene);
                held.check().expect("its lease is long");
            });
            done.await.expect("it was held to the end");
        }
    });
}

/// Transfers the lock in one step, as if it had expired and another client had acquired it.
fn take_over(server: &RedisServer) {
    let script = "redis.call('DEL', KEYS[1]) redis.call('HSET', KEYS[1], ARGV[1], 1) \
                  return redis.call('PEXPIRE', KEYS[1], 60000)";
    server.cmd(&["EVAL", script, "1", NAME, STRANGER]);
}

fn is_lost(error: &Error, why: LostReason) -> bool {
    matches!(error, Error::Lost { reason, .. } if *reason == why)
}

fn now() -> StdInstant {
    Instant::now().into_std()
}

const NAME: &str = "stock";
/// Thread 1 of a Java client.
const STRANGER: &str = "285475da-9152-4c83-822a-67ee2f116a79:1";
