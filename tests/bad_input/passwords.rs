//! A password is never printed, in no error, no debug output and no event.

use std::fmt::Debug;
use std::time::Duration;

use distlock::{Client, Error, Lease};
use tokio::net::TcpListener;

use super::event_log::EventLog;
use super::support::{RedisServer, eventually};
use super::{PATIENCE, checked_message, connect};

/// The password, which must not be seen anywhere.
const CANARY: &str = "cAnArY-7Hq";

fn assert_hidden(what: &(impl Debug + ?Sized)) {
    for text in [format!("{what:?}"), format!("{what:#?}")] {
        assert!(!text.contains(CANARY), "{text}");
    }
}

fn hidden(error: Error) -> Error {
    assert!(!error.to_string().contains(CANARY), "{error}");
    assert_hidden(&error);
    checked_message(error)
}

fn user(server: &RedisServer) {
    let password = format!(">{CANARY}");
    server.cmd(&[
        "ACL", "SETUSER", "billing", "on", &password, "~*", "&*", "+@all",
    ]);
}

fn url(server: &RedisServer, credentials: &str) -> String {
    format!("redis://{credentials}@127.0.0.1:{}/", server.port())
}

#[tokio::test]
async fn a_wrong_or_missing_password_is_refused_at_connect() {
    let server = RedisServer::start_with(&["--requirepass", "right"]);
    user(&server);
    for credentials in [
        format!(":{CANARY}"),
        format!("default:{CANARY}"),
        format!("billing:{CANARY}x"),
        format!("nobody:{CANARY}"),
        "billing".to_owned(),
        "default".to_owned(),
    ] {
        let url = url(&server, &credentials);
        let error = match Client::connect(&url).await {
            Ok(_) => panic!("`{credentials}` was let in"),
            Err(error) => hidden(error),
        };
        assert!(matches!(error, Error::PermissionDenied { .. }), "{error:?}");
        assert!(error.to_string().contains("127.0.0.1"), "{error}");
        assert!(!error.is_transient());
    }
    let error = match Client::connect(&server.url()).await {
        Ok(_) => panic!("let in without a password"),
        Err(error) => hidden(error),
    };
    assert!(matches!(error, Error::PermissionDenied { .. }), "{error:?}");
}

#[tokio::test]
async fn a_user_without_a_password_is_not_taken_for_another() {
    let server = RedisServer::start();
    server.cmd(&[
        "ACL", "SETUSER", "guest", "on", "nopass", "~*", "&*", "+@all", "-evalsha",
    ]);
    match Client::connect(&url(&server, "guest")).await {
        Ok(client) => {
            let outcome = client.lock("guest's").acquire().await;
            let error = checked_message(outcome.expect_err("guests may not run scripts"));
            assert!(matches!(error, Error::PermissionDenied { .. }), "{error:?}");
        }
        // To be told that it needs one would do as well.
        Err(error) => assert!(!checked_message(error).is_transient()),
    }
}

#[tokio::test]
async fn a_password_through_a_socket_is_refused_as_well() {
    let server = RedisServer::start_with(&["--requirepass", "right"]);
    let socket = server.socket_path();
    let url = format!("redis+unix://{}?pass={CANARY}&db=1", socket.display());
    let error = hidden(
        Client::connect(&url)
            .await
            .expect_err("it is the wrong one"),
    );
    assert!(matches!(error, Error::PermissionDenied { .. }), "{error:?}");
    let url = format!("redis+unix://{}?pass=right", socket.display());
    Client::connect(&url).await.expect("it is the right one");
}

#[tokio::test]
async fn a_plus_in_a_password_is_a_plus() {
    let server = RedisServer::start();
    server.cmd(&["ACL", "SETUSER", "c+", "on", ">a+b", "~*", "&*", "+@all"]);
    let socket = format!("redis+unix://{}", server.socket_path().display());
    for url in [
        format!("{socket}?user=c+&pass=a+b"),
        format!("{socket}?db=1&%70ass=a%2Bb&user=c%2b"),
        url(&server, "c+:a+b"),
    ] {
        Client::connect(&url).await.expect("it is the right one");
    }
}

#[tokio::test]
async fn a_password_is_hidden_in_invalid_addresses() {
    for url in [
        format!("redis://:{CANARY}@"),
        format!("redis://u:{CANARY}@h:port/0"),
        format!("redis://u:{CANARY}@h/zero"),
        format!("redis://u:{CANARY}@h/0?x=1"),
        format!("rediss://u:{CANARY}@h/0"),
        format!("http://u:{CANARY}@h/0"),
        format!("redis:u:{CANARY}@h"),
        format!("u:{CANARY}@h"),
        format!("{CANARY}@h"),
        // Characters that should have been escaped.
        format!("redis://u:{CANARY}/x@h/0"),
        format!("redis://u:1/{CANARY}@h/0"),
        format!("redis://u:1?{CANARY}@h/0"),
        format!("redis://u:1?x={CANARY}@h/0"),
        format!("redis://u:1#{CANARY}@h/zero"),
        format!("redis://u:a@{CANARY}@h/zero"),
        format!("redis+unix:///s?pass={CANARY}&db=x"),
        format!("redis+unix:///s?password={CANARY}"),
        format!("redis+unix:///s?PASS={CANARY}"),
        format!("redis+unix:///s?%70ass={CANARY}&db=x"),
        format!("redis+unix://u:{CANARY}@/s?db=x"),
        format!("http://u:1\\{CANARY}@h/0"),
        format!("https:\\\\u:1\\{CANARY}@h/0"),
        format!("ws:u:1\\{CANARY}@h/0"),
        format!("mongodb:{CANARY}"),
        format!("http://u:1/{CANARY}"),
        // The rest of the password would be a master's name.
        format!("redis-sentinel://u:/{CANARY}@h/0"),
        format!("redis-sentinel://u:1/m/{CANARY}@h"),
        // The host was forgotten.
        format!("redis://u:1/{CANARY}"),
        format!("redis://u:{CANARY}"),
        format!("redis://:{CANARY}"),
        format!("redis://:{CANARY}/0"),
    ] {
        assert_hidden(&Client::builder(&url));
        let outcome = Client::connect(&url).await;
        hidden(
            outcome
                .err()
                .unwrap_or_else(|| panic!("connected to {url}")),
        );
    }
}

/// A server that looks like a sentinel may be any server.
#[tokio::test]
async fn a_possible_password_is_not_sent_as_a_master_name() {
    let listening = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listening.local_addr().unwrap().port();
    let url = format!("redis-sentinel://127.0.0.1:{port}/{CANARY}@h/0");
    let error = tokio::select! {
        biased;
        _ = listening.accept() => panic!("it connects"),
        connected = Client::connect(&url) => connected.expect_err("it is refused"),
    };
    let error = hidden(error);
    assert!(matches!(error, Error::InvalidUrl { .. }), "{error:?}");
    assert!(error.to_string().contains("%40"), "{error}");
}

#[tokio::test]
async fn a_password_is_hidden_in_everything_a_client_shows() {
    let event_log = EventLog::open();
    let server = RedisServer::start();
    user(&server);
    // One that needs escaping as well.
    let awkward = format!("{CANARY}/@:%?#& é");
    let escaped = format!("{CANARY}%2F%40%3A%25%3F%23%26%20%C3%A9");
    server.cmd(&["ACL", "SETUSER", "billing", &format!(">{awkward}")]);
    for password in [CANARY, &escaped] {
        let builder = Client::builder(&url(&server, &format!("billing:{password}")));
        assert_hidden(&builder);
        let client = builder.connect().await.expect("it is the right one");
        let lease = Lease::KeepAlive(Duration::from_secs(6));
        let lock = client.lock("canary's lock").with_lease(lease);
        let guard = lock.acquire().await.unwrap();
        let waiting = tokio::spawn(lock.acquire());
        tokio::task::yield_now().await;
        for shown in [
            &client as &dyn Debug,
            &lock,
            &guard,
            &client.admin(),
            &guard.held(),
            &guard.lost(),
        ] {
            assert_hidden(shown);
        }
        eventually(PATIENCE, "a renewal is heard of", async || {
            !event_log.lines_with(&["TRACE", &guard.owner()]).is_empty()
        })
        .await;
        guard.release().await.unwrap();
        drop(waiting.await.unwrap().unwrap());
        // Connections are made anew, with the password.
        server.kill_normal_clients();
        server.kill_pubsub_clients();
        let _ = lock.try_acquire().await.map_err(hidden);
        lock.acquire().await.unwrap().release().await.unwrap();
        // And refused.
        server.cmd(&["ACL", "SETUSER", "billing", "off"]);
        server.kill_normal_clients();
        for _ in 0..3 {
            hidden(lock.acquire().await.expect_err("the user is off"));
        }
        server.cmd(&["ACL", "SETUSER", "billing", "on"]);
        client.close().await.unwrap();
    }
    assert!(
        !event_log
            .lines_with(&["canary's lock", "granted"])
            .is_empty(),
        "nothing was said"
    );
    let leaks = event_log.lines_with(&[CANARY]);
    assert!(leaks.is_empty(), "{leaks:?}");
}

#[tokio::test]
async fn connections_and_releases_are_logged_without_the_password() {
    let event_log = EventLog::open();
    let server = RedisServer::start();
    user(&server);
    let place = format!("127.0.0.1:{}", server.port());
    let client = Client::connect(&url(&server, &format!("billing:{CANARY}"))).await;
    let client = client.expect("it is the right one");
    let guard = client.lock("told of").acquire().await.unwrap();
    let owner = guard.owner();
    guard.release().await.unwrap();
    let told = |words: &[&str]| !event_log.lines_with(words).is_empty();
    assert!(told(&["connected", &place, "again=false"]));
    assert!(told(&["released", "told of", &owner]));
    let held = connect(&server.url()).await.lock("told of").acquire().await;
    let waiting = tokio::spawn(client.lock("told of").acquire());
    eventually(PATIENCE, "it listens", async || {
        server.kill_pubsub_clients() > 0
    })
    .await;
    eventually(PATIENCE, "it listens again", async || {
        let connected = event_log.lines_with(&["subscriber connected", "channels=1", &place]);
        connected.len() >= 2 && told(&["subscriber disconnected", "error=", &place])
    })
    .await;
    drop((held, waiting));
    server.kill();
    client.lock("told of").try_acquire().await.unwrap_err();
    eventually(PATIENCE, "it cannot connect", async || {
        told(&["cannot connect", &place])
    })
    .await;
    assert!(!event_log.text().contains(CANARY));
}
