//! What the tests of Redisson's format have in common, on a real server and on a simulated one.

#![allow(
    dead_code,
    reason = "a program that compiles this module uses a part of it"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use distlock::{Client, Guard, Lease, Read, RwLock, Write};

use crate::support::{RedisServer, builder, eventually};

/// A server on a busy machine is slow to answer, and not down.
pub(crate) async fn connect(server: &RedisServer) -> Client {
    connect_to(&server.url()).await
}

/// The same by way of a proxy.
pub(crate) async fn connect_to(url: &str) -> Client {
    let builder = builder(url).command_timeout(PATIENCE);
    let client = builder.connect_timeout(PATIENCE).connect().await;
    client.expect("the server is up")
}

/// Takes a free lock until further notice: renewals are none of the test's business.
pub(crate) async fn hold(client: &Client, name: &str) -> Guard {
    let lock = client.lock(name).with_lease(Lease::Fixed(LEASE));
    let taken = lock.try_acquire().await.expect("the server answers");
    taken.expect("nobody else holds it")
}

/// Nothing may be left when everyone has gone. The caller has seen that there was something.
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

/// A TTL is counted down from what was set a moment ago.
#[track_caller]
pub(crate) fn assert_just_set(pttl: i64, lease: Duration) {
    let lease = i64::try_from(lease.as_millis()).expect("a test's lease is short");
    let moment = i64::try_from(A_MOMENT.as_millis()).expect("a few seconds");
    assert!(pttl <= lease, "{pttl} ms of {lease}");
    assert!(pttl > lease - moment, "{pttl} ms of {lease}");
}

/// A waiter that left while it asked has the request taken back: a mark of that stays for a while.
pub(crate) async fn gone_but_for_marks(server: &RedisServer, client: Client) {
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

/// `<uuid v4>:<i64>`, each in the one way Java writes it.
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
/// Far longer than anything takes on a busy machine; only a failure waits for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// Ago: shorter than any lease that is looked at.
pub(crate) const A_MOMENT: Duration = Duration::from_secs(10);
/// How long somebody waits who is to wait in vain: what is taken has been said by then on a busy machine, too.
pub(crate) const IN_VAIN: Duration = Duration::from_secs(4);
