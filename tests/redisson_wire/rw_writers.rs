//! The message of a waiting writer that gives up.

use std::time::Duration;

use distlock::{Client, Error, Guard, Write};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::stage::assert_is_redissons;
use super::stage::{hash, only_tombstones_left, read, write};
use super::support::java::{Subscriber, rw_channel};
use super::support::{ChaosProxy, Fault, Match, RedisServer, eventually, simulated};
use super::{LEASE, PATIENCE, connect, connect_to};

const WRITERS: &str = "distlock_writers:{prices}";
/// Long enough for a waiter to have sent a request, subscribed and sent another: from then on it sleeps for 2 s unless it is woken.
const ASLEEP: Duration = Duration::from_millis(250);
/// Counted from before the waiter's request, so that no waiter is this fast without having been woken.
const SOON: Duration = Duration::from_millis(1500);

/// The way in which a writer gives up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum GiveUp {
    /// Its future is dropped while it sleeps.
    Dropped,
    /// Its wait limit is reached.
    OutOfTime,
    /// Its future is dropped before the reply to its request arrives, and the reply never arrives.
    Unanswered,
}

/// `Unanswered` is last, when the server knows the script: what is held back is its reply, not that it is unknown.
const WAYS: [GiveUp; 3] = [GiveUp::Dropped, GiveUp::OutOfTime, GiveUp::Unanswered];

#[test]
fn the_last_writer_that_gives_up_publishes_2_once_and_earlier_ones_nothing() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server).await;
        let mut ear = Subscriber::start(&server, &rw_channel("prices")).await;
        for how in WAYS {
            let reader = read(&client.rw_lock("prices"), LEASE).await;
            let only = Writer::waits(&server, how).await;
            assert!(ear.rest(&server).await.is_empty(), "{how:?}: it came");
            only.gives_up(&server).await;
            assert_eq!(ear.rest(&server).await, [b"2"], "{how:?}");

            // Either of them may reach its limit first: one is the last.
            let first = Writer::waits(&server, how).await;
            let last = Writer::waits(&server, how).await;
            first.gives_up(&server).await;
            if how != GiveUp::OutOfTime {
                let said = ear.rest(&server).await;
                assert!(said.is_empty(), "{how:?}: {said:?}, another waits");
            }
            last.gives_up(&server).await;
            assert_eq!(ear.rest(&server).await, [b"2"], "{how:?}");

            reader.release().await.unwrap();
            assert_eq!(ear.rest(&server).await, [b"0"], "{how:?}");
        }
        ear.unsubscribe().await;
        only_tombstones_left(&server, client).await;
    });
}

/// A waiter behind it waits for the writer that holds the lock, and is notified when that one releases it.
#[test]
fn a_writer_that_gives_up_behind_an_active_writer_publishes_nothing() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server).await;
        let mut ear = Subscriber::start(&server, &rw_channel("prices")).await;
        for how in WAYS {
            let holder = write(&client.rw_lock("prices"), LEASE).await;
            let waiting = Writer::waits(&server, how).await;
            waiting.gives_up(&server).await;
            let said = ear.rest(&server).await;
            assert!(said.is_empty(), "{how:?}: {said:?}");
            holder.release().await.unwrap();
            assert_eq!(ear.rest(&server).await, [b"1"], "{how:?}");
        }
        ear.unsubscribe().await;
        only_tombstones_left(&server, client).await;
    });
}

#[test]
fn our_reader_is_woken_by_the_writer_that_gives_up() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server).await;
        let lock = client.rw_lock("prices");
        let stays = read(&lock, LEASE).await;
        for how in [GiveUp::Dropped, GiveUp::Unanswered] {
            let writer = Writer::waits(&server, how).await;
            let asked = Instant::now();
            let late = tokio::spawn(lock.read().acquire());
            sleep(ASLEEP).await;
            assert!(!late.is_finished(), "{how:?}: a writer waits");
            writer.gives_up(&server).await;
            let late = timeout(PATIENCE, late).await.expect("it is let in");
            late.unwrap().unwrap().release().await.unwrap();
            assert!(asked.elapsed() < SOON, "{how:?}: not notified");
        }
        stays.release().await.unwrap();
        only_tombstones_left(&server, client).await;
    });
}

/// Nothing was released: a watch must not take the event for a release.
#[test]
fn a_writer_that_stops_waiting_is_no_release() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, other) = (connect(&server).await, connect(&server).await);
        let lock = client.rw_lock("prices");
        let reader = read(&lock, LEASE).await;
        let mut watch = client.admin().watch("prices");
        assert_eq!(watch.next().await.unwrap().owner, Some(reader.owner()));
        for how in ["dropped", "out of time"] {
            let patience = match how {
                "dropped" => PATIENCE,
                // Long enough to be seen.
                _ => Duration::from_secs(3),
            };
            let writer = other.rw_lock("prices").write().acquire_timeout(patience);
            let writer = tokio::spawn(writer);
            let waits = || server.keys().contains(&"distlock_writers:{prices}".into());
            eventually(PATIENCE, "it waits", async || waits()).await;
            if how == "dropped" {
                writer.abort();
            }
            eventually(PATIENCE, "it has stopped", async || !waits()).await;
        }
        let owner = reader.owner();
        reader.release().await.unwrap();
        assert_eq!(watch.next().await.unwrap().owner, Some(owner));
        let next = read(&lock, LEASE).await;
        assert_eq!(watch.next().await.unwrap().owner, Some(next.owner()));
        next.release().await.unwrap();
        drop(watch);
        other.close().await.unwrap();
        // The writer that was dropped may have had a request in flight.
        only_tombstones_left(&server, client).await;
    });
}

#[test]
fn a_waiting_writer_has_its_own_key_until_it_stops() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, other) = (connect(&server).await, connect(&server).await);
        for (name, key) in [
            ("prices", "distlock_writers:{prices}"),
            ("a{b}c", "distlock_writers:a{b}c"),
        ] {
            for how in ["granted", "dropped", "out of time"] {
                let reader = read(&client.rw_lock(name), LEASE).await;
                let patience = match how {
                    "out of time" => Duration::from_secs(3),
                    _ => PATIENCE,
                };
                let writer = other.rw_lock(name).write().acquire_timeout(patience);
                let writer = tokio::spawn(writer);
                let waits = || server.query::<Vec<String>>(&["ZRANGE", key, "0", "-1"]);
                eventually(PATIENCE, "it waits", async || waits().len() == 1).await;
                assert_is_redissons(&waits()[0]);
                let pttl = server.pttl(key);
                assert!((1..=60_000).contains(&pttl), "{how}: {pttl}");
                // Redisson's own keys do not contain it: a field in the hash would confuse Java's unlock.
                assert_eq!(
                    server.hgetall(name),
                    hash("read", &[(&reader.owner(), "1")])
                );
                if how == "dropped" {
                    writer.abort();
                }
                if how == "granted" {
                    reader.release().await.unwrap();
                    let writer = writer.await.unwrap().unwrap().expect("granted");
                    // One of the earlier writers may have left during its request.
                    let mut keys = server.keys();
                    keys.retain(|key| !key.starts_with("distlock_undone:"));
                    assert_eq!(keys, [name]);
                    writer.release().await.unwrap();
                    continue;
                }
                eventually(PATIENCE, how, async || waits().is_empty()).await;
                reader.release().await.unwrap();
            }
        }
        other.close().await.unwrap();
        only_tombstones_left(&server, client).await;
    });
}

/// A writer that the server knows to wait, with a client of its own.
struct Writer {
    how: GiveUp,
    client: Client,
    proxy: ChaosProxy,
    acquiring: JoinHandle<Result<Option<Guard<Write>>, Error>>,
}

impl Writer {
    async fn waits(server: &RedisServer, how: GiveUp) -> Self {
        let proxy = ChaosProxy::start(server.addr());
        if how == GiveUp::Unanswered {
            let asks = |words: &[Vec<u8>]| words.iter().any(|word| word == WRITERS.as_bytes());
            proxy.rule(Match::words(asks).nth(1), Fault::HoldReply);
        }
        let client = connect_to(&proxy.url()).await;
        let patience = match how {
            GiveUp::OutOfTime => ASLEEP * 12,
            GiveUp::Dropped | GiveUp::Unanswered => PATIENCE,
        };
        let before = waiting(server);
        let acquiring = client.rw_lock("prices").write().acquire_timeout(patience);
        let acquiring = tokio::spawn(acquiring);
        eventually(PATIENCE, "it waits", async || waiting(server) > before).await;
        if how == GiveUp::Dropped {
            sleep(ASLEEP).await;
        }
        Self {
            how,
            client,
            proxy,
            acquiring,
        }
    }

    /// Returns when the server has forgotten the writer.
    async fn gives_up(self, server: &RedisServer) {
        let before = waiting(server);
        match self.how {
            GiveUp::Dropped | GiveUp::Unanswered => {
                self.acquiring.abort();
                let dropped = self.acquiring.await.expect_err("it waited");
                assert!(dropped.is_cancelled(), "{dropped}");
                // Before this the reply might still arrive, and the client waits for it.
                if self.how == GiveUp::Unanswered {
                    self.proxy.cut_all();
                }
                eventually(PATIENCE, "it has gone", async || waiting(server) < before).await;
            }
            GiveUp::OutOfTime => {
                let got = self.acquiring.await.expect("no panic").unwrap();
                assert!(got.is_none(), "somebody has it");
            }
        }
        self.client.close().await.expect("the server is up");
    }
}

/// Returns how many writers wait.
fn waiting(server: &RedisServer) -> u64 {
    server.query(&["ZCARD", WRITERS])
}
