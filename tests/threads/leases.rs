//! Leases are kept alive while user code blocks its runtime, and while a server is busy.

use std::sync::{Arc, Barrier, LazyLock};
use std::thread;
use std::time::Duration;

use distlock::{Client, Guard, Held, Lease, LostReason};

use super::support::{PATIENCE, RedisServer, eventually, wait_until};

static SHARED: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);

/// A renewal is sent every five seconds; a machine that stands still for ten costs no lock.
const LEASE: Duration = Duration::from_secs(15);

async fn hold(server: &RedisServer, name: &str, lease: Lease) -> Guard {
    let client = Client::builder(&server.url()).command_timeout(PATIENCE);
    let client = client.connect_timeout(PATIENCE).connect().await;
    let client = client.expect("the server is up");
    let lock = client.lock(name).with_lease(lease);
    lock.acquire().await.expect("the lock is free")
}

/// Blocks this thread until the hold has been renewed, by a task that runs elsewhere.
fn block_until_renewed(held: &Held) {
    let before = held.valid_until();
    wait_until("the hold is renewed", || {
        held.check().expect("it is kept alive");
        held.valid_until() > before
    });
    assert_eq!(SHARED.hgetall(held.name())[&held.owner()], "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_kept_while_every_worker_of_the_runtime_is_blocked() {
    let guard = hold(&SHARED, "workers", Lease::KeepAlive(LEASE)).await;
    // Both workers meet at the barrier, so neither is free to run anything else.
    let met = Arc::new(Barrier::new(2));
    let blocked = [(); 2].map(|()| {
        let (met, held) = (met.clone(), guard.held());
        tokio::spawn(async move {
            met.wait();
            block_until_renewed(&held);
            met.wait();
        })
    });
    for worker in blocked {
        worker.await.unwrap();
    }
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "current_thread")]
async fn a_lock_is_kept_while_the_only_thread_of_the_runtime_is_blocked() {
    let guard = hold(&SHARED, "thread", Lease::KeepAlive(LEASE)).await;
    block_until_renewed(&guard.held());
    guard.release().await.unwrap();
}

#[test]
fn a_lock_is_kept_after_the_runtime_that_acquired_it_has_ended() {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    let guard = runtime.block_on(hold(&SHARED, "orphan", Lease::KeepAlive(LEASE)));
    drop(runtime);
    block_until_renewed(&guard.held());
}

/// Leases are counted on another clock than `Instant`'s, and the two cannot be read at once.
#[tokio::test]
async fn valid_until_is_constant_also_after_the_end_of_the_hold() {
    let lease = Lease::Fixed(Duration::from_secs(4));
    let guard = hold(&SHARED, "moment", lease).await;
    let first = guard.valid_until();
    while guard.is_held() {
        assert_eq!(guard.valid_until(), first);
        thread::yield_now();
    }
    let lost = guard.lost().await.map(|lost| lost.reason);
    assert_eq!(lost, Some(LostReason::Expired));
    assert_eq!(guard.valid_until(), first);
}

/// The simulated server replies `BUSY` when it is told to; a real one, while a script runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_busy_with_a_script_does_not_end_a_hold() {
    let server = Arc::new(RedisServer::start_with(&["--lua-time-limit", "20"]));
    let guard = hold(&server, "busy", Lease::KeepAlive(2 * LEASE)).await;
    let script = thread::spawn({
        let server = server.clone();
        move || server.try_query::<()>(&["EVAL", "while true do end", "0"])
    });
    eventually(PATIENCE, "a renewal fails", async || {
        guard.check().expect("it is no loss");
        guard.at_risk().is_some()
    })
    .await;
    server.cmd(&["SCRIPT", "KILL"]);
    eventually(PATIENCE, "it is renewed", async || {
        guard.check().expect("it is no loss");
        guard.at_risk().is_none()
    })
    .await;
    script.join().unwrap().expect_err("it was killed");
    assert!(server.pttl("busy") > 0);
    guard.release().await.unwrap();
}
