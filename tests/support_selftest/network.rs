//! The switches that hit every connection at once, and the proxy's own life.

use std::thread;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::support::{ChaosProxy, Fault, Match, eventually};
use super::{HASTE, PATIENCE, connect, counter, incr, patient, proxied};

#[tokio::test]
async fn a_cut_closes_every_connection_but_not_the_next() {
    let (_server, proxy) = proxied();
    let mut one = patient(&proxy.url()).await;
    let mut two = patient(&proxy.url()).await;
    proxy.cut_all();
    assert!(incr(&mut one).await.is_err());
    assert!(incr(&mut two).await.is_err());
    assert_eq!(incr(&mut patient(&proxy.url()).await).await.unwrap(), 1);
}

#[tokio::test]
async fn a_partition_stalls_old_and_new_connections_until_it_heals() {
    let (server, proxy) = proxied();
    let mut old = patient(&proxy.url()).await;
    proxy.partition(true);
    let mut stalled = tokio::spawn(async move { incr(&mut old).await });
    let url = proxy.url();
    let mut connecting = tokio::spawn(async move { connect(&url, PATIENCE).await });
    assert!(tokio::time::timeout(HASTE, &mut stalled).await.is_err());
    assert!(tokio::time::timeout(HASTE, &mut connecting).await.is_err());
    assert_eq!(counter(&server), 0);

    proxy.partition(false);
    assert_eq!(stalled.await.unwrap().unwrap(), 1);
    assert_eq!(
        incr(&mut connecting.await.unwrap().unwrap()).await.unwrap(),
        2
    );
}

#[tokio::test]
async fn a_partition_stops_replies_and_hides_the_end_of_the_server() {
    let (server, proxy) = proxied();
    let mut connection = patient(&proxy.url()).await;
    proxy.rule(Match::command("INCR"), Fault::HoldReply);
    let mut asking = tokio::spawn(async move { incr(&mut connection).await });
    eventually(PATIENCE, "the reply is held", async || {
        !proxy.injected().is_empty()
    })
    .await;
    proxy.partition(true);
    proxy.let_go();
    server.kill();
    assert!(tokio::time::timeout(HASTE, &mut asking).await.is_err());

    proxy.partition(false);
    // It was on its way before the server died.
    assert_eq!(asking.await.unwrap().unwrap(), 1);
}

#[tokio::test]
async fn a_partition_hides_the_end_of_an_idle_connection() {
    let (server, proxy) = proxied();
    let mut client = ping_by_hand(&proxy).await;
    proxy.partition(true);
    server.kill();
    let mut buffer = [0; 16];
    assert!(
        tokio::time::timeout(HASTE, client.read(&mut buffer))
            .await
            .is_err()
    );
    proxy.partition(false);
    assert_eq!(client.read(&mut buffer).await.unwrap(), 0);
}

#[tokio::test]
async fn refusing_keeps_new_connections_out_and_old_ones_in() {
    let (_server, proxy) = proxied();
    let mut old = patient(&proxy.url()).await;
    proxy.refuse(true);
    assert!(connect(&proxy.url(), PATIENCE).await.is_err());
    assert_eq!(incr(&mut old).await.unwrap(), 1);
    proxy.refuse(false);
    assert_eq!(incr(&mut patient(&proxy.url()).await).await.unwrap(), 2);
}

#[tokio::test]
async fn the_end_of_the_server_ends_the_connection_and_its_return_is_seen() {
    let (server, proxy) = proxied();
    let mut connection = patient(&proxy.url()).await;
    server.kill();
    assert!(incr(&mut connection).await.is_err());
    assert!(connect(&proxy.url(), PATIENCE).await.is_err());
    server.restart();
    assert_eq!(incr(&mut patient(&proxy.url()).await).await.unwrap(), 1);
}

#[tokio::test]
async fn a_client_that_leaves_is_gone_from_the_server() {
    let (server, proxy) = proxied();
    let connection = patient(&proxy.url()).await;
    let connected = || server.query::<String>(&["CLIENT", "LIST"]).lines().count();
    // This command's own connection is listed, too.
    assert_eq!(connected(), 2);
    drop(connection);
    eventually(
        PATIENCE,
        "only this command's connection is left",
        async || connected() == 1,
    )
    .await;
}

#[tokio::test]
async fn a_cut_is_seen_by_the_server_even_if_the_client_keeps_its_socket() {
    let (server, proxy) = proxied();
    let mut client = ping_by_hand(&proxy).await;
    proxy.rule(Match::command("PING"), Fault::CutAfter);
    client.write_all(PING).await.unwrap();
    assert_eq!(client.read(&mut [0; 16]).await.unwrap(), 0);
    let connected = || server.query::<String>(&["CLIENT", "LIST"]).lines().count();
    eventually(PATIENCE, "the server noticed", async || connected() == 1).await;
}

#[tokio::test]
async fn nothing_outlives_the_proxy() {
    for _ in 0..3 {
        let (server, proxy) = proxied();
        let mut connection = patient(&proxy.url()).await;
        proxy.rule(Match::command("INCR"), Fault::HoldRequest);
        let asking = tokio::spawn(async move { incr(&mut connection).await });
        eventually(PATIENCE, "the request is held", async || {
            !proxy.injected().is_empty()
        })
        .await;
        let addr = proxy.addr();
        drop(proxy);
        assert!(asking.await.unwrap().is_err());
        let gone = TcpStream::connect(addr).await.is_err();
        assert_eq!(counter(&server), 0);
        // The port may be another test's by now, but not every time.
        if gone {
            return;
        }
    }
    panic!("somebody listens where the proxy did");
}

#[tokio::test]
async fn the_network_goes_on_while_the_test_is_frozen() {
    let (server, proxy) = proxied();
    proxy.rule(Match::command("INCR"), Fault::DelayRequest(HASTE));
    let mut connection = patient(&proxy.url()).await;
    let asking = tokio::spawn(async move { incr(&mut connection).await });
    eventually(PATIENCE, "the request has arrived", async || {
        !proxy.injected().is_empty()
    })
    .await;
    // Blocks the test's only thread, and with it the client.
    let give_up = Instant::now() + PATIENCE;
    while counter(&server) == 0 && Instant::now() < give_up {
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(counter(&server), 1);
    assert_eq!(asking.await.unwrap().unwrap(), 1);
}

#[test]
fn blocking_clients_can_use_the_proxy() {
    let (_server, proxy) = proxied();
    let mut connection = redis::Client::open(proxy.url())
        .unwrap()
        .get_connection()
        .unwrap();
    let count: u64 = redis::cmd("INCR")
        .arg("counter")
        .query(&mut connection)
        .unwrap();
    assert_eq!(count, 1);
}

#[tokio::test]
#[should_panic(expected = "the rule's own")]
async fn a_panic_in_a_rule_reaches_the_test() {
    let (_server, proxy) = proxied();
    proxy.rule(Match::words(|_| panic!("the rule's own")), Fault::CutBefore);
    assert!(connect(&proxy.url(), PATIENCE).await.is_err());
    drop(proxy);
}

/// A connection that has been through the proxy once and does nothing by itself.
async fn ping_by_hand(proxy: &ChaosProxy) -> TcpStream {
    let mut client = TcpStream::connect(proxy.addr()).await.unwrap();
    client.write_all(PING).await.unwrap();
    let mut pong = [0; 7];
    client.read_exact(&mut pong).await.unwrap();
    assert_eq!(&pong, b"+PONG\r\n");
    client
}

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
