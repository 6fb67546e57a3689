//! The stories, told, of those who wait in the store's own line: of our client, whose network may break, and of another.

use std::time::Duration;

use distlock::{Error, Guard};
use tokio::task::JoinHandle;

use super::PATIENCE;
use super::case::Case;
use super::support::{Family, Fault, Player, eventually};
use super::tellings::{asks, taken, waits};

/// Waits in front of somebody else. Whatever is lost, it has one place and keeps it.
pub(crate) async fn stand<F: Family>(case: &mut Case<F>) {
    let theirs = taken_by_another(case).await;
    let waiting = waits(case, case.lock().acquire(), 2).await;
    let behind = joins(case, &case.world.other).await;
    let waited = !waiting.is_finished();
    theirs.release().await.expect("their network is fine");
    if waited {
        let waiting = async { waiting.await.expect("no panic") };
        let got = case.acquire(waiting).await;
        assert!(got, "a waiter rides through what goes wrong");
        assert!(!behind.is_finished(), "it has lost its place");
        stand_in_line(case, 1).await;
    } else {
        give_up(case, waiting).await;
    }
    hand_on(case, behind).await;
    case.release_all().await;
}

/// Leaves the line because time is over, and because nobody wants it any more.
pub(crate) async fn leave<F: Family>(case: &mut Case<F>) {
    let theirs = taken_by_another(case).await;
    case.guards.push(theirs);
    let waited = case.lock().acquire_timeout(A_WHILE).await;
    match waited {
        Ok(got) => assert!(got.is_none(), "somebody else holds it"),
        Err(error) => drop(case.tolerate(&error)),
    }
    case.check(false).await;
    stand_in_line(case, 0).await;

    let waiting = waits(case, case.lock().acquire(), 2).await;
    give_up(case, waiting).await;
    case.check(false).await;
    stand_in_line(case, 0).await;
    case.release_all().await;
}

/// Goes to the next in line, and from there to the next: of another client, of ours, of the other again.
pub(crate) async fn hand_over<F: Family>(case: &mut Case<F>) {
    let lock = case.lock();
    if !case.acquire(lock.acquire()).await {
        return;
    }
    let first = joins(case, &case.world.other).await;
    let second = joins(case, &case.client).await;
    let third = joins(case, &case.world.other).await;
    hand_on(case, first).await;
    if second.is_finished() {
        give_up(case, second).await;
    } else {
        assert!(hand_on(case, second).await, "it was in line");
    }
    hand_on(case, third).await;
    case.release_all().await;
}

/// Has two places taken back: of one who has asked again since its answer was lost, and of one whose answer is not there yet.
pub(crate) async fn undo_in_line<F: Family>(case: &mut Case<F>) {
    let theirs = taken_by_another(case).await;
    case.guards.push(theirs);
    for (nth, fault, asked) in [(2, Fault::CutAfter, 3), (1, Fault::HoldReply, 1)] {
        case.proxy.rule(asks(case).nth(nth), fault);
        let waiting = waits(case, case.lock().acquire(), asked).await;
        give_up(case, waiting).await;
        case.check(false).await;
        stand_in_line(case, 0).await;
    }
    case.release_all().await;
}

/// Holds what a question of its was not answered for, which may still come: it is refused as soon as the hold has ended.
pub(crate) async fn undo_an_echo<F: Family>(case: &mut Case<F>) {
    for (fault, dropped) in [(Fault::CutAfter, false), (Fault::CutBefore, true)] {
        let theirs = taken_by_another(case).await;
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

/// Gives the lock back, and sees that the next one gets it.
async fn hand_on<F: Family>(case: &mut Case<F>, next: Acquiring<F>) -> bool {
    if let Some(guard) = case.guards.pop()
        && let Err(error) = guard.release().await
    {
        case.tolerate(&error);
    }
    case.acquire(async { next.await.expect("no panic") }).await
}

/// Waits no longer, whether it has failed or not.
async fn give_up<F: Family>(case: &mut Case<F>, waiting: Acquiring<F>) {
    waiting.abort();
    match waiting.await {
        Ok(Ok(guard)) => panic!("somebody else holds it: {guard:?}"),
        Ok(Err(error)) => drop(case.tolerate(&error)),
        Err(error) => assert!(error.is_cancelled(), "{error}"),
    }
}

/// Somebody who gets in line behind all who stand there; or has failed.
async fn joins<F: Family>(case: &Case<F>, client: &Player<F>) -> Acquiring<F> {
    let before = case.world.line(&case.name).await;
    let waiting = tokio::spawn(client.lock(case.name.as_str()).acquire());
    eventually(PATIENCE, "it stands in line, or has failed", async || {
        let line = case.world.line(&case.name).await;
        waiting.is_finished() || line.iter().any(|owner| !before.contains(owner))
    })
    .await;
    waiting
}

/// Soon so many stand in line: sooner than those who have gone would be passed over.
async fn stand_in_line<F: Family>(case: &Case<F>, length: usize) {
    eventually(SOON, &format!("{length} stand in line"), async || {
        case.world.line(&case.name).await.len() == length
    })
    .await;
}

type Acquiring<F> = JoinHandle<Result<Guard<<F as Family>::Kind>, Error>>;

/// Long enough to ask and to listen.
const A_WHILE: Duration = Duration::from_millis(100);
/// A waiter that does not ask is passed over after ten seconds.
const SOON: Duration = Duration::from_secs(5);

async fn taken_by_another<F: Family>(case: &Case<F>) -> Guard<F::Kind> {
    taken(case, case.world.other.lock(case.name.as_str())).await
}
