//! The work of a worker process, by role.

use std::process::Command;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use distlock::blocking::Client;
use distlock::{Error, Lease, ReleaseOn};
use nix::unistd::{alarm, daemon};

use super::support::process::{orders, say, url, wall_clock};
use super::{PATIENCE, crowd, fenced, full, patient};

/// Holds `a` until it is told otherwise.
pub(crate) const HOLD: &str = "hold";
/// Does the same, and has a child that stays for a while.
pub(crate) const PARENT: &str = "parent";
/// Does the same, and the child may keep the holds.
pub(crate) const RUN: &str = "run";
/// Holds `a`, and goes on as its own forked child.
pub(crate) const FORK: &str = "fork";
/// Leaves `a` to its lease.
pub(crate) const LEAVE: &str = "leave";
/// Reports whether it may use the file.
pub(crate) const ENTER: &str = "enter";
/// Waits for `a` again and again, and reports each acquire.
pub(crate) const WAIT: &str = "wait";

/// Reports the events of each lock.
pub(crate) const WATCH: &str = "watch";

/// Waits for many names at once, and reports when it has acquired all of them.
pub(crate) const MANY: &str = "many";
pub(crate) const NAMES: u32 = 40;

/// A lease that no test waits for.
pub(crate) const LONG: Duration = Duration::from_secs(600);
/// A lease that a stopped process soon loses.
pub(crate) const SHORT: Duration = Duration::from_secs(3);

pub(crate) fn run(role: &str) {
    let orders = orders();
    let done = match role {
        HOLD => hold(&orders, ReleaseOn::Process, None),
        PARENT => hold(&orders, ReleaseOn::Process, Some("600")),
        RUN => hold(&orders, ReleaseOn::Children, Some("600")),
        FORK => fork(&orders),
        LEAVE => leave(),
        ENTER => enter(),
        MANY => many(),
        WAIT => wait(&orders),
        WATCH => watch(),
        crowd::COME => crowd::come(&orders),
        crowd::ROLE => crowd::count(&orders),
        fenced::ROLE => fenced::hold(&orders),
        full::ROLE => full::fill(),
        _ => panic!("no such role: `{role}`"),
    };
    done.expect("the store works");
}

fn hold(orders: &Receiver<String>, end: ReleaseOn, child: Option<&str>) -> Result<(), Error> {
    let lease = match end {
        ReleaseOn::Children => SHORT,
        _ => LONG,
    };
    let client = Client::connect_with(
        patient(&url())
            .release_on(end)
            .default_lease(Lease::KeepAlive(lease))
            .label("the worker"),
    )?;
    let guard = client.lock("a").acquire()?;
    if let Some(seconds) = child {
        let child = Command::new("sleep").arg(seconds).spawn();
        say(&format!("child {}", child.expect("there is a sleep").id()));
    }
    say("held");
    while let Ok(order) = orders.recv() {
        match &*order {
            "release" => {
                guard.release()?;
                say("released");
                return client.close();
            }
            "state" => say(if guard.is_held() { "valid" } else { "lost" }),
            other => panic!("no such order: {other}"),
        }
    }
    Ok(())
}

fn fork(orders: &Receiver<String>) -> Result<(), Error> {
    let builder = patient(&url()).default_lease(Lease::KeepAlive(SHORT));
    let client = Client::connect_with(builder)?;
    let guard = client.lock("a").acquire()?;
    say("held");
    orders.recv().expect("the test says when");
    // This ends the parent, and leaves neither its threads nor a process that would end the child with the test.
    daemon(true, true).expect("there is room for one more");
    alarm::set(u32::try_from(PATIENCE.as_secs()).expect("a few"));
    let released = match guard.release() {
        Err(Error::Closed { .. }) => "closed".to_owned(),
        other => format!("{other:?}"),
    };
    say(&format!("release {released}"));
    let connected = Client::connect(&url());
    say(&format!("connect {connected:?}"));
    // The child keeps the parent's files open, until the test removes its folder.
    let file = url();
    let file = file.trim_start_matches("sqlite:");
    while std::path::Path::new(file).exists() {
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn leave() -> Result<(), Error> {
    let client = Client::connect_with(patient(&url()).release_on(ReleaseOn::Lease))?;
    let lock = client.lock("a").with_lease(Lease::Fixed(SHORT * 3));
    lock.acquire()?.forget();
    client.close()?;
    say("left");
    Ok(())
}

fn enter() -> Result<(), Error> {
    match Client::connect_with(patient(&url())) {
        Ok(client) => {
            say("entered");
            client.close()
        }
        Err(error) => {
            say(&format!("refused {error}"));
            Ok(())
        }
    }
}

fn many() -> Result<(), Error> {
    let client = Client::connect_with(patient(&url()))?;
    let waiting: Vec<_> = (0..NAMES)
        .map(|number| {
            let lock = client.lock(format!("lock {number}"));
            std::thread::spawn(move || lock.acquire()?.release())
        })
        .collect();
    for waiter in waiting {
        waiter.join().expect("it does not panic")?;
    }
    say("all");
    client.close()
}

fn wait(orders: &Receiver<String>) -> Result<(), Error> {
    let builder = patient(&url());
    let client = Client::connect_with(builder)?;
    while let Ok(order) = orders.recv() {
        assert_eq!(order, "wait");
        say("waiting");
        let guard = client.lock("a").acquire()?;
        say(&format!("got {}", wall_clock()));
        guard.release()?;
    }
    Ok(())
}

fn watch() -> Result<(), Error> {
    let client = Client::connect_with(patient(&url()))?;
    for event in client.admin().watch("*") {
        let event = event?;
        let label = event.label.unwrap_or_default();
        let said = format!("{:?} {} {label}", event.change, event.name);
        say(said.trim_end());
    }
    Ok(())
}
