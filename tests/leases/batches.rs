//! Many locks are renewed in few calls, and a key that cannot be renewed costs only its own lock.

use std::time::Duration;

use distlock::{Error, LostReason};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{COMMAND, LEASE, LeaseFixture, PERIOD, connect, renewed};
use crate::support::{
    Family, Fault, Match, PATIENCE, Plain, Player, Semaphore, Simple, eventually, simulated,
};

#[test]
fn a_thousand_locks_are_renewed_in_few_calls_and_none_is_lost() {
    simulated(async || {
        let scene = LeaseFixture::new().await;
        let mut acquiring = JoinSet::new();
        for number in 0..MANY {
            acquiring.spawn(scene.client.lock(format!("many-{number}")).acquire());
        }
        let guards = acquiring.join_all().await.into_iter();
        let guards: Vec<_> = guards.map(|guard| guard.expect("it is free")).collect();
        let before = scene.journal.calls().len();
        sleep(10 * PERIOD).await;
        let calls = scene.journal.calls().len() - before;
        // A call renews at most a hundred locks.
        let least = 10 * MANY / 100;
        assert!((least..2 * least).contains(&calls), "{calls} calls");
        for guard in &guards {
            guard.check().expect("none is lost");
            assert_eq!(guard.at_risk(), None);
        }
        assert_eq!(scene.server.keys().len(), MANY);
        drop(guards);
        eventually(PATIENCE, "all are released", async || {
            scene.server.keys().is_empty()
        })
        .await;
    });
}

const MANY: usize = 1000;

#[test]
fn a_key_of_the_wrong_type_in_a_batch_costs_only_its_own_lock() {
    simulated(async || {
        costs_only_its_own_lock::<Plain>("SET").await;
        costs_only_its_own_lock::<Simple>("LPUSH").await;
        costs_only_its_own_lock::<Semaphore>("LPUSH").await;
    });
}

/// Checks that a key that this command puts in place of the lock's costs only that lock.
async fn costs_only_its_own_lock<F: Family>(command: &str) {
    let scene = LeaseFixture::new().await;
    let client = Player::<F>::new(scene.client.clone());
    let acquire = async |name: &str| client.lock(name).acquire().await.expect("it is free");
    let (before, spoilt, after) = (acquire("a").await, acquire("b").await, acquire("c").await);
    scene.server.cmd(&[command, "other", "not a lock"]);
    scene.server.cmd(&["RENAME", "other", "b"]);
    let kind: String = scene.server.query(&["TYPE", "b"]);
    let lost = timeout(PATIENCE, spoilt.lost()).await.expect("it is lost");
    let lost = lost.expect("it is not released");
    assert_ne!(lost.reason, LostReason::Closed);
    if F::PERMITS == 0 {
        let together = ["a", "b", "c"];
        let mut calls = scene.journal.calls().into_iter();
        assert!(calls.any(|call| call.names == together), "not in one call");
    }
    for guard in [&before, &after] {
        renewed(guard).await;
        assert_eq!(guard.at_risk(), None);
        assert!(
            client
                .against(guard.name())
                .try_acquire()
                .await
                .unwrap()
                .is_none()
        );
    }
    let error = spoilt.release().await.unwrap_err();
    let is_told = matches!(error, Error::Lost { .. } | Error::WrongKind { .. });
    assert!(is_told, "{error}");
    assert_eq!(scene.server.query::<String>(&["TYPE", "b"]), kind);
}

/// One key with denied access fails the call for all of them. The requests that are then sent for each must not wait for one another, or a
/// slow network costs all of them their leases.
#[test]
fn a_denied_key_in_a_batch_costs_only_its_own_lock_also_over_a_slow_network() {
    simulated(async || {
        let scene = LeaseFixture::new().await;
        let allow = |keys: &str| {
            let user = ["ACL", "SETUSER", "worker", "on", ">secret", "+@all"];
            scene
                .server
                .cmd(&[&user[..], &["allchannels", "resetkeys", keys]].concat());
        };
        allow("~*");
        let url = scene.proxy.url();
        let url = url.replace("redis://", "redis://worker:secret@");
        let client = connect(&url, LEASE, PATIENCE).await;
        let mut guards = Vec::new();
        for number in 0..60 {
            guards.push(
                client
                    .lock(format!("fine-{number}"))
                    .acquire()
                    .await
                    .unwrap(),
            );
        }
        let spoilt = client.lock("spoilt").acquire().await.unwrap();
        allow("~*fine-*");
        // Sent one after the other, these requests take longer than a lease.
        let slow = Fault::DelayReply(Duration::from_millis(200));
        scene.proxy.rule(Match::any(), slow);
        let lost = timeout(PATIENCE, spoilt.lost()).await.expect("it is lost");
        assert_eq!(lost.map(|lost| lost.reason), Some(LostReason::Expired));
        sleep(2 * LEASE).await;
        for guard in &guards {
            guard.check().expect("none of the others is lost");
        }
    });
}

/// Without scripts each lock is renewed by itself, and renewals that were in time must not be counted as failed with the others.
#[test]
fn locks_without_scripts_are_renewed_though_a_round_takes_longer_than_the_call_timeout() {
    simulated(async || {
        let scene = LeaseFixture::with("scripts=off", 2 * LEASE, COMMAND).await;
        let mut guards = Vec::new();
        for number in 0..6 {
            guards.push(scene.hold(&format!("some-{number}")).await);
        }
        // Two round trips for each lock exceed the command time-out, and are far less than the time that is left.
        let slow = Fault::DelayReply(COMMAND / 8);
        scene.proxy.rule(Match::any(), slow);
        sleep(6 * LEASE).await;
        for guard in &guards {
            guard.check().expect("none is lost");
        }
    });
}
