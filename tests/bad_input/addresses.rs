//! Addresses that cannot be parsed, or at which no server replies.

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use distlock::{Client, Error};

use super::support::{ChaosProxy, Fault, Match, RedisServer};
use super::{checked_message, checked_message_of, connect};

async fn refused(url: &str) -> Error {
    let error = match Client::connect(url).await {
        Ok(_) => panic!("connected to {url}"),
        Err(error) => checked_message(error),
    };
    let text = error.to_string();
    // Text that may be a password is masked, even if it is not one.
    let named = text.starts_with(&format!("`{url}`: ")) || text.contains("***");
    assert!(named, "{text}");
    error
}

#[tokio::test]
async fn an_invalid_address_is_rejected_with_the_reason() {
    let far_too_big = format!("redis://127.0.0.1/{}", u128::MAX);
    for (url, why) in [
        ("", "no scheme"),
        ("garbage", "no scheme"),
        ("127.0.0.1:6379", "no scheme"),
        (
            "localhost:6379",
            "unknown scheme `localhost:`; use redis://",
        ),
        ("://", "no scheme"),
        ("http://127.0.0.1/", "unknown scheme `http:`; use redis://"),
        ("redis+sentinel://127.0.0.1/", "unknown scheme"),
        ("rediss://", "host"),
        ("rediss://127.0.0.1/?tls=off", "always uses TLS"),
        ("rediss://127.0.0.1/?tls=maybe", "`on` or `off`"),
        ("rediss://127.0.0.1/?cert=/c.pem", "`cert` needs its `key`"),
        ("rediss://127.0.0.1/?key=/k.pem", "`key` needs its `cert`"),
        ("rediss://127.0.0.1/?ca=", "`ca` must be the path of a file"),
        ("rediss://127.0.0.1/?insecure=true", "unknown parameter"),
        (
            "redis://127.0.0.1/?tls=on",
            "does not use TLS; use `rediss://`",
        ),
        (
            "redis://127.0.0.1/?ca=/ca.pem",
            "does not use TLS; use `rediss://`",
        ),
        (
            "redis+unix:///s?ca=/ca.pem",
            "does not use TLS; use `rediss://`",
        ),
        ("redis-cluster://127.0.0.1/1", "only database 0"),
        ("redis-sentinel://127.0.0.1/", "no master; try"),
        ("redis://", "host"),
        ("redis:", "host"),
        ("redis:///0", "host"),
        ("redis://127.0.0.1:99999/", "port"),
        ("redis://127.0.0.1:port/", "port"),
        ("redis://127.0.0.1:-1/", "port"),
        ("redis://127.0.0.1/zero", "the database must be a number"),
        ("redis://127.0.0.1/-1", "the database must be a number"),
        ("redis://127.0.0.1/1.5", "the database must be a number"),
        ("redis://127.0.0.1/0/1", "the database must be a number"),
        (&far_too_big, "the database must be a number"),
        ("redis://127.0.0.1/?db=1", "before the question mark"),
        (
            "redis://127.0.0.1/0?timeout=5",
            "unknown parameter `timeout`",
        ),
        ("redis://127.0.0.1/?scripts=maybe", "`on` or `off`"),
        ("redis+unix:", "no path"),
        ("redis+unix:///s?db=one", "the database must be a number"),
        (
            "redis+unix:///s?color=red",
            "unknown parameter `color`; supported parameters are db, user, pass, scripts, ca, cert and key",
        ),
        // The text after the question mark may be the rest of a password.
        (
            "redis://user:1?secret=x@127.0.0.1/",
            "unknown parameter; supported parameters are db",
        ),
        (
            "redis://user:1?secret=x&y@127.0.0.1/",
            "unknown parameter; supported parameters are db",
        ),
        (
            "redis+unix:///s?pass=ab&secret=x",
            "unknown parameter; supported parameters are db",
        ),
        (
            "redis://127.0.0.1/?=x",
            "unknown parameter; supported parameters are db",
        ),
        ("redis://[::1", "IPv6"),
        ("redis://a b/", "domain"),
    ] {
        let error = refused(url).await;
        assert!(matches!(error, Error::InvalidUrl { .. }), "{error:?}");
        let text = error.to_string().to_lowercase();
        assert!(
            text.contains(&why.to_lowercase()),
            "`{why}` is not in {text}"
        );
        assert!(!error.is_transient());
    }
}

#[tokio::test]
async fn a_database_the_server_does_not_have_is_refused() {
    let server = RedisServer::start();
    for database in ["16", "999999", "2147483648", "9223372036854775807"] {
        let error = refused(&format!("{}{database}", server.url())).await;
        assert!(matches!(error, Error::InvalidUrl { .. }), "{error:?}");
        assert!(error.to_string().contains("no such database"), "{error}");
    }
    let client = connect(&format!("{}15", server.url())).await;
    let guard = client.lock("fifteen").acquire().await.unwrap();
    let seen: String = server.query(&["INFO", "keyspace"]);
    assert!(seen.contains("db15:keys=1"), "{seen}");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_missing_server_is_unavailable_at_once() {
    // Bound and released again: no server listens on this port now.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let nobody = listener.local_addr().unwrap();
    drop(listener);
    for url in [
        format!("redis://{nobody}/"),
        "redis://no-such-host.invalid/".to_owned(),
        "redis+unix:///no/such/socket".to_owned(),
    ] {
        let error = refused(&url).await;
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        assert!(error.is_transient());
    }
}

#[tokio::test]
async fn a_server_that_is_not_redis_is_unavailable_within_the_timeout() {
    // This server accepts connections and never sends a byte.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("redis://{}/1", silent.local_addr().unwrap());
    let builder = Client::builder(&url).connect_timeout(Duration::from_millis(300));
    let connected = tokio::time::timeout(super::PATIENCE, builder.connect()).await;
    let error = checked_message_of(
        &url,
        connected.expect("it gives up").expect_err("nobody answers"),
    );
    let expected = matches!(error, Error::Unavailable { .. } | Error::Timeout { .. });
    assert!(expected, "{error:?}");
}

#[tokio::test]
async fn a_silent_server_fails_the_connect_also_without_a_database() {
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("redis://{}/", silent.local_addr().unwrap());
    let builder = Client::builder(&url)
        .connect_timeout(Duration::from_millis(300))
        .command_timeout(Duration::from_millis(300));
    let connecting = tokio::time::timeout(super::PATIENCE, builder.connect()).await;
    let error = connecting
        .expect("it gives up")
        .expect_err("nobody answers");
    checked_message_of(&url, error);
}

#[tokio::test]
async fn a_server_that_falls_silent_during_connect_times_out() {
    let server = RedisServer::start();
    for _ in 0..10 {
        let proxy = ChaosProxy::start(server.addr());
        // `INFO` is sent once the connection is up, to identify the server.
        proxy.rule(Match::command("INFO"), Fault::HoldRequest);
        let builder = Client::builder(&proxy.url())
            .connect_timeout(Duration::from_millis(300))
            .command_timeout(Duration::from_millis(300));
        let connecting = tokio::time::timeout(super::PATIENCE, builder.connect()).await;
        let error = connecting
            .expect("it does not hang")
            .expect_err("nobody answers");
        assert!(
            error.is_transient(),
            "{:?}",
            checked_message_of(&proxy.url(), error)
        );
        let held = proxy.injected();
        assert!(held.len() <= 2, "two questions, and only once: {held:?}");
        if held.len() == 2 {
            return;
        }
    }
    panic!("it is never there on so busy a machine");
}

/// A TLS port closes a connection on which it reads plain text; so does a server that restarts.
#[tokio::test]
async fn tls_is_suggested_only_before_the_first_connection() {
    let server = RedisServer::start();
    let proxy = ChaosProxy::start(server.addr());
    let client = connect(&proxy.url()).await;
    drop(client.lock("known").acquire().await.unwrap());
    proxy.refuse(true);
    proxy.cut_all();
    let never = refused(&proxy.url()).await.to_string();
    assert!(never.contains("rediss://"), "{never}");
    for _ in 0..3 {
        let again = client.lock("known").try_acquire().await.unwrap_err();
        assert!(!again.to_string().contains("TLS"), "{again}");
    }
}

#[tokio::test]
async fn valid_addresses_are_parsed() {
    let server = RedisServer::start();
    let (port, socket) = (server.port(), server.socket_path());
    let socket = socket.display();
    for url in [
        format!("redis://127.0.0.1:{port}"),
        format!("redis://127.0.0.1:{port}/"),
        format!("redis://127.0.0.1:{port}/0"),
        format!("redis://localhost:{port}/3"),
        format!("REDIS://127.0.0.1:{port}/"),
        format!("redis+unix://{socket}"),
        format!("redis+unix://{socket}?db=2"),
        format!("redis+unix:{socket}"),
    ] {
        let client = Client::connect(&url).await;
        let client = client.unwrap_or_else(|error| panic!("{error}"));
        client
            .lock("form")
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn an_ipv6_address_is_accepted() {
    // No server listens there, so the address is not invalid but unavailable.
    let url = format!("redis://[::1]:{}/", RedisServer::start().port());
    let error = refused(&url).await;
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}
