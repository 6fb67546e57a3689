//! One deadline covers everything a wait is made of: connecting, subscribing and asking.

use std::time::Duration;
use tokio::time::Instant;

use distlock::{Error, Guard};

use super::support::{ChaosProxy, Fault, Match, RedisServer, eventually, paced, simulated};
use super::{PATIENCE, SLACK, connect, give_back, hold_as_stranger, until_listeners};

/// Long enough for the answers that do come to come in time.
const WAIT: Duration = Duration::from_millis(2500);

/// Runs a wait of [`WAIT`] and checks that it was neither shorter nor longer.
async fn on_time(
    waiting: impl Future<Output = Result<Option<Guard>, Error>> + Send,
) -> Result<Option<Guard>, Error> {
    let begun = Instant::now();
    let (ended, took) = paced(tokio::time::timeout(PATIENCE, waiting)).await;
    eprintln!("a wait of {WAIT:?} took {:?}", begun.elapsed());
    assert!(begun.elapsed() >= WAIT, "{:?}", begun.elapsed());
    assert!(took < WAIT + SLACK, "{took:?}");
    ended.expect("it took less than that")
}

fn assert_timeout(ended: Result<Option<Guard>, Error>) {
    let error = ended.expect_err("the store has not said anything");
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
}

/// A server behind a network that has delivered everything so far, scripts included.
async fn proxied() -> (RedisServer, ChaosProxy, distlock::Client) {
    let server = RedisServer::start();
    let proxy = ChaosProxy::start(server.addr());
    let client = connect(&format!("{}1", proxy.url())).await;
    give_back(client.lock("warm").acquire().await.unwrap()).await;
    server.cmd(&["FLUSHALL"]);
    (server, proxy, client)
}

#[test]
fn the_deadline_covers_a_script_that_is_not_answered() {
    simulated(async || {
        let (_server, proxy, client) = proxied().await;
        proxy.partition(true);
        assert_timeout(on_time(client.lock("script").acquire_timeout(WAIT)).await);
    });
}

#[test]
fn the_deadline_covers_connecting() {
    simulated(async || {
        let (_server, proxy, client) = proxied().await;
        // Connections are made and then nothing is heard on them.
        proxy.partition(true);
        proxy.cut_all();
        eventually(
            PATIENCE,
            "the client has noticed that it was cut off",
            async || client.lock("notice").try_acquire().await.is_err(),
        )
        .await;
        assert_timeout(on_time(client.lock("connect").acquire_timeout(WAIT)).await);
    });
}

#[test]
fn the_deadline_covers_subscribing() {
    simulated(async || {
        for (name, command) in [("subscribe", "SUBSCRIBE"), ("hello", "HELLO")] {
            let (server, proxy, client) = proxied().await;
            // In the client's database.
            let key: &[&str] = &["EVAL", HOLD, "1", name, super::STRANGER];
            server.cmd(key);
            proxy.rule(Match::command(command), Fault::HoldRequest);
            let ended = on_time(client.lock(name).acquire_timeout(WAIT)).await;
            // It could not listen, but it was told that somebody else has it.
            assert!(ended.expect("the store has answered").is_none());
            let held = proxy.injected();
            assert!(held.iter().any(|held| held.contains(command)), "{held:?}");
            proxy.clear_rules();
            proxy.let_go();
            eventually(PATIENCE, "nobody listens any more", async || {
                server.pubsub_channels().is_empty()
            })
            .await;
        }
    });
}

#[test]
fn a_grant_that_comes_after_the_deadline_is_given_back() {
    simulated(async || {
        let (server, proxy, client) = proxied().await;
        proxy.rule(Match::command("EVALSHA").nth(1), Fault::HoldReply);
        let waiting = tokio::spawn(client.lock("late").acquire_timeout(WAIT));
        eventually(PATIENCE, "the server has granted it", async || {
            exists(&server, "late")
        })
        .await;
        let error = waiting.await.unwrap().expect_err("no answer came");
        assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
        eventually(PATIENCE, "it is free again", async || {
            !exists(&server, "late")
        })
        .await;
    });
}

#[test]
fn a_waiter_in_the_middle_of_a_line_gives_up_on_time() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        hold_as_stranger(&server, "line", Duration::from_secs(60));
        let head = tokio::spawn(client.lock("line").acquire());
        until_listeners(&server, "line", 1).await;
        let waits = (0..20).map(|_| on_time(client.lock("line").acquire_timeout(WAIT)));
        let mut waiting = tokio::task::JoinSet::new();
        waits.for_each(|wait| {
            waiting.spawn(wait);
        });
        while let Some(ended) = waiting.join_next().await {
            assert!(ended.unwrap().expect("the store has answered").is_none());
        }
        assert!(!head.is_finished());
        super::release_as_stranger(&server, "line");
        give_back(head.await.unwrap().unwrap()).await;
    });
}

/// Looks in the client's database.
fn exists(server: &RedisServer, name: &str) -> bool {
    let look = "redis.call('SELECT', 1) return redis.call('EXISTS', KEYS[1])";
    server.query::<u32>(&["EVAL", look, "1", name]) == 1
}

/// The client's database is 1, so that connecting takes an exchange with the server.
const HOLD: &str = "redis.call('SELECT', 1) redis.call('HSET', KEYS[1], ARGV[1], 1) \
                    return redis.call('PEXPIRE', KEYS[1], 60000)";
