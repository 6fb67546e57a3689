//! A forked child has its parent's guards in its memory, and may neither renew nor release them.
//!
//! `daemon(3)` forks without `unsafe` in this project and ends the parent at once: only the child is left that could renew, so that a lock
//! which lives on would be its doing.

use std::cell::Cell;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use distlock::{Held, Lease, blocking};
use nix::sys::signal::{Signal, raise};
use nix::unistd::{alarm, daemon};
use tokio::runtime::Runtime;

use super::support::ChaosProxy;
use super::support::process::{say, say_outcome, url};
use super::{LEASE, PATIENCE, Process, RedisServer, connect, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forked_child_neither_renews_nor_releases_its_parents_locks() {
    fork_and_watch(ROLE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forked_child_of_a_blocking_client_neither_renews_nor_releases_nor_hangs() {
    fork_and_watch(BLOCKING).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_from_before_the_fork_do_not_belong_to_the_child() {
    let server = RedisServer::start();
    let mut worker = Process::start(PENDING, &server.url());
    worker.expect_line("ready");
    worker.send_line("ask");
    worker.expect_line("asks");
    let held = |name: &&str| !server.hgetall(name).is_empty();
    eventually(PATIENCE, "the server has granted them", async || {
        NAMES.iter().all(held)
    })
    .await;
    fork_and_hear(&mut worker);
    eventually(PATIENCE, "they expire by themselves", async || {
        !NAMES.iter().any(held)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forked_child_does_not_wait_for_replies_that_never_arrive() {
    let server = RedisServer::start();
    let proxy = ChaosProxy::start(server.addr());
    let mut worker = Process::start(PENDING, &proxy.url());
    worker.expect_line("ready");
    proxy.partition(true);
    worker.send_line("ask");
    worker.expect_line("asks");
    fork_and_hear(&mut worker);
}

/// More requests are made than fit into one batch: the child has a copy of those that wait for the next call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forked_child_does_not_send_the_pending_requests_of_its_parent() {
    // Whether a request waits just then is a matter of microseconds.
    for _ in 0..3 {
        let server = RedisServer::start();
        let mut worker = Process::start(CROWD, &server.url());
        worker.expect_line("ready");
        server.cmd(&["CLIENT", "PAUSE", "60000", "WRITE"]);
        worker.send_line("ask");
        worker.expect_line("asks");
        worker.send_line("fork");
        worker.expect_line("forked");
        worker.ended_well();
        let before = server.commandstats("evalsha");
        server.cmd(&["CLIENT", "UNPAUSE"]);
        // The requests that the parent has sent are executed, and their replies wait in the connection.
        let sent = Cell::new(0);
        eventually(
            PATIENCE,
            "all that was sent has been carried out",
            async || {
                // Each is a cycle of the server's event loop, in which it reads everything that has arrived.
                for _ in 0..50 {
                    server.cmd(&["PING"]);
                }
                let now = server.commandstats("evalsha");
                sent.replace(now) == now && now > before
            },
        )
        .await;
        worker.send_line("go on");
        worker.expect_line("ends");
        let now = server.commandstats("evalsha");
        assert_eq!(now, sent.get(), "the child has sent something");
    }
}

fn fork_and_hear(worker: &mut Process) {
    worker.send_line("fork");
    worker.expect_line("forked");
    worker.ended_well();
    for word in ["alone", "together", "again"] {
        assert_eq!(worker.expect_line(word), "closed", "{word}");
    }
    worker.expect_line("ends");
}

/// Watches a fork in which the parent ends: its holds must expire exactly when they would have without the child.
async fn fork_and_watch(role: &str) {
    let server = RedisServer::start();
    let mut worker = Process::start(role, &server.url());
    let owners = worker.expect_line("holds and renews");
    for name in NAMES {
        let holders = server.hgetall(name);
        assert_eq!(holders.values().collect::<Vec<_>>(), ["1"]);
        assert!(holders.keys().all(|owner| owners.contains(owner)));
    }

    worker.send_line("fork");
    worker.expect_line("forked");
    // The parent has ended, and the server has read what it sent before.
    worker.ended_well();
    server.cmd(&["PING"]);
    // The time at which they expire unless they are renewed, at the earliest and at the latest.
    let ends = NAMES.map(|name| {
        let asked = Instant::now();
        let left = left(&server, name).expect("the fork itself ends nothing");
        (name, asked + left, Instant::now() + left + ROUNDED)
    });
    assert_eq!(worker.expect_line("released"), "closed");
    assert_eq!(worker.expect_line("dropped"), "done");
    assert_eq!(worker.expect_line("acquired"), "closed");
    // There is nothing to close in a child.
    assert!(["done", "closed"].contains(&worker.expect_line("closed").as_str()));
    assert_eq!(worker.expect_line("gone"), "done");
    worker.expect_line("ends");

    eventually(PATIENCE, "they expire by themselves", async || {
        let mut gone = true;
        for (name, earliest, latest) in ends {
            let asked = Instant::now();
            match left(&server, name) {
                Some(left) => {
                    assert!(asked + left <= latest, "`{name}` was renewed");
                    gone = false;
                }
                None => assert!(Instant::now() >= earliest, "`{name}` was released"),
            }
        }
        gone
    })
    .await;
}

/// Returns the lease that is left of a lock, if it is held.
fn left(server: &RedisServer, name: &str) -> Option<Duration> {
    let left = u64::try_from(server.pttl(name)).ok()?;
    Some(Duration::from_millis(left))
}

/// The worker's part, before and after the fork.
pub(crate) fn fork(runtime: Runtime, orders: &Receiver<String>) {
    let (client, released, dropped) = runtime.block_on(async {
        let client = connect(&url()).await;
        let released = client.lock(NAMES[0]).acquire().await.unwrap();
        let dropped = client.lock(NAMES[1]).acquire().await.unwrap();
        (client, released, dropped)
    });
    fork_once_renewed([released.held(), dropped.held()], orders);

    let fresh = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().expect("a runtime can be had")
    };
    say_outcome("released", move || fresh().block_on(released.release()));
    say_outcome("dropped", move || {
        drop(dropped);
        Ok(())
    });
    let lock = client.lock("of-the-child");
    say_outcome("acquired", move || fresh().block_on(lock.acquire()));
    let closing = client.clone();
    say_outcome("closed", move || fresh().block_on(closing.close()));
    say_outcome("gone", move || {
        drop(client);
        Ok(())
    });
    // Its threads are in the other process: no reply would arrive.
    std::mem::forget(runtime);
    end();
}

/// The same with a client that brings its own runtime.
pub(crate) fn fork_blocking(orders: &Receiver<String>) {
    let builder = distlock::Client::builder(&url()).default_lease(Lease::KeepAlive(LEASE));
    let client = blocking::Client::connect_with(builder).unwrap();
    let released = client.lock(NAMES[0]).acquire().unwrap();
    let dropped = client.lock(NAMES[1]).acquire().unwrap();
    fork_once_renewed([released.held(), dropped.held()], orders);

    say_outcome("released", move || released.release());
    say_outcome("dropped", move || {
        drop(dropped);
        Ok(())
    });
    let lock = client.lock("of-the-child");
    say_outcome("acquired", move || lock.acquire());
    let closing = client.clone();
    say_outcome("closed", move || closing.close());
    say_outcome("gone", move || {
        drop(client);
        Ok(())
    });
    end();
}

/// The worker's part: it forks with acquires in flight, whose replies have arrived and were not read.
pub(crate) fn fork_pending(orders: &Receiver<String>) {
    // A current-thread runtime has no threads to lose in a fork: the child could go on with everything.
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = Arc::new(builder.enable_all().build().expect("a runtime can be had"));
    // The child gives up after this timeout.
    let client = distlock::Client::builder(&url()).command_timeout(Duration::from_secs(5));
    let client = runtime.block_on(client.default_lease(Lease::KeepAlive(LEASE)).connect());
    let client = client.expect("the server is up");
    // From now on the server has cached the script: one request, one reply.
    let first = runtime.block_on(client.lock(NAMES[1]).acquire()).unwrap();
    runtime.block_on(first.release()).unwrap();
    say("ready");
    orders.recv().expect("the test says when");
    // The first goes out alone; the second in a call that a task of the connection makes.
    let mut pending = NAMES.map(|name| Box::pin(client.lock(name).acquire()));
    for pending in &mut pending {
        let begun = poll_fn(|cx| Poll::Ready(pending.as_mut().poll(cx).is_pending()));
        assert!(runtime.block_on(begun), "a server takes a moment");
    }
    say("asks");
    // The connection works on; the caller does not.
    runtime.block_on(async {
        while let Err(TryRecvError::Empty) = orders.try_recv() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    go_on_in_the_child();

    for (word, pending) in ["alone", "together"].into_iter().zip(pending) {
        let here = runtime.clone();
        say_outcome(word, move || here.block_on(pending));
    }
    let (here, again) = (runtime.clone(), client.lock("of-the-child"));
    say_outcome("again", move || here.block_on(again.acquire()));
    std::mem::forget((runtime, client));
    end();
}

pub(crate) fn fork_in_a_crowd(orders: &Receiver<String>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().expect("a runtime can be had");
    let client = runtime.block_on(connect(&url()));
    let first = runtime.block_on(client.lock(NAMES[0]).acquire()).unwrap();
    runtime.block_on(first.release()).unwrap();
    say("ready");
    orders.recv().expect("the test says when");
    let names = (0..40).map(|number| client.lock(format!("crowd-{number}")));
    let mut pending: Vec<_> = names.map(|lock| Box::pin(lock.acquire())).collect();
    runtime.block_on(async {
        for pending in &mut pending {
            let begun = poll_fn(|cx| Poll::Ready(pending.as_mut().poll(cx).is_pending()));
            assert!(begun.await, "the server is paused");
            tokio::task::yield_now().await;
        }
    });
    say("asks");
    orders.recv().expect("the test says when");
    go_on_in_the_child();

    // The server has replied to everything that was sent by then; now all calls in flight go on here. The thread that read orders is in the
    // parent.
    let told = nix::unistd::read(std::io::stdin(), &mut [0; 64]);
    assert!(told.expect("the test is there") > 0, "it has gone");
    runtime.block_on(async { tokio::time::sleep(Duration::from_millis(300)).await });
    std::mem::forget((runtime, client, pending));
    end();
}

/// Forks after a renewal, and returns in the child.
fn fork_once_renewed(held: [Held; 2], orders: &Receiver<String>) {
    let renewed = held.each_ref().map(|held| held.valid_until() + LEASE / 9);
    while held[0].valid_until() < renewed[0] || held[1].valid_until() < renewed[1] {
        thread::sleep(Duration::from_millis(5));
    }
    let [one, other] = held.map(|held| held.owner());
    say(&format!("holds and renews {one} {other}"));
    orders.recv().expect("the test says when");
    go_on_in_the_child();
}

/// Ends the child after its last report. The test harness, whose threads are in the parent, would never end it.
fn end() {
    say("ends");
    raise(Signal::SIGKILL).expect("a process may end itself");
}

fn go_on_in_the_child() {
    daemon(true, true).expect("a process may fork");
    // No process waits for this one: if it hangs for good, the alarm ends it.
    alarm::set(300);
    say("forked");
}

pub(crate) const ROLE: &str = "fork";
pub(crate) const PENDING: &str = "fork with acquisitions under way";
pub(crate) const CROWD: &str = "fork with more acquisitions than travel at once";
pub(crate) const BLOCKING: &str = "fork with a blocking client";
const NAMES: [&str; 2] = ["forked-released", "forked-dropped"];
/// The server counts whole milliseconds.
const ROUNDED: Duration = Duration::from_millis(2);
