//! Addresses that do not lead to a master, and their errors.

use std::time::Duration;

use distlock::Error;
use tokio::time::timeout;

use super::{PATIENCE, held_at, patient, slow_to_greet};
use crate::support::sentinel::{MASTER, host};
use crate::support::{RedisServer, Topology, builder, simulated};

/// Returns the error of the connection attempt, and checks that it contains no secret.
async fn refused(url: &str) -> Error {
    let builder = builder(url).connect_timeout(Duration::from_secs(5));
    let Err(error) = builder.connect().await else {
        panic!("connected to {url}");
    };
    let told = format!("{error} {error:?}");
    assert!(!told.contains("secret"), "{told}");
    error
}

#[test]
fn an_invalid_sentinel_address_is_rejected_with_the_reason() {
    simulated(async || {
        let numeric = "the database must be a number";
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
            ("redis-sentinel://h1,h2/m/zero", numeric),
            ("redis-sentinel://h1,h2/m/0/1", numeric),
            ("redis-sentinel://h1,h2/m?db=1", "before the question mark"),
            (
                "redis-sentinel://h1,h2/m?colour=secret",
                "sentinel_pass, scripts, tls, ca, cert and key",
            ),
            ("redis-sentinel://u:secret@h1,h2/m#x", "%23"),
            (
                "redis://h1/0?sentinel_pass=secret",
                "unknown parameter `sentinel_pass`; supported parameters are db",
            ),
        ] {
            let error = refused(url).await;
            assert!(matches!(error, Error::InvalidUrl { .. }), "{error:?}");
            assert!(error.to_string().contains(why), "`{why}` is not in {error}");
            assert!(!error.is_transient());
        }
    });
}

#[test]
fn missing_sentinels_are_named_each_with_its_reason() {
    simulated(async || {
        let url = "redis-sentinel://u:secret@nobody:1,nowhere:2/m/0";
        let error = refused(url).await;
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        assert!(error.is_transient());
        let text = error.to_string();
        for part in [
            "nobody:1",
            "nowhere:2",
            "no sentinel reports the address of the master `m`",
        ] {
            assert!(text.contains(part), "{text}");
        }
        let later = builder(url).lazy_connect(true).connect().await;
        later.expect("they may come");
    });
}

#[test]
fn a_server_that_is_no_sentinel_is_reported_as_such() {
    simulated(async || {
        let server = RedisServer::start();
        let error = refused(&format!("redis-sentinel://{}/m", server.addr())).await;
        assert!(matches!(error, Error::Storage { .. }), "{error:?}");
        assert!(error.to_string().contains("is not a sentinel"), "{error}");
    });
}

#[test]
fn passwords_apply_to_sentinels_or_servers() {
    simulated(async || {
        let topology = Topology::start_guarded("secret-of-servers", "secret-of-sentinels").await;
        let all = topology.url_as(":secret-of-servers@");
        let unknown = format!("{all}?sentinel_pass=secret-of-sentinels");
        let error = refused(&unknown.replace(MASTER, "nobody")).await;
        assert!(matches!(error, Error::InvalidUrl { .. }), "{error:?}");
        let told = error.to_string();
        assert!(told.contains("no master named `nobody`"), "{told}");
        for sentinel in topology.sentinels() {
            let said = format!("{}:26379: no such master", host(sentinel));
            assert!(told.contains(&said), "{told}");
        }
        let denied = async |url: String, said: &str| {
            let error = refused(&url).await;
            let is_denied = matches!(error, Error::PermissionDenied { .. });
            assert!(is_denied && !error.is_transient(), "{error:?}");
            assert!(error.to_string().contains(said), "{said}: {error}");
        };
        let own = "the sentinel requires a password of its own: ?sentinel_pass=";
        denied(all.clone(), own).await;
        let wrong = "?sentinel_pass=secret-but-wrong";
        denied(all.clone() + wrong, "WRONGPASS").await;
        let user = "?sentinel_user=secret-user&sentinel_pass=secret-of-sentinels";
        denied(all.clone() + user, "WRONGPASS").await;
        for login in ["", ":secret-but-wrong@", "secret-user:secret-of-servers@"] {
            let url = topology.url_as(login) + "?sentinel_pass=secret-of-sentinels";
            denied(url, "").await;
        }
        let url = format!("{all}?sentinel_user=default&sentinel_pass=secret%2Dof-sentinels");
        let client = patient(&url).connect().await.expect("everything is right");
        assert!(!format!("{client:?}").contains("secret"), "{client:?}");
        let guard = client.lock("guarded").acquire().await.expect("it is free");
        let (_, new) = topology.kill_master().await;
        guard.release().await.expect("it is still ours");
        assert_eq!(held_at(new), Vec::<String>::new());
    });
}

#[test]
fn a_database_is_the_same_on_every_master() {
    simulated(async || {
        let topology = Topology::start().await;
        let url = topology.url().replace("/0", "/3");
        let client = patient(&url).connect().await.expect("it is up");
        let guard = client.lock("third").acquire().await.expect("it is free");
        let (_, new) = topology.kill_master().await;
        let keyspace = || new.query::<String>(&["INFO", "keyspace"]);
        assert!(keyspace().contains("db3:keys=1"), "{}", keyspace());
        guard.release().await.expect("it is still ours");
        assert!(!keyspace().contains("db3"), "{}", keyspace());
    });
}

#[test]
fn the_documented_addresses_work() {
    const PAGE: &str = include_str!("../../docs/connecting.md");
    simulated(async || {
        let lines = PAGE.lines();
        let lines = lines.filter(|line| line.starts_with("redis-sentinel://"));
        // Lines with TLS are tested with certificates in `tests/tls`.
        let mut lines = lines.filter(|line| !line.contains("tls=on"));
        let mut url = lines.next().expect("there is one").to_owned();
        assert_eq!(lines.next(), None, "one that no test tries");
        let topology = Topology::start_guarded("another", "w0rd").await;
        for (sentinel, number) in topology.sentinels().iter().zip(1..) {
            let written = format!("10.0.0.{number}:26379");
            assert!(url.contains(&written), "{url}");
            url = url.replace(&written, &format!("{}:26379", host(sentinel)));
        }
        for server in topology.servers() {
            let user = ["ACL", "SETUSER", "app", "on", ">s3cr/et"];
            server.cmd(&[&user[..], &["~*", "&*", "+@all"]].concat());
        }
        takes_a_lock(&url, PATIENCE).await;
    });
}

/// The connect timeout is the user's; a sentinel that takes longer to connect to than a reply may take is slow, not silent.
#[test]
fn sentinels_with_a_slow_greeting_are_waited_for() {
    simulated(async || {
        let topology = Topology::start().await;
        slow_to_greet(&topology, [1500; 3]);
        takes_a_lock(&topology.url(), Duration::from_secs(3)).await;
    });
}

#[test]
fn sentinels_that_never_greet_block_no_caller() {
    simulated(async || {
        let topology = Topology::start().await;
        for silent in &topology.sentinels()[1..] {
            silent.stop_process();
        }
        // The others are waited for as long as a reply may take.
        takes_a_lock(&topology.url(), Duration::from_millis(1500)).await;
    });
}

#[test]
fn an_unknown_master_name_is_reported_though_a_sentinel_never_greets() {
    simulated(async || {
        let topology = Topology::start().await;
        let silent = &topology.sentinels()[0];
        silent.stop_process();
        let url = topology.url().replace(MASTER, "nobody");
        let soon = Duration::from_secs(2);
        let connecting = timeout(soon, patient(&url).connect()).await;
        let error = connecting
            .expect("soon")
            .expect_err("there is no such master");
        assert!(matches!(error, Error::InvalidUrl { .. }), "{error:?}");
        let not_heard = format!("{}:26379: no reply yet", host(silent));
        assert!(error.to_string().contains(&not_heard), "{error}");
    });
}

#[test]
fn a_sentinel_that_knows_no_such_master_is_outvoted_by_slow_ones() {
    simulated(async || {
        let topology = Topology::start().await;
        topology.sentinels()[0].cmd(&["SENTINEL", "REMOVE", MASTER]);
        slow_to_greet(&topology, [0, 1500, 1500]);
        takes_a_lock(&topology.url(), Duration::from_secs(3)).await;
    });
}

/// Connects within this limit.
async fn takes_a_lock(url: &str, limit: Duration) {
    let client = timeout(limit, patient(url).connect()).await;
    let client = client.expect("soon").expect("everything is right");
    let guard = client.lock("taken").acquire().await.expect("it is free");
    guard.release().await.expect("it is ours");
}
