//! Addresses that lead to no cluster, and what is said of them.

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use distlock::{Client, Error};

use super::support::{Cluster, RedisServer};
use super::{beside, connect, patient};

/// Why it cannot be connected to. No secret is in it.
async fn refused(url: &str) -> Error {
    let builder = Client::builder(url).connect_timeout(Duration::from_secs(5));
    let Err(error) = builder.connect().await else {
        panic!("connected to {url}");
    };
    let told = format!("{error} {error:?}");
    assert!(!told.contains("secret"), "{told}");
    error
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_is_refused_with_the_reason() {
    for (url, why) in [
        ("redis-cluster://", "host"),
        ("redis-cluster://h1,,h2", "host"),
        ("redis-cluster://h1:port,h2", "port"),
        ("redis-cluster://h1,h2/1", "one database, and that is 0"),
        ("redis-cluster://h1,h2?db=1", "before the question mark"),
        ("redis-cluster://h1,h2?scripts=off", "need scripts"),
        (
            "redis-cluster://h1,h2?pubsub=loud",
            "`plain`, `sharded` or `both`",
        ),
        (
            "redis-cluster://h1,h2?colour=secret",
            "pubsub, tls, ca, cert and key are known",
        ),
        ("redis-cluster://u:secret@h1,h2#x", "%23"),
        ("redis://h1/0?pubsub=both", "unknown parameter `pubsub`"),
    ] {
        let error = refused(url).await;
        assert!(matches!(error, Error::InvalidUrl { .. }), "{error:?}");
        assert!(error.to_string().contains(why), "`{why}` is not in {error}");
        assert!(!error.is_transient());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_are_not_there_are_named_each_with_its_reason() {
    let unused = || {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        port.local_addr().expect("it has one")
    };
    let (one, other) = (unused(), unused());
    let error = refused(&format!("redis-cluster://u:secret@{one},{other}")).await;
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    for at in [one, other] {
        assert!(error.to_string().contains(&at.to_string()), "{error}");
    }
}

/// Not when the first lock is given back. That there are such servers shows where the tests run on one: `scripts/matrix`.
#[tokio::test(flavor = "multi_thread")]
async fn channels_that_servers_do_not_know_are_refused_at_once() {
    let cluster = Cluster::start_masters();
    let known = beside(|| cluster.is_sharded());
    for manner in ["sharded", "both"] {
        let url = format!("{}?pubsub={manner}", cluster.url());
        let told = patient(&url)
            .connect()
            .await
            .map_err(|error| error.to_string());
        assert_eq!(told.is_ok(), known, "{manner}");
        assert!(
            told.err()
                .is_none_or(|told| told.contains("leave `pubsub` out"))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_alone_and_one_of_many_are_told_apart() {
    let alone = RedisServer::start();
    // One who may not ask for slots is told that.
    let error = refused(&alone.own_url().replace("redis:", "redis-cluster:")).await;
    assert!(matches!(error, Error::InvalidUrl { .. }), "{error:?}");
    assert!(error.to_string().contains("`redis://`"), "{error}");

    let cluster = Cluster::start_masters().stay();
    let one = &cluster.servers()[0];
    let client = patient(&one.url()).connect().await.expect("it is up");
    let mut elsewhere = 0;
    for number in 0..10 {
        match client.lock(format!("lock-{number}")).try_acquire().await {
            Ok(Some(guard)) => guard.release().await.expect("it is ours"),
            Err(error @ Error::Storage { .. }) => {
                assert!(error.to_string().contains("`redis-cluster://`"), "{error}");
                elsewhere += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(elsewhere > 0, "not all of them are in its slots");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_of_the_address_is_enough() {
    let cluster = Cluster::start_masters();
    let unused = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let nobody = unused.local_addr().expect("it has one");
    drop(unused);
    let one = cluster.servers()[2].addr();
    let url = format!("redis-cluster://{nobody},{one}");
    let client = patient(&url).connect().await.expect("one of them is up");
    let other = connect(&cluster).await;
    for number in 0..10 {
        let name = format!("lock-{number}");
        let guard = client.lock(&*name).acquire().await.expect("it is free");
        let busy = other.lock(&*name).try_acquire().await;
        assert!(busy.expect("it answers").is_none());
        guard.release().await.expect("it is ours");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_is_for_all_of_them() {
    let cluster =
        Cluster::start_masters_with(&["--requirepass", "secret", "--masterauth", "secret"]);
    let error = refused(&cluster.url()).await;
    assert!(matches!(error, Error::PermissionDenied { .. }), "{error:?}");
    let url = cluster.url_as(":secret@");
    let client = patient(&url).connect().await.expect("it is right");
    for name in ["a", "b", "c"] {
        let guard = client.lock(name).acquire().await.expect("it is free");
        guard.release().await.expect("it is ours");
    }
}
