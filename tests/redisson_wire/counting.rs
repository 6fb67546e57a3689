//! Redisson's counting semaphore: its key, its messages, and the keys that Java has written.

use std::time::Duration;

use distlock::Error;

use super::support::java::{Java, Subscriber, in_slot};
use super::support::{RedisServer, eventually};
use super::{PATIENCE, assert_just_set, connect};

const NONE: Vec<Vec<u8>> = Vec::new();
/// The time to live of distlock's private keys.
const MINUTES: Duration = Duration::from_secs(5 * 60);

fn channel(name: &str) -> String {
    in_slot("redisson_sc", name)
}

/// Returns the keys without distlock's private ones, each of which expires.
fn keys(server: &RedisServer) -> Vec<String> {
    let mut keys = server.keys();
    keys.retain(|key| {
        let ours = key.starts_with("distlock_");
        if ours {
            let pttl = server.pttl(key);
            assert!(
                (0..=i64::try_from(MINUTES.as_millis()).unwrap()).contains(&pttl),
                "{key}"
            );
        }
        !ours
    });
    keys
}

#[tokio::test]
async fn a_counting_semaphore_is_a_number_and_publishes_the_available_permits() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let mut ear = Subscriber::start(&server, &channel("slots")).await;
    assert_eq!(channel("slots"), "redisson_sc:{slots}");
    let slots = client.counting_semaphore("slots");
    assert!(slots.try_set(3).await.unwrap());
    assert_eq!(keys(&server), ["slots"]);
    assert_eq!(server.query::<String>(&["GET", "slots"]), "3");
    assert_eq!(server.pttl("slots"), -1, "as long as the user likes");
    assert_eq!(ear.rest(&server).await, [b"3"]);
    slots.acquire(2).await.unwrap();
    assert!(!slots.try_acquire(2).await.unwrap());
    assert_eq!(server.query::<String>(&["GET", "slots"]), "1");
    assert_eq!(ear.rest(&server).await, NONE);
    slots.release(2).await.unwrap();
    assert_eq!(ear.rest(&server).await, [b"3"], "not how many more");
    assert_eq!(slots.drain().await.unwrap(), 3);
    assert_eq!(server.query::<String>(&["GET", "slots"]), "0");
    slots.set_available(12).await.unwrap();
    assert_eq!(ear.rest(&server).await, [b"12"]);
    assert!(slots.delete().await.unwrap());
    assert_eq!(keys(&server), Vec::<String>::new());
    assert_eq!(ear.rest(&server).await, NONE);
    ear.unsubscribe().await;
}

#[tokio::test]
async fn requests_of_a_counting_semaphore_are_stored_only_while_in_flight() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let slots = client.counting_semaphore("slots");
    slots.try_set(1).await.unwrap();
    let room = || {
        let all = server.keys();
        let done = all
            .iter()
            .find(|key| key.starts_with("distlock_done:{slots}:"));
        let done = done.expect("it is kept for minutes");
        assert_just_set(server.pttl(done), MINUTES);
        server.query::<u64>(&["ZCARD", done])
    };
    for _ in 0..100 {
        slots.acquire(1).await.unwrap();
        slots.release(1).await.unwrap();
    }
    assert!(room() <= 3, "{}", room());
    // One waiter waits all the while, and is queued.
    let big = {
        let slots = client.counting_semaphore("slots");
        tokio::spawn(async move { slots.acquire(1000).await })
    };
    eventually(PATIENCE, "it stands in line", async || {
        server.keys().contains(&"distlock_line:{slots}".to_owned())
    })
    .await;
    for _ in 0..100 {
        slots.release(1).await.unwrap();
        let refused = slots.try_acquire(1).await.unwrap();
        assert!(!refused, "others are first");
    }
    assert!(room() <= 3, "{}", room());
    big.abort();
    eventually(PATIENCE, "it has left", async || {
        slots.try_acquire(101).await.unwrap()
    })
    .await;
}

/// Java's scripts, as the server sees them.
#[tokio::test]
async fn permits_pass_from_distlock_to_redisson_and_back() {
    let server = RedisServer::start();
    let (client, java) = (connect(&server).await, Java::start(&server).await);
    let slots = client.counting_semaphore("slots");
    assert_eq!(java_sets(&java, "slots", "2").await, 1);
    assert!(!slots.try_set(9).await.unwrap());
    slots.acquire(2).await.unwrap();
    assert_eq!(java_takes(&java, "slots", "1").await, 0);
    slots.release(1).await.unwrap();
    assert_eq!(java_takes(&java, "slots", "1").await, 1);
    let waiting = {
        let slots = client.counting_semaphore("slots");
        tokio::spawn(async move { slots.acquire(2).await })
    };
    eventually(PATIENCE, "it listens", async || {
        server.pubsub_channels().contains(&channel("slots"))
    })
    .await;
    java_gives_back(&java, "slots", "2").await;
    let had = tokio::time::timeout(PATIENCE, waiting).await;
    had.expect("there are two").unwrap().unwrap();
    assert_eq!(server.query::<String>(&["GET", "slots"]), "0");
}

/// D21: a Redisson waiter sends another request only when a message arrives.
#[tokio::test]
async fn d21_a_lost_message_blocks_no_waiter_for_permits() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    client.counting_semaphore("slots").try_set(0).await.unwrap();
    for many in [1, 2] {
        let slots = client.counting_semaphore("slots");
        let waiting = tokio::spawn(async move { slots.acquire(many).await });
        eventually(PATIENCE, "it listens", async || {
            !server.pubsub_channels().is_empty()
        })
        .await;
        // No message is published.
        server.cmd(&["INCRBY", "slots", &many.to_string()]);
        let ended = tokio::time::timeout(PATIENCE, waiting).await;
        ended.expect("it asks by itself").unwrap().unwrap();
    }
}

/// Redisson's `addPermits` and `drainPermits` drop the time to live, and publish a number to Java's waiters on which they fail.
#[tokio::test]
async fn d37_a_time_to_live_is_kept_and_no_negative_number_is_published() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let slots = client.counting_semaphore("slots");
    let mut ear = Subscriber::start(&server, &channel("slots")).await;
    server.cmd(&["SET", "slots", "5", "PX", "60000"]);
    slots.add(2).await.unwrap();
    slots.acquire(1).await.unwrap();
    slots.release(1).await.unwrap();
    assert_eq!(ear.rest(&server).await, [b"7", b"7"]);
    assert_eq!(slots.drain().await.unwrap(), 7);
    slots.add(-3).await.unwrap();
    assert_eq!(slots.available().await.unwrap(), -3);
    slots.add(1).await.unwrap();
    slots.release(2).await.unwrap();
    assert_eq!(ear.rest(&server).await, NONE, "there is nothing to be had");
    slots.set_available(4).await.unwrap();
    assert_eq!(ear.rest(&server).await, [b"4"]);
    assert_just_set(server.pttl("slots"), Duration::from_secs(60));
    ear.unsubscribe().await;
}

#[tokio::test]
async fn a_foreign_value_is_a_number_of_permits_or_rejected() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let slots = client.counting_semaphore("slots");
    for no_number in ["", "many", "1.5", "007", "-0", " 1", "9007199254740993"] {
        server.cmd(&["SET", "slots", no_number]);
        for refused in [
            slots.acquire(1).await,
            slots.acquire(2).await,
            slots.release(1).await,
            slots.available().await.map(drop),
            slots.drain().await.map(drop),
        ] {
            let told = matches!(&refused, Err(Error::WrongKind { name, .. }) if &**name == "slots");
            assert!(told, "{no_number:?}: {refused:?}");
        }
        assert_eq!(server.query::<String>(&["GET", "slots"]), no_number);
    }
    server.cmd(&["SET", "slots", "-4"]);
    assert_eq!(slots.available().await.unwrap(), -4);
}

async fn java_sets(java: &Java, name: &str, permits: &str) -> i64 {
    let script = "local v = redis.call('get', KEYS[1]); if v == false then \
                  redis.call('set', KEYS[1], ARGV[1]); redis.call('publish', KEYS[2], ARGV[1]); \
                  return 1 end; return 0";
    java.eval(script, &[name, &channel(name)], &[permits]).await
}

async fn java_takes(java: &Java, name: &str, permits: &str) -> i64 {
    let script = "local v = redis.call('get', KEYS[1]); \
                  if v ~= false and tonumber(v) >= tonumber(ARGV[1]) then \
                  redis.call('decrby', KEYS[1], ARGV[1]); return 1 end; return 0";
    java.eval(script, &[name], &[permits]).await
}

async fn java_gives_back(java: &Java, name: &str, permits: &str) {
    let script = "local v = redis.call('incrby', KEYS[1], ARGV[1]); \
                  redis.call('publish', KEYS[2], v)";
    java.eval::<()>(script, &[name, &channel(name)], &[permits])
        .await;
}
