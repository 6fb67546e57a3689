//! Futures that are polled again after the shutdown of the runtime on which they began return a result or an error, and never panic.

use std::pin::Pin;
use std::time::Duration;

use distlock::{Client, Error, Lease};
use tokio::runtime::Runtime;

use super::no_runtime::Failures;
use super::{COMPANY, connect, on_every_store, runtime};

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Polls a future on a runtime for a while, without completing it.
fn begin<T>(runtime: &Runtime, future: impl Future<Output = T> + Send + 'static) -> Boxed<T> {
    let mut future: Boxed<T> = Box::pin(future);
    let begun = runtime
        .block_on(async { tokio::time::timeout(Duration::from_millis(100), &mut future).await });
    assert!(begun.is_err(), "it ended too soon");
    future
}

#[test]
fn a_waiter_whose_runtime_has_ended_does_not_panic() {
    let _company = COMPANY.blocking_read();
    on_every_store(|store, other_runtime, other| {
        let mut failures = Failures::default();
        let lease = Lease::KeepAlive(Duration::from_secs(4));
        for behind_own in [false, true] {
            let runtime = runtime();
            let client = runtime.block_on(connect(&store.url));
            let holder = if behind_own { &client } else { &other };
            let lock = holder.lock("gone").with_lease(lease);
            let held = other_runtime.block_on(lock.acquire()).unwrap();
            let lock = client.lock("gone").with_lease(lease);
            let endless = begin(&runtime, lock.acquire());
            let bounded = begin(&runtime, lock.acquire_timeout(Duration::from_secs(6)));
            drop(runtime);
            drop(held);
            let whose = if behind_own { "its own" } else { "another" };
            // The guard is dropped at once if the lock is granted, so that the next one can acquire it.
            failures.poll_by_hand(&format!("acquire behind {whose} client's hold"), async {
                endless.await.map(drop)
            });
            failures.poll_by_hand(
                &format!("acquire_timeout behind {whose} client's hold"),
                async { bounded.await.map(drop) },
            );
            store.is_freed("gone");
        }
        failures.assert_none();
    });
}

#[test]
fn a_request_in_flight_when_its_runtime_ends_does_not_panic() {
    let _company = COMPANY.blocking_read();
    on_every_store(|store, other_runtime, other| {
        // Memory replies at once: no request is ever in flight there.
        let Some(server) = &store.server else { return };
        let mut failures = Failures::default();
        let runtime = runtime();
        let client = runtime.block_on(connect(&store.url));
        let lease = Lease::Fixed(Duration::from_secs(30));
        let released = runtime.block_on(client.lock("released").acquire()).unwrap();
        let extended = client.lock("extended").with_lease(lease);
        let extended = runtime.block_on(extended.acquire()).unwrap();
        server.stop_process();
        let releasing = begin(&runtime, released.release());
        let extending = begin(&runtime, async move {
            let outcome = extended.extend(Duration::from_secs(60)).await;
            drop(extended);
            outcome
        });
        let trying = begin(&runtime, client.lock("tried").try_acquire());
        let acquiring = begin(&runtime, client.lock("acquired").acquire());
        let admin = client.admin();
        let looking = begin(&runtime, async move { admin.inspect("released").await });
        let closing = begin(&runtime, {
            let client = client.clone();
            async move { client.close().await }
        });
        drop(runtime);
        server.continue_process();
        failures.poll_by_hand("release", releasing);
        failures.poll_by_hand("extend", extending);
        failures.poll_by_hand("try_acquire", async { trying.await.map(drop) });
        failures.poll_by_hand("acquire", async { acquiring.await.map(drop) });
        failures.poll_by_hand("inspect", looking);
        failures.poll_by_hand("close", closing);
        for name in ["released", "extended", "tried", "acquired"] {
            store.is_freed(name);
        }
        drop((other, other_runtime));
        failures.assert_none();
    });
}

#[test]
fn a_client_whose_runtime_has_ended_works_on_another() {
    let _company = COMPANY.blocking_read();
    on_every_store(|store, runtime, client| {
        let guard = runtime.block_on(client.lock("moved").acquire()).unwrap();
        drop(runtime);
        let runtime = super::runtime();
        // The connection went with the old runtime; one call may discover that.
        let first: Result<(), Error> = runtime.block_on(guard.release());
        if let Err(error) = first {
            assert!(error.is_transient(), "{error:?}");
        }
        store.is_freed("moved");
        let guard = runtime.block_on(acquire(&client));
        assert!(store.holds("moved") && guard.is_held());
        runtime.block_on(guard.release()).unwrap();
        runtime.block_on(client.close()).unwrap();
    });
}

async fn acquire(client: &Client) -> distlock::Guard {
    client
        .lock("moved")
        .acquire()
        .await
        .expect("the store is up")
}
