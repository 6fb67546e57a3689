//! The latch and the counting semaphore of the blocking API.

use std::thread;
use std::time::Duration;

use distlock::Error;
use distlock::blocking::Client;

use crate::stage::{CaseResult, PATIENCE, Stage};

on_every_engine_with_scripts! { call with Plain:
    threads_wait_until_a_latch_is_open,
    threads_acquire_and_release_permits,
}

/// Long enough for the store's reply that nothing is available.
const SHORT: Duration = Duration::from_millis(1000);

fn threads_wait_until_a_latch_is_open(stage: &Stage) -> CaseResult {
    let (a, b) = clients(stage)?;
    let latch = a.latch(stage.name("loaded"));
    assert_eq!(latch.count()?, 0);
    assert!(latch.try_set(2)?);
    assert!(!latch.wait_timeout(SHORT)?);
    let waiting = [&a, &b].map(|client| {
        let latch = client.latch(latch.name());
        thread::spawn(move || latch.wait())
    });
    assert_eq!(latch.count_down()?, 1);
    assert_eq!(b.latch(latch.name()).count_down()?, 0);
    for waits in waiting {
        waits.join().expect("it does not panic")?;
    }
    assert!(latch.try_set(1)?);
    assert!(latch.delete()?);
    assert!(latch.wait_timeout(PATIENCE)?);
    Ok(())
}

fn threads_acquire_and_release_permits(stage: &Stage) -> CaseResult {
    let (a, b) = clients(stage)?;
    let slots = a.counting_semaphore(stage.name("slots"));
    assert!(slots.try_set(2)?);
    slots.acquire(2)?;
    assert!(!slots.try_acquire(1)?);
    assert!(!slots.acquire_timeout(2, SHORT)?);
    let theirs = b.counting_semaphore(slots.name());
    let waits = thread::spawn(move || theirs.acquire_timeout(3, PATIENCE));
    slots.add(1)?;
    slots.release(2)?;
    assert!(waits.join().expect("it does not panic")?);
    assert_eq!(slots.available()?, 0);
    slots.set_available(4)?;
    assert_eq!(slots.drain()?, 4);
    assert!(slots.delete()?);
    Ok(())
}

fn clients(stage: &Stage) -> Result<(Client, Client), Error> {
    let connect = || Client::connect_with(stage.builder());
    Ok((connect()?, connect()?))
}
