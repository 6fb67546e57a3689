//! Closing a client.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use distlock::{Error, LostReason};

use crate::stage::{CaseResult, Family, PATIENCE, Stage, begun, in_time, waits};

with_every_lock! {
    closing_releases_holds_and_notifies_the_holders,
    closing_completes_the_releases_of_dropped_guards,
    closing_fails_waiters,
    closing_fails_requests_in_flight,
    closing_releases_a_lock_granted_to_an_unpolled_waiter,
    closing_drops_the_work_under_a_guard,
    closing_lets_other_clients_acquire_the_lock,
    a_closed_client_rejects_every_call,
    a_client_may_be_closed_twice,
    a_dropped_client_does_not_release_its_guards,
    ;
    closing_releases_re_entered_holds,
}

fn closed(error: Error) -> bool {
    matches!(error, Error::Closed { .. })
}

fn lost_by_closing(error: Error) -> bool {
    matches!(
        error,
        Error::Lost {
            reason: LostReason::Closed,
            ..
        }
    )
}

async fn closing_releases_holds_and_notifies_the_holders(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let (one, two) = (stage.name("one"), stage.name("two"));
    let first = a.lock(&*one).acquire().await?;
    let second = a.lock(&*two).acquire().await?;
    let signal = begun(first.lost()).await;
    // A clone is the same client.
    in_time(a.clone().close()).await?;
    let lost = in_time(signal).await.expect("it was lost");
    assert_eq!(lost.reason, LostReason::Closed);
    assert!(!first.is_held() && !second.is_held());
    assert!(second.check().is_err_and(lost_by_closing));
    for name in [one, two] {
        let got = b.lock(&*name).try_acquire().await?;
        got.expect("it was given back").release().await?;
    }
    assert!(first.release().await.is_err_and(lost_by_closing));
    drop(second);
    Ok(())
}

async fn closing_releases_re_entered_holds(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let lock = a.lock(&*name).with_owner(&a.new_owner());
    let guards = [lock.acquire().await?, lock.acquire().await?];
    in_time(a.close()).await?;
    assert!(guards.iter().all(|guard| !guard.is_held()));
    let got = b.lock(&*name).try_acquire().await?;
    got.expect("it was given back").release().await
}

async fn closing_completes_the_releases_of_dropped_guards(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let names: Vec<_> = (0..20).map(|n| stage.name(&n.to_string())).collect();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(a.lock(&**name).acquire().await?);
        assert!(b.lock(&**name).try_acquire().await?.is_none());
    }
    drop(guards);
    in_time(a.close()).await?;
    for name in &names {
        let got = b.lock(&**name).try_acquire().await?;
        got.expect("it was given back").release().await?;
    }
    Ok(())
}

async fn closing_fails_waiters(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let (near, far) = (stage.name("near"), stage.name("far"));
    let held = a.lock(&*near).acquire().await?;
    let theirs = b.lock(&*far).acquire().await?;
    let mut waiting = Vec::new();
    for name in [&near, &far] {
        for _ in 0..3 {
            waiting.push(begun(a.lock(&**name).acquire()).await);
        }
    }
    let timed = begun(a.lock(&*far).acquire_timeout(PATIENCE)).await;
    for waiter in &mut waiting {
        assert!(waits(waiter).await);
    }
    in_time(a.close()).await?;
    for waiter in waiting {
        assert!(in_time(waiter).await.is_err_and(closed));
    }
    assert!(in_time(timed).await.is_err_and(closed));
    assert!(held.check().is_err_and(lost_by_closing));
    theirs.check()?;
    theirs.release().await
}

/// The first request of each call is under way when the client is closed.
async fn closing_fails_requests_in_flight(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let theirs = b.lock(&*name).acquire().await?;
    let asking = begun(a.lock(&*name).acquire()).await;
    let timed = begun(a.lock(&*name).acquire_timeout(PATIENCE)).await;
    in_time(a.close()).await?;
    let (asking, timed) = tokio::join!(
        tokio::time::timeout(PATIENCE / 4, asking),
        tokio::time::timeout(PATIENCE / 4, timed),
    );
    let timed = timed.expect("it should hear of it");
    assert!(timed.is_err_and(closed));
    let asking = asking.expect("it should hear of it");
    assert!(asking.is_err_and(closed));
    theirs.release().await
}

/// The lock is passed to a waiter that is not polled afterwards.
async fn closing_releases_a_lock_granted_to_an_unpolled_waiter(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let held = a.lock(&*name).acquire().await?;
    let unaware = begun(a.lock(&*name).acquire()).await;
    held.release().await?;
    in_time(a.close()).await?;
    let got = b.lock(&*name).acquire_timeout(PATIENCE).await?;
    let got = got.expect("nobody has it");
    assert!(in_time(unaware).await.is_err_and(closed));
    got.check()?;
    got.release().await
}

async fn closing_drops_the_work_under_a_guard(stage: &Stage<impl Family>) -> CaseResult {
    let client = stage.client().await?;
    let held = client.lock(stage.name("stock")).acquire().await?;
    let work = Arc::new(());
    let alive = work.clone();
    let doing = held.while_held(async move {
        pending::<()>().await;
        drop(alive);
    });
    let doing = begun(doing).await;
    assert_eq!(Arc::strong_count(&work), 2);
    in_time(client.close()).await?;
    let done = in_time(doing).await.map_err(Error::from);
    assert!(done.is_err_and(lost_by_closing));
    assert_eq!(Arc::strong_count(&work), 1);
    Ok(())
}

async fn closing_lets_other_clients_acquire_the_lock(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let _held = a.lock(&*name).acquire().await?;
    let _in_line = begun(a.lock(&*name).acquire()).await;
    let mut waiting = begun(b.lock(&*name).acquire()).await;
    assert!(waits(&mut waiting).await);
    in_time(a.close()).await?;
    in_time(waiting).await?.release().await
}

async fn a_closed_client_rejects_every_call(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let lock = a.lock(&*name);
    lock.acquire().await?.release().await?;
    let theirs = b.lock(&*name).acquire().await?;
    in_time(a.close()).await?;

    assert!(lock.acquire().await.is_err_and(closed));
    assert!(lock.try_acquire().await.is_err_and(closed));
    let wait = Duration::from_secs(1);
    assert!(lock.acquire_timeout(wait).await.is_err_and(closed));
    let done = lock.run(async |_| ()).await.map_err(Error::from);
    assert!(done.is_err_and(closed));
    assert!(a.lock("another").acquire().await.is_err_and(closed));
    let admin = a.admin();
    assert!(admin.inspect(&name).await.is_err_and(closed));
    assert!(admin.list("*").await.is_err_and(closed));
    assert!(admin.force_release(&name).await.is_err_and(closed));
    theirs.check()?;
    theirs.release().await
}

async fn a_client_may_be_closed_twice(stage: &Stage<impl Family>) -> CaseResult {
    let client = stage.client().await?;
    let held = client.lock(stage.name("stock")).acquire().await?;
    let (one, two) = tokio::join!(client.close(), client.close());
    one.and(two)?;
    assert!(!held.is_held());
    in_time(client.close()).await
}

async fn a_dropped_client_does_not_release_its_guards(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let lease = Duration::from_secs(4);
    let lock = a.lock(&*name).with_lease(distlock::Lease::KeepAlive(lease));
    let held = lock.acquire().await?;
    drop((a, lock));
    tokio::time::sleep(lease * 3 / 2).await;
    held.check()?;
    assert!(b.lock(&*name).try_acquire().await?.is_none());
    held.release().await?;
    let got = b.lock(&*name).try_acquire().await?;
    got.expect("it was given back").release().await
}
