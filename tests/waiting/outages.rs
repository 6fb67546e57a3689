//! A waiter rides through an outage; a newcomer gets an error at once.

use std::time::Duration;

use distlock::{Change, Client, Error, Event, Watch};
use tokio::time::{Instant, sleep, timeout};

use super::{
    LONGEST_SLEEP, ROUND_TRIP, Waiting, connect, granted, hold_as_stranger, patient, release,
    release_as_stranger, until_listeners,
};
use crate::support::{ChaosProxy, Fault, Match, PATIENCE, RedisServer, eventually, simulated};

/// Starts a waiter, which is in the queue once it has been polled.
async fn wait_for(client: &Client, name: &str) -> Waiting {
    let waiting = tokio::spawn(client.lock(name).acquire());
    tokio::task::yield_now().await;
    waiting
}

#[test]
fn a_waiter_survives_a_crash_of_the_server() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        hold_as_stranger(&server, "outage", PATIENCE);
        let head = wait_for(&client, "outage").await;
        until_listeners(&server, "outage", 1).await;
        let (second, third) = (
            wait_for(&client, "outage").await,
            wait_for(&client, "outage").await,
        );
        server.kill();
        // The head has had time to send a request in vain.
        sleep(LONGEST_SLEEP).await;
        head.abort();
        sleep(LONGEST_SLEEP).await;
        assert!(!second.is_finished() && !third.is_finished());
        server.restart();
        release(granted(second).await).await;
        release(granted(third).await).await;
    });
}

#[test]
fn a_waiter_survives_a_network_that_refuses_connections() {
    simulated(async || {
        let server = RedisServer::start();
        let proxy = ChaosProxy::start(server.addr());
        let client = connect(&proxy.url()).await;
        hold_as_stranger(&server, "refused", Duration::from_secs(60));
        let waiting = wait_for(&client, "refused").await;
        until_listeners(&server, "refused", 1).await;
        proxy.refuse(true);
        proxy.cut_all();
        until_listeners(&server, "refused", 0).await;
        // No subscriber receives this release.
        release_as_stranger(&server, "refused");
        sleep(LONGEST_SLEEP).await;
        assert!(!waiting.is_finished());
        proxy.refuse(false);
        let back = Instant::now();
        let guard = granted(waiting).await;
        let took = back.elapsed();
        assert!(took < LONGEST_SLEEP + 2 * ROUND_TRIP, "{took:?}");
        release(guard).await;
    });
}

#[test]
fn a_wait_that_ends_in_an_outage_ends_on_time_and_is_not_reported_busy() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let wait = Duration::from_secs(6);
        let begun = Instant::now();
        // The lease ends before the wait does, so that no other client can be reported as holder, and not before the server is down.
        hold_as_stranger(&server, "timeout", Duration::from_secs(4));
        let waits = [(); 2].map(|()| tokio::spawn(client.lock("timeout").acquire_timeout(wait)));
        until_listeners(&server, "timeout", 1).await;
        server.kill();
        for ended in waits {
            let error = ended.await.unwrap().expect_err("no reply says busy");
            assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
            assert!(error.to_string().contains("`timeout`"), "{error}");
            assert!(error.is_transient());
        }
        let took = begun.elapsed();
        assert!(took >= wait && took < wait + ROUND_TRIP, "{took:?}");
    });
}

#[test]
fn a_first_attempt_with_the_store_down_is_an_error_at_once() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        release(client.lock("down").acquire().await.unwrap()).await;
        server.kill();
        for _ in 0..3 {
            let lock = client.lock("down");
            let begun = Instant::now();
            for error in [
                lock.acquire().await.expect_err("the server is down"),
                lock.try_acquire().await.expect_err("the server is down"),
                lock.acquire_timeout(2 * PATIENCE)
                    .await
                    .expect_err("the server is down"),
            ] {
                assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
                assert!(error.is_transient());
            }
            // Connecting and the request may each take far longer; a refused connection does not.
            assert!(begun.elapsed() < 3 * ROUND_TRIP, "{:?}", begun.elapsed());
        }
        server.restart();
        let guard = client.lock("down").acquire().await;
        release(guard.expect("the server is up again")).await;
    });
}

#[test]
fn a_watch_continues_when_the_server_is_back() {
    simulated(async || {
        let (server, client, mut watch) = watched("before").await;
        server.restart();
        // The server has come back without its data.
        assert_eq!(next(&mut watch).await, ("before", Change::Released));
        hears_again(&server, &client, &mut watch).await;
    });
}

#[test]
fn a_watch_continues_when_its_connection_is_killed() {
    simulated(async || {
        let (server, client, mut watch) = watched("stays").await;
        assert_eq!(server.kill_pubsub_clients(), 1);
        // Polls find this hold meanwhile.
        hold_as_stranger(&server, "meanwhile", PATIENCE);
        assert_eq!(next(&mut watch).await, ("meanwhile", Change::Granted));
        hears_again(&server, &client, &mut watch).await;
    });
}

/// Connecting may take longer than the command time-out: a watch that took this for a dead server would only ever poll.
#[test]
fn a_watch_receives_events_though_connecting_takes_longer_than_the_command_timeout() {
    simulated(async || {
        let (server, proxy, client) = short_timeout_client().await;
        proxy.rule(Match::command("HELLO"), Fault::DelayReply(COMMAND * 3 / 2));
        let mut watch = client.admin().watch("*");
        hears_again(&server, &client, &mut watch).await;
        assert!(!proxy.injected().is_empty(), "nobody had to connect");
    });
}

/// A watch that waited for its connection would report nothing meanwhile.
#[test]
fn a_watch_that_cannot_connect_polls_meanwhile() {
    simulated(async || {
        let (server, proxy, client) = short_timeout_client().await;
        proxy.rule(Match::command("HELLO"), Fault::HoldReply);
        hold_as_stranger(&server, "seen", PATIENCE);
        let mut watch = client.admin().watch("*");
        assert_eq!(next(&mut watch).await, ("seen", Change::Held));
        assert!(!proxy.injected().is_empty(), "nobody had to connect");
        release_as_stranger(&server, "seen");
        assert_eq!(next(&mut watch).await, ("seen", Change::Released));
        // The watch subscribes as soon as it can connect.
        proxy.clear_rules();
        proxy.deliver_held();
        hears_again(&server, &client, &mut watch).await;
    });
}

/// Returns a connected client whose command time-out is shorter than its connect time-out.
async fn short_timeout_client() -> (RedisServer, ChaosProxy, Client) {
    let server = RedisServer::start();
    let proxy = ChaosProxy::start(server.addr());
    let builder = patient(&proxy.url()).command_timeout(COMMAND);
    let client = builder.connect_timeout(3 * PATIENCE).connect().await;
    let client = client.expect("the server is up");
    release(client.lock("before").acquire().await.expect("it is free")).await;
    (server, proxy, client)
}

const COMMAND: Duration = Duration::from_secs(3);

/// Returns a server where another program holds this lock, and a watch that has reported it.
async fn watched(name: &'static str) -> (RedisServer, Client, Watch) {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    hold_as_stranger(&server, name, PATIENCE);
    let mut watch = client.admin().watch("*");
    assert_eq!(next(&mut watch).await, (name, Change::Held));
    (server, client, watch)
}

/// Checks that a grant and a release are reported again.
async fn hears_again(server: &RedisServer, client: &Client, watch: &mut Watch) {
    eventually(PATIENCE, "it listens again", async || {
        if let Ok(happened) = timeout(Duration::from_millis(20), watch.next()).await {
            let error = happened.expect_err("nothing happens meanwhile");
            assert!(error.is_transient(), "{error}");
        }
        // The watch has one pattern for each kind of lock.
        server.query::<u64>(&["PUBSUB", "NUMPAT"]) == 2
    })
    .await;
    let held = client.lock("short").acquire().await.expect("it is free");
    assert_eq!(next(watch).await, ("short", Change::Granted));
    release(held).await;
    assert_eq!(next(watch).await, ("short", Change::Released));
}

/// Returns the next event, however often the store cannot be reached.
async fn next(watch: &mut Watch) -> Seen {
    let next = async {
        loop {
            match watch.next().await {
                Ok(event) => return Seen(event),
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, next).await.expect("something happens")
}

/// An event, compared by its name and change.
#[derive(Debug)]
struct Seen(Event);

impl PartialEq<(&str, Change)> for Seen {
    fn eq(&self, (name, change): &(&str, Change)) -> bool {
        &*self.0.name == *name && self.0.change == *change
    }
}
