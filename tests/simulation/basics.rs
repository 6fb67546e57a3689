//! The basis of the simulation: the library works in it, and time is virtual.

use std::time::Duration;

use distlock::{Lease, LostReason};
use tokio::time::{Instant, sleep, timeout};

use crate::world::{expect_panics, simulate};

const REPLAY: &str = "cargo test --all-features --test simulation basics";

#[test]
fn a_lock_is_acquired_and_released() {
    simulate(1, REPLAY, async |world| {
        let client = world.client("one").connect().await.expect("it is up");
        let guard = client.lock("stock").acquire().await.expect("it is free");
        assert_eq!(world.server.keyspace().len(), 1);
        guard.release().await.expect("it was held");
        assert_eq!(world.server.keyspace(), []);
        client.close().await.expect("nothing is held");
    });
}

#[test]
fn a_waiter_gets_the_lock_when_it_is_released() {
    simulate(2, REPLAY, async |world| {
        let one = world.client("one").connect().await.expect("it is up");
        let other = world.client("other").connect().await.expect("it is up");
        let guard = one.lock("stock").acquire().await.expect("it is free");
        let lock = other.lock("stock");
        let waiting = tokio::spawn(async move {
            let guard = lock.acquire().await.expect("it is released");
            (guard, Instant::now())
        });
        sleep(Duration::from_secs(600)).await;
        assert!(!waiting.is_finished(), "renewals kept it for ten minutes");
        let released = Instant::now();
        guard.release().await.expect("it was held");
        let (_guard, granted) = waiting.await.expect("it does not panic");
        let took = granted - released;
        assert!(took < Duration::from_secs(1), "the message took {took:?}");
    });
}

#[test]
fn a_busy_server_is_a_transient_error_also_with_a_failover_delay() {
    simulate(4, REPLAY, async |world| {
        let second = Duration::from_secs(1);
        let client = world
            .client("one")
            .default_lease(Lease::KeepAlive(second))
            .failover_delay(second);
        let client = client.connect().await.expect("it is up");
        sleep(2 * second).await;
        world.server.restart(true);
        world.server.set_fault(Some(distlock_sim::Fault::Busy));
        let error = client.lock("stock").try_acquire().await;
        let error = error.expect_err("the server is busy");
        assert!(error.is_transient(), "{error}");
        world.server.set_fault(None);
        let guard = client.lock("stock").acquire_timeout(5 * second).await;
        assert!(guard.expect("it is ready").is_some());
    });
}

#[test]
fn a_holder_that_cannot_renew_is_notified_when_its_lease_ends_and_not_later() {
    simulate(3, REPLAY, async |world| {
        let lease = Duration::from_secs(30);
        let client = world.client("one").connect().await.expect("it is up");
        let lock = client.lock("stock").with_lease(Lease::KeepAlive(lease));
        let begun = Instant::now();
        let guard = lock.acquire().await.expect("it is free");
        world.network.block("one", "redis");
        let lost = timeout(lease * 2, guard.lost()).await;
        let lost = lost.expect("it is told").expect("it was not released");
        assert_eq!(lost.reason, LostReason::Expired);
        let held = begun.elapsed();
        assert!(held <= lease, "{held:?}");
        assert!(held >= lease - lease / 50, "{held:?}");
        world.network.heal();
        let other = world.client("other").connect().await.expect("it is up");
        let free = other.lock("stock").acquire_timeout(lease * 2).await;
        assert!(free.expect("it is up").is_some());
    });
}

#[test]
#[should_panic(expected = "a task panicked at 3s: of no concern to anybody")]
fn a_panic_of_a_task_that_is_never_joined_fails_its_scenario() {
    simulate(5, REPLAY, async |_| {
        drop(tokio::spawn(async {
            sleep(Duration::from_secs(3)).await;
            panic!("of no concern to anybody");
        }));
        sleep(Duration::from_secs(4)).await;
    });
}

#[test]
fn an_expected_panic_fails_no_scenario() {
    simulate(6, REPLAY, async |_| {
        expect_panics("provoked");
        let panicked = tokio::spawn(async { panic!("it was provoked") }).await;
        assert!(panicked.is_err());
    });
}
