//! Redisson's latch: its key, its messages, and the keys that Java has written.

use std::time::Duration;

use distlock::Error;

use super::support::java::{Java, Subscriber};
use super::support::{RedisServer, eventually};
use super::{PATIENCE, assert_just_set, connect};

const NONE: Vec<Vec<u8>> = Vec::new();
/// The time to live of distlock's private keys.
const MINUTES: Duration = Duration::from_secs(5 * 60);

fn channel(name: &str) -> String {
    format!("redisson_countdownlatch__channel__{{{name}}}")
}

/// Returns the keys without distlock's private ones, each of which expires.
fn keys(server: &RedisServer) -> Vec<String> {
    let mut keys = server.keys();
    keys.retain(|key| {
        let ours = key.starts_with("distlock_done:");
        if ours {
            assert_just_set(server.pttl(key), MINUTES);
        }
        !ours
    });
    keys
}

#[tokio::test]
async fn a_latch_is_a_number_and_its_messages_are_1_when_set_and_0_when_open() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let mut ear = Subscriber::start(&server, &channel("loaded")).await;
    let latch = client.latch("loaded");
    assert!(latch.try_set(2).await.unwrap());
    assert_eq!(keys(&server), ["loaded"]);
    assert_eq!(server.query::<String>(&["GET", "loaded"]), "2");
    assert_eq!(server.pttl("loaded"), -1, "as long as the user likes");
    assert_eq!(ear.rest(&server).await, [b"1"]);
    assert!(!latch.try_set(5).await.unwrap());
    assert_eq!(latch.count_down().await.unwrap(), 1);
    assert_eq!(server.query::<String>(&["GET", "loaded"]), "1");
    assert_eq!(ear.rest(&server).await, NONE);
    assert_eq!(latch.count_down().await.unwrap(), 0);
    assert_eq!(keys(&server), Vec::<String>::new());
    assert_eq!(ear.rest(&server).await, [b"0"]);
    assert_eq!(latch.count_down().await.unwrap(), 0);
    assert_eq!(
        keys(&server),
        Vec::<String>::new(),
        "an open one leaves nothing"
    );
    assert_eq!(ear.rest(&server).await, NONE);
    ear.unsubscribe().await;
}

#[tokio::test]
async fn requests_of_a_latch_are_stored_only_while_in_flight() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let latch = client.latch("loaded");
    latch.try_set(1000).await.unwrap();
    for _ in 0..200 {
        latch.count_down().await.unwrap();
    }
    let all = server.keys();
    let done = all
        .iter()
        .find(|key| key.starts_with("distlock_done:{loaded}:"));
    let done = done.expect("it is kept for minutes");
    // The last idempotency key, whose reply no client has acknowledged, and the acknowledged bound.
    assert_eq!(server.query::<u64>(&["ZCARD", done]), 2);
    assert_just_set(server.pttl(done), MINUTES);
    assert_eq!(all.len(), 2, "{all:?}");
}

/// Java's scripts, as the server sees them.
#[tokio::test]
async fn a_redisson_latch_is_counted_down_by_distlock_and_vice_versa() {
    let server = RedisServer::start();
    let (client, java) = (connect(&server).await, Java::start(&server).await);
    let latch = client.latch("loaded");
    let channel = channel("loaded");
    for round in 0..3 {
        assert_eq!(java_sets(&java, "loaded", "2").await, 1);
        assert!(!latch.try_set(9).await.unwrap(), "round {round}");
        let waiting = {
            let latch = client.latch("loaded");
            tokio::spawn(async move { latch.wait().await })
        };
        eventually(PATIENCE, "it listens", async || {
            server.pubsub_channels().contains(&channel)
        })
        .await;
        assert_eq!(latch.count_down().await.unwrap(), 1);
        java_counts_down(&java, "loaded").await;
        let ended = tokio::time::timeout(PATIENCE, waiting).await;
        ended.expect("it is open").unwrap().unwrap();
        assert_eq!(keys(&server), Vec::<String>::new());
    }
    assert!(latch.try_set(1).await.unwrap());
    assert_eq!(java_sets(&java, "loaded", "2").await, 0);
    java_counts_down(&java, "loaded").await;
    assert_eq!(latch.count().await.unwrap(), 0);
}

#[tokio::test]
async fn d22_a_redisson_waiter_continues_when_a_latch_is_deleted() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let latch = client.latch("loaded");
    latch.try_set(3).await.unwrap();
    let mut ear = Subscriber::start(&server, &channel("loaded")).await;
    assert!(latch.delete().await.unwrap());
    assert_eq!(ear.rest(&server).await, [b"0"], "1 would close its gate");
    assert!(!latch.delete().await.unwrap());
    assert_eq!(ear.rest(&server).await, NONE);
    ear.unsubscribe().await;
}

/// Redisson wraps a latch's name in braces whatever is in it, and makes a key of that: in a cluster a script may not use both. Distlock
/// publishes there, too, but uses no key outside the latch's slot.
#[tokio::test]
async fn d23_a_latch_with_braces_in_its_name_stays_in_its_slot() {
    // A server that refuses any command on two slots.
    let server = cluster().await;
    let client = connect(&server).await;
    for name in ["a{b}c", "{tag}:loaded", "foo{bar", "loaded"] {
        let mut ear = Subscriber::start(&server, &channel(name)).await;
        let latch = client.latch(name);
        assert!(latch.try_set(2).await.unwrap());
        let waiting = {
            let latch = client.latch(name);
            tokio::spawn(async move { latch.wait().await })
        };
        assert_eq!(latch.count_down().await.unwrap(), 1);
        assert_eq!(latch.count_down().await.unwrap(), 0);
        waiting.await.unwrap().unwrap();
        assert_eq!(ear.rest(&server).await, [b"1", b"0"], "{name}");
        let slot = |key: &str| server.query::<u64>(&["CLUSTER", "KEYSLOT", key]);
        let [private] = &*server.keys() else {
            panic!("what was done is kept: {:?}", server.keys())
        };
        assert_eq!(slot(private), slot(name), "{private} and {name}");
        server.flushall();
        ear.unsubscribe().await;
    }
    let script = "return redis.call('exists', KEYS[1])";
    let both = ["EVAL", script, "2", "a{b}c", &channel("a{b}c")];
    let refused = server.try_query::<i64>(&both).unwrap_err();
    assert!(
        refused.to_string().contains("slot"),
        "Redisson's way: {refused}"
    );
}

#[tokio::test]
async fn a_time_to_live_set_by_redisson_is_kept() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    server.cmd(&["SET", "loaded", "5", "PX", "60000"]);
    assert_eq!(client.latch("loaded").count_down().await.unwrap(), 4);
    assert_just_set(server.pttl("loaded"), Duration::from_secs(60));
}

#[tokio::test]
async fn a_foreign_value_is_a_count_or_rejected() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let latch = client.latch("loaded");
    // Java's `trySetCount(0)`: the latch is open, and set all the same.
    for open in ["0", "-3"] {
        server.cmd(&["SET", "loaded", open]);
        assert_eq!(latch.count().await.unwrap(), 0);
        latch.wait().await.unwrap();
        assert!(!latch.try_set(2).await.unwrap());
        assert_eq!(latch.count_down().await.unwrap(), 0);
        // The number may belong to another program.
        assert_eq!(server.query::<String>(&["GET", "loaded"]), open);
    }
    for no_count in ["", "soon", "1.5", "007", "-0", " 1", "9007199254740993"] {
        server.cmd(&["SET", "loaded", no_count]);
        for refused in [
            latch.count_down().await.map(drop),
            latch.try_set(1).await.map(drop),
            latch.wait().await,
        ] {
            let told =
                matches!(&refused, Err(Error::WrongKind { name, .. }) if &**name == "loaded");
            assert!(told, "{no_count:?}: {refused:?}");
        }
        assert_eq!(server.query::<String>(&["GET", "loaded"]), no_count);
    }
}

#[tokio::test]
async fn a_latch_without_waiters_has_no_subscription() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let latch = client.latch("loaded");
    latch.try_set(1).await.unwrap();
    let many = (0..50).map(|_| {
        let latch = client.latch("loaded");
        tokio::spawn(async move { latch.wait().await })
    });
    let many: Vec<_> = many.collect();
    eventually(PATIENCE, "they listen", async || {
        server.pubsub_channels() == [channel("loaded")]
    })
    .await;
    let one = server.query::<(String, u64)>(&["PUBSUB", "NUMSUB", &channel("loaded")]);
    assert_eq!(one.1, 1, "once for all of them");
    many.iter().for_each(tokio::task::JoinHandle::abort);
    eventually(PATIENCE, "they have left", async || {
        server.pubsub_channels().is_empty()
    })
    .await;
}

/// D21: a Redisson waiter polls again only when a message arrives.
#[tokio::test]
async fn d21_a_lost_message_blocks_no_waiter_for_a_latch() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let latch = client.latch("loaded");
    latch.try_set(1).await.unwrap();
    let waiting = {
        let latch = client.latch("loaded");
        tokio::spawn(async move { latch.wait().await })
    };
    eventually(PATIENCE, "it listens", async || {
        !server.pubsub_channels().is_empty()
    })
    .await;
    // No message is published.
    server.cmd(&["DEL", "loaded"]);
    let ended = tokio::time::timeout(PATIENCE, waiting).await;
    ended.expect("it looks by itself").unwrap().unwrap();
}

/// Starts a server that is the only node of a cluster.
async fn cluster() -> RedisServer {
    // Redis 6.2 has no option for either: the bus port is ten thousand higher, and each slot is listed.
    let server = RedisServer::start_with(&["--cluster-enabled", "yes"]);
    let slots: Vec<String> = (0..16_384).map(|slot| slot.to_string()).collect();
    let add = ["CLUSTER", "ADDSLOTS"].into_iter();
    server.cmd(
        &add.chain(slots.iter().map(String::as_str))
            .collect::<Vec<_>>(),
    );
    eventually(PATIENCE, "the cluster is up", async || {
        let info: String = server.query(&["CLUSTER", "INFO"]);
        info.contains("cluster_state:ok")
    })
    .await;
    server
}

async fn java_sets(java: &Java, name: &str, count: &str) -> i64 {
    let script = "if redis.call('exists', KEYS[1]) == 0 then redis.call('set', KEYS[1], ARGV[2]); \
                  redis.call('publish', KEYS[2], ARGV[1]); return 1 else return 0 end";
    java.eval(script, &[name, &channel(name)], &["1", count])
        .await
}

async fn java_counts_down(java: &Java, name: &str) {
    let script = "local v = redis.call('decr', KEYS[1]); \
                  if v <= 0 then redis.call('del', KEYS[1]) end; \
                  if v == 0 then redis.call('publish', KEYS[2], ARGV[1]) end;";
    java.eval::<()>(script, &[name, &channel(name)], &["0"])
        .await;
}
