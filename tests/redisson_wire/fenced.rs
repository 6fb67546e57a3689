//! Redisson's counter of fencing tokens: it goes on from ours, and we from its.

use distlock::{Client, FencingToken, Guard};

use super::support::RedisServer;
use super::{connect, leaves_nothing};

const COUNTER: &str = "redisson_lock_token:{order}";

#[tokio::test]
async fn the_last_token_stays_in_redissons_counter_and_nothing_else_does() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let guard = take(&client).await;
    assert_eq!(counter(&server), Some(guard.token().number()));
    assert_eq!(server.pttl(COUNTER), -1, "it is for ever");
    assert_eq!(server.hgetall("order").len(), 1);
    guard.release().await.unwrap();
    assert_eq!(server.keys(), [COUNTER]);
    server.cmd(&["DEL", COUNTER]);
    leaves_nothing(&server, client).await;
}

#[tokio::test]
async fn a_name_with_a_brace_has_its_counter_where_redisson_has_it() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let guard = client.fenced_lock("a{b}c").acquire().await.unwrap();
    assert!(server.keys().contains(&"redisson_lock_token:a{b}c".into()));
    guard.release().await.unwrap();
}

/// It takes a lock by HINCRBY and INCR.
#[tokio::test]
async fn redisson_counts_on_from_ours_and_we_from_its() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let mut last = None;
    for _ in 0..3 {
        let guard = take(&client).await;
        assert!(Some(guard.token()) > last);
        last = Some(guard.token());
        guard.release().await.unwrap();
        let theirs: u64 = server.query(&["INCR", COUNTER]);
        assert!(Some(FencingToken::new(theirs)) > last);
        last = Some(FencingToken::new(theirs));
    }
}

/// Where it has counted from 1 all along, ours are far ahead, and its next ones are too.
#[tokio::test]
async fn a_small_counter_of_redissons_is_raised() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    server.cmd(&["SET", COUNTER, "41"]);
    let guard = take(&client).await;
    assert!(guard.token() > FencingToken::new(1_000_000_000_000_000));
    guard.release().await.unwrap();
    let theirs: u64 = server.query(&["INCR", COUNTER]);
    assert!(theirs > 1_000_000_000_000_000);
}

/// Its MultiLock does that to every key of a lock.
#[tokio::test]
async fn a_counter_that_was_given_an_end_loses_it_with_the_next_grant() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let ahead = far_ahead(&server);
    server.cmd(&["PEXPIRE", COUNTER, "60000"]);
    let guard = take(&client).await;
    assert_eq!(guard.token().number(), ahead + 1);
    assert_eq!(server.pttl(COUNTER), -1);
    guard.release().await.unwrap();
    server.cmd(&["SET", COUNTER, "1", "PX", "60000"]);
    let guard = take(&client).await;
    assert_eq!(server.pttl(COUNTER), -1);
    guard.release().await.unwrap();
}

/// Greater than the server's own time would be: only what the client has seen keeps it growing.
#[tokio::test]
async fn a_client_that_has_seen_a_token_gets_a_greater_one_from_a_server_that_forgot() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    let ahead = far_ahead(&server);
    let guard = take(&client).await;
    assert_eq!(guard.token().number(), ahead + 1);
    server.flushall();
    drop(guard);
    let guard = take(&client).await;
    assert_eq!(guard.token().number(), ahead + 2);
    // Also of another lock, and where it is passed on.
    let other = client.fenced_lock("other").acquire().await.unwrap();
    assert!(other.token() > guard.token());
}

#[tokio::test]
async fn a_client_that_has_seen_nothing_goes_by_the_servers_time() {
    let server = RedisServer::start();
    let token = take(&connect(&server).await).await.token();
    server.flushall();
    let again = take(&connect(&server).await).await.token();
    assert!(again > token, "{again} after {token}");
}

#[tokio::test]
async fn a_counter_of_another_type_is_an_error_and_nothing_is_held() {
    let server = RedisServer::start();
    let client = connect(&server).await;
    server.cmd(&["LPUSH", COUNTER, "1"]);
    let error = client.fenced_lock("order").acquire().await;
    let error = error.expect_err("there is no token to be had");
    assert!(
        matches!(error, distlock::Error::WrongKind { .. }),
        "{error}"
    );
    assert_eq!(server.keys(), [COUNTER]);
}

/// A counter in the future, as from a server whose clock was wrong.
fn far_ahead(server: &RedisServer) -> u64 {
    let ahead = 4_000_000_000_000_000;
    server.cmd(&["SET", COUNTER, &ahead.to_string()]);
    ahead
}

fn counter(server: &RedisServer) -> Option<u64> {
    server.query(&["GET", COUNTER])
}

async fn take(client: &Client) -> Guard<distlock::Fenced> {
    let taken = client.fenced_lock("order").try_acquire().await;
    taken.expect("the server answers").expect("it is free")
}
