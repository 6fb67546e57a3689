//! What is over is never renewed again, however it ended.

use std::time::Duration;

use distlock::{Guard, LostReason};

use super::{ChaosProxy, Journal, PATIENCE, SHARED, connect_with, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn released_dropped_forgotten_and_lost_locks_are_never_renewed_again() {
    let proxy = ChaosProxy::start(SHARED.addr());
    let client = connect_with(&proxy.url(), LEASE, LEASE / 3).await;
    let journal = Journal::of(&proxy);
    let hold = async |name: &'static str| client.lock(name).acquire().await.unwrap();
    let alive = hold("alive").await;
    let [released, dropped] = [hold("released").await, hold("dropped").await];
    let [forgotten, lost] = [hold("forgotten").await, hold("lost").await];
    let over = [&released, &dropped, &forgotten, &lost]
        .map(|guard| (guard.name().to_owned(), guard.owner()));

    // Right after a renewal, so that none is under way when they end.
    renewed_once_more(&journal, &[&alive, &released, &dropped, &forgotten, &lost]).await;
    released.release().await.unwrap();
    drop(dropped);
    forgotten.forget();
    let counted = over.each_ref().map(|(_, owner)| journal.count(owner));
    SHARED.cmd(&["DEL", "lost"]);
    let reason = lost.lost().await.map(|lost| lost.reason);
    assert_eq!(reason, Some(LostReason::Removed));

    for _ in 0..3 {
        renewed_once_more(&journal, &[&alive]).await;
    }
    for ((name, owner), counted) in over.iter().zip(counted) {
        assert!(counted > 0, "`{name}` was renewed while it lasted");
        // The last renewal of the lost one is how it was found to be lost.
        let counted = counted + usize::from(name == "lost");
        assert_eq!(journal.count(owner), counted, "`{name}` was renewed again");
    }
    eventually(PATIENCE, "nothing of them is left", async || {
        over.iter().all(|(name, _)| SHARED.pttl(name) == GONE)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_a_closed_client_are_never_renewed_again() {
    let proxy = ChaosProxy::start(SHARED.addr());
    let client = connect_with(&proxy.url(), LEASE, LEASE / 3).await;
    let other = connect_with(&proxy.url(), LEASE, LEASE / 3).await;
    let journal = Journal::of(&proxy);
    let alive = other.lock("open").acquire().await.unwrap();
    let guard = client.lock("closed").acquire().await.unwrap();
    renewed_once_more(&journal, &[&guard]).await;

    client.close().await.unwrap();

    assert_eq!(SHARED.pttl("closed"), GONE, "`close` has waited for it");
    assert!(!guard.is_held());
    let counted = journal.count(&guard.owner());
    for _ in 0..3 {
        renewed_once_more(&journal, &[&alive]).await;
    }
    assert!(counted > 0);
    assert_eq!(journal.count(&guard.owner()), counted);
}

/// Redisson's timers multiply with every lock that is taken while none is held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d30_locks_that_come_and_go_make_nobody_be_renewed_more_often() {
    let proxy = ChaosProxy::start(SHARED.addr());
    let client = connect_with(&proxy.url(), LEASE, LEASE / 3).await;
    let journal = Journal::of(&proxy);
    for _ in 0..300 {
        let guard = client.lock("comes-and-goes").acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    let guard = client.lock("stays").acquire().await.unwrap();
    let begun = std::time::Instant::now();
    for _ in 0..3 {
        renewed_once_more(&journal, &[&guard]).await;
    }
    // One more may be under way.
    let periods = begun.elapsed().div_duration_f64(LEASE / 3);
    let renewals = journal.count(&guard.owner());
    assert!(
        renewals as f64 <= periods + 2.0,
        "{renewals} renewals in {periods} periods"
    );
}

/// Redisson renews the first thread of a name alone, also when that has lost it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d31_whoever_follows_a_lost_hold_is_renewed() {
    let proxy = ChaosProxy::start(SHARED.addr());
    let client = connect_with(&proxy.url(), LEASE, LEASE / 3).await;
    let journal = Journal::of(&proxy);
    let lock = client.lock("followed");
    let loser = lock.clone().with_owner(&client.new_owner());
    let mut lost = Vec::new();
    for _ in 0..3 {
        lost.push(loser.acquire().await.unwrap());
    }
    SHARED.cmd(&["DEL", "followed"]);
    let guard = lock.acquire().await.unwrap();
    for _ in 0..2 {
        renewed_once_more(&journal, &[&guard]).await;
    }
    assert!(lost.iter().all(|lost| !lost.is_held()));
}

/// Waits until another renewal of each of them was seen and answered.
async fn renewed_once_more(journal: &Journal, guards: &[&Guard]) {
    let count = |guard: &&Guard| journal.count(&guard.owner());
    let seen: Vec<_> = guards.iter().map(count).collect();
    let until: Vec<_> = guards.iter().map(|guard| guard.valid_until()).collect();
    eventually(PATIENCE, "they are renewed once more", async || {
        guards
            .iter()
            .zip(seen.iter().zip(&until))
            .all(|(guard, (seen, until))| {
                guard.check().expect("it is renewed in time");
                count(guard) > *seen && guard.valid_until() > *until
            })
    })
    .await;
}

/// What `PTTL` says of a key that is not there.
const GONE: i64 = -2;
/// Long, so that what ends right after a renewal has ended before the next one.
const LEASE: Duration = Duration::from_secs(9);
