//! A forked child does not touch its parent's locks, and the parent goes on as if there were no child.
//!
//! The test starts itself once more as the parent ([`worker`]): a process that forks must not be one in which other tests run.

#![expect(
    clippy::disallowed_methods,
    reason = "processes are forked and awaited in real time"
)]

#[path = "../../support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::io::stdin;
use std::process::exit;
use std::time::{Duration, Instant};

use distlock::{Client, Guard, Lease, blocking};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, alarm};

use support::process::{self, Process, say, say_outcome};
use support::{RedisServer, wait_until};

#[test]
fn a_parent_keeps_and_renews_its_locks_while_its_forked_child_uses_the_guards() {
    let server = RedisServer::start();
    let mut parent = Process::start("parent", &server.url());
    let holders = || NAMES.map(|name| server.hgetall(name));

    parent.expect_line("parent holds and renews");
    let before = holders();
    assert!(before.iter().all(is_one_owner));
    for said in [
        "child release closed",
        "child drop done",
        "child acquire closed",
        "child blocking release closed",
        "child blocking drop done",
        "child ends",
        "parent saw it end",
    ] {
        parent.expect_line(said);
        assert_eq!(holders(), before, "after `{said}`");
    }
    // The parent has renewed them for two leases beyond the child's end.
    parent.expect_line("parent still holds");
    assert_eq!(holders(), before);
    parent.send_line("release");
    parent.expect_line("parent released");
    assert_eq!(server.keys(), Vec::<String>::new());
    parent.ended_well();
}

fn is_one_owner(holders: &BTreeMap<String, String>) -> bool {
    holders.len() == 1 && holders.values().all(|count| count == "1")
}

/// The entry of the process that forks. It tests nothing by itself and is ignored, so that it is not counted as a test that passed.
#[test]
#[ignore = "no test: the process that forks begins here"]
fn worker() {
    if process::role().is_none() {
        return;
    }
    let url = process::url();
    // Neither this process nor its child may wait for ever.
    alarm::set(60);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be had");
    let builder = Client::builder(&url).default_lease(Lease::KeepAlive(LEASE));
    let client = runtime.block_on(builder.clone().connect()).unwrap();
    let lock = |name: &str| runtime.block_on(client.lock(name).acquire()).unwrap();
    let guards = [lock(NAMES[0]), lock(NAMES[1])];
    let other = blocking::Client::connect_with(builder).unwrap();
    let blocking_guards = [NAMES[2], NAMES[3]].map(|name| other.lock(name).acquire().unwrap());
    let held = [
        guards[0].held(),
        guards[1].held(),
        blocking_guards[0].held(),
        blocking_guards[1].held(),
    ];
    let granted: Vec<_> = held.iter().map(|held| held.valid_until()).collect();
    wait_until("all are renewed", || {
        let mut both = held.iter().zip(&granted);
        both.all(|(held, granted)| held.valid_until() > *granted + LEASE / 9)
    });
    say("parent holds and renews");

    #[expect(unsafe_code, reason = "fork(2) is what this is about")]
    // SAFETY: the child only does what the library supports after a fork, and then exits. Its allocations are safe with glibc, whose
    // allocator is made usable in forked children.
    let forked = unsafe { nix::unistd::fork() }.expect("a process may fork");
    let child = match forked {
        ForkResult::Child => {
            child(client, guards, blocking_guards);
            // The threads of its runtimes are in the other process: they cannot be shut down here.
            exit(0);
        }
        ForkResult::Parent { child } => child,
    };
    wait_for(child);
    say("parent saw it end");
    let then = Instant::now();
    wait_until("it is renewed for two leases", || {
        for held in &held {
            held.check().expect("it is kept alive");
        }
        held.iter()
            .all(|held| held.valid_until() > then + 2 * LEASE)
    });
    say("parent still holds");
    // The process waits until the test has checked.
    let _ = stdin().read_line(&mut String::new());
    let [one, two] = guards;
    runtime.block_on(one.release()).expect("it is ours");
    runtime.block_on(two.release()).expect("it is ours");
    for guard in blocking_guards {
        guard.release().expect("it is ours");
    }
    runtime.block_on(client.close()).expect("the server is up");
    say("parent released");
}

fn child(client: Client, guards: [Guard; 2], blocking_guards: [blocking::Guard; 2]) {
    alarm::set(20);
    let fresh = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().expect("a runtime can be had")
    };
    let [released, dropped] = guards;
    say_outcome("child release", move || {
        fresh().block_on(released.release())
    });
    say_outcome("child drop", move || {
        drop(dropped);
        Ok(())
    });
    say_outcome("child acquire", move || {
        fresh().block_on(client.lock("of-the-child").acquire())
    });
    let [released, dropped] = blocking_guards;
    say_outcome("child blocking release", move || released.release());
    say_outcome("child blocking drop", move || {
        drop(dropped);
        Ok(())
    });
    say("child ends");
}

fn wait_for(child: Pid) {
    wait_until("the child ends", || {
        let status = waitpid(child, Some(WaitPidFlag::WNOHANG)).expect("it is our child");
        match status {
            WaitStatus::StillAlive => false,
            WaitStatus::Exited(_, 0) => true,
            other => panic!("the child ended badly: {other:?}"),
        }
    });
}

const NAMES: [&str; 4] = [
    "released",
    "dropped",
    "blocking-released",
    "blocking-dropped",
];
/// Two thirds of it are a margin for a busy machine, which must not lose the lock.
const LEASE: Duration = Duration::from_secs(6);
