//! Threads as owners: a thread enters again what it holds, and excludes the others.

use std::thread;

use distlock::Error;

use super::{acquiring, connect, in_time, still_waits};
use crate::stage::{CaseResult, PATIENCE, Stage};

on_every_engine! { call with Plain:
    a_thread_re_enters_its_lock,
    a_thread_excludes_another,
    a_guard_may_be_released_by_another_thread,
}

fn a_thread_re_enters_its_lock(stage: &Stage) -> CaseResult {
    let (a, b) = (connect(stage)?, connect(stage)?);
    let name = stage.name("stock");
    let mine = || a.lock(&*name).with_owner(&a.thread_owner());
    let outer = mine().acquire()?;
    // Behind another waiter it would wait for itself.
    let waiting = acquiring(&a.lock(&*name));
    assert!(still_waits(&waiting));
    let inner = mine().acquire()?;
    let third = mine().try_acquire()?.expect("this thread has it");
    assert_eq!(outer.hold_count(), 3);
    let seen = b.admin().inspect(&name)?.expect("it is held");
    assert_eq!(seen.holders[0].hold_count, 3);
    outer.release()?;
    third.release()?;
    assert!(still_waits(&waiting));
    assert!(b.lock(&*name).try_acquire()?.is_none());
    inner.release()?;
    in_time(&waiting)?.release()
}

fn a_thread_excludes_another(stage: &Stage) -> CaseResult {
    let client = connect(stage)?;
    let lock = client.lock(stage.name("stock"));
    let me = client.thread_owner();
    assert_eq!(me, client.clone().thread_owner());
    assert_ne!(
        me,
        connect(stage)?.thread_owner(),
        "an owner is one client's"
    );
    assert_ne!(me, client.new_owner());

    let held = lock.clone().with_owner(&me).acquire()?;
    let (theirs, done) = (lock.clone(), client.clone());
    let other = thread::spawn(move || {
        let owner = done.thread_owner();
        assert_eq!(owner, done.thread_owner());
        let got = theirs.with_owner(&owner).try_acquire()?;
        Ok::<_, Error>((owner, got.is_some()))
    });
    let (owner, got) = other.join().expect("the thread does not panic")?;
    assert_ne!(owner, me);
    assert!(!got, "it is this thread's");
    held.release()
}

fn a_guard_may_be_released_by_another_thread(stage: &Stage) -> CaseResult {
    let (a, b) = (connect(stage)?, connect(stage)?);
    let name = stage.name("stock");
    let held = a.lock(&*name).acquire()?;
    let released = thread::spawn(move || held.release()).join();
    released.expect("the thread does not panic")?;
    let held = b.lock(&*name).try_acquire()?.expect("it is free");
    let dropped = thread::spawn(move || drop(held)).join();
    dropped.expect("the thread does not panic");
    let got = a.lock(&*name).acquire_timeout(PATIENCE)?;
    got.expect("it is free").release()
}
