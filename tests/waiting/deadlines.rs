//! One deadline covers everything a wait consists of: connecting, subscribing and requests.

use std::time::Duration;

use distlock::{Client, Error, Guard};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{
    STRANGER, connect, ended, granted, hold_as_stranger, release, release_as_stranger,
    until_listeners,
};
use crate::support::{ChaosProxy, Fault, Match, PATIENCE, RedisServer, eventually, simulated};

const WAIT: Duration = Duration::from_millis(2500);
/// Grace for a reply that is under way at the deadline.
const LAST_REPLY: Duration = Duration::from_millis(50 + 1);

/// Waits for [`WAIT`], and checks that it was neither shorter nor longer.
async fn on_time(
    waiting: impl Future<Output = Result<Option<Guard>, Error>> + Send,
) -> Result<Option<Guard>, Error> {
    let begun = Instant::now();
    let ended = waiting.await;
    let took = begun.elapsed();
    assert!(took >= WAIT && took <= WAIT + LAST_REPLY, "{took:?}");
    ended
}

fn assert_timeout(ended: Result<Option<Guard>, Error>) {
    let error = ended.expect_err("the store has not answered");
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
}

/// Returns a server behind a network that has delivered everything so far. The client's database is 1, so that connecting takes an exchange
/// with the server.
async fn proxied() -> (RedisServer, ChaosProxy, Client) {
    let server = RedisServer::start();
    let proxy = ChaosProxy::start(server.addr());
    let client = connect(&format!("{}1", proxy.url())).await;
    release(client.lock("warm").acquire().await.unwrap()).await;
    (server, proxy, client)
}

#[test]
fn the_deadline_covers_a_script_that_is_not_answered_and_connecting() {
    simulated(async || {
        let (_server, proxy, client) = proxied().await;
        proxy.partition(true);
        assert_timeout(on_time(client.lock("script").acquire_timeout(WAIT)).await);
        // Connections are still accepted, but nothing arrives on them.
        proxy.cut_all();
        eventually(PATIENCE, "the cut is noticed", async || {
            client.lock("notice").try_acquire().await.is_err()
        })
        .await;
        assert_timeout(on_time(client.lock("connect").acquire_timeout(WAIT)).await);
    });
}

#[test]
fn the_deadline_covers_subscribing() {
    simulated(async || {
        for command in ["SUBSCRIBE", "HELLO"] {
            let (server, proxy, client) = proxied().await;
            let hold = "redis.call('SELECT', 1) redis.call('HSET', KEYS[1], ARGV[1], 1) \
                        return redis.call('PEXPIRE', KEYS[1], 60000)";
            server.cmd(&["EVAL", hold, "1", "held", STRANGER]);
            proxy.rule(Match::command(command), Fault::HoldRequest);
            let ended = on_time(client.lock("held").acquire_timeout(WAIT)).await;
            // The waiter could not subscribe, but a reply said that another client holds the lock.
            assert!(ended.expect("the store has answered").is_none());
            let held = proxy.injected();
            assert!(held.iter().any(|held| held.contains(command)), "{held:?}");
            proxy.clear_rules();
            proxy.deliver_held();
            eventually(PATIENCE, "nobody listens any more", async || {
                server.pubsub_channels().is_empty()
            })
            .await;
        }
    });
}

#[test]
fn a_grant_that_arrives_after_the_deadline_is_released() {
    simulated(async || {
        let (server, proxy, client) = proxied().await;
        let exists = || {
            let look = "redis.call('SELECT', 1) return redis.call('EXISTS', KEYS[1])";
            server.query::<u32>(&["EVAL", look, "1", "late"]) == 1
        };
        proxy.rule(Match::command("EVALSHA").nth(1), Fault::HoldReply);
        let waiting = tokio::spawn(client.lock("late").acquire_timeout(WAIT));
        eventually(WAIT, "the server has granted it", async || exists()).await;
        assert_timeout(waiting.await.unwrap());
        eventually(PATIENCE, "it is free again", async || !exists()).await;
    });
}

#[test]
fn a_waiter_in_the_middle_of_a_queue_gives_up_on_time() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        hold_as_stranger(&server, "line", Duration::from_secs(60));
        let head = tokio::spawn(client.lock("line").acquire());
        until_listeners(&server, "line", 1).await;
        let mut waiting = JoinSet::new();
        for _ in 0..20 {
            waiting.spawn(on_time(client.lock("line").acquire_timeout(WAIT)));
        }
        for ended in ended(waiting).await {
            assert!(ended.expect("the store has answered").is_none());
        }
        assert!(!head.is_finished());
        release_as_stranger(&server, "line");
        release(granted(head).await).await;
    });
}
