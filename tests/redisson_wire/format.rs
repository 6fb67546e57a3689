//! The format of a lock, as other programs see it.

use std::collections::BTreeMap;
use std::time::Duration;

use distlock::{Client, Lease};

use super::stage::assert_is_redissons;
use super::support::java::{Subscriber, channel};
use super::support::{RedisServer, eventually};
use super::{LEASE, PATIENCE, assert_just_set, connect, hold, leaves_nothing};

#[tokio::test]
async fn a_held_lock_is_one_hash_field_named_after_its_owner() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let guard = hold(&client, "order").await;

    assert_eq!(server.keys(), ["order"]);
    assert_eq!(server.query::<String>(&["TYPE", "order"]), "hash");
    let fields = server.hgetall("order");
    assert_eq!(fields, BTreeMap::from([(guard.owner(), "1".to_owned())]));
    assert_is_redissons(&guard.owner());
    assert_just_set(server.pttl("order"), LEASE);

    // Another hold of the same client has another owner; only the number tells them apart.
    let other = hold(&client, "other").await;
    assert_is_redissons(&other.owner());
    let client_of = |owner: String| owner.split(':').next().map(str::to_owned);
    assert_ne!(guard.owner(), other.owner());
    assert_eq!(client_of(guard.owner()), client_of(other.owner()));

    guard.release().await.unwrap();
    other.release().await.unwrap();
    leaves_nothing(&server, client).await;
}

#[tokio::test]
async fn the_default_lease_is_redissons_thirty_seconds() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let guard = client.lock("order").acquire().await.unwrap();
    assert_just_set(server.pttl("order"), Duration::from_secs(30));
    guard.release().await.unwrap();
    leaves_nothing(&server, client).await;
}

#[tokio::test]
async fn re_entry_writes_2_and_a_partial_release_writes_1_and_leaves_the_ttl() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let mut ear = Subscriber::start(&server, &channel("order")).await;
    let me = client.new_owner();
    let lock = client.lock("order").with_owner(&me);
    let lock = lock.with_lease(Lease::Fixed(LEASE));
    let outer = lock.acquire().await.unwrap();
    let inner = lock.acquire().await.unwrap();
    let fields = |count: &str| BTreeMap::from([(outer.owner(), count.to_owned())]);
    assert_eq!(server.hgetall("order"), fields("2"));

    // This time to live differs from what either lease would set, so that any change shows.
    server.cmd(&["PEXPIRE", "order", "40000"]);
    inner.release().await.unwrap();
    assert_eq!(server.hgetall("order"), fields("1"));
    assert_just_set(server.pttl("order"), Duration::from_secs(40));

    // A nested hold with a shorter lease does not shorten the outer one's.
    let brief = lock.clone().with_lease(Lease::Fixed(LEASE / 4));
    let inner = brief.acquire().await.unwrap();
    assert_eq!(server.hgetall("order"), fields("2"));
    assert_just_set(server.pttl("order"), Duration::from_secs(40));
    // Dropping it lowers the count, too.
    drop(inner);
    eventually(PATIENCE, "the count is 1 again", async || {
        server.hgetall("order") == fields("1")
    })
    .await;
    // A nested hold with a longer lease extends it.
    let inner = lock.acquire().await.unwrap();
    assert_just_set(server.pttl("order"), LEASE);
    inner.release().await.unwrap();

    assert_eq!(ear.rest(&server).await, Vec::<Vec<u8>>::new());
    outer.release().await.unwrap();
    assert_eq!(ear.rest(&server).await, [b"0"]);
    ear.unsubscribe().await;
    leaves_nothing(&server, client).await;
}

#[tokio::test]
async fn a_full_release_removes_the_key_and_publishes_0_once_on_redissons_channel() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    for (name, channel) in [
        ("order", "redisson_lock__channel:{order}"),
        ("a{b}c", "redisson_lock__channel:a{b}c"),
        ("foo{bar", "redisson_lock__channel:foo{bar"),
        ("{}foo", "redisson_lock__channel:{}foo"),
        ("foo}bar", "redisson_lock__channel:{foo}bar}"),
        ("naïve 🔒\r\n", "redisson_lock__channel:{naïve 🔒\r\n}"),
    ] {
        let mut ear = Subscriber::start(&server, channel).await;
        let guard = hold(&client, name).await;
        assert_eq!(server.keys(), [name]);
        guard.release().await.unwrap();
        assert!(server.keys().is_empty(), "{name}");
        assert_eq!(ear.rest(&server).await, [b"0"], "{name}");

        let guard = hold(&client, name).await;
        assert_eq!(server.keys(), [name]);
        drop(guard);
        assert_eq!(ear.message().await, b"0", "{name}");
        assert!(server.keys().is_empty(), "{name}");
        assert!(ear.rest(&server).await.is_empty(), "{name}");
        ear.unsubscribe().await;
    }
    leaves_nothing(&server, client).await;
}

#[tokio::test]
async fn a_key_prefix_precedes_the_name_as_with_a_name_mapper() {
    let server = RedisServer::start();
    for (prefix, key, channel) in [
        ("app:", "app:order", "redisson_lock__channel:{app:order}"),
        // A brace in the prefix counts as one in the name.
        (
            "{app}:",
            "{app}:order",
            "redisson_lock__channel:{app}:order",
        ),
    ] {
        let client = Client::builder(&server.url()).key_prefix(prefix);
        let client = client.connect().await.unwrap();
        let mut ear = Subscriber::start(&server, channel).await;
        let guard = hold(&client, "order").await;
        assert_eq!(server.keys(), [key]);
        assert_eq!(guard.name(), "order");
        let listed = client.admin().list("*").await.unwrap();
        let names: Vec<_> = listed.iter().map(|lock| lock.name.as_str()).collect();
        assert_eq!(names, ["order"]);
        guard.release().await.unwrap();
        assert_eq!(ear.rest(&server).await, [b"0"]);
        ear.unsubscribe().await;
        leaves_nothing(&server, client).await;
    }
}

#[tokio::test]
async fn the_database_in_the_address_is_the_one_that_is_used() {
    let server = RedisServer::start();
    let socket = server.socket_path();
    let socket = socket.display();
    for url in [
        format!("{}3", server.url()),
        format!("redis+unix://{socket}?db=3"),
    ] {
        let client = Client::connect(&url).await.unwrap();
        let mut ear = Subscriber::start(&server, &channel("order")).await;
        let guard = hold(&client, "order").await;
        let hash: Vec<String> = server.query(&["EVAL", IN_DATABASE, "1", "order", "3"]);
        assert_eq!(hash, [guard.owner(), "1".to_owned()]);
        assert!(server.keys().is_empty(), "database 0 stays empty");
        // The same name in another database is another lock.
        let elsewhere = connect(&server).await;
        hold(&elsewhere, "order").await.release().await.unwrap();
        // Channels are the same in all databases.
        assert_eq!(ear.rest(&server).await, [b"0"]);
        guard.release().await.unwrap();
        assert_eq!(ear.rest(&server).await, [b"0"]);
        assert_eq!(server.query::<String>(&["INFO", "keyspace"]).trim(), EMPTY);
        ear.unsubscribe().await;
        client.close().await.unwrap();
        leaves_nothing(&server, elsewhere).await;
    }
}

#[tokio::test]
async fn a_unix_socket_is_an_address_like_any_other() {
    let server = RedisServer::start();
    let url = format!("redis+unix://{}", server.socket_path().display());
    let client = Client::connect(&url).await.unwrap();
    let other = connect(&server).await;
    let guard = hold(&client, "order").await;
    assert_eq!(server.hgetall("order")[&guard.owner()], "1");
    assert!(other.lock("order").try_acquire().await.unwrap().is_none());
    // Waiting works over the socket, too: the other client's release wakes a waiter at once.
    guard.release().await.unwrap();
    let guard = hold(&other, "order").await;
    let waiter = tokio::spawn(client.lock("order").acquire());
    eventually(PATIENCE, "somebody waits", async || {
        server.pubsub_channels() == [channel("order")]
    })
    .await;
    guard.release().await.unwrap();
    let guard = waiter.await.unwrap().unwrap();
    guard.release().await.unwrap();
    other.close().await.unwrap();
    leaves_nothing(&server, client).await;
}

#[tokio::test]
async fn a_renewal_changes_the_ttl_and_nothing_else() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let mut ear = Subscriber::start(&server, &channel("order")).await;
    let lease = Duration::from_millis(4500);
    let lock = client.lock("order").with_lease(Lease::KeepAlive(lease));
    let guard = lock.acquire().await.unwrap();
    let mut last = i64::MAX;
    let mut renewals = 0;
    eventually(PATIENCE * 2, "three renewals", async || {
        let pttl = server.pttl("order");
        assert!((0..=4500).contains(&pttl), "{pttl} ms");
        assert_eq!(
            server.hgetall("order"),
            BTreeMap::from([(guard.owner(), "1".into())])
        );
        renewals += u32::from(pttl > last);
        last = pttl;
        renewals == 3
    })
    .await;
    assert_eq!(server.keys(), ["order"]);
    assert!(ear.rest(&server).await.is_empty());
    guard.release().await.unwrap();
    assert_eq!(ear.rest(&server).await, [b"0"]);
    ear.unsubscribe().await;
    leaves_nothing(&server, client).await;
}

/// Reads another database and returns to the previous one.
const IN_DATABASE: &str = "
redis.call('SELECT', ARGV[1])
return redis.call('HGETALL', KEYS[1])";
const EMPTY: &str = "# Keyspace";
