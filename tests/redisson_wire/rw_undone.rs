//! The message of an acquire that is undone: the same as that of a release.

use distlock::{Client, Lock};

use super::stage::{only_tombstones_left, read, write};
use super::support::java::{Subscriber, rw_channel};
use super::support::{ChaosProxy, Fault, Match, RedisServer, eventually, simulated};
use super::{LEASE, PATIENCE, connect, connect_to};

#[test]
fn an_undone_reader_publishes_0_and_an_undone_writer_1() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server).await;
        // The server must know the scripts: what is held back below is a reply to one, not that it is unknown.
        let lock = client.rw_lock("prices");
        read(&lock, LEASE).await.release().await.unwrap();
        write(&lock, LEASE).await.release().await.unwrap();
        let mut ear = Subscriber::start(&server, &rw_channel("prices")).await;
        is_taken_back(&server, |client| client.rw_lock("prices").read()).await;
        assert_eq!(ear.rest(&server).await, [b"0"]);
        is_taken_back(&server, |client| client.rw_lock("prices").write()).await;
        assert_eq!(ear.rest(&server).await, [b"1"]);
        ear.unsubscribe().await;
        only_tombstones_left(&server, client).await;
    });
}

/// The acquire is granted, its future is dropped before the reply, and the reply never arrives.
async fn is_taken_back<K: Send + 'static>(server: &RedisServer, lock: fn(&Client) -> Lock<K>) {
    let proxy = ChaosProxy::start(server.addr());
    let asks = |words: &[Vec<u8>]| words.iter().any(|word| word == b"prices");
    proxy.rule(Match::words(asks).nth(1), Fault::HoldReply);
    let client = connect_to(&proxy.url()).await;
    let acquiring = tokio::spawn(lock(&client).acquire());
    let held = || server.keys().contains(&"prices".to_owned());
    eventually(PATIENCE, "it is granted", async || held()).await;
    acquiring.abort();
    let dropped = acquiring.await.expect_err("it has not heard of it");
    assert!(dropped.is_cancelled(), "{dropped}");
    // Before this the reply might still arrive, and the client waits for it.
    proxy.cut_all();
    eventually(PATIENCE, "it is taken back", async || !held()).await;
    client.close().await.expect("the server is up");
}
