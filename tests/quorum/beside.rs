//! Others who take the same lock on the same servers, by what they leave there: `RedissonRedLock`, redsync and node-redlock.

use std::time::Duration;

use super::stage::{FORMATS, Format, LEASE, NAME, Stage, clients, lock};
use super::support::{ChaosProxy, Fault, Match, PATIENCE, RedisServer, eventually};

/// Takes it as the other library does; says whether it was let in.
fn foreign(server: &RedisServer, format: Format) -> bool {
    match format {
        // One random value on all servers.
        Format::Simple => {
            let set = &["SET", NAME, "q1J9T2hvdm5nYXJk", "NX", "PX", "60000"];
            server.query::<Option<String>>(set).is_some()
        }
        // Redisson's script: if nobody is there, or it is us, once more.
        Format::Plain => {
            let script = "if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then \
                          redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return nil end \
                          return redis.call('pttl', KEYS[1])";
            let java = "8743c9c0-0795-4907-87fd-6c719a6b4586:1";
            let eval = &["EVAL", script, "1", NAME, "60000", java];
            server.query::<Option<i64>>(eval).is_none()
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_most_of_them_keeps_us_out_and_who_has_fewer_does_not() {
    for format in FORMATS {
        let stage = Stage::new();
        let clients = stage.clients().await;
        let lock = lock(&clients, format);
        for server in &stage.servers[..2] {
            assert!(foreign(server, format));
        }
        let taken = lock.try_acquire().await.expect("all answer");
        let guard = taken.expect("three are free");
        assert_eq!(guard.votes(), 3);
        guard.release().await.expect("three agree");
        assert_eq!(stage.holders(), [0, 1], "what is another's stays");
        assert!(foreign(&stage.servers[2], format));
        assert!(lock.try_acquire().await.expect("all answer").is_none());
        let wait = Duration::from_millis(1500);
        let taken = lock.acquire_timeout(wait).await.expect("all answer");
        assert!(taken.is_none(), "it asked again and again");
        eventually(PATIENCE, "nothing of ours is left", async || {
            stage.holders() == [0, 1, 2]
        })
        .await;
        // One goes, and who waits has it.
        let waiting = tokio::spawn(lock.acquire());
        stage.servers[0].cmd(&["DEL", NAME]);
        let guard = waiting.await.expect("it ends").expect("all answer");
        assert_eq!(guard.votes(), 3);
    }
}

/// In the end there is less time left than an answer takes: what was said before that stands.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_in_vain_over_a_slow_network_is_told_that_others_have_it() {
    let stage = Stage::new();
    let proxies = stage.servers.iter();
    let proxies: Vec<_> = proxies
        .map(|server| ChaosProxy::start(server.addr()))
        .collect();
    let ours = clients(proxies.iter().map(ChaosProxy::url)).await;
    let theirs = stage.clients().await;
    let held = lock(&theirs, Format::Plain).acquire().await;
    let held = held.expect("all are up");
    eventually(PATIENCE, "all five hold it", async || held.votes() == 5).await;
    let ours = lock(&ours, Format::Plain);
    assert!(ours.try_acquire().await.expect("all answer").is_none());
    for proxy in &proxies {
        let slow = Fault::DelayReply(Duration::from_millis(300));
        proxy.rule(Match::any(), slow);
    }
    let waited = ours.acquire_timeout(Duration::from_secs(2)).await;
    assert!(waited.expect("all answer").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_are_kept_out_by_what_we_hold_which_looks_like_theirs() {
    for format in FORMATS {
        let stage = Stage::new();
        let clients = stage.clients().await;
        let guard = lock(&clients, format).acquire().await.expect("all are up");
        eventually(PATIENCE, "all five hold it", async || guard.votes() == 5).await;
        for server in &stage.servers {
            assert!(!foreign(server, format), "it let somebody else in");
            let left = u64::try_from(server.pttl(NAME)).expect("it ends");
            assert!((1..=LEASE.as_millis()).contains(&left.into()), "{left}");
            match format {
                Format::Simple => {
                    let value: String = server.query(&["GET", NAME]);
                    assert!(value.len() >= 16, "{value}");
                }
                Format::Plain => {
                    let fields: Vec<_> = server.hgetall(NAME).into_iter().collect();
                    assert!(
                        matches!(&*fields, [(_, count)] if count == "1"),
                        "{fields:?}"
                    );
                }
            }
        }
        guard.release().await.expect("all agree");
        for server in &stage.servers {
            assert!(foreign(server, format));
        }
    }
}
