//! Guards of one owner with different wishes: kept alive for as long as one of them wants it.

use std::time::Duration;

use distlock::Lease;

use super::{ChaosProxy, Journal, LEASE, PATIENCE, SHARED, connect, eventually, renewed};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nested_fixed_lease_that_ends_does_not_stop_the_outer_keep_alive() {
    let client = connect(&SHARED.url()).await;
    let owner = client.new_owner();
    let lock = client.lock("outer-kept").with_owner(&owner);
    let short = Lease::Fixed(Duration::from_millis(200));
    let outer = lock.acquire().await.unwrap();

    let released = lock.clone().with_lease(short).acquire().await.unwrap();
    let dropped = lock.clone().with_lease(short).acquire().await.unwrap();
    let forgotten = lock.clone().with_lease(short).acquire().await.unwrap();
    assert_eq!(outer.hold_count(), 4);
    assert!(
        outer.remaining() > Duration::from_millis(200),
        "only raised"
    );
    released.release().await.unwrap();
    drop(dropped);
    forgotten.forget();

    // Beyond what the outer had when the inner ones ended.
    let had = outer.valid_until();
    eventually(PATIENCE, "it is renewed for another lease", async || {
        outer.check().expect("it is kept alive");
        outer.valid_until() > had + LEASE
    })
    .await;
    assert_eq!(outer.hold_count(), 1);
    outer.release().await.unwrap();
    assert_eq!(SHARED.pttl("outer-kept"), -2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_inner_keep_alive_that_ends_leaves_an_outer_fixed_lease_to_its_end() {
    let proxy = ChaosProxy::start(SHARED.addr());
    let client = connect(&proxy.url()).await;
    let journal = Journal::of(&proxy);
    let owner = client.new_owner();
    let lock = client.lock("outer-fixed").with_owner(&owner);
    let outer = lock.clone().with_lease(Lease::Fixed(4 * LEASE));
    let outer = outer.acquire().await.unwrap();
    let alive = client.lock("outer-fixed-beside").acquire().await.unwrap();

    let inner = lock.acquire().await.unwrap();
    let kept_from = outer.valid_until();
    eventually(PATIENCE, "the inner one is renewed", async || {
        journal.count(&outer.owner()) >= 2
    })
    .await;
    assert!(
        outer.valid_until() + Duration::from_millis(20) > kept_from,
        "an inner lease never shortens an outer one"
    );
    inner.release().await.unwrap();

    renewed(&alive).await;
    let (counted, end) = (journal.count(&outer.owner()), outer.valid_until());
    renewed(&alive).await;
    renewed(&alive).await;
    assert_eq!(journal.count(&outer.owner()), counted);
    assert!(outer.is_held(), "it has its own time still");
    assert!(outer.valid_until() < end + LEASE / 9);
}
