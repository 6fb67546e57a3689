//! Work under a lock: `while_held` and `run`.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use distlock::{Error, Lease, LostReason, RunError};
use tokio::sync::oneshot;
use tokio::task::yield_now;

use crate::stage::{CaseResult, Family, PATIENCE, Stage, begun, in_time, waits};

with_every_lock! {
    work_under_a_guard_returns_its_value,
    work_under_a_guard_is_dropped_when_the_lock_is_lost,
    work_under_a_lost_guard_is_never_started,
    work_may_be_dropped_and_its_guard_kept,
    run_returns_the_value_of_the_work_and_releases_the_lock,
    run_returns_the_error_of_the_work_unchanged,
    run_fails_if_the_lock_was_lost_before_the_work_ended,
    run_fails_if_the_lock_was_lost_though_its_client_waits_for_it,
    run_fails_if_the_work_blocked_for_longer_than_the_lease,
    work_that_blocked_for_longer_than_the_lease_is_not_done_under_the_guard,
    run_drops_the_work_when_the_lock_is_lost,
    run_drops_the_work_after_max_hold,
    run_starts_no_work_without_the_lock,
    a_dropped_run_releases_the_lock,
    work_that_panics_releases_the_lock,
    ;
    a_run_succeeds_nested_in_another_of_the_same_owner,
    run_fails_if_the_lock_was_lost_though_another_guard_ends_with_it,
}

/// Long enough to see that the work runs under the lock.
const SHORT: Duration = Duration::from_secs(3);

/// Returns work that never ends; its `Arc` shows whether it still exists.
fn endless(alive: &Arc<()>) -> impl Future<Output = ()> + Send + use<> {
    let alive = alive.clone();
    async move {
        pending::<()>().await;
        drop(alive);
    }
}

fn exists(work: &Arc<()>) -> bool {
    Arc::strong_count(work) > 1
}

fn lost_by<T>(reason: LostReason) -> impl Fn(RunError<T>) -> bool {
    move |error| matches!(error.error(), Error::Lost { reason: why, .. } if *why == reason)
}

/// Returns the output of work that ran to its end although the lock was lost.
fn lost<T>(ended: Result<T, RunError<T>>) -> Option<T> {
    let error = ended.err().expect("the lock was not held to the end");
    assert!(error.error().is_lost(), "{error}");
    error.into_output()
}

async fn work_under_a_guard_returns_its_value(stage: &Stage<impl Family>) -> CaseResult {
    let client = stage.client().await?;
    let held = client.lock(stage.name("stock")).acquire().await?;
    let borrowed = String::from("42");
    let answer = held.while_held(async { borrowed.len() }).await?;
    assert_eq!(answer, 2);
    let answer = held.while_held(async {
        yield_now().await;
        Err::<(), _>("its own error")
    });
    assert_eq!(answer.await?, Err("its own error"));
    held.check()?;
    held.release().await
}

async fn work_under_a_guard_is_dropped_when_the_lock_is_lost(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let work = Arc::new(());

    let expiring = a
        .lock(&*name)
        .with_lease(Lease::Fixed(SHORT))
        .acquire()
        .await?;
    let mut doing = begun(expiring.while_held(endless(&work))).await;
    assert!(waits(&mut doing).await);
    assert!(exists(&work));
    let ended = in_time(&mut doing).await;
    assert!(ended.is_err_and(lost_by(LostReason::Expired)));
    // The work ends by itself, not only with the call's future.
    assert!(!exists(&work));
    drop(doing);

    let lease = Lease::KeepAlive(SHORT * 2);
    let forced = b.lock(&*name).with_lease(lease).acquire().await?;
    let doing = begun(forced.while_held(endless(&work))).await;
    assert!(exists(&work));
    a.admin().force_release(&name).await?;
    assert!(
        in_time(doing)
            .await
            .is_err_and(lost_by(LostReason::Removed))
    );
    assert!(!exists(&work));
    Ok(())
}

async fn work_under_a_lost_guard_is_never_started(stage: &Stage<impl Family>) -> CaseResult {
    let client = stage.client().await?;
    let name = stage.name("stock");
    let held = client.lock(&*name).acquire().await?;
    client.admin().force_release(&name).await?;
    let work = async { panic!("the lock is not ours") };
    let done: Result<(), RunError<()>> = held.while_held(work).await;
    assert!(done.is_err_and(lost_by(LostReason::Removed)));
    Ok(())
}

async fn work_may_be_dropped_and_its_guard_kept(stage: &Stage<impl Family>) -> CaseResult {
    let client = stage.client().await?;
    let held = client.lock(stage.name("stock")).acquire().await?;
    let work = Arc::new(());
    let doing = begun(held.while_held(endless(&work))).await;
    assert!(exists(&work));
    drop(doing);
    assert!(!exists(&work));
    held.check()?;
    held.release().await
}

async fn run_returns_the_value_of_the_work_and_releases_the_lock(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let outside = b.lock(&*name);
    let value = a.lock(&*name).run(async |held| {
        held.check()?;
        assert_eq!(held.name(), outside.name());
        assert!(outside.try_acquire().await?.is_none());
        Ok::<_, Error>(held)
    });
    let held = value.await??;
    assert!(!held.is_held());
    let got = outside.try_acquire().await?;
    got.expect("it was given back").release().await
}

async fn run_returns_the_error_of_the_work_unchanged(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let done = a.lock(&*name).run(async |_| Err::<(), _>("its own error"));
    assert_eq!(done.await?, Err("its own error"));
    let got = b.lock(&*name).try_acquire().await?;
    got.expect("it was given back").release().await
}

async fn run_fails_if_the_lock_was_lost_before_the_work_ended(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let (admin, other) = (b.admin(), b.lock(&*name));
    let done = a.lock(&*name).run(async |_| {
        let forced = admin.force_release(&name).await;
        assert!(forced.is_ok_and(|forced| forced));
        let second = other.try_acquire().await.expect("the store answers");
        second.expect("it is free").release().await?;
        Ok::<_, Error>("work done")
    });
    let output = lost(done.await).expect("the work ran to its end");
    assert_eq!(output?, "work done");
    Ok(())
}

/// The next waiter of the same client would take the lock over in memory, without a request to the store.
async fn run_fails_if_the_lock_was_lost_though_its_client_waits_for_it(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let (admin, lock, other) = (b.admin(), a.lock(&*name), b.lock(&*name));
    let waiting = &mut None;
    let done = lock.run(async |_| {
        let mut next = begun(lock.acquire()).await;
        assert!(waits(&mut next).await);
        *waiting = Some(next);
        let forced = admin.force_release(&name).await;
        assert!(forced.is_ok_and(|forced| forced));
        // The waiter may be the first to learn that the lock is free.
        if let Some(second) = other.try_acquire().await.expect("the store answers") {
            second.release().await.expect("nobody takes it");
        }
    });
    assert!(lost(done.await).is_some());
    if let Some(next) = waiting.take() {
        in_time(next).await?.release().await?;
    }
    Ok(())
}

async fn run_fails_if_the_work_blocked_for_longer_than_the_lease(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let client = stage.client().await?;
    let lease = SHORT;
    let lock = client
        .lock(stage.name("stock"))
        .with_lease(Lease::Fixed(lease));
    let done = lock.run(async |_| stage.block(lease));
    assert!(lost(done.await).is_some());
    Ok(())
}

async fn work_that_blocked_for_longer_than_the_lease_is_not_done_under_the_guard(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let client = stage.client().await?;
    let lease = SHORT;
    let lock = client
        .lock(stage.name("stock"))
        .with_lease(Lease::Fixed(lease));
    let guard = lock.acquire().await?;
    let done = guard.while_held(async { stage.block(lease) }).await;
    assert!(!guard.is_held());
    assert!(lost(done).is_some());
    Ok(())
}

async fn run_drops_the_work_when_the_lock_is_lost(stage: &Stage<impl Family>) -> CaseResult {
    let client = stage.client().await?;
    let name = stage.name("stock");
    let work = Arc::new(());
    let endless = endless(&work);
    let lock = client.lock(&*name).with_lease(Lease::Fixed(SHORT));
    let mut running = begun(lock.run(async |_| endless.await)).await;
    assert!(waits(&mut running).await);
    assert!(exists(&work));
    let ended = in_time(&mut running).await;
    assert!(ended.is_err_and(lost_by(LostReason::Expired)));
    assert!(!exists(&work));
    let got = client.lock(&*name).acquire_timeout(PATIENCE).await?;
    got.expect("it is free").release().await
}

async fn run_drops_the_work_after_max_hold(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let work = Arc::new(());
    let endless = endless(&work);
    let lock = a.lock(&*name).with_max_hold(SHORT);
    let ended = in_time(lock.run(async |_| endless.await)).await;
    assert!(ended.is_err_and(lost_by(LostReason::MaxHold)));
    assert!(!exists(&work));
    let got = b.lock(&*name).acquire_timeout(PATIENCE).await?;
    got.expect("it is free").release().await
}

async fn run_starts_no_work_without_the_lock(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let held = a.lock(&*name).acquire().await?;
    let (begin, mut begun_work) = oneshot::channel();
    let lock = b.lock(&*name);
    let mut running = begun(lock.run(async |_| begin.send(()))).await;
    assert!(waits(&mut running).await);
    assert!(begun_work.try_recv().is_err());
    held.release().await?;
    in_time(running).await?.expect("somebody listens");
    begun_work.try_recv().expect("it was done then");
    Ok(())
}

async fn a_run_succeeds_nested_in_another_of_the_same_owner(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let lock = a.lock(&*name).with_owner(&a.new_owner());
    let outside = b.lock(&*name);
    let outer = lock.run(async |outer| {
        let count = lock.run(async |inner| inner.hold_count()).await?;
        assert!(outside.try_acquire().await?.is_none(), "it is not over yet");
        outer.check()?;
        Ok::<_, Error>((count, outer.hold_count()))
    });
    assert_eq!(in_time(outer).await??, (2, 1));
    let got = outside.try_acquire().await?;
    got.expect("it was given back").release().await
}

/// Each of the two guards may be the last one.
async fn run_fails_if_the_lock_was_lost_though_another_guard_ends_with_it(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let admin = b.admin();
    for run_is_last in [false, true] {
        let lock = a.lock(&*name).with_owner(&a.new_owner());
        let other = lock.acquire().await?;
        let (done, is_done) = oneshot::channel();
        let run = lock.run(async |_| {
            let forced = admin.force_release(&name).await;
            assert!(forced.is_ok_and(|forced| forced));
            let _ = done.send(());
        });
        let release = async {
            is_done.await.expect("the work ends");
            other.release().await
        };
        let (ran, released) = match run_is_last {
            false => tokio::join!(biased; run, release),
            true => {
                let (released, ran) = tokio::join!(biased; release, run);
                (ran, released)
            }
        };
        assert!(lost(ran).is_some(), "last: {run_is_last}");
        let error = released.expect_err("it was not held to the end");
        assert!(error.is_lost(), "last: {run_is_last}: {error}");
    }
    Ok(())
}

async fn a_dropped_run_releases_the_lock(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let work = Arc::new(());
    let endless = endless(&work);
    let lock = a.lock(&*name);
    let mut running = begun(lock.run(async |_| endless.await)).await;
    assert!(waits(&mut running).await);
    let begins = async {
        while b.admin().inspect(&name).await?.is_none() {
            assert!(waits(&mut running).await);
        }
        Ok::<_, Error>(())
    };
    in_time(begins).await?;
    assert!(b.lock(&*name).try_acquire().await?.is_none());
    drop(running);
    assert!(!exists(&work));
    let got = b.lock(&*name).acquire_timeout(PATIENCE).await?;
    got.expect("it was given back").release().await
}

async fn work_that_panics_releases_the_lock(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let lock = a.lock(&*name);
    let running = tokio::spawn(lock.run(async |_| panic!("this panic is part of the test")));
    let ended: Result<Result<(), _>, _> = running.await;
    assert!(ended.is_err_and(|error| error.is_panic()));
    let got = b.lock(&*name).acquire_timeout(PATIENCE).await?;
    got.expect("it was given back").release().await
}
