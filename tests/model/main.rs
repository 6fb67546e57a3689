//! Holds the memory engine's pure rules against the Redis engine's scripts: the same random requests
//! at the same times must get the same replies.
//!
//! Ten thousand sequences run side by side, each on a name of its own, in lock-step: one action a
//! tick. The rules are told the time at which a request is sent to Redis, which keeps its own. Leases
//! end half-way between two ticks, so that ends and actions stay apart; where a busy machine has
//! brought them together all the same, both answers may be right, and that sequence counts for
//! nothing. Enough others must be left.

#![cfg(all(feature = "redis", feature = "internals"))]
#![expect(clippy::disallowed_methods, reason = "tests keep their own time")]

#[path = "../support/mod.rs"]
mod support;

mod compare;
mod generator;
mod keyspace;
mod lane;
mod listening;
mod sequence;

use std::sync::Arc;
use std::time::Duration;

use distlock::internals::engine::redis::{Address, Place, Redis, Settings};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::Instant;

use compare::{EVERYTHING, TRAVELLERS};
use keyspace::Keyspace;
use lane::{Lane, Outcome, TICK};
use support::{RedisServer, SeededRng, eventually};

/// Sequences that must count.
const ENOUGH: usize = 10_000;
/// Lanes run at the same time; in each, the sequences take their turns.
const LANES: u32 = 32;
const SEQUENCES: usize = 340;
/// How often to run more of them if too few counted.
const ROUNDS: u32 = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_requests_get_the_same_replies_from_memory_and_from_redis() {
    let begun = Instant::now();
    let mut rng = SeededRng::from_env_or(0x6d6f_6465_6c00_0001);
    let server = RedisServer::start();
    let engines = [connect(&server).await, connect(&server).await];

    let mut seen = Outcome::default();
    for round in 0..ROUNDS {
        let round_begun = Instant::now();
        // Only as many as are missing, and some to spare.
        let missing = ENOUGH - seen.sequences;
        let sequences = SEQUENCES.min(missing.div_ceil(10) + 5);
        let mut running = JoinSet::new();
        for lane in 0..LANES {
            let lane = Lane {
                name: format!("lane-{round}-{lane}-"),
                seed: rng.next_u64(),
                sequences,
                // Spread over a tick, so that they do not all begin at the same instant.
                phase: TICK * lane / LANES,
                engines: engines.clone(),
            };
            running.spawn(async move { lane.run().await });
        }
        let ended = running.join_all().await;
        let sent = Instant::now();
        let keys = Keyspace::read(&server, engines[0].clone(), round_begun).await;
        let latency = sent.elapsed();
        for lane in ended {
            seen.add(lane.end(&keys, sent, latency).await);
        }
        server.flushall();
        eprintln!(
            "round {round}: {} sequences of {} requests; {} more counted for nothing; slowest \
             answer {:.0?}, slowest tick {:.0?}; {:.1?}",
            seen.sequences,
            seen.coverage.requests(),
            seen.unclear,
            seen.slowest_answer,
            seen.slowest_tick,
            begun.elapsed()
        );
        if seen.sequences >= ENOUGH || !seen.divergences.is_empty() {
            break;
        }
    }
    eprintln!("{}", seen.coverage);

    let found = seen.divergences.len();
    if let Some(shortest) = seen.divergences.iter().min_by_key(|found| found.length()) {
        panic!("{found} sequences diverge, this the soonest:\n{shortest}");
    }
    assert!(
        seen.sequences >= ENOUGH,
        "this machine is too busy: nothing can be said"
    );
    seen.coverage.assert_everything_was_seen_of(EVERYTHING);
    seen.together.assert_everything_was_seen_of(TRAVELLERS);
    let calls = server.commandstats("evalsha") + server.commandstats("eval");
    let (may_travel, others) = (seen.may_travel, seen.others);
    eprintln!("{may_travel} requests that may travel, {others} others: {calls} calls");
    // Whatever did not travel in company was a call of its own.
    assert!(calls < others + may_travel / 2, "they travel alone");
    eventually(
        Duration::from_secs(10),
        "every listener has left",
        async || server.pubsub_channels().is_empty(),
    )
    .await;
}

async fn connect(server: &RedisServer) -> Arc<Redis> {
    let address = Address {
        place: Place::Unix(server.socket_path()),
        ..Address::default()
    };
    let settings = Settings {
        prefix: "".into(),
        connect_timeout: Duration::from_secs(10),
        command_timeout: Duration::from_secs(30),
    };
    Redis::connect(address, settings, &Handle::current())
        .await
        .expect("the server is up")
}
