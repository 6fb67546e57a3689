//! The stories as code: one function for each plot.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use distlock::{Backoff, Error, Guard, Lease, Lock, Wait};
use tokio::task::JoinHandle;

use super::case::Case;
use super::stories::Plot;
use super::{LEASE, PATIENCE};
use crate::support::{Family, Fault, Match, Opposite, Player, Script, eventually};

pub(crate) async fn run_story<F: Family>(case: &mut Case<F>) {
    match case.story.plot {
        Plot::Acquire => acquire(case).await,
        Plot::WaitSubscribed => wait(case, Wait::Notify, 2).await,
        Plot::WaitPolling => wait(case, Wait::Poll(BACKOFF), 3).await,
        Plot::Reenter => reenter(case).await,
        Plot::ReleaseInPart => {
            hold_four_times(case).await;
            case.release_all().await;
        }
        Plot::Release => release(case).await,
        Plot::HandOff => hand_off(case).await,
        Plot::Drop => abandon(case).await,
        Plot::DropInPart => {
            hold_four_times(case).await;
            case.abandon().await;
            case.abandon().await;
            case.release_all().await;
        }
        Plot::Renew => renew(case).await,
        Plot::Extend => extend(case).await,
        Plot::Undo => undo(case).await,
        Plot::UndoReentry => undo_reentry(case).await,
        Plot::StandInQueue => stand(case).await,
        Plot::LeaveTheQueue => leave(case).await,
        Plot::ReleaseToTheNext => release_to_the_next(case).await,
        Plot::UndoInQueue => undo_in_queue(case).await,
        Plot::UndoAnOrphan => undo_an_orphan(case).await,
    }
}

async fn acquire<F: Family>(case: &mut Case<F>) {
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

/// Waits for a lock that another client releases once the server has received this many requests for it.
async fn wait<F: Family>(case: &mut Case<F>, wait: Wait, asks: usize) {
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

/// Has another client hold a lock that excludes the one of the case.
async fn taken_by_another<F: Family>(case: &Case<F>) -> Guard<Opposite<F>> {
    taken(case, case.server.other.against(case.name.as_str())).await
}

/// Has another client acquire a lock, and waits until the witness has seen that.
async fn taken<F: Family, K>(case: &Case<F>, theirs: Lock<K>) -> Guard<K> {
    let theirs = theirs.acquire().await.expect("their network is fine");
    let executed = async || {
        let owner = theirs.owner();
        let words = |words: &[String]| words.contains(&owner);
        case.server.witness.count(&case.name, words) > 0
    };
    eventually(PATIENCE, "theirs is seen", executed).await;
    theirs
}

/// Starts a waiter in the background, and returns once this many requests for the lock have arrived, or the waiter has failed.
async fn waits<F: Family, T: Send + 'static>(
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

async fn reenter<F: Family>(case: &mut Case<F>) {
    let lock = case.lock();
    case.acquire(lock.acquire()).await;
    case.acquire(lock.acquire()).await;
    case.acquire(lock.try_acquire()).await;
    case.release().await;
    // This acquire comes behind an attempt that may have been undone.
    case.acquire(lock.acquire_timeout(PATIENCE)).await;
    case.release_all().await;
}

async fn release<F: Family>(case: &mut Case<F>) {
    for _ in 0..3 {
        let lock = case.lock();
        case.acquire(lock.acquire()).await;
        case.release_all().await;
    }
}

async fn abandon<F: Family>(case: &mut Case<F>) {
    for _ in 0..2 {
        let lock = case.lock();
        case.acquire(lock.acquire()).await;
        case.abandon().await;
    }
}

async fn hold_four_times<F: Family>(case: &mut Case<F>) {
    let lock = case.lock();
    for _ in 0..4 {
        case.acquire(lock.acquire()).await;
    }
}

/// Queues four waiters behind a hold of their own client; each hands the lock off to the next.
async fn hand_off<F: Family>(case: &mut Case<F>) {
    let lock = case.client.lock(case.name.as_str());
    if !case.acquire(lock.acquire()).await {
        // No waiter would queue without a holder.
        return;
    }
    let mut line: VecDeque<Acquiring<F::Kind>> = VecDeque::new();
    for _ in 0..4 {
        let mut waiting: Acquiring<F::Kind> = Box::pin(lock.acquire());
        // The first poll puts it in the queue.
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
async fn renew<F: Family>(case: &mut Case<F>) {
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
        let left = left(case);
        assert!(left > 0 && left <= millis(SHORT_LEASE), "{left} ms left");
    }
    case.release_all().await;
}

async fn extend<F: Family>(case: &mut Case<F>) {
    let lock = case.lock().with_lease(Lease::Fixed(LEASE));
    case.acquire(lock.acquire()).await;
    for times in 2..=3 {
        let Some(guard) = case.guards.last() else {
            return;
        };
        let extended = guard.extend(LEASE * times).await;
        let left = left(case);
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

/// Has two acquires undone, of which one was executed and one never arrived.
async fn undo<F: Family>(case: &mut Case<F>) {
    for (nth, fault) in [(1, Fault::CutAfter), (2, Fault::CutBefore)] {
        case.proxy.rule(takes(case).nth(nth), fault);
    }
    let lock = case.lock();
    for _ in 0..3 {
        // Without scripts an acquire may still be executed after its call has failed: this call has to wait until it is undone.
        case.acquire(lock.acquire_timeout(PATIENCE)).await;
        case.release_all().await;
    }
}

/// Has two re-entries undone.
async fn undo_reentry<F: Family>(case: &mut Case<F>) {
    let lock = case.lock();
    case.acquire(lock.acquire()).await;
    for nth in [1, 2] {
        case.proxy.rule(asks(case).nth(nth), Fault::CutAfter);
    }
    for _ in 0..2 {
        let before = undone(case);
        if !case.acquire(lock.try_acquire()).await {
            // Once the lock is released, there is nothing to undo.
            eventually(PATIENCE, "it is undone", async || undone(case) > before).await;
        }
    }
    case.release_all().await;
}

/// Returns how often the lock of the case was requested.
fn asked<F: Family>(case: &Case<F>) -> usize {
    let asks = |words: &[String]| Script::Acquire.runs(words) || words[0] == "ZSCORE";
    case.server.witness.count(&case.name, asks)
}

/// Returns how often the lock was renewed while it was held.
fn renewed<F: Family>(case: &Case<F>) -> usize {
    let renews = |words: &[String]| Script::Renew.runs(words) || words[0] == "PEXPIRE";
    case.server.witness.count(&case.name, renews)
}

/// Returns how many requests were undone, and would be refused from then on.
fn undone<F: Family>(case: &Case<F>) -> usize {
    let undoes = |words: &[String]| Script::Undo.runs(words) || words[0] == "ZADD";
    case.server.witness.count(&case.name, undoes)
}

/// Selects requests for a lock.
fn asks<F: Family>(case: &Case<F>) -> Match {
    if case.scripts {
        Match::words(|words| Script::Acquire.runs(words))
    } else {
        Match::command("ZSCORE")
    }
}

/// Selects the command that acquires a free lock.
fn takes<F: Family>(case: &Case<F>) -> Match {
    match (case.scripts, F::COUNTS) {
        (true, _) => asks(case),
        (false, true) => Match::command("HSET"),
        (false, false) => Match::command("SET"),
    }
}

/// Returns the milliseconds for which the lock is held without another renewal.
fn left<F: Family>(case: &Case<F>) -> i64 {
    let (redis, name) = (&case.server.redis, &*case.name);
    if F::PERMITS == 0 {
        return redis.pttl(name);
    }
    redis.query(&["EVAL", SOONEST, "1", &format!("{{{name}}}:timeout")])
}

/// Takes the permits in use in KEYS. Returns the time in ms until the first of them is available again.
const SOONEST: &str = "
local time, first = redis.call('TIME'), redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
return tonumber(first or '0') - time[1] * 1000 - math.floor(time[2] / 1000)";

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).expect("it is short")
}

/// Waits in front of another waiter. The first has one queue entry and keeps it, whatever is lost.
async fn stand<F: Family>(case: &mut Case<F>) {
    let theirs = taken(case, case.server.other.lock(case.name.as_str())).await;
    let waiting = waits(case, case.lock().acquire(), 2).await;
    let behind = joins(case, &case.server.other).await;
    let waited = !waiting.is_finished();
    theirs.release().await.expect("their network is fine");
    if waited {
        let waiting = async { waiting.await.expect("no panic") };
        let got = case.acquire(waiting).await;
        assert!(got, "a waiter rides through what goes wrong");
        assert!(!behind.is_finished(), "it has lost its place");
        stand_in_queue(case, 1).await;
    } else {
        give_up(case, waiting).await;
    }
    next_gets_it(case, behind).await;
    case.release_all().await;
}

/// Leaves the queue at the deadline, and because the future is dropped.
async fn leave<F: Family>(case: &mut Case<F>) {
    let theirs = taken(case, case.server.other.lock(case.name.as_str())).await;
    case.guards.push(theirs);
    let waited = case.lock().acquire_timeout(A_WHILE).await;
    match waited {
        Ok(got) => assert!(got.is_none(), "somebody else holds it"),
        Err(error) => drop(case.tolerate(&error)),
    }
    case.check(false).await;
    stand_in_queue(case, 0).await;

    let waiting = waits(case, case.lock().acquire(), 2).await;
    give_up(case, waiting).await;
    case.check(false).await;
    stand_in_queue(case, 0).await;
    case.release_all().await;
}

/// Releases to the next waiter in the queue, and from there to the next: of the other client, of ours, of the other again.
async fn release_to_the_next<F: Family>(case: &mut Case<F>) {
    let lock = case.lock();
    if !case.acquire(lock.acquire()).await {
        return;
    }
    let first = joins(case, &case.server.other).await;
    let second = joins(case, &case.client).await;
    let third = joins(case, &case.server.other).await;
    next_gets_it(case, first).await;
    if second.is_finished() {
        give_up(case, second).await;
    } else {
        assert!(next_gets_it(case, second).await, "it was in line");
    }
    next_gets_it(case, third).await;
    case.release_all().await;
}

/// Has two queue entries undone: of a waiter that has sent another request since it lost a reply, and of a waiter whose reply has not
/// arrived yet.
async fn undo_in_queue<F: Family>(case: &mut Case<F>) {
    let theirs = taken(case, case.server.other.lock(case.name.as_str())).await;
    case.guards.push(theirs);
    for (nth, fault, asked) in [(2, Fault::CutAfter, 3), (1, Fault::HoldReply, 1)] {
        case.proxy.rule(asks(case).nth(nth), fault);
        let waiting = waits(case, case.lock().acquire(), asked).await;
        give_up(case, waiting).await;
        case.check(false).await;
        stand_in_queue(case, 0).await;
    }
    case.release_all().await;
}

/// Holds a lock with an orphaned request, which had no reply and may still arrive: it is refused as soon as the hold has ended.
async fn undo_an_orphan<F: Family>(case: &mut Case<F>) {
    for (fault, dropped) in [(Fault::CutAfter, false), (Fault::CutBefore, true)] {
        let theirs = taken(case, case.server.other.lock(case.name.as_str())).await;
        case.proxy.rule(asks(case).nth(2), fault);
        let asks = if fault == Fault::CutAfter { 3 } else { 2 };
        let waiting = waits(case, case.lock().acquire(), asks).await;
        theirs.release().await.expect("their network is fine");
        let waiting = async { waiting.await.expect("no panic") };
        if case.acquire(waiting).await && dropped {
            case.abandon().await;
        }
        case.release_all().await;
    }
}

/// Releases the lock, and checks that the next waiter acquires it.
async fn next_gets_it<F: Family>(case: &mut Case<F>, next: JoinHandle<Acquired<F>>) -> bool {
    if let Some(guard) = case.guards.pop()
        && let Err(error) = guard.release().await
    {
        case.tolerate(&error);
    }
    case.acquire(async { next.await.expect("no panic") }).await
}

/// Cancels a waiter, whether it has failed or not.
async fn give_up<F: Family>(case: &mut Case<F>, waiting: JoinHandle<Acquired<F>>) {
    waiting.abort();
    match waiting.await {
        Ok(Ok(guard)) => panic!("somebody else holds it: {guard:?}"),
        Ok(Err(error)) => drop(case.tolerate(&error)),
        Err(error) => assert!(error.is_cancelled(), "{error}"),
    }
}

/// Starts a waiter, which queues behind all others or fails.
async fn joins<F: Family>(case: &Case<F>, client: &Player<F>) -> JoinHandle<Acquired<F>> {
    let before = case.server.queue(&case.name);
    let waiting = tokio::spawn(client.lock(case.name.as_str()).acquire());
    eventually(PATIENCE, "it stands in line, or has failed", async || {
        let line = case.server.queue(&case.name);
        waiting.is_finished() || line.iter().any(|owner| !before.contains(owner))
    })
    .await;
    waiting
}

/// Waits until this many waiters are in the queue, for less time than it takes to skip absent waiters.
async fn stand_in_queue<F: Family>(case: &Case<F>, length: usize) {
    eventually(SOON, &format!("{length} stand in line"), async || {
        case.server.queue(&case.name).len() == length
    })
    .await;
}

type Acquired<F> = Result<Guard<<F as Family>::Kind>, Error>;
type Acquiring<K> = Pin<Box<dyn Future<Output = Result<Guard<K>, Error>> + Send>>;

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(20));
/// A third of it is longer than the command time-out, so that a lost renewal can be retried.
const SHORT_LEASE: Duration = Duration::from_secs(3);
/// Enough time to send a request and to subscribe.
const A_WHILE: Duration = Duration::from_millis(500);
/// Less than the ten seconds after which a silent waiter is skipped.
const SOON: Duration = Duration::from_secs(5);
