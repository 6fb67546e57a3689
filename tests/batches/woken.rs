//! Waiters that are woken at the same moment send their requests in one batch. They had been waiting before: whatever happens to that
//! batch, they keep waiting, and the waiter behind one that leaves gets its turn.

use distlock::{Client, Guard, Lease};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::fixture::{BatchFixture, becomes, said};
use super::{LEASE, PATIENCE};
use crate::lost_replies::COMMAND_TIMEOUT;
use crate::lost_replies::rules::{RULES, Rule};
use crate::support::batch::{apart, is_batch};
use crate::support::{Fault, Match, RedisServer, builder, simulated};

#[test]
fn waiters_with_requests_in_one_batch_survive_any_fault_of_it() {
    simulated(async || sweep(false).await);
}

#[test]
fn a_waiter_behind_one_dropped_with_its_batch_in_flight_gets_a_turn() {
    simulated(async || sweep(true).await);
}

async fn sweep(some_go: bool) {
    // A shared connection does not lose one reply and deliver the next ones.
    for rule in RULES
        .iter()
        .filter(|rule| rule.fault != Fault::SwallowReply)
    {
        eprintln!("{}", rule.name);
        tell(rule, some_go).await;
    }
}

async fn tell(rule: &Rule, some_go: bool) {
    let fixture = BatchFixture::with(RedisServer::start(), "", COMMAND_TIMEOUT).await;
    let other = builder(&fixture.server.url()).default_lease(Lease::KeepAlive(LEASE));
    let other = other.connect().await.expect("its network is fine");
    let names: Vec<String> = (0..MANY).map(|number| format!("stock-{number}")).collect();
    let mut theirs = Vec::new();
    let mut firsts = Vec::new();
    for name in &names {
        theirs.push(hold(&other, name).await);
        firsts.push(wait(&fixture, name));
    }
    becomes("all listen", || {
        fixture.server.pubsub_channels().len() == MANY
    })
    .await;
    let seconds: Vec<_> = names.iter().map(|name| wait(&fixture, name)).collect();
    becomes("all have asked", || fixture.proxy.unanswered() == 0).await;
    // All waiters are woken by releases of which they are notified at the same moment. Not all of them need to be in one batch.
    let batch = Match::words(|words| is_batch(words) && carried(words) >= 2);
    fixture.proxy.rule(batch.nth(1), rule.fault);
    fixture.proxy.partition(true);
    for guard in theirs {
        guard.release().await.expect("its network is fine");
    }
    fixture.proxy.partition(false);
    becomes("the network does wrong", || {
        !fixture.proxy.injected().is_empty()
    })
    .await;
    if some_go {
        firsts.iter().step_by(2).for_each(JoinHandle::abort);
    }
    for (name, (first, second)) in names.iter().zip(firsts.into_iter().zip(seconds)) {
        for waiting in [first, second] {
            let got = timeout(PATIENCE, waiting).await;
            match got.expect("every waiter gets a turn") {
                Ok(guard) => assert_eq!(fixture.holds(name), said(&guard)),
                Err(gone) => assert!(some_go && gone.is_cancelled(), "{gone}"),
            }
        }
        becomes("it is free", || fixture.holds(name).is_empty()).await;
    }
    fixture.client.close().await.expect("the network is whole");
    fixture.proxy.deliver_held();
    becomes("all arrives", || fixture.proxy.unanswered() == 0).await;
    for name in &names {
        let guard = hold(&other, name).await;
        assert_eq!(fixture.holds(name), said(&guard), "a ghost");
    }
}

fn wait(fixture: &BatchFixture, name: &str) -> JoinHandle<Guard> {
    let lock = fixture.client.lock(name);
    tokio::spawn(async move { lock.acquire().await.expect("a waiter rides through") })
}

async fn hold(client: &Client, name: &str) -> Guard {
    let held = client.lock(name).try_acquire().await;
    held.expect("the server answers").expect("it is free")
}

fn carried(words: &[Vec<u8>]) -> usize {
    let text = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
    apart(words.iter().map(text).collect()).len()
}

const MANY: usize = 9;
