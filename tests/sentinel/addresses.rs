//! Addresses that lead to no master, and what is said of them.

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use distlock::{Client, Error};
use tokio::time::timeout;

use super::support::sentinel::MASTER;
use super::support::{ChaosProxy, RedisServer, Topology, eventually};
use super::{PATIENCE, beside, held_at, patient, slow_to_greet};

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
        (
            "redis-sentinel://h1,h2/",
            "no master; try redis-sentinel://",
        ),
        ("redis-sentinel://h1,h2", "no master"),
        ("redis-sentinel://h1,h2//0", "no master"),
        ("redis-sentinel:///m/0", "host"),
        ("redis-sentinel://h1,,h2/m", "host"),
        ("redis-sentinel://h1:port,h2/m", "port"),
        (
            "redis-sentinel://h1,h2/m/zero",
            "the database must be a number",
        ),
        (
            "redis-sentinel://h1,h2/m/0/1",
            "the database must be a number",
        ),
        ("redis-sentinel://h1,h2/m?db=1", "before the question mark"),
        (
            "redis-sentinel://h1,h2/m?colour=secret",
            "sentinel_pass, scripts, tls, ca, cert and key are known",
        ),
        ("redis-sentinel://u:secret@h1,h2/m#x", "%23"),
        (
            "redis://h1/0?sentinel_pass=secret",
            "unknown parameter `sentinel_pass`; db",
        ),
    ] {
        let error = refused(url).await;
        assert!(matches!(error, Error::InvalidUrl { .. }), "{error:?}");
        assert!(error.to_string().contains(why), "`{why}` is not in {error}");
        assert!(!error.is_transient());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_that_are_not_there_are_named_each_with_its_reason() {
    let mut ports = Vec::new();
    for _ in 0..2 {
        // Bound and given back: nobody listens there now.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        ports.push(listener.local_addr().expect("it has one").port());
    }
    let url = format!(
        "redis-sentinel://u:secret@127.0.0.1:{},localhost:{}/m/0",
        ports[0], ports[1]
    );
    let error = refused(&url).await;
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(error.is_transient());
    let text = error.to_string();
    for port in &ports {
        let masked = text.replacen(&port.to_string(), "", 1);
        assert!(masked.contains(&port.to_string()), "said of each: {text}");
    }
    assert!(text.contains("no sentinel says where `m` is"), "{text}");
    // Who may wait for them connects later.
    let later = Client::builder(&url).may_be_down(true).connect().await;
    later.expect("they may come");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_sentinel_is_said_to_be_none() {
    let server = RedisServer::start();
    let url = format!("redis-sentinel://{}/m", server.addr());
    let error = refused(&url).await;
    assert!(matches!(error, Error::Storage { .. }), "{error:?}");
    assert!(error.to_string().contains("is no sentinel"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn passwords_are_the_sentinels_or_the_servers() {
    let topology = Topology::start_guarded("secret-of-servers", "secret-of-sentinels");
    let all = topology.url_as(":secret-of-servers@");

    // A name that nobody knows.
    let unknown = format!("{all}?sentinel_pass=secret-of-sentinels");
    let unknown = unknown.replace(MASTER, "nobody");
    eventually(PATIENCE, "all of them say so in time", async || {
        let error = refused(&unknown).await;
        assert!(matches!(error, Error::InvalidUrl { .. }), "{error:?}");
        let told = error.to_string();
        assert!(told.contains("no master named `nobody`"), "{told}");
        let mut hosts = topology.sentinels().iter().map(RedisServer::addr);
        hosts.all(|host| told.contains(&format!("{host}: no such master")))
    })
    .await;

    for (parameters, said) in [
        ("", "it asks for a password of its own: ?sentinel_pass="),
        ("?sentinel_pass=secret-but-wrong", "WRONGPASS"),
        (
            "?sentinel_user=secret-user&sentinel_pass=secret-of-sentinels",
            "WRONGPASS",
        ),
    ] {
        let error = refused(&format!("{all}{parameters}")).await;
        assert!(matches!(error, Error::PermissionDenied { .. }), "{error:?}");
        assert!(
            error.to_string().contains(said),
            "`{said}` is not in {error}"
        );
        assert!(!error.is_transient());
    }
    for login in ["", ":secret-but-wrong@", "secret-user:secret-of-servers@"] {
        let url = format!(
            "{}?sentinel_pass=secret-of-sentinels",
            topology.url_as(login)
        );
        let error = refused(&url).await;
        assert!(matches!(error, Error::PermissionDenied { .. }), "{error:?}");
    }

    let url = format!("{all}?sentinel_user=default&sentinel_pass=secret%2Dof-sentinels");
    let client = patient(&url).connect().await.expect("everything is right");
    assert!(!format!("{client:?}").contains("secret"), "{client:?}");
    let guard = client.lock("guarded").acquire().await.expect("it is free");
    let (_, new) = beside(|| topology.kill_master());
    guard.release().await.expect("it is still ours");
    assert_eq!(beside(|| held_at(new)), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_is_the_same_on_every_master() {
    let topology = Topology::start();
    let url = topology.url().replace("/0", "/3");
    let client = patient(&url).connect().await.expect("it is up");
    let guard = client.lock("third").acquire().await.expect("it is free");
    let (_, new) = beside(|| topology.kill_master());
    let keyspace = || beside(|| new.query::<String>(&["INFO", "keyspace"]));
    assert!(keyspace().contains("db3:keys=1"), "{}", keyspace());
    guard.release().await.expect("it is still ours");
    assert!(!keyspace().contains("db3"), "{}", keyspace());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lines_to_copy_lead_where_they_say() {
    const PAGE: &str = include_str!("../../docs/connecting.md");
    let lines = PAGE
        .lines()
        .filter(|line| line.starts_with("redis-sentinel://"));
    // Those over TLS are tried where there are certificates.
    let mut lines = lines.filter(|line| !line.contains("tls=on"));
    let line = lines.next().expect("there is one");
    assert_eq!(lines.next(), None, "one that nobody tries");
    let topology = Topology::start_guarded("another", "w0rd");
    let mut url = line.to_owned();
    for (sentinel, host) in topology.sentinels().iter().zip(1..) {
        let written = format!("10.0.0.{host}:26379");
        assert!(url.contains(&written), "{url}");
        url = url.replace(&written, &sentinel.addr().to_string());
    }
    beside(|| {
        for server in topology.servers() {
            server.cmd(&[
                "ACL", "SETUSER", "app", "on", ">s3cr/et", "~*", "&*", "+@all",
            ]);
        }
    });
    let client = patient(&url).connect().await.expect("everything is right");
    let guard = client.lock("copied").acquire().await.expect("it is free");
    guard.release().await.expect("it is ours");
}

/// How long connecting may take is the user's to say; a sentinel to which it takes longer than an answer may is slow, not silent.
#[tokio::test(flavor = "multi_thread")]
async fn sentinels_that_are_slow_to_greet_are_waited_for() {
    let topology = beside(Topology::start);
    let proxies = slow_to_greet(&topology, [1500; 3]);
    let addresses: Vec<_> = proxies.iter().map(ChaosProxy::addr).collect();
    takes_a_lock(&topology.url_at("", &addresses), PATIENCE / 2).await;
    let slow = proxies.iter().filter(|proxy| !proxy.injected().is_empty());
    assert!(slow.count() > 1, "nobody had to wait");
}

/// But not by those whom another has told where the master is.
#[tokio::test(flavor = "multi_thread")]
async fn sentinels_that_never_greet_keep_nobody_waiting() {
    let topology = beside(Topology::start);
    let [_, silent @ ..] = topology.sentinels() else {
        panic!("there are three");
    };
    for sentinel in silent {
        sentinel.stop_process();
    }
    // Sooner than one that hangs is tried anew.
    takes_a_lock(&topology.url(), Duration::from_secs(8)).await;
    for sentinel in silent {
        sentinel.continue_process();
    }
}

/// Nor is somebody who has mistyped its name.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_nobody_knows_is_told_though_a_sentinel_never_greets() {
    let topology = beside(Topology::start);
    let silent = &topology.sentinels()[0];
    silent.stop_process();
    let url = topology.url().replace(MASTER, "nobody");
    let connecting = timeout(PATIENCE / 2, patient(&url).connect()).await;
    silent.continue_process();
    let Err(error) = connecting.expect("soon") else {
        panic!("there is no such master");
    };
    assert!(matches!(error, Error::InvalidUrl { .. }), "{error:?}");
    let not_heard = format!("{}: not heard yet", silent.addr());
    assert!(error.to_string().contains(&not_heard), "{error}");
}

/// One that has forgotten the master does not speak for those who are slow.
#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_that_knows_no_such_master_is_outvoted_by_slow_ones() {
    let topology = beside(Topology::start);
    beside(|| topology.sentinels()[0].cmd(&["SENTINEL", "REMOVE", MASTER]));
    let proxies = slow_to_greet(&topology, [0, 1500, 1500]);
    let addresses: Vec<_> = proxies.iter().map(ChaosProxy::addr).collect();
    takes_a_lock(&topology.url_at("", &addresses), PATIENCE / 2).await;
}

/// Sooner than this.
async fn takes_a_lock(url: &str, limit: Duration) {
    let client = timeout(limit, patient(url).connect()).await;
    let client = client.expect("soon").expect("they answer in time");
    let guard = client.lock("slow").acquire().await.expect("it is free");
    guard.release().await.expect("it is ours");
}
