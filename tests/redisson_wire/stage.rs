//! The helpers that tests of Redisson's format share, on a real server and on a simulated one.

#![allow(
    dead_code,
    reason = "a program that compiles this module uses a part of it"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use distlock::{Client, Guard, Lease, Read, RwLock, Write};

use crate::support::{RedisServer, builder, eventually};

/// Connects with long timeouts: a server on a busy machine replies late although it is not down.
pub(crate) async fn connect(server: &RedisServer) -> Client {
    connect_to(&server.url()).await
}

/// Connects in the same way through a proxy.
pub(crate) async fn connect_to(url: &str) -> Client {
    let builder = builder(url).command_timeout(PATIENCE);
    let client = builder.connect_timeout(PATIENCE).connect().await;
    client.expect("the server is up")
}

/// Acquires a free lock without a limit: these tests are not about renewals.
pub(crate) async fn hold(client: &Client, name: &str) -> Guard {
    let lock = client.lock(name).with_lease(Lease::Fixed(LEASE));
    let taken = lock.try_acquire().await.expect("the server answers");
    taken.expect("nobody else holds it")
}

/// Closes the client and checks that no key is left. The caller has seen that there were some.
pub(crate) async fn leaves_nothing(server: &RedisServer, client: Client) {
    eventually(PATIENCE, "nobody listens any more", async || {
        server.pubsub_channels().is_empty()
    })
    .await;
    eventually(PATIENCE, "no key is left", async || {
        server.keys().is_empty()
    })
    .await;
    client.close().await.expect("there is nothing to give back");
    assert!(server.keys().is_empty(), "{:?}", server.keys());
}

/// Asserts that a TTL is counted down from a value that was set a moment ago.
#[track_caller]
pub(crate) fn assert_just_set(pttl: i64, lease: Duration) {
    let lease = i64::try_from(lease.as_millis()).expect("a test's lease is short");
    let moment = i64::try_from(A_MOMENT.as_millis()).expect("a few seconds");
    assert!(pttl <= lease, "{pttl} ms of {lease}");
    assert!(pttl > lease - moment, "{pttl} ms of {lease}");
}

/// Checks that only tombstones are left, which stay for a while: a waiter that left during its request has the request undone.
pub(crate) async fn only_tombstones_left(server: &RedisServer, client: Client) {
    eventually(PATIENCE, "nothing is left", async || {
        let keys = server.keys();
        keys.iter().all(|key| key.starts_with("distlock_undone:"))
    })
    .await;
    client.close().await.expect("there is nothing to give back");
}

pub(crate) async fn read(lock: &RwLock, lease: Duration) -> Guard<Read> {
    let lock = lock.read().with_lease(Lease::Fixed(lease));
    let taken = lock.try_acquire().await.expect("the server answers");
    taken.expect("nobody writes")
}

pub(crate) async fn write(lock: &RwLock, lease: Duration) -> Guard<Write> {
    let lock = lock.write().with_lease(Lease::Fixed(lease));
    let taken = lock.try_acquire().await.expect("the server answers");
    taken.expect("nobody holds it")
}

pub(crate) fn hash(mode: &str, holders: &[(&str, &str)]) -> BTreeMap<String, String> {
    let mode = ("mode", mode);
    let fields = holders.iter().copied().chain([mode]);
    fields
        .map(|(field, value)| (field.to_owned(), value.to_owned()))
        .collect()
}

/// Asserts that an owner is `<uuid v4>:<i64>`, each in the one way in which Java writes it.
#[track_caller]
pub(crate) fn assert_is_redissons(owner: &str) {
    let (client, number) = owner.split_once(':').expect("a colon");
    let uuid = uuid::Uuid::parse_str(client).expect("a uuid");
    assert_eq!(uuid.get_version_num(), 4, "{owner}");
    assert_eq!(uuid.get_variant(), uuid::Variant::RFC4122, "{owner}");
    assert_eq!(uuid.hyphenated().to_string(), client, "lower case, 36 long");
    let parsed: i64 = number.parse().expect("a number");
    assert_eq!(parsed.to_string(), number, "{owner}");
}

pub(crate) const LEASE: Duration = Duration::from_secs(60);
/// Upper bound for any wait on a busy machine; only a failure waits this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// The tolerance for "just set": shorter than any lease that is checked.
pub(crate) const A_MOMENT: Duration = Duration::from_secs(10);
/// The wait limit of a waiter that is to wait in vain: even on a busy machine the reply that the lock is held arrives sooner.
pub(crate) const IN_VAIN: Duration = Duration::from_secs(4);
