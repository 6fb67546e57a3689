//! The format of a read/write lock, as other programs see it: its hash, its readers' timeouts and its messages.

use std::time::Duration;

use distlock::{Client, Guard, Lease, Read};

use super::stage::assert_is_redissons;
use super::stage::{hash, read, write};
use super::support::RedisServer;
use super::support::java::{Subscriber, rw_channel, timeout_key};
use super::{LEASE, assert_just_set, connect, leaves_nothing};

#[tokio::test]
async fn a_reader_is_a_mode_a_field_and_a_timeout_key() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let lock = client.rw_lock("prices");
    let one = read(&lock, LEASE).await;
    assert_is_redissons(&one.owner());
    let key = timeout_key("prices", &one.owner(), 1);
    assert_eq!(key, format!("{{prices}}:{}:rwlock_timeout:1", one.owner()));
    assert_eq!(server.keys(), sorted(&["prices", &key]));
    assert_eq!(
        server.hgetall("prices"),
        hash("read", &[(&one.owner(), "1")])
    );
    assert_eq!(server.query::<String>(&["GET", &key]), "1");
    assert_just_set(server.pttl("prices"), LEASE);
    assert_just_set(server.pttl(&key), LEASE);

    let other = read(&lock, LEASE).await;
    let fields = [(&*one.owner(), "1"), (&*other.owner(), "1")];
    assert_eq!(server.hgetall("prices"), hash("read", &fields));
    assert_eq!(server.keys().len(), 3);
    one.release().await.unwrap();
    assert!(!server.keys().contains(&key));
    assert_eq!(
        server.hgetall("prices"),
        hash("read", &[(&other.owner(), "1")])
    );
    other.release().await.unwrap();
    assert!(server.keys().is_empty(), "{:?}", server.keys());
    leaves_nothing(&server, client).await;
}

#[tokio::test]
async fn a_writer_is_a_mode_and_a_field_and_nothing_else() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let me = client.new_owner();
    let lock = client.rw_lock("prices").write().with_owner(&me);
    let lock = lock.with_lease(Lease::Fixed(LEASE));
    let outer = lock.acquire().await.unwrap();
    assert_is_redissons(&outer.owner());
    let field = format!("{}:write", outer.owner());
    assert_eq!(server.keys(), ["prices"]);
    assert_eq!(server.hgetall("prices"), hash("write", &[(&field, "1")]));
    assert_just_set(server.pttl("prices"), LEASE);
    let inner = lock.acquire().await.unwrap();
    assert_eq!(server.hgetall("prices"), hash("write", &[(&field, "2")]));
    inner.release().await.unwrap();
    assert_eq!(server.hgetall("prices"), hash("write", &[(&field, "1")]));
    outer.release().await.unwrap();
    assert!(server.keys().is_empty(), "{:?}", server.keys());
    leaves_nothing(&server, client).await;
}

#[tokio::test]
async fn readers_publish_0_and_writers_1_on_redissons_channel_for_any_name() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    for (name, channel, base) in [
        ("prices", "redisson_rwlock:{prices}", "{prices}"),
        ("a{b}c", "redisson_rwlock:a{b}c", "a{b}c"),
        (
            "{test}:abc:key",
            "redisson_rwlock:{test}:abc:key",
            "{test}:abc:key",
        ),
        ("foo{bar", "redisson_rwlock:foo{bar", "foo{bar"),
        ("foo}bar", "redisson_rwlock:{foo}bar}", "{foo}bar}"),
        (
            "naïve 🔒\r\n",
            "redisson_rwlock:{naïve 🔒\r\n}",
            "{naïve 🔒\r\n}",
        ),
    ] {
        let mut ear = Subscriber::start(&server, channel).await;
        let lock = client.rw_lock(name);
        let (one, other) = (read(&lock, LEASE).await, read(&lock, LEASE).await);
        let key = |guard: &Guard<Read>| format!("{base}:{}:rwlock_timeout:1", guard.owner());
        assert_eq!(server.keys(), sorted(&[name, &key(&one), &key(&other)]));
        one.release().await.unwrap();
        assert!(ear.rest(&server).await.is_empty(), "{name}: one reads on");
        other.release().await.unwrap();
        assert_eq!(ear.rest(&server).await, [b"0"], "{name}");
        let writer = write(&lock, LEASE).await;
        writer.release().await.unwrap();
        assert_eq!(ear.rest(&server).await, [b"1"], "{name}");
        // A dropped guard has the same effect.
        drop(read(&lock, LEASE).await);
        assert_eq!(ear.message().await, b"0", "{name}");
        drop(write(&lock, LEASE).await);
        assert_eq!(ear.message().await, b"1", "{name}");
        assert!(server.keys().is_empty(), "{:?}", server.keys());
        ear.unsubscribe().await;
    }
    leaves_nothing(&server, client).await;
}

#[tokio::test]
async fn a_prefix_precedes_every_key_of_a_read_write_lock() {
    let server = RedisServer::start();
    for (prefix, key, base) in [
        ("app:", "app:prices", "{app:prices}"),
        ("{app}:", "{app}:prices", "{app}:prices"),
    ] {
        let client = Client::builder(&server.url()).key_prefix(prefix);
        let client = client.connect().await.unwrap();
        let mut ear = Subscriber::start(&server, &rw_channel(key)).await;
        let reader = read(&client.rw_lock("prices"), LEASE).await;
        let timeout = format!("{base}:{}:rwlock_timeout:1", reader.owner());
        assert_eq!(server.keys(), sorted(&[key, &timeout]));
        reader.release().await.unwrap();
        assert_eq!(ear.rest(&server).await, [b"0"]);
        ear.unsubscribe().await;
        leaves_nothing(&server, client).await;
    }
}

/// Redisson's unlock deletes the timeout with the highest number, whichever is the longest.
#[tokio::test]
async fn each_hold_of_a_reader_has_a_key_and_the_last_one_has_the_longest_time() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let me = client.new_owner();
    let lock = client.rw_lock("prices").read().with_owner(&me);
    let mut guards = Vec::new();
    for _ in 0..3 {
        let lock = lock.clone().with_lease(Lease::Fixed(LEASE));
        guards.push(lock.acquire().await.unwrap());
    }
    let owner = guards[0].owner();
    let keys: Vec<_> = (1..=3).map(|n| timeout_key("prices", &owner, n)).collect();
    assert_eq!(server.hgetall("prices"), hash("read", &[(&owner, "3")]));
    assert_eq!(
        server.keys(),
        sorted(&["prices", &keys[0], &keys[1], &keys[2]])
    );
    // As if this hold had been acquired last.
    server.cmd(&["PEXPIRE", &keys[2], "90000"]);
    server.cmd(&["PEXPIRE", "prices", "90000"]);
    let longest = Duration::from_secs(90);
    for left in (1..3).rev() {
        guards.pop().expect("one more").release().await.unwrap();
        assert_eq!(
            server.hgetall("prices"),
            hash("read", &[(&owner, &left.to_string())])
        );
        assert_eq!(server.pttl(&keys[left]), -2, "the key goes with the count");
        assert_just_set(server.pttl(&keys[left - 1]), longest);
        assert_just_set(server.pttl("prices"), longest);
    }
    guards.pop().expect("the last").release().await.unwrap();
    assert!(server.keys().is_empty(), "{:?}", server.keys());
    leaves_nothing(&server, client).await;
}

/// Redisson's read lock returns to the lease of the outer hold.
#[tokio::test]
async fn a_released_nested_read_leaves_its_timeout() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let lock = client.rw_lock("prices").read();
    let lock = lock.with_owner(&client.new_owner());
    let with = |lease| lock.clone().with_lease(Lease::Fixed(lease));
    let outer = with(LEASE).acquire().await.unwrap();
    let inner = with(LEASE * 4).acquire().await.unwrap();
    inner.release().await.unwrap();
    let key = timeout_key("prices", &outer.owner(), 1);
    assert_just_set(server.pttl(&key), LEASE * 4);
    assert_just_set(server.pttl("prices"), LEASE * 4);
    outer.release().await.unwrap();
    assert!(server.keys().is_empty(), "{:?}", server.keys());
    leaves_nothing(&server, client).await;
}

#[tokio::test]
async fn acquiring_into_a_lock_whose_key_was_deleted_returns_lost() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let lock = client.lock("stock").with_owner(&client.new_owner());
    let outer = lock.acquire().await.unwrap();
    server.cmd(&["DEL", "stock"]);
    let error = lock.acquire().await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert!(!outer.is_held());
    assert!(server.keys().is_empty(), "{:?}", server.keys());
    let anew = lock.acquire().await.unwrap();
    anew.release().await.unwrap();
    drop(outer);
    leaves_nothing(&server, client).await;
}

#[tokio::test]
async fn the_hash_lasts_as_long_as_its_longest_reader() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let lock = client.rw_lock("prices");
    let long = read(&lock, LEASE).await;
    let short = read(&lock, LEASE / 4).await;
    assert_just_set(server.pttl("prices"), LEASE);
    assert_just_set(
        server.pttl(&timeout_key("prices", &short.owner(), 1)),
        LEASE / 4,
    );
    let longest = read(&lock, LEASE * 2).await;
    assert_just_set(server.pttl("prices"), LEASE * 2);
    longest.release().await.unwrap();
    assert_just_set(server.pttl("prices"), LEASE);
    long.release().await.unwrap();
    assert_just_set(server.pttl("prices"), LEASE / 4);
    short.release().await.unwrap();
    leaves_nothing(&server, client).await;
}

#[tokio::test]
async fn a_downgrade_leaves_a_reader_of_its_own_name_and_publishes_1() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let mut ear = Subscriber::start(&server, &rw_channel("prices")).await;
    let writer = write(&client.rw_lock("prices"), LEASE).await;
    let reader = writer.downgrade().await.unwrap();
    let key = timeout_key("prices", &reader.owner(), 1);
    assert_eq!(
        server.hgetall("prices"),
        hash("read", &[(&reader.owner(), "1")])
    );
    assert_eq!(server.keys(), sorted(&["prices", &key]));
    assert_just_set(server.pttl("prices"), LEASE);
    // D18: Redisson publishes nothing, and readers wait until the lease expires.
    assert_eq!(ear.rest(&server).await, [b"1"]);
    reader.release().await.unwrap();
    assert_eq!(ear.rest(&server).await, [b"0"]);
    ear.unsubscribe().await;
    leaves_nothing(&server, client).await;
}

#[tokio::test]
async fn an_upgrade_is_a_writer_beside_its_reader() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let mut ear = Subscriber::start(&server, &rw_channel("prices")).await;
    let reader = read(&client.rw_lock("prices"), LEASE).await;
    let writer = reader.try_upgrade().await.unwrap().expect("alone");
    let field = format!("{}:write", writer.owner());
    let both = [(&*reader.owner(), "1"), (&*field, "1")];
    assert_eq!(server.hgetall("prices"), hash("write", &both));
    writer.release().await.unwrap();
    assert_eq!(
        server.hgetall("prices"),
        hash("read", &[(&reader.owner(), "1")])
    );
    assert_eq!(ear.rest(&server).await, [b"1"]);
    let writer = reader.try_upgrade().await.unwrap().expect("alone");
    // The remaining lease of the writer is not cut to that of the reader.
    reader.release().await.unwrap();
    let field = format!("{}:write", writer.owner());
    assert_eq!(server.hgetall("prices"), hash("write", &[(&field, "1")]));
    assert_eq!(server.keys(), ["prices"]);
    assert!(ear.rest(&server).await.is_empty(), "it writes on");
    writer.release().await.unwrap();
    assert_eq!(ear.rest(&server).await, [b"1"]);
    ear.unsubscribe().await;
    leaves_nothing(&server, client).await;
}

#[tokio::test]
async fn a_force_released_lock_leaves_no_timeouts_and_publishes_1() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let mut ear = Subscriber::start(&server, &rw_channel("prices")).await;
    let lock = client.rw_lock("prices");
    let guards = [read(&lock, LEASE).await, read(&lock, LEASE).await];
    assert_eq!(server.keys().len(), 3);
    assert!(client.admin().force_release("prices").await.unwrap());
    assert!(server.keys().is_empty(), "{:?}", server.keys());
    // A writer may wait, and so may readers behind it.
    assert_eq!(ear.rest(&server).await, [b"1"]);
    drop(guards);
    ear.unsubscribe().await;
    leaves_nothing(&server, client).await;
}

fn sorted(keys: &[&str]) -> Vec<String> {
    let mut keys: Vec<_> = keys.iter().map(ToString::to_string).collect();
    keys.sort();
    keys
}
