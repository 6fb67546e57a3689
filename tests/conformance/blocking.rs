//! The blocking API: the same locks without `async`, in real time on every engine.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use distlock::blocking::{Client, Guard, Lock};
use distlock::{Change, Error, Lease, LockInfo, LostReason};

use crate::stage::{CaseResult, PATIENCE, Stage, TRIES, soon_blocking};

on_every_engine! { call with Plain:
    a_client_excludes_another,
    a_thread_waits_until_the_lock_is_released,
    a_timed_out_wait_returns_none,
    run_returns_the_value_of_the_work_and_releases_the_lock,
    work_that_panics_releases_the_lock,
    leases_are_renewed_while_the_thread_computes,
    a_holder_can_wait_for_a_loss,
    a_fixed_lease_can_be_extended,
    a_forgotten_lock_stays_held_for_its_lease,
    the_holders_of_locks_are_visible_to_an_admin,
    a_watch_returns_events_in_order,
    closing_releases_holds_and_fails_waiters,
    blocking_calls_work_inside_an_async_runtime,
}

mod permits;
mod threads;

const SHORT: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_secs(600);

fn connect(stage: &Stage) -> Result<Client, Error> {
    Client::connect_with(stage.builder())
}

/// Acquires on a thread of its own; the guard, or the error, comes through the channel.
fn acquiring(lock: &Lock) -> mpsc::Receiver<Result<Guard, Error>> {
    let (done, guard) = mpsc::channel();
    let lock = lock.clone();
    // The thread ends with the case, which waits for its message, or soon after the case has failed.
    thread::spawn(move || done.send(lock.acquire()));
    guard
}

fn still_waits(guard: &mpsc::Receiver<Result<Guard, Error>>) -> bool {
    guard.recv_timeout(Duration::from_millis(100)).is_err()
}

fn in_time(guard: &mpsc::Receiver<Result<Guard, Error>>) -> Result<Guard, Error> {
    let guard = guard.recv_timeout(PATIENCE);
    guard.expect("it should not have to wait for ever")
}

fn lost_by(reason: LostReason) -> impl Fn(Error) -> bool {
    move |error| matches!(error, Error::Lost { reason: why, .. } if why == reason)
}

fn a_client_excludes_another(stage: &Stage) -> CaseResult {
    let (a, b) = (connect(stage)?, connect(stage)?);
    let name = stage.name("stock");
    let held = a.lock(&*name).acquire()?;
    assert!(held.is_held());
    assert_eq!(held.name(), name);
    assert_eq!(a.lock(&*name).name(), name);
    for client in [&a, &b] {
        assert!(client.lock(&*name).try_acquire()?.is_none());
    }
    held.release()?;
    let held = b.lock(&*name).try_acquire()?.expect("it is free");
    assert!(a.lock(&*name).try_acquire()?.is_none());
    drop(held);
    let got = a.lock(&*name).acquire_timeout(PATIENCE)?;
    got.expect("it was given back").release()
}

fn a_thread_waits_until_the_lock_is_released(stage: &Stage) -> CaseResult {
    let (a, b) = (connect(stage)?, connect(stage)?);
    let name = stage.name("stock");
    for waiter in [&a, &b] {
        soon_blocking(|| {
            let held = a.lock(&*name).acquire()?;
            let waiting = acquiring(&waiter.lock(&*name));
            assert!(still_waits(&waiting));
            let released = Instant::now();
            held.release()?;
            let next = in_time(&waiting)?;
            let waited = released.elapsed();
            next.release()?;
            Ok(waited)
        })?;
    }
    Ok(())
}

fn a_timed_out_wait_returns_none(stage: &Stage) -> CaseResult {
    let (a, b) = (connect(stage)?, connect(stage)?);
    let name = stage.name("stock");
    let held = a.lock(&*name).acquire()?;
    let wait = SHORT;
    for client in [&a, &b] {
        let mut tries = TRIES;
        let waited = loop {
            let begun = Instant::now();
            tries -= 1;
            match client.lock(&*name).acquire_timeout(wait) {
                // A busy machine delayed the last reply until the wait was over.
                Err(Error::Timeout { .. }) if tries > 0 => {}
                other => {
                    assert!(other?.is_none());
                    break begun.elapsed();
                }
            }
        };
        assert!(waited >= wait && waited < wait + PATIENCE, "{waited:?}");
    }
    held.release()
}

fn run_returns_the_value_of_the_work_and_releases_the_lock(stage: &Stage) -> CaseResult {
    let (a, b) = (connect(stage)?, connect(stage)?);
    let name = stage.name("stock");
    let outside = b.lock(&*name);
    let view = a.lock(&*name).run(|held| {
        held.check()?;
        assert!(outside.try_acquire()?.is_none());
        Ok::<_, Error>(held)
    })??;
    assert!(!view.is_held());
    let done = outside.run(|_| Err::<(), _>("its own error"))?;
    assert_eq!(done, Err("its own error"));

    // The lock was lost during the work: the work's value is available from the error only.
    let done = outside.run(|held| {
        assert!(a.admin().force_release(&name).is_ok_and(|forced| forced));
        assert!(b.lock(&*name).try_acquire().is_ok_and(|got| got.is_some()));
        drop(held);
        Err::<(), _>("its own error")
    });
    let (error, output) = done.expect_err("it was forced open").into_parts();
    assert!(error.is_lost(), "{error}");
    assert_eq!(output, Some(Err("its own error")));

    // The lease ends by the clock, without a reply of the store.
    let lease = Duration::from_secs(1);
    let fixed = a.lock(&*name).with_lease(Lease::Fixed(lease));
    let done = fixed.run(|_| std::thread::sleep(lease));
    assert!(done.is_err_and(|error| error.error().is_lost()));
    Ok(())
}

fn work_that_panics_releases_the_lock(stage: &Stage) -> CaseResult {
    let (a, b) = (connect(stage)?, connect(stage)?);
    let name = stage.name("stock");
    let lock = a.lock(&*name);
    let work = || lock.run(|_| panic!("this panic is part of the test"));
    let ended: Result<Result<(), _>, _> = catch_unwind(AssertUnwindSafe(work));
    assert!(ended.is_err());
    let got = b.lock(&*name).acquire_timeout(PATIENCE)?;
    got.expect("it was given back").release()
}

/// A runtime that only runs during calls would let the leases expire.
fn leases_are_renewed_while_the_thread_computes(stage: &Stage) -> CaseResult {
    let (a, b) = (connect(stage)?, connect(stage)?);
    let name = stage.name("stock");
    let lease = Duration::from_secs(4);
    let held = a
        .lock(&*name)
        .with_lease(Lease::KeepAlive(lease))
        .acquire()?;
    thread::sleep(lease * 3 / 2);
    held.check()?;
    assert!(b.lock(&*name).try_acquire()?.is_none());
    held.release()
}

fn a_holder_can_wait_for_a_loss(stage: &Stage) -> CaseResult {
    let (a, b) = (connect(stage)?, connect(stage)?);
    let name = stage.name("stock");
    let lease = Lease::KeepAlive(Duration::from_secs(6));
    let held = a.lock(&*name).with_lease(lease).acquire()?;
    let begun = Instant::now();
    assert_eq!(held.wait_lost(SHORT), None);
    assert!(begun.elapsed() >= SHORT);
    assert!(b.admin().force_release(&name)?);
    let lost = held.wait_lost(PATIENCE).expect("it was lost");
    assert_eq!((&*lost.name, lost.reason), (&*name, LostReason::Removed));
    assert!(held.release().is_err_and(lost_by(LostReason::Removed)));

    // The lease ends by the clock, too.
    let held = b.lock(&*name).with_lease(Lease::Fixed(SHORT)).acquire()?;
    let lost = held.wait_lost(PATIENCE).expect("it was lost");
    assert_eq!(lost.reason, LostReason::Expired);
    let next = a.lock(&*name).acquire()?;
    assert!(held.release().is_err_and(lost_by(LostReason::TakenOver)));
    next.release()
}

fn a_fixed_lease_can_be_extended(stage: &Stage) -> CaseResult {
    let client = connect(stage)?;
    let name = stage.name("stock");
    let held = client
        .lock(&*name)
        .with_lease(Lease::Fixed(LONG))
        .acquire()?;
    held.extend(LONG * 10)?;
    assert!(held.remaining() > LONG * 5);
    held.release()?;
    let held = client.lock(&*name).with_max_hold(SHORT).acquire()?;
    let refused = held.extend(SHORT);
    assert!(refused.is_err_and(|error| matches!(error, Error::InvalidOption { .. })));
    let lost = held.wait_lost(PATIENCE).expect("it was lost");
    assert_eq!(lost.reason, LostReason::MaxHold);
    Ok(())
}

fn a_forgotten_lock_stays_held_for_its_lease(stage: &Stage) -> CaseResult {
    let client = connect(stage)?;
    let lock = client.lock(stage.name("stock"));
    let asked = Instant::now();
    lock.clone()
        .with_lease(Lease::KeepAlive(SHORT))
        .acquire()?
        .forget();
    assert!(lock.try_acquire()?.is_none());
    let next = lock.acquire()?;
    let taken = asked.elapsed();
    assert!(
        taken >= SHORT.mul_f64(0.95) && taken < SHORT + PATIENCE,
        "{taken:?}"
    );
    next.release()
}

fn the_holders_of_locks_are_visible_to_an_admin(stage: &Stage) -> CaseResult {
    let (a, b) = (connect(stage)?, connect(stage)?);
    let name = stage.name("stock");
    assert_eq!(b.admin().inspect(&name)?, None);
    let held = a.lock(&*name).acquire()?;
    let seen = b.admin().inspect(&name)?.expect("it is held");
    assert_eq!(seen.holders[0].owner, held.owner());
    let listed = b.admin().list(&stage.name("st?ck"))?;
    assert_eq!(listed.len(), 1);
    let who = |lock: &LockInfo| {
        let holders = lock.holders.iter();
        let holders = holders.map(|one| (one.owner.clone(), one.hold_count, one.label.clone()));
        (lock.name.clone(), holders.collect::<Vec<_>>())
    };
    assert_eq!(who(&listed[0]), who(&seen));
    held.release()?;
    assert!(b.admin().list(&stage.name("*"))?.is_empty());
    Ok(())
}

fn closing_releases_holds_and_fails_waiters(stage: &Stage) -> CaseResult {
    let (a, b) = (connect(stage)?, connect(stage)?);
    let (one, two) = (stage.name("one"), stage.name("two"));
    let held = a.lock(&*one).acquire()?;
    let theirs = b.lock(&*two).acquire()?;
    let near = acquiring(&a.lock(&*one));
    let far = acquiring(&a.lock(&*two));
    assert!(still_waits(&near) && still_waits(&far));
    a.close()?;
    let closed = |error| matches!(error, Error::Closed { .. });
    assert!(in_time(&near).is_err_and(closed));
    assert!(in_time(&far).is_err_and(closed));
    assert!(a.lock(&*one).acquire().is_err_and(closed));
    assert!(a.admin().inspect(&one).is_err_and(closed));
    let lost = held.wait_lost(PATIENCE).expect("it was lost");
    assert_eq!(lost.reason, LostReason::Closed);
    let got = b.lock(&*one).try_acquire()?;
    got.expect("it was given back").release()?;
    theirs.release()
}

/// The API blocks the thread it is called on, and does not panic there, nor when it is dropped there.
fn blocking_calls_work_inside_an_async_runtime(stage: &Stage) -> CaseResult {
    let name = stage.name("stock");
    let calls = || {
        let client = connect(stage)?;
        let me = client.thread_owner();
        let held = client.lock(&*name).with_owner(&me).acquire()?;
        let again = client.lock(&*name).with_owner(&me).try_acquire()?;
        drop(again.expect("this thread has it"));
        assert!(client.lock(&*name).try_acquire()?.is_none());
        assert_eq!(held.wait_lost(Duration::from_millis(1)), None);
        held.release()?;
        client.lock(&*name).run(|held| held.check())??;
        client.close()?;
        let unclosed = connect(stage)?;
        drop(unclosed.lock(&*name).acquire()?);
        drop(unclosed);
        let got = connect(stage)?.lock(&*name).acquire_timeout(PATIENCE)?;
        got.expect("it was given back").release()
    };
    let mut current = tokio::runtime::Builder::new_current_thread();
    let current = current.enable_all().build().expect("a runtime can be made");
    current.block_on(async { calls() })?;
    let several = tokio::runtime::Runtime::new().expect("a runtime can be made");
    several.block_on(async { calls() })
}

fn a_watch_returns_events_in_order(stage: &Stage) -> CaseResult {
    let (a, b) = (connect(stage)?, connect(stage)?);
    let name = stage.name("stock");
    let held = a.lock(&*name).acquire()?;
    let mut watch = b.admin().watch(&*name);
    let mut told = Vec::new();
    let mut next = || -> CaseResult {
        // If the store reports releases only, a watch pauses for nine times as long as its last scan has taken.
        let event = watch.next_timeout(3 * PATIENCE)?;
        let event = event.expect("something happens");
        told.push(event.change);
        Ok(())
    };
    next()?;
    held.release()?;
    next()?;
    let held = a.lock(&*name).acquire()?;
    next()?;
    held.release()?;
    next()?;
    use Change::{Granted, Held, Released};
    assert_eq!(told, [Held, Released, Granted, Released]);
    let before = Instant::now();
    assert_eq!(watch.next_timeout(Duration::from_millis(200))?, None);
    assert!(before.elapsed() >= Duration::from_millis(200));
    let held = a.lock(&*name).acquire()?;
    let event = watch.next().expect("it never ends")?;
    assert_eq!((event.owner, event.change), (Some(held.owner()), Granted));
    held.release()
}
