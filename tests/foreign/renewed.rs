//! Kept leases whose lock's key was replaced by another program's data: renewals, in batches, and dropped guards.

use std::time::Duration;

use distlock::{Guard, Lease, Lock, LostSignal};

use super::PATIENCE;
use super::corpus::LIKE_PERMITS;
use super::corpus::shapes;
use super::stage::Stage;

/// Renewals and dropped guards have no public name.
pub(crate) const COVERS: &[&str] = &[];

#[tokio::test]
async fn no_renewal_changes_data_that_replaced_its_lock() {
    replace_everything("").await;
}

#[tokio::test]
async fn no_renewal_without_scripts_changes_data_that_replaced_its_lock() {
    replace_everything("?scripts=off").await;
}

async fn replace_everything(parameters: &str) {
    let mut stage = Stage::start();
    let client = stage.client(parameters).await;
    let mut kept = HeldLocks::default();
    for (number, shape) in shapes()
        .filter(|shape| stage.is_small(shape.key))
        .enumerate()
    {
        let name = |kind: &str| format!("kept:{kind}:{number}");
        let key = shape.key;
        kept.hold(key, &name("plain"), |name| client.lock(name))
            .await;
        kept.hold(key, &name("fenced"), |name| client.fenced_lock(name))
            .await;
        kept.hold(key, &name("simple"), |name| client.simple_lock(name))
            .await;
        // The others need scripts.
        if !parameters.is_empty() {
            continue;
        }
        kept.hold(key, &name("fair"), |name| client.fair_lock(name))
            .await;
        kept.hold(key, &name("read"), |name| client.rw_lock(name).read())
            .await;
        kept.hold(key, &name("write"), |name| client.rw_lock(name).write())
            .await;
        let permits = |name: &str| client.semaphore(name).with_permits(5).permits(2);
        if !stage.is_integer(key) {
            kept.hold(key, &name("number"), permits).await;
        }
        if key == LIKE_PERMITS {
            continue;
        }
        kept.hold(key, &name("permits"), permits).await;
        let (_, replaced) = kept.replaced.last_mut().expect("one was added");
        *replaced = format!("{{{}}}:timeout", name("permits"));
    }
    let mut copies = Vec::new();
    for (key, copy) in &kept.replaced {
        copies.push((key, copy, stage.copy(key, copy)));
    }
    let lost = futures_of(&kept.lost);
    let all = tokio::time::timeout(PATIENCE, lost).await;
    all.expect("every holder is notified");
    drop(kept.guards);
    drop(client.close().await);
    for (key, copy, was) in copies {
        stage.is_still(copy, &was, &format!("a copy of `{key}`"));
    }
    stage.end();
}

#[derive(Default)]
struct HeldLocks {
    guards: Vec<Box<dyn std::any::Any + Send>>,
    lost: Vec<LostSignal>,
    /// Keys of the corpus, and the keys of locks that are replaced by them.
    replaced: Vec<(&'static str, String)>,
}

impl HeldLocks {
    async fn hold<K: 'static>(
        &mut self,
        key: &'static str,
        name: &str,
        lock: impl Fn(&str) -> Lock<K>,
    ) {
        let lock = lock(name).with_lease(Lease::KeepAlive(LEASE));
        let guard: Guard<K> = lock.acquire().await.expect("it is free");
        self.lost.push(guard.lost());
        self.guards.push(Box::new(guard));
        self.replaced.push((key, name.to_owned()));
    }
}

async fn futures_of(lost: &[LostSignal]) {
    for lost in lost {
        assert!(lost.clone().await.is_some(), "it was not released");
    }
}

/// Renewed every second.
const LEASE: Duration = Duration::from_secs(3);
