//! The properties of the fair lock beyond those of every lock: it is granted in the order of arrival.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use distlock::{Backoff, Change, LockKind, Wait};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::stage::{CaseResult, Fair, Player, Stage, begun, in_time, seen, soon};

on_every_engine_with_scripts! { play with Fair:
    waiters_are_granted_the_lock_in_arrival_order,
    pollers_keep_their_queue_position_too,
    a_try_does_not_overtake_waiters,
    a_waiter_that_gives_up_leaves_the_queue_at_once,
    a_head_dropped_during_a_hand_off_passes_it_on,
    an_owner_re_enters_past_the_queue,
    a_lookup_shows_the_queue_and_the_kind,
    a_force_released_lock_goes_to_the_head_of_the_queue,
    an_expired_lease_passes_the_lock_to_the_head_of_the_queue,
    short_leases_that_expire_one_after_another_pass_the_lock_on_in_time,
    a_closed_client_leaves_the_queue,
    leaving_the_queue_is_no_event_of_a_watch,
}

/// Enough waiters that chance would not put them in order.
const CROWD: usize = 12;

async fn waiters_are_granted_the_lock_in_arrival_order(stage: &Stage<Fair>) -> CaseResult {
    in_order(stage, Wait::default()).await
}

async fn pollers_keep_their_queue_position_too(stage: &Stage<Fair>) -> CaseResult {
    let pause = Duration::from_millis(20);
    in_order(stage, Wait::Poll(Backoff::new(pause, pause))).await
}

/// Checks the order of the grants to waiters of two clients, by turns.
async fn in_order(stage: &Stage<Fair>, wait: Wait) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let first = a.lock(&*name).acquire().await?;
    let (turns, mut order) = mpsc::unbounded_channel();
    let mut waiting = Vec::new();
    for number in 0..CROWD {
        let client = if number % 3 == 1 { &b } else { &a };
        let acquiring = client.lock(&*name).with_wait(wait).acquire();
        let turns = turns.clone();
        waiting.push(tokio::spawn(async move {
            let guard = acquiring.await?;
            let _ = turns.send(number);
            guard.release().await
        }));
        wait_for_queue(&a, &name, number + 1).await?;
    }
    first.release().await?;
    for turn in waiting {
        in_time(turn).await.expect("it does not panic")?;
    }
    drop(turns);
    let mut came = Vec::new();
    while let Some(number) = order.recv().await {
        came.push(number);
    }
    assert_eq!(came, (0..CROWD).collect::<Vec<_>>());
    Ok(())
}

async fn a_try_does_not_overtake_waiters(stage: &Stage<Fair>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let held = a.lock(&*name).acquire().await?;
    // The waiter is queued and is not polled: it cannot acquire the lock when it is its turn.
    let waiting = begun(b.lock(&*name).acquire()).await;
    wait_for_queue(&a, &name, 1).await?;
    held.release().await?;
    let tried = a.lock(&*name).try_acquire().await?;
    assert!(tried.is_none(), "somebody else is first");
    in_time(waiting).await?.release().await?;
    let tried = a.lock(&*name).try_acquire().await?;
    tried.expect("nobody waits").release().await
}

async fn a_waiter_that_gives_up_leaves_the_queue_at_once(stage: &Stage<Fair>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let held = a.lock(&*name).acquire().await?;
    let patience = Duration::from_millis(1500);
    stage
        .in_vain(async || b.lock(&*name).acquire_timeout(patience).await)
        .await?;
    wait_for_queue(&a, &name, 0).await?;
    let waiting = begun(b.lock(&*name).acquire()).await;
    wait_for_queue(&a, &name, 1).await?;
    drop(waiting);
    wait_for_queue(&a, &name, 0).await?;
    held.release().await?;
    let tried = a.lock(&*name).try_acquire().await?;
    tried.expect("nobody waits").release().await
}

async fn a_head_dropped_during_a_hand_off_passes_it_on(stage: &Stage<Fair>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    for granted in [false, true] {
        let held = a.lock(&*name).acquire().await?;
        let mut head = begun(a.lock(&*name).acquire()).await;
        wait_for_queue(&a, &name, 1).await?;
        let behind = tokio::spawn(b.lock(&*name).acquire());
        wait_for_queue(&a, &name, 2).await?;
        held.release().await?;
        if granted {
            // The request may have been sent by now, with its reply on the way.
            let _ = tokio::time::timeout(Duration::from_millis(1), &mut head).await;
        }
        drop(head);
        let next = in_time(behind).await.expect("it does not panic")?;
        next.release().await?;
    }
    Ok(())
}

async fn an_owner_re_enters_past_the_queue(stage: &Stage<Fair>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let lock = a.one_owners(&name);
    let outer = lock.acquire().await?;
    let waiting = begun(b.lock(&*name).acquire()).await;
    wait_for_queue(&a, &name, 1).await?;
    let inner = in_time(lock.acquire()).await?;
    assert_eq!(outer.hold_count(), 2);
    inner.release().await?;
    outer.release().await?;
    in_time(waiting).await?.release().await
}

async fn a_lookup_shows_the_queue_and_the_kind(stage: &Stage<Fair>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let held = a.lock(&*name).acquire().await?;
    assert!(seen(&a, &name).await?.waiting.is_empty());
    let waiting = tokio::spawn(b.lock(&*name).acquire());
    wait_for_queue(&a, &name, 1).await?;
    let info = seen(&a, &name).await?;
    assert_eq!(info.kind, LockKind::Fair);
    assert_eq!(info.holders[0].owner, held.owner());
    held.release().await?;
    let next = in_time(waiting).await.expect("it does not panic")?;
    assert_eq!(info.waiting, [next.owner()], "an owner waits and holds");
    next.release().await
}

async fn a_force_released_lock_goes_to_the_head_of_the_queue(stage: &Stage<Fair>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let held = a.lock(&*name).acquire().await?;
    let waiting = tokio::spawn(b.lock(&*name).acquire());
    wait_for_queue(&a, &name, 1).await?;
    assert!(a.admin().force_release(&name).await?);
    let next = in_time(waiting).await.expect("it does not panic")?;
    assert!(
        !held.is_held() || held.release().await.is_err(),
        "it is lost"
    );
    next.release().await
}

async fn an_expired_lease_passes_the_lock_to_the_head_of_the_queue(
    stage: &Stage<Fair>,
) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let short = distlock::Lease::Fixed(Duration::from_secs(4));
    let held = a.lock(&*name).with_lease(short).acquire().await?;
    let first = tokio::spawn(b.lock(&*name).acquire());
    wait_for_queue(&a, &name, 1).await?;
    let second = tokio::spawn(a.lock(&*name).acquire());
    wait_for_queue(&a, &name, 2).await?;
    let next = in_time(first).await.expect("it does not panic")?;
    assert!(!held.is_held(), "its time is over");
    sleep(Duration::from_millis(20)).await;
    assert!(!second.is_finished(), "it is not its turn");
    next.release().await?;
    let last = in_time(second).await.expect("it does not panic")?;
    last.release().await
}

/// Without a message the new head would learn only with its next poll that there is another holder, and for how long.
async fn short_leases_that_expire_one_after_another_pass_the_lock_on_in_time(
    stage: &Stage<Fair>,
) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let lease = Duration::from_millis(200);
    let rounds = AtomicU32::new(0);
    soon(stage, async || {
        let round = rounds.fetch_add(1, Ordering::Relaxed);
        let name = stage.name(&format!("stock-{round}"));
        let lock = |client: &Player<Fair>| {
            let lease = distlock::Lease::Fixed(lease);
            client.lock(&*name).with_lease(lease)
        };
        // Hold the lock until all of them wait.
        let held = a.lock(&*name).acquire().await?;
        let mut waiting = Vec::new();
        for number in 0..4 {
            let acquiring = lock(if number % 2 == 0 { &a } else { &b }).acquire();
            waiting.push(tokio::spawn(async move {
                let granted = acquiring.await.map(|guard| guard.forget());
                granted.map(|()| Instant::now())
            }));
            wait_for_queue(&a, &name, number + 1).await?;
        }
        held.release().await?;
        let (mut latest, mut before) = (Duration::ZERO, None);
        for granted in waiting {
            let at = in_time(granted).await.expect("it does not panic")?;
            let waited = before.map_or(Duration::ZERO, |before| at - before);
            latest = latest.max(waited.saturating_sub(lease));
            before = Some(at);
        }
        Ok(latest)
    })
    .await
}

async fn a_closed_client_leaves_the_queue(stage: &Stage<Fair>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let held = a.lock(&*name).acquire().await?;
    let waiting = tokio::spawn(b.lock(&*name).acquire());
    wait_for_queue(&a, &name, 1).await?;
    b.close().await?;
    assert!(in_time(waiting).await.expect("it does not panic").is_err());
    wait_for_queue(&a, &name, 0).await?;
    held.release().await
}

/// The waiter behind it is notified, in a message that any client of a server can receive.
async fn leaving_the_queue_is_no_event_of_a_watch(stage: &Stage<Fair>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let held = a.lock(&*name).acquire().await?;
    let mut watch = b.admin().watch(&*name);
    assert_eq!(in_time(watch.next()).await?.change, Change::Held);
    let first = tokio::spawn(a.lock(&*name).acquire());
    wait_for_queue(&a, &name, 1).await?;
    let second = tokio::spawn(b.lock(&*name).acquire());
    wait_for_queue(&a, &name, 2).await?;
    first.abort();
    wait_for_queue(&a, &name, 1).await?;
    let old = held.owner();
    held.release().await?;
    let next = in_time(second).await.expect("it does not panic")?;
    let event = in_time(watch.next()).await?;
    assert_eq!((event.change, event.owner), (Change::Released, Some(old)));
    let event = in_time(watch.next()).await?;
    assert_eq!(
        (event.change, event.owner),
        (Change::Granted, Some(next.owner()))
    );
    next.release().await
}

/// Waits until this many waiters are queued for a lock that is held.
async fn wait_for_queue(client: &Player<Fair>, name: &str, length: usize) -> CaseResult {
    in_time(async {
        while seen(client, name).await?.waiting.len() != length {
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    })
    .await
}
