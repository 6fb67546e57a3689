//! Foreign data under the lock's name: it is reported, and left alone.

use std::time::Duration;

use distlock::{Error, Lease, LostReason};

use super::support::{RedisServer, eventually, simulated};
use super::{PATIENCE, checked_message_of, connect};

/// Makes a foreign owner hold the lock.
pub(crate) fn hold_as_stranger(server: &RedisServer, name: &str, ttl: Duration) {
    server.cmd(&["HSET", name, "5b3e1d7c-0000-4000-8000-000000000000:1", "1"]);
    server.cmd(&["PEXPIRE", name, &ttl.as_millis().to_string()]);
}

pub(crate) fn assert_wrong_kind(name: &str, error: Error) {
    let error = checked_message_of(name, error);
    assert!(matches!(error, Error::WrongKind { .. }), "{error:?}");
    // The message names the way out.
    assert!(error.to_string().contains("another name"), "{error}");
    assert!(!error.is_transient());
}

#[test]
fn a_key_of_another_type_is_reported_and_unchanged() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let unscripted = connect(&format!("{}?scripts=off", server.url())).await;
        let no_text = r"return redis.call('HSET', KEYS[1], '\255\254', '\253')";
        let foreign: [(&str, &[&str]); 6] = [
            ("no text", &["EVAL", no_text, "1", "no text"]),
            ("string", &["SET", "string", "theirs"]),
            ("list", &["RPUSH", "list", "theirs"]),
            ("set", &["SADD", "set", "theirs"]),
            ("zset", &["ZADD", "zset", "1", "theirs"]),
            ("a customer", &["HSET", "a customer", "visits", "7"]),
        ];
        for (name, make) in foreign {
            server.cmd(make);
            let before = server.contents(name);
            let lock = client.lock(name);
            assert_wrong_kind(name, lock.acquire().await.unwrap_err());
            assert_wrong_kind(name, lock.try_acquire().await.unwrap_err());
            assert_wrong_kind(name, lock.acquire_timeout(PATIENCE).await.unwrap_err());
            let (admin, owner) = (client.admin(), client.new_owner());
            let owned = lock.with_owner(&owner);
            assert_wrong_kind(name, owned.acquire().await.unwrap_err());
            assert_wrong_kind(name, admin.inspect(name).await.unwrap_err());
            assert_wrong_kind(name, admin.force_release(name).await.unwrap_err());
            assert!(admin.list("*").await.unwrap().is_empty());
            let seen = unscripted.admin().inspect(name).await;
            assert_wrong_kind(name, seen.unwrap_err());
            assert!(unscripted.admin().list("*").await.unwrap().is_empty());
            let simple = client.simple_lock(name).try_acquire().await;
            if name == "string" {
                // The key may be a lock of another library: then that library holds it.
                assert!(simple.unwrap().is_none());
            } else {
                assert_wrong_kind(name, simple.unwrap_err());
            }
            let after = server.contents(name);
            assert_eq!(before, after, "`{name}` was changed");
            assert_eq!(server.pttl(name), -1);
        }
        assert_eq!(server.keys().len(), foreign.len());
    });
}

#[test]
fn an_overwritten_lock_is_lost_and_the_new_data_unchanged() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let lease = Lease::KeepAlive(Duration::from_millis(9000));
        let guard = client
            .lock("trampled")
            .with_lease(lease)
            .acquire()
            .await
            .unwrap();
        server.cmd(&["SET", "trampled", "theirs"]);
        eventually(PATIENCE, "the holder is warned", async || {
            guard.at_risk().is_some() || !guard.is_held()
        })
        .await;
        let lost = tokio::time::timeout(PATIENCE, guard.lost()).await.unwrap();
        // The loss is noticed at the first renewal that finds it, not at the end of the lease.
        assert_eq!(lost.map(|lost| lost.reason), Some(LostReason::Removed));
        let error = checked_message_of("trampled", guard.release().await.unwrap_err());
        assert!(matches!(error, Error::Lost { .. }), "{error:?}");
        assert_eq!(server.query::<String>(&["GET", "trampled"]), "theirs");

        let guard = client.lock("trampled too").acquire().await.unwrap();
        server.cmd(&["SET", "trampled too", "theirs"]);
        assert_wrong_kind("trampled too", guard.release().await.unwrap_err());
        assert_eq!(server.query::<String>(&["GET", "trampled too"]), "theirs");
    });
}
