//! Redisson's counter of fencing tokens: it continues from distlock's tokens, and distlock from its.

use distlock::{Client, Error, FencingToken, Guard};

use super::support::{RedisServer, eventually};
use super::{PATIENCE, connect, connect_to, leaves_nothing};

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

/// Redisson acquires a lock by HINCRBY and INCR.
#[tokio::test]
async fn redisson_continues_from_our_counter_and_distlock_from_redissons() {
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

/// The counter was overwritten: the next token might be less than an earlier one.
#[tokio::test]
async fn a_counter_that_cannot_be_incremented_is_rejected_and_unchanged() {
    let server = RedisServer::start();
    for scripts in ["", "?scripts=off"] {
        let client = connect_with(&server, scripts).await;
        // Beyond 2^53 some integers have no exact value in Lua, and at 2^63 the integers of Redis end.
        for counter in [
            "text",
            "1.5",
            "08",
            "9007199254740991",
            "9007199254740993",
            "9223372036854775807",
        ] {
            server.cmd(&["SET", COUNTER, counter]);
            let refused = client.fenced_lock("order").try_acquire().await;
            let refused = refused.expect_err(counter);
            assert!(matches!(refused, Error::WrongKind { .. }), "{refused:?}");
            let said = refused.to_string();
            assert!(said.contains("redisson_lock_token:{NAME}"), "{said}");
            assert!(said.contains("docs/fencing.md"), "{said}");
            assert_eq!(server.query::<String>(&["GET", COUNTER]), counter);
            assert_eq!(server.keys(), [COUNTER], "nothing is held");
        }
        // The counter is set while the lock is held: the holder keeps the lock, and releases it although another client waits.
        server.cmd(&["DEL", COUNTER]);
        let held = take(&client).await;
        let waiting = tokio::spawn(client.fenced_lock("order").acquire());
        eventually(PATIENCE, "it waits", async || {
            format!("{client:?}").contains("waiting: 1")
        })
        .await;
        server.cmd(&["SET", COUNTER, "text"]);
        held.release().await.expect("it is ours");
        let refused = waiting.await.expect("no panic").expect_err("no token");
        assert!(matches!(refused, Error::WrongKind { .. }), "{refused:?}");
        server.cmd(&["DEL", COUNTER]);
        leaves_nothing(&server, client).await;
    }
}

/// If Redisson has counted from 1 all along, distlock's tokens are far ahead, and Redisson's next ones are too.
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

/// Redisson's MultiLock sets a time to live on every key of a lock.
#[tokio::test]
async fn a_counter_with_an_expiry_loses_it_with_the_next_grant() {
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

/// The token is greater than the server's own time: only what the client has seen keeps the tokens increasing.
#[tokio::test]
async fn a_client_that_has_seen_a_token_gets_a_greater_one_from_a_server_that_forgot() {
    for parameters in WAYS {
        for forget in FORGETTING {
            let server = RedisServer::start();
            let client = connect_with(&server, parameters).await;
            let ahead = far_ahead(&server);
            let guard = take(&client).await;
            assert_eq!(guard.token().number(), ahead + 1);
            forget(&server);
            drop(guard);
            let guard = take_in_time(&client).await;
            assert_eq!(guard.token().number(), ahead + 2, "{parameters}");
        }
    }
}

#[tokio::test]
async fn a_client_that_has_seen_no_token_starts_from_the_server_clock() {
    for parameters in WAYS {
        for forget in FORGETTING {
            let server = RedisServer::start();
            let token = take(&connect_with(&server, parameters).await).await.token();
            forget(&server);
            let again = take(&connect_with(&server, parameters).await).await.token();
            assert!(again > token, "{again} after {token}");
        }
    }
}

/// The replica has the counter as it was before those grants.
#[tokio::test]
async fn a_replica_that_is_promoted_without_the_last_grants_gives_greater_tokens() {
    let (primary, replica) = (RedisServer::start(), RedisServer::start());
    let port = primary.port().to_string();
    let before = take(&connect(&primary).await).await.token();
    replica.cmd(&["REPLICAOF", "127.0.0.1", &port]);
    eventually(PATIENCE, "it has the counter", async || {
        counter(&replica) == Some(before.number())
    })
    .await;
    replica.cmd(&["REPLICAOF", "NO", "ONE"]);
    primary.cmd(&["DEL", "order"]);
    let last = take(&connect(&primary).await).await.token();
    assert_eq!(counter(&replica), Some(before.number()), "it missed that");
    replica.cmd(&["DEL", "order"]);
    let next = take(&connect(&replica).await).await.token();
    assert!(next > last, "{next} after {last}");
}

/// The release hands the lock off to the next waiter of the same client in one step.
#[tokio::test]
async fn a_handed_off_lock_has_a_greater_token_though_the_counter_was_set_back() {
    for parameters in WAYS {
        let server = RedisServer::start();
        let client = connect_with(&server, parameters).await;
        let ahead = far_ahead(&server);
        let guard = take(&client).await;
        let next = tokio::spawn(client.fenced_lock("order").acquire());
        tokio::task::yield_now().await;
        server.cmd(&["SET", COUNTER, "5"]);
        guard.release().await.unwrap();
        let next = tokio::time::timeout(PATIENCE, next).await;
        let next = next.expect("it is free").unwrap().unwrap();
        assert_eq!(next.token().number(), ahead + 2, "{parameters}");
        assert_eq!(counter(&server), Some(ahead + 2));
    }
}

/// A hold keeps its token, whatever happens to the counter meanwhile.
#[tokio::test]
async fn an_owner_that_re_enters_keeps_its_token_though_the_counter_was_deleted() {
    for parameters in WAYS {
        let server = RedisServer::start();
        let client = connect_with(&server, parameters).await;
        let me = client.new_owner();
        let lock = client.fenced_lock("order").with_owner(&me);
        let outer = lock.acquire().await.unwrap();
        server.cmd(&["DEL", COUNTER]);
        let inner = lock.acquire().await.unwrap();
        assert_eq!(inner.token(), outer.token());
        drop((inner, outer));
        let next = lock.acquire_timeout(PATIENCE).await.unwrap().unwrap();
        assert!(Some(next.token().number()) == counter(&server));
    }
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

/// A token that a client has seen of one lock is not sent with a request for another.
#[tokio::test]
async fn a_counter_near_its_maximum_affects_only_its_own_lock() {
    for parameters in WAYS {
        let server = RedisServer::start();
        let clients = [
            connect_with(&server, parameters).await,
            connect_with(&server, parameters).await,
        ];
        server.cmd(&["SET", COUNTER, "9007199254740989"]);
        let guard = take(&clients[0]).await;
        assert_eq!(guard.token().number(), 9_007_199_254_740_990);
        guard.release().await.unwrap();
        for client in &clients {
            for name in ["other", "another"] {
                let guard = client.fenced_lock(name).acquire().await.unwrap();
                let token = guard.token().number();
                assert!(token < LONG_AWAY, "{parameters} {name}: {token}");
                guard.release().await.unwrap();
            }
        }
        let guard = take(&clients[1]).await;
        assert_eq!(guard.token().number(), 9_007_199_254_740_991);
        guard.release().await.unwrap();
        for client in &clients {
            let refused = client.fenced_lock("order").try_acquire().await;
            let refused = refused.expect_err("its tokens have come to their end");
            assert!(matches!(refused, Error::WrongKind { .. }), "{refused:?}");
            let other = client.fenced_lock("other").acquire().await.unwrap();
            other.release().await.unwrap();
        }
        // A counter that is repaired in the store is repaired for all clients, whatever they have seen.
        server.cmd(&["DEL", COUNTER]);
        for client in &clients {
            let guard = take(client).await;
            assert!(guard.token().number() < LONG_AWAY, "{parameters}");
            guard.release().await.unwrap();
        }
    }
}

/// Runs the script that returns tokens, on a server whose clock is wrong for a while.
#[test]
fn a_clock_beyond_the_last_token_is_an_error_and_leaves_no_counter() {
    let server = RedisServer::start();
    let script = format!(
        "local server = redis
         local redis = {{
           call = function(command, ...)
             if command == 'TIME' then return {{ARGV[1], '7'}} end
             return server.call(command, ...)
           end,
           pcall = server.pcall, error_reply = server.error_reply,
         }}
         {}
         local token, wrong = new_token(KEYS[1], '0')
         return wrong and wrong.err or token",
        include_str!("../../src/engine/redis/lua/fenced/token.lua")
    );
    let at = |seconds| -> String { server.query(&["EVAL", &script, "1", COUNTER, seconds]) };
    let refused = at("9007199255");
    assert!(refused.contains("clock of the server"), "{refused}");
    assert!(server.keys().is_empty(), "nothing is left of it");
    assert_eq!(at("9007199254"), "9007199254000007", "the last second");
    server.cmd(&["DEL", COUNTER]);
    assert_eq!(at("1795000000"), "1795000000000007");
}

/// The year 2096.
const LONG_AWAY: u64 = 4_000_000_000_000_000;

/// Sets a counter an hour in the future, as from a server whose clock was wrong.
fn far_ahead(server: &RedisServer) -> u64 {
    let (seconds, _): (u64, u64) = server.query(&["TIME"]);
    let ahead = (seconds + 3_600) * 1_000_000;
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

/// Acquires the lock like `take`, on a server that was away: the first request may be lost with the connection.
async fn take_in_time(client: &Client) -> Guard<distlock::Fenced> {
    let mut taken = None;
    eventually(PATIENCE, "the server is back", async || {
        taken = client.fenced_lock("order").try_acquire().await.ok();
        taken.is_some()
    })
    .await;
    taken.flatten().expect("it is free")
}

async fn connect_with(server: &RedisServer, parameters: &str) -> Client {
    connect_to(&(server.url() + parameters)).await
}

/// Parameters with scripts, and without.
const WAYS: [&str; 2] = ["", "?scripts=off"];

/// The ways in which a server loses all its data: by a command, and by a restart without persistence.
const FORGETTING: [fn(&RedisServer); 2] = [RedisServer::flushall, RedisServer::restart];
