//! Loss of a lock: the holder learns of it, and does not change the lock any more.

use std::time::Duration;

use distlock::{Error, Lease, LostReason};
use tokio::time::{Instant, sleep};

use crate::stage::{
    CaseResult, Family, PATIENCE, Stage, asked, begun, count_seen, in_time, seen, soon, waits,
};

with_every_lock! {
    a_force_released_lock_is_free_and_its_holder_notified,
    a_force_released_lock_goes_to_a_waiter_at_once,
    a_force_released_lock_goes_to_a_waiter_and_its_holder_is_notified,
    a_client_that_force_releases_its_own_lock_is_notified_at_once,
    a_force_release_of_a_free_lock_does_nothing,
    a_late_release_reports_that_the_lease_expired,
    a_late_release_reports_that_another_client_holds_the_lock,
    a_release_reports_that_the_lock_was_removed,
    a_release_reports_that_the_lock_was_taken_over,
    a_lost_guard_takes_nothing_from_the_next_holder,
    ;
    all_guards_of_an_owner_are_lost_together,
    a_partial_release_reports_that_the_lock_was_lost,
    guards_of_an_owner_released_together_all_report_that_the_lock_was_lost,
    guards_of_an_owner_released_together_report_that_it_was_held,
    a_guard_does_not_wait_for_the_release_of_another_that_is_dropped,
    a_lost_guard_never_becomes_valid_again,
    a_lost_guard_of_an_owner_takes_nothing_from_its_next_hold,
    a_re_entry_detects_a_lost_lock,
}

// For other kinds the call needs more than one request, and this test does not poll it again.
on_every_engine! { play with Plain:
    a_force_release_takes_nothing_from_the_next_holder,
}

const SHORT: Duration = Duration::from_secs(3);
/// A busy machine may delay by two thirds of it the renewal that reports the loss.
const KEPT: Duration = Duration::from_secs(6);
const LONG: Duration = Duration::from_secs(600);

fn lost_by(reason: LostReason) -> impl Fn(Error) -> bool {
    move |error| matches!(error, Error::Lost { reason: why, .. } if why == reason)
}

async fn a_force_released_lock_is_free_and_its_holder_notified(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let held = a
        .lock(&*name)
        .with_lease(Lease::KeepAlive(KEPT))
        .acquire()
        .await?;
    assert!(b.admin().force_release(&name).await?);
    assert_eq!(b.admin().inspect(&name).await?, None);
    let lost = in_time(held.lost()).await.expect("it was lost");
    // The next renewal reports the loss: after the end of the lease the reason would be another.
    assert_eq!((&*lost.name, lost.reason), (&*name, LostReason::Removed));
    assert!(!held.is_held());
    assert!(held.check().is_err_and(lost_by(LostReason::Removed)));
    assert!(
        held.release()
            .await
            .is_err_and(lost_by(LostReason::Removed))
    );
    let got = b.lock(&*name).try_acquire().await?;
    got.expect("it is free").release().await
}

async fn a_force_released_lock_goes_to_a_waiter_at_once(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let lock = a.lock(&*name).with_lease(Lease::Fixed(LONG));
    soon(stage, async || {
        let held = lock.acquire().await?;
        let mut waiting = begun(b.lock(&*name).acquire()).await;
        assert!(waits(&mut waiting).await);
        let forced = Instant::now();
        assert!(a.admin().force_release(&name).await?);
        in_time(waiting).await?.release().await?;
        assert!(!held.is_held());
        Ok(forced.elapsed())
    })
    .await
}

async fn a_force_released_lock_goes_to_a_waiter_and_its_holder_is_notified(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let c = stage.client().await?;
    let name = stage.name("stock");
    let lease = Lease::KeepAlive(KEPT);
    // On a busy machine its renewal may come between the two.
    for _ in 0..5 {
        let held = a.lock(&*name).with_lease(lease).acquire().await?;
        let waiting = begun(b.lock(&*name).acquire()).await;
        assert!(c.admin().force_release(&name).await?);
        let next = in_time(waiting).await?;
        let lost = in_time(held.lost()).await.expect("it was lost");
        assert!(!held.is_held());
        drop(held);
        next.check()?;
        assert_eq!(seen(&c, &name).await?.holders[0].owner, next.owner());
        next.release().await?;
        if lost.reason == a.taken_over(LostReason::Removed) {
            return Ok(());
        }
        assert_eq!(lost.reason, LostReason::Removed);
    }
    panic!("it is never told who has the lock");
}

async fn a_client_that_force_releases_its_own_lock_is_notified_at_once(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let client = stage.client().await?;
    let name = stage.name("stock");
    for lease in [Lease::KeepAlive(LONG), Lease::Fixed(LONG)] {
        let held = client.lock(&*name).with_lease(lease).acquire().await?;
        let waiting = begun(client.lock(&*name).acquire()).await;
        assert!(client.admin().force_release(&name).await?);
        assert!(!held.is_held());
        let lost = in_time(held.lost()).await.expect("it was lost");
        assert_eq!(lost.reason, LostReason::Removed);
        in_time(waiting).await?.release().await?;
    }
    Ok(())
}

/// The next holder belongs to the same client, and acquires the lock before the reply to the request is processed.
async fn a_force_release_takes_nothing_from_the_next_holder(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let held = a.lock(&*name).acquire().await?;
    let mut waiting = begun(b.lock(&*name).acquire()).await;
    assert!(waits(&mut waiting).await);
    let admin = b.admin();
    // Send the script once before: a server that does not know it wants it sent again, and the call is not polled meanwhile.
    admin.force_release(&stage.name("another")).await?;
    let (forcing, answer) = asked(admin.force_release(&name)).await;
    let next = in_time(waiting).await?;
    let forced = match answer {
        Some(answer) => answer?,
        None => forcing.await?,
    };
    assert!(forced);
    next.check()?;
    assert_eq!(seen(&a, &name).await?.holders[0].owner, next.owner());
    drop(held);
    next.release().await
}

async fn a_force_release_of_a_free_lock_does_nothing(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    assert!(!a.admin().force_release(&name).await?);
    let held = a.lock(&*name).acquire().await?;
    assert!(b.admin().force_release(&name).await?);
    assert!(!b.admin().force_release(&name).await?);
    drop(held);
    a.lock(&*name).acquire().await?.release().await?;
    assert!(!b.admin().force_release(&name).await?);
    Ok(())
}

async fn all_guards_of_an_owner_are_lost_together(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let lock = a.lock(&*name).with_owner(&a.new_owner());
    let lease = Lease::KeepAlive(KEPT / 2);
    let outer = lock.clone().with_lease(lease).acquire().await?;
    let inner = lock.with_lease(Lease::Fixed(LONG)).acquire().await?;
    assert!(b.admin().force_release(&name).await?);
    let (one, two) = tokio::join!(in_time(outer.lost()), in_time(inner.lost()));
    assert_eq!(one.expect("it was lost").reason, LostReason::Removed);
    assert_eq!(two.expect("it was lost").reason, LostReason::Removed);
    assert!(!outer.is_held() && !inner.is_held());
    assert!(
        inner
            .release()
            .await
            .is_err_and(lost_by(LostReason::Removed))
    );
    assert!(
        outer
            .release()
            .await
            .is_err_and(lost_by(LostReason::Removed))
    );
    Ok(())
}

async fn a_late_release_reports_that_the_lease_expired(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let fixed = a.lock(&*name).with_lease(Lease::Fixed(SHORT));
    // Release as soon as it is lost by the clock, and long after.
    for late in [Duration::ZERO, SHORT] {
        let held = fixed.acquire().await?;
        in_time(held.lost()).await.expect("it was lost");
        sleep(late).await;
        assert!(held.check().is_err_and(lost_by(LostReason::Expired)));
        assert!(
            held.release()
                .await
                .is_err_and(lost_by(LostReason::Expired))
        );
    }
    let got = b.lock(&*name).acquire_timeout(PATIENCE).await?;
    got.expect("it is free").release().await
}

async fn a_late_release_reports_that_another_client_holds_the_lock(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    for taker in [&a, &b] {
        let held = a
            .lock(&*name)
            .with_lease(Lease::Fixed(SHORT))
            .acquire()
            .await?;
        let next = in_time(taker.lock(&*name).acquire()).await?;
        let late = held.release().await;
        assert!(late.is_err_and(lost_by(a.taken_over(LostReason::Expired))));
        next.check()?;
        next.release().await?;
    }
    Ok(())
}

/// A fixed lease is not renewed, so the loss was not noticed before.
async fn a_release_reports_that_the_lock_was_removed(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let held = a
        .lock(&*name)
        .with_lease(Lease::Fixed(LONG))
        .acquire()
        .await?;
    assert!(b.admin().force_release(&name).await?);
    assert!(
        held.release()
            .await
            .is_err_and(lost_by(LostReason::Removed))
    );
    Ok(())
}

async fn a_release_reports_that_the_lock_was_taken_over(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let held = a
        .lock(&*name)
        .with_lease(Lease::Fixed(LONG))
        .acquire()
        .await?;
    assert!(b.admin().force_release(&name).await?);
    let next = b.lock(&*name).try_acquire().await?.expect("it is free");
    assert!(
        held.release()
            .await
            .is_err_and(lost_by(a.taken_over(LostReason::Removed)))
    );
    assert_eq!(seen(&a, &name).await?.holders[0].owner, next.owner());
    next.release().await
}

async fn a_partial_release_reports_that_the_lock_was_lost(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let lock = a.lock(&*name).with_owner(&a.new_owner());
    let lock = lock.with_lease(Lease::Fixed(LONG));
    let (outer, inner) = (lock.acquire().await?, lock.acquire().await?);
    assert!(b.admin().force_release(&name).await?);
    assert!(
        inner
            .release()
            .await
            .is_err_and(lost_by(LostReason::Removed))
    );
    // The other guard needs no request of its own.
    assert!(!outer.is_held());
    assert!(
        outer
            .release()
            .await
            .is_err_and(lost_by(LostReason::Removed))
    );
    assert_eq!(count_seen(&b, &name).await?, 0);
    Ok(())
}

/// The first release is under way, the second waits for its turn, and the release of the last guard comes before it.
async fn guards_of_an_owner_released_together_all_report_that_the_lock_was_lost(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let lock = a.lock(&*name).with_owner(&a.new_owner());
    let lock = lock.with_lease(Lease::Fixed(LONG));
    for is_taken in [false, true] {
        let guards = (
            lock.acquire().await?,
            lock.acquire().await?,
            lock.acquire().await?,
        );
        assert!(b.admin().force_release(&name).await?);
        let taken = match is_taken {
            true => b.lock(&*name).try_acquire().await?,
            false => None,
        };
        let (first, second, third) = guards;
        let released =
            async { tokio::join!(biased; first.release(), second.release(), third.release()) };
        let (first, second, third) = in_time(released).await;
        for (which, released) in [first, second, third].into_iter().enumerate() {
            let error = released.expect_err("it was lost");
            assert!(error.is_lost(), "{which}: {error}");
        }
        if let Some(taken) = taken {
            taken.release().await?;
        }
    }
    Ok(())
}

async fn guards_of_an_owner_released_together_report_that_it_was_held(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let lock = a.lock(&*name).with_owner(&a.new_owner());
    for last_is_forgotten in [false, true] {
        let guards = (
            lock.acquire().await?,
            lock.acquire().await?,
            lock.acquire().await?,
        );
        let (first, second, third) = guards;
        let last = async {
            if last_is_forgotten {
                third.forget();
                return Ok(());
            }
            third.release().await
        };
        let released = async { tokio::join!(biased; first.release(), second.release(), last) };
        let (first, second, last) = in_time(released).await;
        first.and(second).and(last)?;
        assert_eq!(count_seen(&b, &name).await? > 0, last_is_forgotten);
        b.admin().force_release(&name).await?;
    }
    Ok(())
}

/// The client may never learn whether the first request was executed: then the other guards do not report a loss.
async fn a_guard_does_not_wait_for_the_release_of_another_that_is_dropped(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let lock = a.lock(&*name).with_owner(&a.new_owner());
    let guards = (
        lock.acquire().await?,
        lock.acquire().await?,
        lock.acquire().await?,
    );
    let (first, second, third) = guards;
    let (first, _) = asked(first.release()).await;
    let (second, answer) = asked(second.release()).await;
    let (third, _) = asked(third.release()).await;
    drop((first, third));
    match answer {
        Some(answer) => answer?,
        None => match in_time(second).await {
            Ok(()) | Err(Error::Timeout { .. }) => {}
            Err(error) => return Err(error),
        },
    }
    let got = b.lock(&*name).acquire_timeout(PATIENCE).await?;
    got.expect("it was given back").release().await
}

async fn a_lost_guard_takes_nothing_from_the_next_holder(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let fixed = a.lock(&*name).with_lease(Lease::Fixed(SHORT));
    let dropped = fixed.acquire().await?;
    let next = in_time(b.lock(&*name).acquire()).await?;
    drop(dropped);
    // All requests that the client still has to send for this guard are done by then.
    in_time(a.close()).await?;
    next.check()?;
    assert_eq!(seen(&b, &name).await?.holders[0].owner, next.owner());
    next.release().await
}

async fn a_lost_guard_never_becomes_valid_again(stage: &Stage<impl Family>) -> CaseResult {
    let client = stage.client().await?;
    let name = stage.name("stock");
    let lock = client.lock(&*name).with_owner(&client.new_owner());
    let old = lock
        .clone()
        .with_lease(Lease::Fixed(SHORT))
        .acquire()
        .await?;
    let (view, lost) = (old.held(), old.lost());
    in_time(old.lost()).await.expect("it was lost");

    let new = in_time(lock.with_lease(Lease::Fixed(LONG)).acquire()).await?;
    assert_eq!(new.hold_count(), 1, "the lost one does not count");
    assert_ne!(new.owner(), old.owner());
    for _ in 0..3 {
        new.check()?;
        assert!(!old.is_held() && !view.is_held());
        assert!(old.check().is_err_and(lost_by(LostReason::Expired)));
        assert_eq!(old.remaining(), Duration::ZERO);
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(
        in_time(lost).await.expect("lost").reason,
        LostReason::Expired
    );
    new.release().await?;
    assert!(!old.is_held());
    Ok(())
}

/// The store's id of a user-defined owner is used for one hold only.
async fn a_lost_guard_of_an_owner_takes_nothing_from_its_next_hold(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let client = stage.client().await?;
    let name = stage.name("stock");
    let lock = client.lock(&*name).with_owner(&client.new_owner());
    for dropped in [false, true] {
        let old = lock
            .clone()
            .with_lease(Lease::Fixed(SHORT))
            .acquire()
            .await?;
        in_time(old.lost()).await.expect("it was lost");
        let outer = in_time(lock.acquire()).await?;
        let inner = in_time(lock.acquire()).await?;
        if dropped {
            drop(old);
        } else {
            assert!(
                old.release()
                    .await
                    .is_err_and(lost_by(LostReason::TakenOver))
            );
        }
        assert_eq!(outer.hold_count(), 2);
        assert_eq!(count_seen(&client, &name).await?, client.counted(2));
        inner.release().await?;
        assert_eq!(count_seen(&client, &name).await?, 1);
        outer.release().await?;
    }
    Ok(())
}

/// A grant of the inner hold would make up the outer holds.
async fn a_re_entry_detects_a_lost_lock(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let lock = a.lock(&*name).with_owner(&a.new_owner());
    let lock = lock.with_lease(Lease::Fixed(LONG));
    let outer = lock.acquire().await?;
    assert!(b.admin().force_release(&name).await?);
    assert!(
        lock.acquire()
            .await
            .is_err_and(lost_by(LostReason::Removed))
    );
    assert!(!outer.is_held());
    let lost = in_time(outer.lost()).await.expect("it was lost");
    assert_eq!(lost.reason, LostReason::Removed);
    // The next acquire starts from zero.
    let held = in_time(lock.acquire()).await?;
    assert_eq!(held.hold_count(), 1);
    drop(outer);
    assert_eq!(count_seen(&b, &name).await?, 1);
    held.release().await
}
