//! A lock behind real sentinels: two failovers, and a call that outlives its runtime, which only threads can show. A part of the program
//! `real`.
#![cfg(feature = "redis")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests start tasks and keep their own time"
)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock::{Client, ClientBuilder, Lease};

use crate::support::Topology;

fn patient(topology: &Topology) -> ClientBuilder {
    Client::builder(&topology.url())
        .command_timeout(PATIENCE)
        .connect_timeout(PATIENCE)
        .default_lease(Lease::KeepAlive(5 * PATIENCE))
}

async fn connect(topology: &Topology) -> Client {
    patient(topology).connect().await.expect("the master is up")
}

/// Plays an ordered failover, then the death of the master: the lock stays held, and a waiter is granted it at the last master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_lock_and_its_waiter_survive_two_failovers_of_real_servers() {
    let topology = Topology::start();
    let (holder, waiter) = (connect(&topology).await, connect(&topology).await);
    let guard = holder.lock("kept").acquire().await.expect("it is free");
    let waiting = tokio::spawn(waiter.lock("kept").acquire());
    tokio::task::block_in_place(|| topology.fail_over());
    let late = connect(&topology).await;
    let busy = late.lock("kept").try_acquire().await;
    assert!(busy.expect("the new master is up").is_none());
    let new = tokio::task::block_in_place(|| {
        topology.until_settled();
        let (_, new) = topology.kill_master();
        new
    });
    assert!(guard.is_held() && !waiting.is_finished());
    guard.release().await.expect("it is still ours");
    let next = waiting.await.expect("no panic").expect("no error");
    next.release().await.expect("it is ours");
    let mut keys = tokio::task::block_in_place(|| new.keys());
    keys.retain(|key| !key.starts_with("distlock_undone:"));
    assert_eq!(keys, Vec::<String>::new());
}

/// Whether a thread of a client has panicked.
static PANICKED: AtomicBool = AtomicBool::new(false);

#[test]
fn a_call_may_outlive_its_runtime_between_two_masters() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().name() == Some("distlock") {
            PANICKED.store(true, Ordering::Relaxed);
        }
        usual(panic);
    }));
    let topology = Topology::start();
    let runtime = || tokio::runtime::Runtime::new().expect("a runtime can be made");
    let (first, second) = (runtime(), runtime());
    let client = first.block_on(connect(&topology));
    let old = topology.master();
    old.kill();
    let lock = client.lock("outlived");
    first.spawn(async move { lock.try_acquire().await });
    // Long enough to have found no server, and to be on its way to retry.
    std::thread::sleep(Duration::from_millis(300));
    first.shutdown_background();
    // It goes on from another runtime, and what the first one left is undone.
    let lock = client.lock("outlived");
    let going_on = second.spawn(async move { lock.acquire_timeout(PATIENCE).await });
    topology.replace(old);
    let got = second.block_on(going_on).expect("no panic");
    let guard = got.expect("no error").expect("it is free");
    second.block_on(guard.release()).expect("it is ours");
    second.block_on(client.close()).expect("all is given back");
    assert!(
        !PANICKED.load(Ordering::Relaxed),
        "a client's thread has panicked"
    );
}

/// Upper bound for any wait on a busy machine; only a failure waits this long.
const PATIENCE: Duration = Duration::from_secs(60);
