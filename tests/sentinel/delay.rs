//! Who waits for a server to be the master for long enough.

use std::time::Duration;

use distlock::Lease;

use super::support::Topology;
use super::{PATIENCE, beside, patient, until_left};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_comes_between_two_masters_waits_for_the_next() {
    let topology = Topology::start();
    // As long as a lease that survives a busy machine.
    let delay = Duration::from_secs(6);
    let builder = patient(&topology.url())
        .default_lease(Lease::KeepAlive(delay))
        .failover_delay(delay);
    let client = builder.connect().await.expect("it is up");
    let held = client.lock("held").acquire().await;
    held.expect("it is waited for")
        .release()
        .await
        .expect("ours");
    let old = beside(|| topology.master());
    beside(|| old.kill());
    until_left(old).await;
    let lock = client.lock("tried");
    let tried = tokio::spawn(async move { lock.try_acquire().await });
    beside(|| topology.replace(old));
    let tried = tried.await.expect("no panic");
    assert!(tried.expect("the next is waited for").is_none());
    let got = client.lock("between").acquire_timeout(PATIENCE).await;
    let got = got.expect("the next is waited for").expect("it is free");
    got.release().await.expect("it is ours");
}
