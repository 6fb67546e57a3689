//! How those who wait learn of a release, and what it costs them.

use std::time::Duration;

use super::Place;
use super::process::{Process, wall_clock};
use super::worker::WAIT;

#[test]
fn another_process_is_told_of_a_release() {
    let place = Place::new();
    let client = place.connect();
    let mut waiter = Process::start(WAIT, &place.url());
    let mut took = Vec::new();
    for _ in 0..20 {
        let guard = client.lock("a").acquire().expect("it is free");
        waiter.tell("wait");
        waiter.hear("waiting");
        std::thread::sleep(Duration::from_millis(30));
        let released = wall_clock();
        guard.release().expect("it is ours");
        let got: u128 = waiter.hear("got").parse().expect("a number");
        took.push(Duration::from_nanos(
            u64::try_from(got.saturating_sub(released)).expect("it is short"),
        ));
    }
    took.sort();
    let median = took[took.len() / 2];
    eprintln!("a release is noticed after {median:?}, of 20: {took:?}");
    // Who is not told asks every two seconds.
    assert!(median < Duration::from_millis(100), "{took:?}");
}

/// A socket keeps ten messages. A process that was stopped finds a full one, and must not miss what did not fit.
#[test]
fn messages_that_did_not_fit_are_not_missed() {
    let place = Place::new();
    let (holder, waiter) = (place.connect(), place.connect());
    let names: Vec<String> = (0..60).map(|number| format!("lock {number}")).collect();
    let hold = |name: &String| holder.lock(&**name).acquire().expect("it is free");
    let guards: Vec<_> = names.iter().map(hold).collect();
    let waiting: Vec<_> = names
        .iter()
        .map(|name| {
            let lock = waiter.lock(&**name);
            std::thread::spawn(move || lock.acquire())
        })
        .collect();
    super::eventually("all of them listen", || {
        let listeners = place
            .database()
            .query_row("SELECT count(*) FROM listeners", [], |row| {
                row.get::<_, i64>(0)
            });
        usize::try_from(listeners.expect("it is there")) == Ok(names.len())
    });
    let begun = std::time::Instant::now();
    for guard in guards {
        guard.release().expect("it is ours");
    }
    for waiter in waiting {
        let got = waiter.join().expect("it does not panic");
        got.expect("it is free").release().expect("it is ours");
    }
    eprintln!("{} names in {:?}", names.len(), begun.elapsed());
}
