//! A server without memory grants nothing new, and every hold can still be released.

use std::time::Duration;

use distlock::{Error, Lease};

use super::support::{ChaosProxy, Fault, Match, RedisServer, eventually, simulated};
use super::{PATIENCE, checked_message_of, connect};

/// Limits the server to less memory than it has used already.
pub(crate) fn fill(server: &RedisServer) {
    server.config_set("maxmemory", "100kb");
}

pub(crate) fn assert_out_of_memory(name: &str, error: Error) {
    let error = checked_message_of(name, error);
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error:?}");
    assert!(error.to_string().contains("raise its limit"), "{error}");
    assert!(error.is_transient());
}

fn lease(millis: u64) -> Lease {
    Lease::KeepAlive(Duration::from_millis(millis))
}

#[test]
fn a_server_out_of_memory_grants_nothing_and_accepts_releases() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let me = client.new_owner();
        let nested = client.lock("nested").with_owner(&me);
        let (outer, inner) = (
            nested.acquire().await.unwrap(),
            nested.acquire().await.unwrap(),
        );
        let whole = client.lock("whole").acquire().await.unwrap();
        let dropped = client.lock("dropped").acquire().await.unwrap();
        let kept = client
            .lock("kept")
            .with_lease(lease(6000))
            .acquire()
            .await
            .unwrap();
        let fixed = client
            .lock("fixed")
            .with_lease(Lease::Fixed(Duration::from_secs(30)));
        let fixed = fixed.acquire().await.unwrap();
        fill(&server);

        let lock = client.lock("new");
        assert_out_of_memory("new", lock.acquire().await.unwrap_err());
        assert_out_of_memory("new", lock.try_acquire().await.unwrap_err());
        assert_out_of_memory("new", lock.acquire_timeout(PATIENCE).await.unwrap_err());

        // The reply that the lock is busy needs no memory.
        assert!(client.lock("whole").try_acquire().await.unwrap().is_none());
        // Releases in part and wholly, by call and by drop.
        inner
            .release()
            .await
            .expect("a partial release needs no memory");
        assert_eq!(server.hgetall("nested").get(&outer.owner()).unwrap(), "1");
        outer.release().await.expect("a release needs no memory");
        whole.release().await.expect("a release needs no memory");
        drop(dropped);
        fixed
            .extend(Duration::from_secs(60))
            .await
            .expect("an extension needs no memory");
        assert!(server.pttl("fixed") > 50_000);
        let renewals = server.commandstats("pexpire");
        eventually(PATIENCE, "it is renewed", async || {
            server.commandstats("pexpire") > renewals + 1
        })
        .await;
        assert!(kept.is_held() && kept.at_risk().is_none());
        assert!(
            client
                .admin()
                .force_release("fixed")
                .await
                .expect("nor does force")
        );
        eventually(PATIENCE, "only one lock is left", async || {
            let keys = server.keys();
            keys.iter()
                .filter(|key| !key.starts_with("blob:"))
                .eq(["kept"])
        })
        .await;
        kept.release().await.unwrap();
        drop(fixed);
    });
}

#[test]
fn a_held_lock_can_be_re_entered_out_of_memory() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let me = client.new_owner();
        // Reentered with the same lease as before, and with a shorter one.
        for (name, first) in [("same", lease(30_000)), ("shorter", lease(600_000))] {
            let outer = client.lock(name).with_owner(&me).with_lease(first);
            let _outer = outer.acquire().await.unwrap();
            fill(&server);
            let inner = client.lock(name).with_owner(&me).with_lease(lease(30_000));
            let inner = inner
                .acquire()
                .await
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(server.hgetall(name).get(&inner.owner()).unwrap(), "2");
            server.config_set("maxmemory", "0");
        }
    });
}

#[test]
fn a_waiter_gets_an_error_when_the_lock_is_free_but_memory_is_full() {
    simulated(async || {
        let server = RedisServer::start();
        let (holder, waiter) = (connect(&server.url()).await, connect(&server.url()).await);
        let held = holder.lock("waited").acquire().await.unwrap();
        let waiting = tokio::spawn(waiter.lock("waited").acquire());
        eventually(PATIENCE, "it waits", async || {
            !server.pubsub_channels().is_empty()
        })
        .await;
        fill(&server);
        held.release().await.unwrap();
        let ended = tokio::time::timeout(PATIENCE, waiting)
            .await
            .unwrap()
            .unwrap();
        assert_out_of_memory("waited", ended.unwrap_err());
    });
}

#[test]
fn an_acquire_in_doubt_is_undone_out_of_memory() {
    simulated(async || {
        let server = RedisServer::start();
        let proxy = ChaosProxy::start(server.addr());
        let client = connect(&proxy.url()).await;
        client
            .lock("warm")
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        // The grant must be visible before it is undone.
        let wait = Duration::from_secs(3);

        // The request is executed, but its reply never arrives.
        proxy.rule(Match::command("EVALSHA").nth(1), Fault::HoldReply);
        let asking = tokio::spawn(client.lock("granted").acquire_timeout(wait));
        eventually(PATIENCE, "the server has granted it", async || {
            server.keys() == ["granted"]
        })
        .await;
        fill(&server);
        let error = checked_message_of("granted", asking.await.unwrap().unwrap_err());
        assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
        eventually(PATIENCE, "it was taken back", async || {
            !server.keys().contains(&"granted".to_owned())
        })
        .await;
        proxy.deliver_held();

        // The request is not executed yet: a tombstone must keep it from ever being executed.
        proxy.rule(
            Match::command("EVALSHA").arg(3, "late").nth(1),
            Fault::HoldRequest,
        );
        let error = client.lock("late").acquire_timeout(wait).await.unwrap_err();
        assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
        let mark = "distlock_undone:{late}";
        eventually(PATIENCE, "a mark was left", async || {
            server.keys().contains(&mark.to_owned())
        })
        .await;
        server.config_set("maxmemory", "0");
        let arrived = server.commandstats("evalsha");
        proxy.deliver_held();
        eventually(PATIENCE, "the request has arrived", async || {
            server.commandstats("evalsha") > arrived
        })
        .await;
        assert!(!server.keys().contains(&"late".to_owned()), "a ghost");
    });
}
