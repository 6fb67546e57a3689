//! Waiters that are woken at the same moment ask in one batch. They had been waiting before: whatever
//! becomes of that batch, they ride through, and whoever is behind one that goes gets its turn.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Instant;

use distlock::{Client, Error, Guard, Lease};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet, LocalSet, spawn_local};
use tokio::time::timeout;

use super::company::{Company, said};
use super::mix::acquired;
use super::rules::{RULES, Rule};
use super::support::batch::{apart, is_batch};
use super::support::{Fault, Match, RedisServer, eventually};
use super::{COMMAND_TIMEOUT, LEASE, PATIENCE};

#[tokio::test]
async fn waiters_that_ask_in_one_batch_ride_through_whatever_becomes_of_it() {
    LocalSet::new().run_until(sweep(false)).await;
}

#[tokio::test]
async fn whoever_waits_behind_one_that_goes_with_its_batch_under_way_gets_its_turn() {
    LocalSet::new().run_until(sweep(true)).await;
}

async fn sweep(some_go: bool) {
    let room = Rc::new(Semaphore::new(AT_ONCE));
    let mut cases = JoinSet::new();
    for rule in RULES {
        // That is no fault of a connection that many share.
        if rule.fault == Fault::SwallowReply {
            continue;
        }
        let room = room.clone();
        cases.spawn_local(async move {
            let _room = room.acquire().await;
            let told = spawn_local(tell(rule, some_go)).await;
            told.map_err(|error| (rule.name, error.to_string()))
        });
    }
    let told = cases.join_all().await.into_iter();
    let failed: Vec<_> = told.filter_map(Result::err).collect();
    assert!(failed.is_empty(), "{} failed: {failed:#?}", failed.len());
}

async fn tell(rule: &'static Rule, some_go: bool) {
    let company = Company::on(RedisServer::start(), "", |builder| {
        builder.command_timeout(COMMAND_TIMEOUT)
    });
    let company = company.await;
    let other = Client::builder(&company.server.url()).default_lease(Lease::KeepAlive(LEASE));
    let other = other.connect().await.expect("its network is fine");
    // Once more for as long as a busy machine keeps them from asking together.
    let give_up = Instant::now() + 10 * PATIENCE;
    let mut round = 0;
    while company.proxy.injected().is_empty() {
        assert!(Instant::now() < give_up, "they never ask together");
        wake(&company, &other, round, rule, some_go).await;
        round += 1;
    }
    company.client.close().await.expect("the network is whole");
    company.proxy.let_go();
    for name in (0..round).flat_map(names) {
        let guard = acquired(&other.lock(name.as_str())).await;
        assert_eq!(company.holds(&name), said(&guard), "a ghost");
        guard.release().await.expect("it is theirs");
    }
}

/// Has all waiters woken by releases that they hear of at the same moment.
async fn wake(company: &Company, other: &Client, round: usize, rule: &Rule, some_go: bool) {
    let mut theirs = Vec::new();
    let mut line = BTreeMap::new();
    for name in names(round) {
        theirs.push(acquired(&other.lock(name.as_str())).await);
        let first = wait(company, &name);
        line.insert(name, [first, None]);
    }
    // A busy machine may be too slow for the first question of one.
    let failed = || {
        line.values()
            .flatten()
            .flatten()
            .any(JoinHandle::is_finished)
    };
    eventually(PATIENCE, "all listen", async || {
        company.server.pubsub_channels().len() == MANY || failed()
    })
    .await;
    if failed() {
        for waiting in line.into_values().flatten().flatten() {
            waiting.abort();
            drop(waiting.await);
        }
        return;
    }
    for (name, line) in &mut line {
        line[1] = wait(company, name);
    }
    // Not what they asked before they waited.
    let batch = Match::words(|words| is_batch(words) && carried(words) >= ENOUGH);
    company.proxy.clear_rules();
    company.proxy.rule(batch.nth(1), rule.fault);
    company.proxy.partition(true);
    for guard in theirs {
        guard.release().await.expect("its network is fine");
    }
    company.proxy.partition(false);
    if some_go {
        // Or none has come together this time.
        let _ = timeout(
            PATIENCE / 10,
            eventually(PATIENCE, "the network does wrong", async || {
                !company.proxy.injected().is_empty()
            }),
        )
        .await;
        for waiting in line
            .values()
            .step_by(2)
            .filter_map(|[first, _]| first.as_ref())
        {
            waiting.abort();
        }
    }
    for (name, waiting) in line {
        for waiting in waiting.into_iter().flatten() {
            let got = timeout(PATIENCE, waiting).await;
            let guard = match got.expect("everyone gets a turn") {
                Ok(Ok(guard)) => guard,
                Ok(Err(error)) => panic!("`{name}`: a waiter rides through: {error}"),
                Err(gone) => {
                    assert!(gone.is_cancelled(), "{gone}");
                    continue;
                }
            };
            assert_eq!(guard.name(), name);
            assert_eq!(company.holds(&name), said(&guard));
            drop(guard);
        }
        company.becomes(&name, &BTreeMap::new()).await;
    }
}

fn wait(company: &Company, name: &str) -> Option<JoinHandle<Result<Guard, Error>>> {
    Some(tokio::spawn(company.client.lock(name).acquire()))
}

fn names(round: usize) -> impl Iterator<Item = String> {
    (0..MANY).map(move |number| format!("{round}-{number}"))
}

fn carried(words: &[Vec<u8>]) -> usize {
    let text = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
    apart(words.iter().map(text).collect()).len()
}

const MANY: usize = 9;
/// Those who were woken together; the first goes out alone.
const ENOUGH: usize = 2;
const AT_ONCE: usize = 6;
