//! The stories, told.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use distlock::{Backoff, Error, Guard, Lease, Lock, Wait};
use tokio::task::JoinHandle;

use super::case::Case;
use super::support::{Family, Fault, Match, Opposite, Script, eventually};
use super::{LEASE, PATIENCE};

pub(crate) async fn acquire<F: Family>(case: &mut Case<F>) {
    let lock = case.lock();
    case.acquire(lock.try_acquire()).await;
    case.release_all().await;
    case.acquire(lock.acquire()).await;
    case.release_all().await;
    case.acquire(lock.acquire_timeout(PATIENCE)).await;
    case.release_all().await;
    let nobodys = case.client.lock(case.name.as_str());
    case.acquire(nobodys.acquire()).await;
    case.release_all().await;
}

/// Waits for a lock that another client gives back once it was asked for so many times.
pub(crate) async fn wait<F: Family>(case: &mut Case<F>, wait: Wait, asks: usize) {
    let theirs = taken_by_another(case).await;
    let lock = case.lock().with_wait(wait);
    let waiting = waits(case, lock.acquire_timeout(PATIENCE), asks).await;
    theirs.release().await.expect("their network is fine");
    let waited = !waiting.is_finished();
    let got = case
        .acquire(async { waiting.await.expect("no panic") })
        .await;
    assert!(got || !waited, "a waiter rides through what goes wrong");
    case.release_all().await;
}

/// What keeps it out, held by another client.
async fn taken_by_another<F: Family>(case: &Case<F>) -> Guard<Opposite<F>> {
    taken(case, case.world.other.against(case.name.as_str())).await
}

/// What another client holds, and the witness has seen it take.
pub(crate) async fn taken<F: Family, K>(case: &Case<F>, theirs: Lock<K>) -> Guard<K> {
    let theirs = theirs.acquire().await.expect("their network is fine");
    let executed = async || {
        let owner = theirs.owner();
        let words = |words: &[String]| words.contains(&owner);
        case.world.witness.count(&case.name, words) > 0
    };
    eventually(PATIENCE, "theirs is seen", executed).await;
    theirs
}

/// Somebody who waits in the background and, if nobody else does, has asked so many times; or has failed.
pub(crate) async fn waits<F: Family, T: Send + 'static>(
    case: &Case<F>,
    waiting: impl Future<Output = T> + Send + 'static,
    asks: usize,
) -> JoinHandle<T> {
    let before = asked(case);
    let waiting = tokio::spawn(waiting);
    eventually(PATIENCE, "it waits, or has failed", async || {
        waiting.is_finished() || asked(case) >= before + asks
    })
    .await;
    waiting
}

pub(crate) async fn reenter<F: Family>(case: &mut Case<F>) {
    let lock = case.lock();
    case.acquire(lock.acquire()).await;
    case.acquire(lock.acquire()).await;
    case.acquire(lock.try_acquire()).await;
    case.release().await;
    // Behind an attempt that may have been undone.
    case.acquire(lock.acquire_timeout(PATIENCE)).await;
    case.release_all().await;
}

pub(crate) async fn release<F: Family>(case: &mut Case<F>) {
    for _ in 0..3 {
        let lock = case.lock();
        case.acquire(lock.acquire()).await;
        case.release_all().await;
    }
}

pub(crate) async fn release_in_part<F: Family>(case: &mut Case<F>) {
    hold_four_times(case).await;
    case.release_all().await;
}

pub(crate) async fn abandon<F: Family>(case: &mut Case<F>) {
    for _ in 0..2 {
        let lock = case.lock();
        case.acquire(lock.acquire()).await;
        case.abandon().await;
    }
}

pub(crate) async fn abandon_in_part<F: Family>(case: &mut Case<F>) {
    hold_four_times(case).await;
    case.abandon().await;
    case.abandon().await;
    case.release_all().await;
}

async fn hold_four_times<F: Family>(case: &mut Case<F>) {
    let lock = case.lock();
    for _ in 0..4 {
        case.acquire(lock.acquire()).await;
    }
}

/// Four wait behind a hold of their own client, and each passes the lock on to the next.
pub(crate) async fn pass_on<F: Family>(case: &mut Case<F>) {
    let lock = case.client.lock(case.name.as_str());
    if !case.acquire(lock.acquire()).await {
        // Nobody would stand behind anybody.
        return;
    }
    let mut line: VecDeque<Acquiring<F::Kind>> = VecDeque::new();
    for _ in 0..4 {
        let mut waiting: Acquiring<F::Kind> = Box::pin(lock.acquire());
        // The first poll puts it in the line.
        let polled = waiting
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending(), "{polled:?}");
        line.push_back(waiting);
    }
    while let Some(next) = line.pop_front() {
        if let Some(guard) = case.guards.pop()
            && let Err(error) = guard.release().await
        {
            case.tolerate(&error);
        }
        case.acquire(next).await;
    }
    case.release_all().await;
}

/// Holds the lock for as long as a few renewals take.
pub(crate) async fn renew<F: Family>(case: &mut Case<F>) {
    let lock = case.lock().with_lease(Lease::KeepAlive(SHORT_LEASE));
    case.acquire(lock.acquire()).await;
    if F::AGAIN {
        case.acquire(lock.acquire()).await;
    }
    if case.guards.is_empty() {
        return;
    }
    let before = renewed(case);
    for renewals in 1..=2 {
        eventually(PATIENCE, "it is renewed", async || {
            case.are_held();
            renewed(case) >= before + renewals
        })
        .await;
        case.check(true).await;
        let left = left(case).await;
        assert!(left > 0 && left <= millis(SHORT_LEASE), "{left} ms left");
    }
    case.release_all().await;
}

pub(crate) async fn extend<F: Family>(case: &mut Case<F>) {
    let lock = case.lock().with_lease(Lease::Fixed(LEASE));
    case.acquire(lock.acquire()).await;
    for times in 2..=3 {
        let Some(guard) = case.guards.last() else {
            return;
        };
        let extended = guard.extend(LEASE * times).await;
        let left = left(case).await;
        match extended {
            Ok(()) => assert!(left > millis(LEASE * (times - 1)), "{left} ms left"),
            Err(error) => {
                case.tolerate(&error);
            }
        }
        assert!(left <= millis(LEASE * times), "{left} ms left");
        case.check(true).await;
    }
    case.release_all().await;
}

/// Has two acquires undone: one was carried out, one never came.
pub(crate) async fn undo<F: Family>(case: &mut Case<F>) {
    for (nth, fault) in [(1, Fault::CutAfter), (2, Fault::CutBefore)] {
        case.proxy.rule(takes(case).nth(nth), fault);
    }
    let lock = case.lock();
    for _ in 0..3 {
        // Without scripts it may still be carried out when its call has failed, and has to be waited for until it is undone.
        case.acquire(lock.acquire_timeout(PATIENCE)).await;
        case.release_all().await;
    }
}

/// Has two re-entries undone.
pub(crate) async fn undo_reentry<F: Family>(case: &mut Case<F>) {
    let lock = case.lock();
    case.acquire(lock.acquire()).await;
    for nth in [1, 2] {
        case.proxy.rule(asks(case).nth(nth), Fault::CutAfter);
    }
    for _ in 0..2 {
        let before = undone(case);
        if !case.acquire(lock.try_acquire()).await {
            // Once the lock is given back, there is nothing to undo.
            eventually(PATIENCE, "it is undone", async || undone(case) > before).await;
        }
    }
    case.release_all().await;
}

/// How often the server has been asked for the lock of the case.
fn asked<F: Family>(case: &Case<F>) -> usize {
    let asks = |words: &[String]| Script::Acquire.runs(words) || words[0] == "ZSCORE";
    case.world.witness.count(&case.name, asks)
}

/// How often it has renewed it, once it is held.
fn renewed<F: Family>(case: &Case<F>) -> usize {
    let renews = |words: &[String]| Script::Renew.runs(words) || words[0] == "PEXPIRE";
    case.world.witness.count(&case.name, renews)
}

/// How often it has refused, from then on, what was asked.
fn undone<F: Family>(case: &Case<F>) -> usize {
    let undoes = |words: &[String]| Script::Undo.runs(words) || words[0] == "ZADD";
    case.world.witness.count(&case.name, undoes)
}

/// What asks for a lock.
pub(crate) fn asks<F: Family>(case: &Case<F>) -> Match {
    if case.scripts {
        Match::words(|words| Script::Acquire.runs(words))
    } else {
        Match::command("ZSCORE")
    }
}

/// What takes a lock that is free.
fn takes<F: Family>(case: &Case<F>) -> Match {
    match (case.scripts, F::COUNTS) {
        (true, _) => asks(case),
        (false, true) => Match::command("HSET"),
        (false, false) => Match::command("SET"),
    }
}

/// How many milliseconds it is held if nobody renews it.
async fn left<F: Family>(case: &Case<F>) -> i64 {
    let (world, name) = (&case.world, &case.name);
    if F::PERMITS == 0 {
        return world.pttl(name).await;
    }
    let out = format!("{{{name}}}:timeout");
    world
        .ask(redis::cmd("EVAL").arg(SOONEST).arg(1).arg(out))
        .await
}

/// KEYS the permits that are out. How many ms until the first of them comes back.
const SOONEST: &str = "
local time, first = redis.call('TIME'), redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
return tonumber(first or '0') - time[1] * 1000 - math.floor(time[2] / 1000)";

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).expect("it is short")
}

type Acquiring<K> = Pin<Box<dyn Future<Output = Result<Guard<K>, Error>> + Send>>;

pub(crate) const BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(5), Duration::from_millis(20));
/// A third of it is longer than a call may take, so that a renewal that is lost can be sent again; and a
/// machine that stands still for some seconds does not end it.
const SHORT_LEASE: Duration = Duration::from_secs(9);
