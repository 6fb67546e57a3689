//! Shows that the test support does what it claims, against a real server: a proxy that quietly
//! injects nothing would make every test built on it pass.

#![cfg(feature = "redis")]
#![expect(
    clippy::disallowed_methods,
    reason = "whether a fault delays, stalls or forgets something shows in real time"
)]

use crate::support;

mod faults;
mod network;
mod places;
mod protocol;
mod server;

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisResult};

use support::{ChaosProxy, RedisServer, SeededRng, eventually};

/// A server behind a proxy without rules.
fn proxied() -> (RedisServer, ChaosProxy) {
    let server = RedisServer::start();
    let proxy = ChaosProxy::start(server.addr());
    (server, proxy)
}

/// A client that waits long enough for any answer that comes at all.
async fn patient(url: &str) -> MultiplexedConnection {
    connect(url, PATIENCE)
        .await
        .expect("the way to the server is open")
}

/// A client for requests whose answer must not come.
async fn hasty(url: &str) -> MultiplexedConnection {
    // Connecting is no part of the test and may take its time.
    let mut connection = patient(url).await;
    connection.set_response_timeout(HASTE);
    connection
}

async fn connect(url: &str, response_timeout: Duration) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(response_timeout))
        .set_response_timeout(Some(response_timeout));
    Client::open(url)?
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

async fn incr(connection: &mut MultiplexedConnection) -> RedisResult<u64> {
    redis::cmd("INCR")
        .arg("counter")
        .query_async(connection)
        .await
}

fn counter(server: &RedisServer) -> u64 {
    server
        .query::<Option<u64>>(&["GET", "counter"])
        .unwrap_or(0)
}

#[tokio::test]
async fn eventually_returns_as_soon_as_the_condition_holds() {
    let mut polls = 0;
    eventually(PATIENCE, "counted to three", async || {
        polls += 1;
        polls == 3
    })
    .await;
    assert_eq!(polls, 3);
}

#[tokio::test]
#[should_panic(expected = "the impossible")]
async fn eventually_panics_when_the_time_is_up() {
    eventually(HASTE, "the impossible", async || false).await;
}

#[tokio::test]
#[should_panic(expected = "an answer")]
async fn eventually_panics_when_the_condition_hangs() {
    eventually(HASTE, "an answer", async || std::future::pending().await).await;
}

#[test]
fn the_same_seed_gives_the_same_numbers() {
    let mut rng = SeededRng::new(1_234_567);
    // The reference values of splitmix64.
    assert_eq!(rng.next_u64(), 6_457_827_717_110_365_317);
    assert_eq!(rng.next_u64(), 3_203_168_211_198_807_973);
    let mut again = rng.clone();
    let numbers: Vec<u64> = (0..100).map(|_| rng.below(10)).collect();
    assert!(numbers.iter().all(|number| *number < 10));
    assert!(numbers.iter().all(|number| again.below(10) == *number));
    assert!((0..100).any(|_| rng.chance(50)) && !(0..100).any(|_| rng.chance(0)));
    assert!([1, 2, 3].contains(rng.pick(&[1, 2, 3])));
}

/// Far longer than anything takes on a busy machine; only a failure waits for it.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long to look at something that must not happen.
const HASTE: Duration = Duration::from_millis(150);
