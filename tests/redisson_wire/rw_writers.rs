//! What a writer of ours that waits says when it gives up.

use std::time::Duration;

use distlock::{Client, Error, Guard, Write};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::rw::{gone_but_for_marks, read, write};
use super::support::java::{Subscriber, rw_channel};
use super::support::{ChaosProxy, Fault, Match, RedisServer, eventually};
use super::{LEASE, PATIENCE, connect, connect_to};

const WRITERS: &str = "distlock_writers:{prices}";
/// Long enough for a waiter to have asked, listened and asked again: from then on it sleeps for 2 s if nobody wakes it.
const ASLEEP: Duration = Duration::from_millis(250);
/// Counted from before it asked, so that nobody is so quick who was not woken.
const SOON: Duration = Duration::from_millis(1500);
/// How often a busy machine may be slow.
const ROUNDS: usize = 5;

/// How a writer gives up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum How {
    /// Its future is dropped while it sleeps.
    Dropped,
    /// Its patience is over.
    OutOfTime,
    /// Its future is dropped before it has heard what became of its request, and nobody ever hears it.
    Unanswered,
}

/// The last of them when the server knows the script: what is held back is its answer, not that it is unknown.
const WAYS: [How; 3] = [How::Dropped, How::OutOfTime, How::Unanswered];

#[tokio::test]
async fn the_last_writer_that_gives_up_says_2_once_and_those_before_it_nothing() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let mut ear = Subscriber::start(&server, &rw_channel("prices")).await;
    for how in WAYS {
        let reader = read(&client.rw_lock("prices"), LEASE).await;
        let only = Writer::waits(&server, how).await;
        assert!(ear.rest(&server).await.is_empty(), "{how:?}: it came");
        only.gives_up(&server).await;
        assert_eq!(ear.rest(&server).await, [b"2"], "{how:?}");

        // Whichever of them has no more patience first: one is the last.
        let first = Writer::waits(&server, how).await;
        let last = Writer::waits(&server, how).await;
        first.gives_up(&server).await;
        if how != How::OutOfTime {
            let said = ear.rest(&server).await;
            assert!(said.is_empty(), "{how:?}: {said:?}, another waits");
        }
        last.gives_up(&server).await;
        assert_eq!(ear.rest(&server).await, [b"2"], "{how:?}");

        reader.release().await.unwrap();
        assert_eq!(ear.rest(&server).await, [b"0"], "{how:?}");
    }
    ear.unsubscribe().await;
    gone_but_for_marks(&server, client).await;
}

/// Whoever waited behind it waits for the one that writes, and is told when that leaves.
#[tokio::test]
async fn a_writer_that_gives_up_behind_another_that_writes_says_nothing() {
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
    gone_but_for_marks(&server, client).await;
}

#[tokio::test]
async fn a_reader_of_ours_is_woken_by_the_writer_that_gives_up() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let lock = client.rw_lock("prices");
    let stays = read(&lock, LEASE).await;
    for how in [How::Dropped, How::Unanswered] {
        let mut waited = Vec::new();
        while !waited.iter().any(|waited| *waited < SOON) {
            assert!(waited.len() < ROUNDS, "{how:?}: not told: {waited:?}");
            let writer = Writer::waits(&server, how).await;
            let asked = Instant::now();
            let late = tokio::spawn(lock.read().acquire());
            sleep(ASLEEP).await;
            assert!(!late.is_finished(), "{how:?}: a writer waits");
            writer.gives_up(&server).await;
            let late = timeout(PATIENCE, late).await.expect("it is let in");
            late.unwrap().unwrap().release().await.unwrap();
            waited.push(asked.elapsed());
        }
    }
    stays.release().await.unwrap();
    gone_but_for_marks(&server, client).await;
}

/// One that the server knows to wait, of a client of its own.
struct Writer {
    how: How,
    client: Client,
    proxy: ChaosProxy,
    acquiring: JoinHandle<Result<Option<Guard<Write>>, Error>>,
}

impl Writer {
    async fn waits(server: &RedisServer, how: How) -> Self {
        let proxy = ChaosProxy::start(server.addr());
        if how == How::Unanswered {
            let asks = |words: &[Vec<u8>]| words.iter().any(|word| word == WRITERS.as_bytes());
            proxy.rule(Match::words(asks).nth(1), Fault::HoldReply);
        }
        let client = connect_to(&proxy.url()).await;
        let patience = match how {
            How::OutOfTime => ASLEEP * 12,
            How::Dropped | How::Unanswered => PATIENCE,
        };
        let before = waiting(server);
        let acquiring = client.rw_lock("prices").write().acquire_timeout(patience);
        let acquiring = tokio::spawn(acquiring);
        eventually(PATIENCE, "it waits", async || waiting(server) > before).await;
        if how == How::Dropped {
            sleep(ASLEEP).await;
        }
        Self {
            how,
            client,
            proxy,
            acquiring,
        }
    }

    /// Returns when the server does not know it any more.
    async fn gives_up(self, server: &RedisServer) {
        let before = waiting(server);
        match self.how {
            How::Dropped | How::Unanswered => {
                self.acquiring.abort();
                let dropped = self.acquiring.await.expect_err("it waited");
                assert!(dropped.is_cancelled(), "{dropped}");
                // Until then the answer might come, and is waited for.
                if self.how == How::Unanswered {
                    self.proxy.cut_all();
                }
                eventually(PATIENCE, "it has gone", async || waiting(server) < before).await;
            }
            How::OutOfTime => {
                let got = self.acquiring.await.expect("no panic").unwrap();
                assert!(got.is_none(), "somebody has it");
            }
        }
        self.client.close().await.expect("the server is up");
    }
}

/// How many writers wait.
fn waiting(server: &RedisServer) -> u64 {
    server.query(&["ZCARD", WRITERS])
}
