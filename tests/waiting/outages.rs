//! A waiter rides through an outage; a newcomer is told of it at once.

use std::time::Duration;
use tokio::time::Instant;

use distlock::{Change, Client, Error, Event, Guard, Watch};
use tokio::task::JoinHandle;

use super::support::{ChaosProxy, Fault, Match, RedisServer, eventually, paced, simulated};
use super::{
    PATIENCE, SLACK, connect, give_back, hold_as_stranger, patient, release_as_stranger,
    until_listeners,
};

fn wait_for(client: &Client, name: &str) -> JoinHandle<Result<Guard, Error>> {
    tokio::spawn(client.lock(name).acquire())
}

async fn granted(waiting: JoinHandle<Result<Guard, Error>>) -> Guard {
    let ended = tokio::time::timeout(PATIENCE, waiting).await;
    let guard = ended.expect("the lock is free").expect("no panic");
    guard.expect("an outage is no error to one who waits")
}

#[test]
fn a_waiter_rides_through_the_death_of_the_server() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        hold_as_stranger(&server, "outage", PATIENCE);
        let first = wait_for(&client, "outage");
        until_listeners(&server, "outage", 1).await;
        let second = wait_for(&client, "outage");
        server.kill();
        // Long enough that the store is asked more than once.
        tokio::time::sleep(Duration::from_millis(900)).await;
        assert!(!first.is_finished() && !second.is_finished());
        server.restart();
        let back = Instant::now();
        let guard = granted(first).await;
        eprintln!("granted {:?} after the server was back", back.elapsed());
        give_back(guard).await;
        give_back(granted(second).await).await;
    });
}

#[test]
fn a_waiter_who_becomes_the_head_of_its_line_in_an_outage_rides_through_it() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        hold_as_stranger(&server, "next", PATIENCE);
        let head = wait_for(&client, "next");
        until_listeners(&server, "next", 1).await;
        let next = wait_for(&client, "next");
        // It has its place in the line when it has been polled once.
        tokio::task::yield_now().await;
        server.kill();
        // Long enough that the head has asked in vain.
        tokio::time::sleep(Duration::from_millis(600)).await;
        head.abort();
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!next.is_finished(), "{:?}", next.await);
        server.restart();
        give_back(granted(next).await).await;
    });
}

#[test]
fn a_waiter_rides_through_a_network_that_refuses_connections() {
    simulated(async || {
        let server = RedisServer::start();
        let proxy = ChaosProxy::start(server.addr());
        let client = connect(&proxy.url()).await;
        hold_as_stranger(&server, "refused", Duration::from_secs(60));
        let waiting = wait_for(&client, "refused");
        until_listeners(&server, "refused", 1).await;
        proxy.refuse(true);
        proxy.cut_all();
        until_listeners(&server, "refused", 0).await;
        // Nobody hears of it.
        release_as_stranger(&server, "refused");
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(!waiting.is_finished());
        proxy.refuse(false);
        let (guard, took) = paced(granted(waiting)).await;
        eprintln!("granted {took:?} after the network was back");
        assert!(took < Duration::from_secs(2) + SLACK, "{took:?}");
        give_back(guard).await;
    });
}

#[test]
fn a_wait_that_ends_in_an_outage_ends_on_time_and_does_not_say_busy() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let wait = Duration::from_secs(6);
        let begun = Instant::now();
        // Over before the wait is, so that nobody can be said to have it still, and not before the server is down.
        hold_as_stranger(&server, "timeout", Duration::from_secs(4));
        let first = tokio::spawn(client.lock("timeout").acquire_timeout(wait));
        until_listeners(&server, "timeout", 1).await;
        let second = tokio::spawn(client.lock("timeout").acquire_timeout(wait));
        // It has its place in the line when it has been polled once.
        tokio::task::yield_now().await;
        server.kill();
        let waiting = async {
            let ended = tokio::time::timeout(PATIENCE, async { tokio::join!(first, second) });
            let (first, second) = ended.await.unwrap();
            [first.unwrap(), second.unwrap()]
        };
        let (ended, took) = paced(waiting).await;
        assert!(begun.elapsed() >= wait, "{:?}", begun.elapsed());
        assert!(took < wait + SLACK, "{took:?}");
        for ended in ended {
            let error = ended.expect_err("nobody can say whether it is busy");
            assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
            assert!(error.to_string().contains("`timeout`"), "{error}");
            assert!(error.is_transient());
        }
    });
}

#[test]
fn a_first_attempt_with_the_store_down_is_an_error_at_once() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        give_back(client.lock("down").acquire().await.unwrap()).await;
        server.kill();
        for round in 0..3 {
            let lock = client.lock("down");
            let attempts = async {
                [
                    lock.acquire().await.expect_err("the server is down"),
                    lock.try_acquire().await.expect_err("the server is down"),
                    lock.acquire_timeout(2 * PATIENCE)
                        .await
                        .expect_err("the server is down"),
                ]
            };
            let (errors, took) = paced(attempts).await;
            eprintln!("round {round}: three errors in {took:?}");
            // Connecting and asking may take far longer each, every time; being refused does not.
            assert!(took < SLACK, "{took:?}");
            for error in errors {
                assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
                assert!(error.is_transient());
            }
        }
        server.restart();
        let guard = client.lock("down").acquire().await;
        give_back(guard.expect("the server is up again")).await;
    });
}

#[test]
fn a_watch_goes_on_when_the_server_is_back() {
    simulated(async || {
        let (server, client, mut watch) = watched("before").await;
        server.restart();
        // It has come back without its data.
        let gone = told(&mut watch).await;
        assert_eq!((&*gone.name, gone.change), ("before", Change::Released));
        hears_again(&server, &client, &mut watch).await;
    });
}

#[test]
fn a_watch_goes_on_when_its_connection_is_killed() {
    simulated(async || {
        let (server, client, mut watch) = watched("stays").await;
        assert_eq!(server.kill_pubsub_clients(), 1);
        // Seen by looks meanwhile.
        hold_as_stranger(&server, "meanwhile", PATIENCE);
        let granted = told(&mut watch).await;
        assert_eq!(
            (&*granted.name, granted.change),
            ("meanwhile", Change::Granted)
        );
        hears_again(&server, &client, &mut watch).await;
    });
}

/// To connect may take longer than a command may: a watch that takes this for silence would only ever look.
#[test]
fn a_watch_hears_though_it_takes_longer_to_connect_than_a_command_may() {
    simulated(async || {
        let (server, proxy, client) = hasty().await;
        proxy.rule(Match::command("HELLO"), Fault::DelayReply(COMMAND * 3 / 2));
        let mut watch = client.admin().watch("*");
        hears_again(&server, &client, &mut watch).await;
        assert!(!proxy.injected().is_empty(), "nobody had to connect");
    });
}

/// And one that waits for it would tell nothing meanwhile.
#[test]
fn a_watch_that_cannot_connect_looks_meanwhile() {
    simulated(async || {
        let (server, proxy, client) = hasty().await;
        proxy.rule(Match::command("HELLO"), Fault::HoldReply);
        hold_as_stranger(&server, "seen", PATIENCE);
        let mut watch = client.admin().watch("*");
        assert_eq!(told(&mut watch).await.change, Change::Held);
        assert!(!proxy.injected().is_empty(), "nobody had to connect");
        release_as_stranger(&server, "seen");
        assert_eq!(told(&mut watch).await.change, Change::Released);
        // It listens as soon as it can.
        proxy.clear_rules();
        proxy.let_go();
        hears_again(&server, &client, &mut watch).await;
    });
}

/// A client that gives a command less time than a connection, and has connected.
async fn hasty() -> (RedisServer, ChaosProxy, Client) {
    let server = RedisServer::start();
    let proxy = ChaosProxy::start(server.addr());
    let builder = patient(&proxy.url()).command_timeout(COMMAND);
    let client = builder.connect_timeout(3 * PATIENCE).connect().await;
    let client = client.expect("the server is up");
    give_back(client.lock("before").acquire().await.expect("it is free")).await;
    (server, proxy, client)
}

const COMMAND: Duration = Duration::from_secs(3);

/// A server where a stranger holds this lock, and a watch that has told so.
async fn watched(name: &str) -> (RedisServer, Client, Watch) {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    hold_as_stranger(&server, name, PATIENCE);
    let mut watch = client.admin().watch("*");
    assert_eq!(told(&mut watch).await.change, Change::Held);
    (server, client, watch)
}

/// A grant and a release are reported again.
async fn hears_again(server: &RedisServer, client: &Client, watch: &mut Watch) {
    // One pattern for each sort of lock.
    let listens = async || server.query::<u64>(&["PUBSUB", "NUMPAT"]) == 2;
    eventually(PATIENCE, "it listens again", async || {
        let idle = tokio::time::timeout(Duration::from_millis(20), watch.next());
        if let Ok(happened) = idle.await {
            let error = happened.expect_err("nothing happens meanwhile");
            assert!(error.is_transient(), "{error}");
        }
        listens().await
    })
    .await;
    let held = client.lock("short").acquire().await.expect("it is free");
    let granted = told(watch).await;
    assert_eq!((&*granted.name, granted.change), ("short", Change::Granted));
    give_back(held).await;
    let event = told(watch).await;
    assert_eq!((&*event.name, event.change), ("short", Change::Released));
}

/// The next event, however often the store cannot be asked.
async fn told(watch: &mut Watch) -> Event {
    let next = async {
        loop {
            match watch.next().await {
                Ok(event) => return event,
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let next = tokio::time::timeout(PATIENCE, next).await;
    next.expect("something happens")
}
