//! The format of a semaphore, as other programs see it, and Redisson's permits beside distlock's.

use std::time::Duration;

use distlock::{Error, Guard, Lease, Permit};

use super::support::java::{Subscriber, in_slot};
use super::support::{RedisServer, eventually};
use super::{LEASE, PATIENCE, connect};

/// A time long ago, in ms.
const PAST: u64 = 1_000_000_000_000;
/// The score of a permit without an expiry, in Redisson's zset.
const NEVER: &str = "922337203685477";

#[tokio::test]
async fn a_permit_is_16_bytes_in_redissons_zset_until_it_expires_by_the_server_clock() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    for (name, out, channel) in [
        ("exports", "{exports}:timeout", "redisson_sc:{exports}"),
        ("a{b}c", "a{b}c:timeout", "redisson_sc:a{b}c"),
        ("foo{bar", "foo{bar:timeout", "redisson_sc:foo{bar"),
    ] {
        let semaphore = client.semaphore(name);
        let mut ear = Subscriber::start(&server, channel).await;
        semaphore.set_total(3).await.unwrap();
        assert_eq!(ear.message().await, b"3");
        assert_eq!(available(&server, name), 3);
        let held = semaphore.permits(2).with_lease(Lease::Fixed(LEASE));
        let held = held.acquire().await.unwrap();
        assert_eq!(available(&server, name), 1);
        assert_eq!(ids(&server, out), hexadecimal(&held));
        let (seconds, micros): (i64, i64) = server.query(&["TIME"]);
        let now = seconds * 1000 + micros / 1000;
        for (_, till) in scores(&server, out) {
            // Only the server's clock counts, not that of a client.
            super::assert_just_set(till - now, LEASE);
        }
        held.release().await.unwrap();
        assert_eq!(ear.message().await, b"3");
        assert_eq!(server.keys(), [name], "nothing but what was set");
        assert!(ear.rest(&server).await.is_empty());
        server.flushall();
    }
}

/// Redisson goes by its clients' clocks, which need not agree.
#[tokio::test]
async fn d16_permits_end_by_the_servers_clock() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let semaphore = client.semaphore("exports").with_permits(1);
    let permit = semaphore.permit().with_lease(Lease::Fixed(LEASE));
    permit.acquire().await.unwrap().forget();
    // A minute passes on the server, and none here.
    let [(id, _)] = <[_; 1]>::try_from(scores(&server, "{exports}:timeout")).unwrap();
    let (seconds, _): (i64, i64) = server.query(&["TIME"]);
    let mut past = redis::cmd("ZADD");
    past.arg("{exports}:timeout")
        .arg(seconds * 1000 - 1)
        .arg(id);
    raw(&server, &past);
    let next = permit.try_acquire().await.unwrap();
    next.expect("it has come back").release().await.unwrap();
    assert_eq!(available(&server, "exports"), 1);
}

#[tokio::test]
async fn d21_a_permit_released_without_a_message_is_still_acquired() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let semaphore = client.semaphore("exports");
    semaphore.set_total(0).await.unwrap();
    for count in [1, 3] {
        let waiting = tokio::spawn(semaphore.permits(count).acquire());
        until_subscribed(&server).await;
        server.cmd(&["SET", "exports", &count.to_string()]);
        let held = tokio::time::timeout(PATIENCE, waiting).await;
        let held = held.expect("it asks now and then").unwrap().unwrap();
        held.release().await.unwrap();
        semaphore.set_total(0).await.unwrap();
    }
}

/// The test deletes each of the queue's keys in turn.
#[tokio::test]
async fn a_waiter_for_several_permits_is_queued_once_after_a_key_of_its_queue_was_lost() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let semaphore = client.semaphore("exports");
    semaphore.set_total(2).await.unwrap();
    let held = semaphore.permit().acquire().await.unwrap();
    let waiting = tokio::spawn(semaphore.permits(2).acquire());
    until_subscribed(&server).await;
    let queue = || server.query::<Vec<String>>(&["LRANGE", "distlock_line:{exports}", "0", "-1"]);
    eventually(PATIENCE, "it is queued", async || queue().len() == 1).await;
    let queued = queue();
    for lost in ["distlock_alive:{exports}", "distlock_line:{exports}"] {
        server.cmd(&["DEL", lost]);
        let asked = server.commandstats("evalsha");
        server.cmd(&["PUBLISH", "redisson_sc:{exports}", "1"]);
        eventually(PATIENCE, "it asks", async || {
            server.commandstats("evalsha") > asked
        })
        .await;
        assert_eq!(queue(), queued, "{lost}");
    }
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

/// The first of them to send its next request must not leave the others without entries.
#[tokio::test]
async fn every_waiter_for_several_permits_is_queued_again_after_the_queue_was_lost() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let semaphore = client.semaphore("exports");
    semaphore.set_total(2).await.unwrap();
    let held = semaphore.permit().acquire().await.unwrap();
    // The waiters belong to three clients, since each client queues its own.
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let semaphore = connect(&server).await.semaphore("exports");
        waiting.push(tokio::spawn(async move {
            let held = semaphore.permits(2).acquire().await?;
            held.release().await
        }));
    }
    let queued = || server.query::<i64>(&["LLEN", "distlock_line:{exports}"]);
    eventually(PATIENCE, "all are queued", async || queued() == 3).await;
    server.cmd(&["DEL", "distlock_line:{exports}"]);
    eventually(PATIENCE, "all are queued again", async || {
        server.cmd(&["PUBLISH", "redisson_sc:{exports}", "1"]);
        queued() == 3
    })
    .await;
    held.release().await.unwrap();
    for waiting in waiting {
        let released = tokio::time::timeout(PATIENCE, waiting).await;
        released.expect("it has its turn").unwrap().unwrap();
    }
}

/// Redisson's listeners throw at a negative number, and its `addPermits` drops the semaphore's time to live.
#[tokio::test]
async fn d37_no_negative_number_is_published_and_the_expiry_stays() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let semaphore = client.semaphore("exports");
    server.cmd(&["SET", "exports", "2", "PX", "60000"]);
    let held = semaphore.permits(2).acquire().await.unwrap();
    assert!(
        server.pttl("{exports}:timeout") > 0,
        "it ends with the number"
    );
    let mut ear = Subscriber::start(&server, "redisson_sc:{exports}").await;
    semaphore.set_total(1).await.unwrap();
    assert_eq!(available(&server, "exports"), -1);
    assert!(ear.rest(&server).await.is_empty());
    held.release().await.unwrap();
    assert_eq!(ear.message().await, b"1");
    semaphore.set_total(4).await.unwrap();
    assert_eq!(ear.message().await, b"4");
    assert!(server.pttl("exports") > 0, "as long as it was given");
}

/// Redisson's scripts fail from this number on.
#[tokio::test]
async fn d38_twenty_thousand_expired_permits_are_reclaimed_at_once() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let mut late = redis::cmd("ZADD");
    late.arg("{exports}:timeout");
    for number in 0..20_000_u128 {
        late.arg(PAST).arg(&number.to_be_bytes()[..]);
    }
    raw(&server, &late);
    server.cmd(&["SET", "exports", "0"]);
    let semaphore = client.semaphore("exports");
    let count = semaphore.count().await.unwrap();
    assert_eq!((count.available, count.out), (20_000, 0));
    let held = semaphore.permits(4096).acquire().await.unwrap();
    held.release().await.unwrap();
    assert_eq!(available(&server, "exports"), 20_000);
}

#[tokio::test]
async fn d41_an_expired_permit_is_reclaimed_once_and_its_release_reports_the_loss() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let semaphore = client.semaphore("exports").with_permits(2);
    let permit = semaphore.permit().with_lease(Lease::Fixed(LEASE));
    let held = permit.acquire().await.unwrap();
    let [(id, _)] = <[_; 1]>::try_from(scores(&server, "{exports}:timeout")).unwrap();
    let mut past = redis::cmd("ZADD");
    past.arg("{exports}:timeout").arg(PAST).arg(id);
    raw(&server, &past);
    let id = held.permit_ids()[0];
    assert!(matches!(held.release().await, Err(Error::Lost { .. })));
    assert_eq!(available(&server, "exports"), 2);
    assert!(!semaphore.release(id).await.unwrap());
    assert_eq!(available(&server, "exports"), 2);
}

/// Redisson before 3.17 keeps ids in readable form: 32 letters, not 16 bytes.
#[tokio::test]
async fn a_permit_of_an_older_redisson_is_visible_and_released_by_its_id_once() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let id = "00ff0a7e5d2c41b8a3906b1e8f24c7d9";
    server.cmd(&["SET", "exports", "1"]);
    server.cmd(&["ZADD", "{exports}:timeout", NEVER, id]);
    let seen = client.admin().inspect("exports").await.unwrap().unwrap();
    assert_eq!(seen.holders[0].owner, id);
    let semaphore = client.semaphore("exports");
    assert!(semaphore.release(id.parse().unwrap()).await.unwrap());
    assert_eq!(available(&server, "exports"), 2);
    assert!(!semaphore.release(id.parse().unwrap()).await.unwrap());
    assert_eq!(available(&server, "exports"), 2);
}

#[tokio::test]
async fn redissons_permits_and_ours_are_counted_together() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    // `trySetPermits(2)` and `acquire()` leave this state.
    server.cmd(&["SET", "exports", "1"]);
    server.cmd(&["ZADD", "{exports}:timeout", NEVER, "sixteen letters."]);
    let semaphore = client.semaphore("exports");
    let ours = semaphore.permit().acquire().await.unwrap();
    let count = semaphore.count().await.unwrap();
    assert_eq!((count.available, count.out), (0, 2));
    let seen = client.admin().inspect("exports").await.unwrap().unwrap();
    let java = seen
        .holders
        .iter()
        .find(|holder| holder.owner != ours.owner());
    let java = java.expect("both are seen");
    let id: String = b"sixteen letters."
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    assert_eq!((&*java.owner, java.ttl), (&*id, None));
    assert_eq!(seen.ttl, None, "one of them has no end");
    // Redisson's `release(permitId)` does this.
    let waiting = tokio::spawn(semaphore.permit().acquire());
    until_subscribed(&server).await;
    server.cmd(&["ZREM", "{exports}:timeout", "sixteen letters."]);
    server.cmd(&["INCRBY", "exports", "1"]);
    server.cmd(&["PUBLISH", "redisson_sc:{exports}", "1"]);
    let next = tokio::time::timeout(PATIENCE, waiting).await;
    let next = next.expect("it is told").unwrap().unwrap();
    ours.release().await.unwrap();
    next.release().await.unwrap();
    assert_eq!(server.keys(), ["exports"]);
}

#[tokio::test]
async fn our_permit_released_by_redisson_is_lost_to_its_guard() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let semaphore = client.semaphore("exports").with_permits(1);
    let lease = Lease::KeepAlive(Duration::from_secs(6));
    let held = semaphore
        .permit()
        .with_lease(lease)
        .acquire()
        .await
        .unwrap();
    let [(id, _)] = <[_; 1]>::try_from(scores(&server, "{exports}:timeout")).unwrap();
    let mut remove = redis::cmd("ZREM");
    remove.arg("{exports}:timeout").arg(id);
    raw(&server, &remove);
    server.cmd(&["INCRBY", "exports", "1"]);
    let lost = tokio::time::timeout(PATIENCE, held.lost()).await;
    assert!(lost.expect("it is told in time").is_some());
    assert!(held.release().await.is_err());
    assert_eq!(available(&server, "exports"), 1, "not twice");
}

/// Redisson's `addPermits` does this: it writes the number anew.
#[tokio::test]
async fn permits_in_use_stay_when_redisson_drops_the_expiry_of_the_total() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    server.cmd(&["SET", "exports", "2", "PX", "12000"]);
    let lease = Lease::KeepAlive(Duration::from_secs(9));
    let permit = client.semaphore("exports").permit().with_lease(lease);
    let held = permit.acquire().await.unwrap();
    assert!(server.pttl("{exports}:timeout") > 0);
    server.cmd(&["SET", "exports", "1"]);
    eventually(PATIENCE, "what is out has no end either", async || {
        server.pttl("{exports}:timeout") == -1
    })
    .await;
    held.release().await.unwrap();
    assert_eq!(available(&server, "exports"), 2);
}

/// The value under the name is not a number; it does not change.
#[tokio::test]
async fn an_invalid_number_of_permits_is_rejected() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    for value in ["stock", "1.5", "", "0x10", "01", "9223372036854775807"] {
        server.cmd(&["SET", "exports", value]);
        let semaphore = client.semaphore("exports");
        let wrong = |error: &Error| matches!(error, Error::WrongKind { .. });
        let taken = semaphore.permit().try_acquire().await;
        assert!(taken.as_ref().is_err_and(wrong), "{value}: {taken:?}");
        let set = semaphore.set_total(3).await;
        assert!(set.as_ref().is_err_and(wrong), "{value}: {set:?}");
        assert!(semaphore.count().await.is_err());
        assert_eq!(server.query::<String>(&["GET", "exports"]), value);
    }
}

pub(crate) fn available(server: &RedisServer, name: &str) -> i64 {
    server.query(&["GET", name])
}

/// Returns the ids of the permits in use with their expiry, in ms.
pub(crate) fn scores(server: &RedisServer, key: &str) -> Vec<(Vec<u8>, i64)> {
    server.query(&["ZRANGE", key, "0", "-1", "WITHSCORES"])
}

/// Returns the ids in the form that Redisson's API uses.
fn ids(server: &RedisServer, key: &str) -> Vec<String> {
    let ids = scores(server, key).into_iter();
    ids.map(|(id, _)| id.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect()
}

fn hexadecimal(guard: &Guard<Permit>) -> Vec<String> {
    let mut ids: Vec<_> = guard.permit_ids().iter().map(ToString::to_string).collect();
    ids.sort();
    ids
}

/// Runs a command with words that are not text.
pub(crate) fn raw(server: &RedisServer, cmd: &redis::Cmd) {
    let client = redis::Client::open(server.own_url()).expect("its address is right");
    let mut connection = client.get_connection().expect("the server is up");
    let _: redis::Value = cmd.query(&mut connection).expect("the server answers");
}

/// Waits until there is a subscriber for permits.
async fn until_subscribed(server: &RedisServer) {
    let channel = in_slot("redisson_sc", "exports");
    eventually(PATIENCE, "somebody listens", async || {
        server.pubsub_channels().contains(&channel)
    })
    .await;
}
