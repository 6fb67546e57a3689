//! The multi lock and the quorum lock of the blocking API.

use std::time::{Duration, Instant};

use distlock::blocking::{Client, Member, MultiLock, QuorumLock};
use distlock::{Error, Lease, LostReason};

use crate::stage::{CaseResult, PATIENCE, Stage};

on_every_engine! { call with Plain:
    several_locks_are_acquired_together_and_released,
    several_forgotten_locks_stay_held_for_their_leases,
    a_quorum_lock_is_acquired_lost_and_forgotten,
}

const SHORT: Duration = Duration::from_secs(3);

fn connect(stage: &Stage) -> Result<Client, Error> {
    Client::connect_with(stage.builder())
}

fn several_locks_are_acquired_together_and_released(stage: &Stage) -> CaseResult {
    let (a, b) = (connect(stage)?, connect(stage)?);
    let names = [stage.name("one"), stage.name("two")];
    let both = |client: &Client| {
        let members = names.iter().map(|name| Member::from(client.lock(&**name)));
        MultiLock::new(members)
    };
    let guard = both(&a).acquire()?;
    assert!(guard.is_held() && guard.names().eq(&names));
    assert!(both(&b).try_acquire()?.is_none());
    assert!(
        both(&b)
            .acquire_timeout(Duration::from_millis(1500))?
            .is_none()
    );
    guard.release()?;
    let seen = both(&b).run(|held| held.is_held())?;
    assert!(seen);
    let done = both(&b).run(|_| a.admin().force_release(&names[0]));
    assert!(done.is_err_and(|error| error.error().is_lost()));
    let guard = both(&b).acquire()?;
    a.admin().force_release(&names[1])?;
    let lost = guard.wait_lost(PATIENCE).expect("one was taken away");
    assert_eq!(
        (&*lost.name, lost.reason),
        (&*names[1], LostReason::Removed)
    );
    guard
        .release()
        .expect_err("the other one is given back all the same");
    let guard = both(&a).acquire_timeout(PATIENCE)?.expect("both are free");
    guard.release()
}

fn several_forgotten_locks_stay_held_for_their_leases(stage: &Stage) -> CaseResult {
    let (a, b) = (connect(stage)?, connect(stage)?);
    let names = [stage.name("one"), stage.name("two")];
    let asked = Instant::now();
    let members = names.iter().map(|name| a.lock(&**name).into());
    MultiLock::new(members)
        .with_lease(Lease::KeepAlive(SHORT))
        .acquire()?
        .forget();
    for name in &names {
        assert!(b.lock(&**name).try_acquire()?.is_none() || asked.elapsed() >= SHORT);
        b.lock(&**name).acquire()?.release()?;
        assert!(
            asked.elapsed() >= SHORT.mul_f64(0.95),
            "{:?}",
            asked.elapsed()
        );
    }
    Ok(())
}

fn a_quorum_lock_is_acquired_lost_and_forgotten(stage: &Stage) -> CaseResult {
    let (a, b) = (connect(stage)?, connect(stage)?);
    let name = stage.name("nightly");
    let alone = |client: &Client| {
        QuorumLock::new([client.lock(&*name).into()])
            .with_lease(Lease::KeepAlive(VOTED))
            .with_longest_lease(Duration::ZERO)
    };
    let guard = answered(|| alone(&a).acquire())?;
    assert_eq!(guard.votes(), 1);
    assert!(answered(|| alone(&b).try_acquire())?.is_none());
    let waiting = || alone(&b).acquire_timeout(Duration::from_millis(1500));
    assert!(answered(waiting)?.is_none());
    guard.release()?;
    assert!(answered(|| Ok(alone(&b).run(|held| held.is_held())?))?);
    let forced = || alone(&b).run(|_| a.admin().force_release(&name).is_ok());
    let done = answered(|| Ok(forced()?));
    assert!(done.is_err_and(|error| error.is_lost()));
    let guard = answered(|| alone(&b).acquire())?;
    a.admin().force_release(&name)?;
    let lost = guard.wait_lost(PATIENCE).expect("it was taken away");
    assert_eq!((&*lost.name, lost.reason), (&*name, LostReason::Removed));
    drop(guard);
    let asked = Instant::now();
    let guard = answered(|| alone(&b).acquire_timeout(PATIENCE))?;
    guard.expect("it is free").forget();
    assert!(answered(|| alone(&a).try_acquire())?.is_none() || asked.elapsed() >= VOTED);
    answered(|| alone(&a).acquire())?.release()?;
    let waited = asked.elapsed();
    assert!(waited >= VOTED.mul_f64(0.95), "{waited:?}");
    Ok(())
}

/// Each server has a twentieth of this time to answer.
const VOTED: Duration = Duration::from_secs(10);

/// Repeats a call until the servers answer in time, which a busy machine may prevent: the call has then not been refused.
fn answered<T>(mut ask: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    let give_up = Instant::now() + PATIENCE;
    loop {
        match ask() {
            Err(Error::Timeout { .. }) if Instant::now() < give_up => {}
            outcome => return outcome,
        }
    }
}
