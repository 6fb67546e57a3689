//! Other libraries that acquire the same lock on the same servers, represented by the keys that they write: `RedissonRedLock`, redsync and
//! node-redlock.

use std::time::Duration;

use super::{Format, LEASE, NAME, Stage, lock, on_all, staged};
use crate::support::{Fault, Match, RedisServer, simulated};

/// Acquires the lock as the other library does; returns whether it was granted.
fn foreign(server: &RedisServer, format: Format) -> bool {
    match format {
        // One random value on all servers.
        Format::Simple => {
            let set = &["SET", NAME, "q1J9T2hvdm5nYXJk", "NX", "PX", "60000"];
            server.query::<Option<String>>(set).is_some()
        }
        // Redisson's script: it grants the lock if it is free, or once more if the caller holds it.
        Format::Plain => {
            let script = "if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then \
                          redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return nil end \
                          return redis.call('pttl', KEYS[1])";
            let java = "8743c9c0-0795-4907-87fd-6c719a6b4586:1";
            let eval = &["EVAL", script, "1", NAME, "60000", java];
            server.query::<Option<i64>>(eval).is_none()
        }
    }
}

#[test]
fn a_client_with_a_majority_of_locks_excludes_us_and_one_with_fewer_does_not() {
    staged(async |stage, clients, format| {
        let lock = lock(&clients, format);
        for server in &stage.servers[..2] {
            assert!(foreign(server, format));
        }
        let taken = lock.try_acquire().await.expect("all answer");
        let guard = taken.expect("three are free");
        assert_eq!(guard.votes(), 3);
        guard.release().await.expect("three agree");
        assert_eq!(stage.holders(), [0, 1], "what is another's stays");
        assert!(foreign(&stage.servers[2], format));
        assert!(lock.try_acquire().await.expect("all answer").is_none());
        let wait = Duration::from_millis(1500);
        let taken = lock.acquire_timeout(wait).await.expect("all answer");
        assert!(taken.is_none(), "it asked again and again");
        stage.held_by(&[0, 1, 2]).await;
        // One of its holds ends, and the waiter acquires the lock.
        let waiting = tokio::spawn(lock.acquire());
        stage.servers[0].cmd(&["DEL", NAME]);
        let guard = waiting.await.expect("it ends").expect("all answer");
        assert_eq!(guard.votes(), 3);
    });
}

/// Near the deadline less time is left than a reply takes: the previous result stands.
#[test]
fn a_timed_out_waiter_over_a_slow_network_is_reported_busy() {
    simulated(async || {
        let stage = Stage::new();
        let (proxies, ours) = stage.proxied().await;
        let theirs = stage.clients().await;
        let _held = on_all(&lock(&theirs, Format::Plain)).await;
        let ours = lock(&ours, Format::Plain);
        assert!(ours.try_acquire().await.expect("all answer").is_none());
        for proxy in &proxies {
            let slow = Fault::DelayReply(Duration::from_millis(300));
            proxy.rule(Match::any(), slow);
        }
        let waited = ours.acquire_timeout(Duration::from_secs(2)).await;
        assert!(waited.expect("all answer").is_none());
    });
}

#[test]
fn our_holds_in_the_format_of_other_clients_exclude_them() {
    staged(async |stage, clients, format| {
        let guard = on_all(&lock(&clients, format)).await;
        for server in &stage.servers {
            assert!(!foreign(server, format), "it let another in");
            let left = u64::try_from(server.pttl(NAME)).expect("it ends");
            assert!((1..=LEASE.as_millis()).contains(&left.into()), "{left}");
            match format {
                Format::Simple => {
                    let value: String = server.query(&["GET", NAME]);
                    assert!(value.len() >= 16, "{value}");
                }
                Format::Plain => {
                    let fields: Vec<_> = server.hgetall(NAME).into_values().collect();
                    assert_eq!(fields, ["1"]);
                }
            }
        }
        guard.release().await.expect("all agree");
        for server in &stage.servers {
            assert!(foreign(server, format));
        }
    });
}
