//! Addresses that do not lead to a cluster, and the errors that say so.

use distlock::Error;

use super::{connect, connect_to, release};
use crate::support::{Cluster, RedisServer, builder, simulated};

/// Returns the error of the connection attempt, and checks that it contains no secret.
async fn refused(url: &str) -> Error {
    let Err(error) = builder(url).connect().await else {
        panic!("connected to {url}");
    };
    let told = format!("{error} {error:?}");
    assert!(!told.contains("secret"), "{told}");
    error
}

#[test]
fn an_invalid_address_is_rejected_with_the_reason() {
    simulated(async || {
        for (url, why) in [
            ("redis-cluster://", "host"),
            ("redis-cluster://h1,,h2", "host"),
            ("redis-cluster://h1:port,h2", "port"),
            ("redis-cluster://h1,h2/1", "only database 0"),
            ("redis-cluster://h1,h2?db=1", "before the question mark"),
            ("redis-cluster://h1,h2?scripts=off", "need scripts"),
            (
                "redis-cluster://h1,h2?pubsub=loud",
                "`plain`, `sharded` or `both`",
            ),
            (
                "redis-cluster://h1,h2?colour=secret",
                "pubsub, tls, ca, cert and key",
            ),
            ("redis-cluster://u:secret@h1,h2#x", "%23"),
            ("redis://h1/0?pubsub=both", "unknown parameter `pubsub`"),
        ] {
            let error = refused(url).await;
            assert!(matches!(error, Error::InvalidUrl { .. }), "{error:?}");
            assert!(error.to_string().contains(why), "`{why}` is not in {error}");
            assert!(!error.is_transient());
        }
        // Unreachable servers are named, each with its reason.
        let error = refused("redis-cluster://u:secret@one:1,other:2").await;
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        for at in ["one:1", "other:2"] {
            assert!(error.to_string().contains(at), "{error}");
        }
    });
}

#[test]
fn a_standalone_server_and_a_cluster_node_are_distinguished() {
    simulated(async || {
        let alone = RedisServer::start();
        let error = refused(&alone.own_url().replace("redis:", "redis-cluster:")).await;
        assert!(matches!(error, Error::InvalidUrl { .. }), "{error:?}");
        assert!(error.to_string().contains("`redis://`"), "{error}");

        let cluster = Cluster::start_masters();
        let client = connect_to(&cluster.redis()[0].url()).await;
        for master in 0..3 {
            match client.lock(cluster.name_at(master)).try_acquire().await {
                Ok(Some(guard)) if master == 0 => release(guard).await,
                Err(error @ Error::Storage { .. }) if master > 0 => {
                    assert!(error.to_string().contains("`redis-cluster://`"), "{error}");
                }
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn one_reachable_server_of_the_address_is_enough() {
    simulated(async || {
        let cluster = Cluster::start_masters();
        let one = cluster.redis()[2].addr();
        let client = connect_to(&format!("redis-cluster://nobody:1,{one}")).await;
        let other = connect(&cluster).await;
        for master in 0..3 {
            let name = cluster.name_at(master);
            let guard = client.lock(&*name).acquire().await.expect("it is free");
            let busy = other.lock(&*name).try_acquire().await;
            assert!(busy.expect("it answers").is_none());
            release(guard).await;
        }
    });
}

#[test]
fn a_password_applies_to_all_nodes() {
    simulated(async || {
        let cluster = Cluster::start_masters();
        for server in cluster.redis() {
            server.cmd(&["ACL", "SETUSER", "default", "resetpass", ">secret"]);
        }
        let error = refused(&cluster.url()).await;
        assert!(matches!(error, Error::PermissionDenied { .. }), "{error:?}");
        let client = connect_to(&cluster.url_as(":secret@")).await;
        for master in 0..3 {
            let lock = client.lock(cluster.name_at(master));
            release(lock.acquire().await.expect("it is free")).await;
        }
    });
}
