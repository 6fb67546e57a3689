//! Plays the real Redisson, redis-py, redsync and redlock on the other side of our locks.
//!
//! ```sh
//! scripts/interop                         # all scenarios and libraries; builds what it needs
//! scripts/interop --quick wake turns      # some scenarios, in less time
//! ```
//!
//! A [`scenario`](scenarios) is written once for two [parties](party) and played both ways round:
//! a thread in a JVM ([`peer`]) against a task of ours; in the scenarios of the [simple lock](simple), a client of another library
//! against one of ours. The [`hammer`] lets whole processes of both sides work on the same counters, and the [`checker`]
//! reads their logs.
#![allow(
    clippy::print_stdout,
    reason = "a program whose results are for people to read"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "scenarios keep their own time and their own tasks"
)]

mod checker;
mod clock;
mod failure;
mod hammer;
mod library;
mod options;
mod party;
mod peer;
mod quorum;
mod run;
mod scenarios;
mod simple;
mod site;
mod stage;
#[path = "../../tests/support/mod.rs"]
mod support;
mod table;
mod worker;
mod world;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use distlock::{Client, Lease, Lock, MultiLock};
use tokio::io::AsyncReadExt;

use crate::failure::Outcome;
use crate::library::Shared;
use crate::options::{Options, Order};
use crate::party::Kind;
use crate::worker::Work;
use crate::world::World;

#[tokio::main(worker_threads = 8)]
async fn main() -> ExitCode {
    let order = match Order::parse(std::env::args().skip(1)) {
        Ok(order) => order,
        Err(wrong) => {
            eprintln!("interop: {wrong}");
            return ExitCode::from(64);
        }
    };
    let done = match order {
        Order::Hold {
            url,
            kind,
            name,
            lease,
        } => hold(&url, kind, &name, lease).await,
        Order::HoldMost {
            shared,
            name,
            lease,
            urls,
        } => hold_most(shared, &name, lease, urls).await,
        Order::List => list(),
        Order::Run(options) => run(options).await,
        Order::Worker(work) => work_alone(work).await,
    };
    done.unwrap_or_else(|failure| {
        eprintln!("interop: {failure}");
        ExitCode::FAILURE
    })
}

async fn run(options: Options) -> Outcome<ExitCode> {
    let world = Arc::new(World::new(options.builds, options.logs, options.pace));
    let table = run::run(&world, &options.scenarios, |row| println!("{}", row.line())).await;
    if let Err(failure) = world.end().await {
        println!("the peers do not end: {failure}");
        return Ok(ExitCode::FAILURE);
    }
    for shared in Shared::ALL {
        let markdown = table.markdown(shared, options.times);
        if !markdown.is_empty() {
            println!("\n{}:\n\n{markdown}", shared.title());
        }
    }
    println!();
    println!("{} passed, {} failed", table.passed(), table.failed());
    let fine = table.failed() == 0 && table.passed() > 0;
    Ok(if fine {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn list() -> Outcome<ExitCode> {
    for scenario in scenarios::all() {
        println!("{:<17} {}", scenario.name, scenario.shows);
    }
    println!("\nonly if named:");
    for scenario in scenarios::LONG_FORMS {
        println!("{:<17} {}", scenario.name, scenario.shows);
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs this process as a worker of the hammer.
async fn work_alone(work: Work) -> Outcome<ExitCode> {
    let tally = worker::work(work, Arc::new(AtomicBool::new(false))).await?;
    println!("{}", tally.to_json());
    Ok(ExitCode::SUCCESS)
}

/// Holds a lock until this process is killed, or until its stdin ends: then it kills itself.
async fn hold(url: &str, kind: Kind, name: &str, lease: std::time::Duration) -> Outcome<ExitCode> {
    let client = Client::connect(url).await?;
    let lease = Lease::KeepAlive(lease);
    match kind {
        Kind::Counting | Kind::Latch => Err(party::nothing_to_hold(name)),
        Kind::Fair => keep(client.fair_lock(name).with_lease(lease)).await,
        Kind::Fenced => keep(client.fenced_lock(name).with_lease(lease)).await,
        Kind::Multi => {
            let locks = name.split('+').map(|name| client.lock(name).into());
            let guard = MultiLock::new(locks).with_lease(lease).acquire().await?;
            until_killed(guard.lost()).await
        }
        Kind::Permit => keep(client.semaphore(name).permit().with_lease(lease)).await,
        Kind::Plain => keep(client.lock(name).with_lease(lease)).await,
        Kind::Read => keep(client.rw_lock(name).read().with_lease(lease)).await,
        Kind::Write => keep(client.rw_lock(name).write().with_lease(lease)).await,
    }
}

/// Holds a lock on a majority of several servers, as `hold` does on one.
async fn hold_most(
    shared: Shared,
    name: &str,
    lease: std::time::Duration,
    urls: Vec<String>,
) -> Outcome<ExitCode> {
    let clients = quorum::clients(urls).await?;
    let lock = quorum::Format::of(shared).lock(&clients, name);
    let lock = lock.with_lease(Lease::KeepAlive(lease));
    let mut tries = 0;
    let guard = loop {
        match lock.acquire().await {
            Ok(guard) => break guard,
            // Each server has only a twentieth of a lease to reply.
            Err(error) if error.is_transient() && tries < 20 => tries += 1,
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(lease / 20).await;
    };
    until_killed(guard.lost()).await
}

async fn keep<K: Send + Sync>(lock: Lock<K>) -> Outcome<ExitCode> {
    let guard = lock.acquire().await?;
    until_killed(guard.lost()).await
}

async fn until_killed<L: std::fmt::Debug>(lost: impl Future<Output = L>) -> Outcome<ExitCode> {
    println!("held");
    let (mut stdin, mut rest) = (tokio::io::stdin(), Vec::new());
    tokio::select! {
        lost = lost => Err(failure::Failure::new(format!("lost it: {lost:?}"))),
        _ = stdin.read_to_end(&mut rest) => std::process::abort(),
    }
}
