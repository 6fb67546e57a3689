//! Redisson's fair lock: its list, its timeouts, its channels, and its arithmetic beside distlock's.

#![allow(
    dead_code,
    reason = "a program that compiles this module uses a part of it"
)]

pub(crate) mod java;

use std::collections::BTreeMap;
use std::time::Duration;

use distlock::{Client, Error, Fair, Guard, Lease};
use tokio::task::JoinHandle;

use self::java::{queue, timeout};
use super::support::{RedisServer, eventually};
use super::{LEASE, PATIENCE};

pub(crate) const NAME: &str = "order";
/// The key with the times until which distlock's waiters count as alive: a private key beside Redisson's.
pub(crate) const ALIVE: &str = "distlock_alive:{order}";

pub(crate) type Waiting = JoinHandle<Result<Guard<Fair>, Error>>;

/// Acquires the free lock without a limit.
pub(crate) async fn hold(client: &Client) -> Guard<Fair> {
    let lock = client.fair_lock(NAME).with_lease(Lease::Fixed(LEASE));
    let taken = lock.try_acquire().await.expect("the server answers");
    taken.expect("it is free")
}

/// Starts a waiter of this library, and waits until it is at the end of the queue and sleeps. Returns its owner id as well.
pub(crate) async fn start_waiter(server: &RedisServer, client: &Client) -> (Waiting, String) {
    let waiting = asleep(server, tokio::spawn(client.fair_lock(NAME).acquire())).await;
    let owner = line(server).pop().expect("somebody stands there");
    (waiting, owner)
}

/// Waits until one more waiter is queued, is subscribed, and has sent one more request since: then it sleeps.
pub(crate) async fn asleep<T>(server: &RedisServer, waiting: JoinHandle<T>) -> JoinHandle<T> {
    let (before, asked) = (line(server), questions(server));
    eventually(PATIENCE, "it sleeps in line", async || {
        let last = line(server).pop();
        let new = last.filter(|owner| !before.contains(owner));
        let heard = new.is_some_and(|owner| {
            let channel = format!("redisson_lock__channel:{{order}}:{owner}");
            server.pubsub_channels().contains(&channel)
        });
        heard && questions(server) >= asked + 2
    })
    .await;
    waiting
}

/// Returns how many requests waiters of this library have sent: each reads the length of the queue.
pub(crate) fn questions(server: &RedisServer) -> u64 {
    server.commandstats("llen")
}

pub(crate) async fn granted(waiting: Waiting) -> Guard<Fair> {
    let granted = tokio::time::timeout(PATIENCE, waiting).await;
    let granted = granted
        .expect("it has its turn")
        .expect("it does not panic");
    granted.expect("the server answers")
}

/// Returns the waiters in the queue, the head first.
pub(crate) fn line(server: &RedisServer) -> Vec<String> {
    server.query(&["LRANGE", &queue(), "0", "-1"])
}

/// Returns the time until each waiter may be skipped.
pub(crate) fn times(server: &RedisServer) -> BTreeMap<String, i64> {
    let scores: Vec<(String, f64)> = server.query(&["ZRANGE", &timeout(), "0", "-1", "WITHSCORES"]);
    let now = now(server);
    let left = scores.into_iter().map(|(owner, score)| {
        assert_eq!(score.fract(), 0.0, "whole milliseconds");
        (owner, score as i64 - now)
    });
    left.collect()
}

/// Returns the server's clock, in ms.
pub(crate) fn now(server: &RedisServer) -> i64 {
    let (seconds, micros): (i64, i64) = server.query(&["TIME"]);
    seconds * 1000 + micros / 1000
}

/// Asserts that a time was counted down from this a moment ago.
#[track_caller]
pub(crate) fn assert_about(left: i64, from: Duration) {
    super::assert_just_set(left, from + ROUNDING);
}

/// Two clocks are read, one after the other.
pub(crate) const ROUNDING: Duration = Duration::from_millis(100);
