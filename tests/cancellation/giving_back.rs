//! Releases, extensions and closes that are dropped.

use distlock::Lease;

use super::acquiring::hold;
use super::polls::{At, never_mind};
use super::stage::{Behind, Stage};
use super::support::Family;
use super::{LEASE, SOON};

pub(crate) async fn a_release_goes_on_without_its_caller<F: Family>(stage: &Stage<F>) {
    let story = async |at: At| {
        let name = stage.name();
        let guard = hold(&stage.ours.lock(name.as_str())).await;
        let held = guard.held();
        let released = at.hit(guard.release(), never_mind).await;
        assert!(!held.is_held());
        assert_eq!(held.lost().await, None, "it was given back, not lost");
        stage.is_gone(&name).await;
        released.is_some()
    };
    stage.sweep("release", stage.if_redis(3), story).await;
}

pub(crate) async fn a_partial_release_goes_on_without_its_caller<F: Family>(stage: &Stage<F>) {
    let story = async |at: At| {
        let name = stage.name();
        let owner = stage.ours.new_owner();
        let lock = stage.ours.lock(name.as_str()).with_owner(&owner);
        let (outer, inner) = (hold(&lock).await, hold(&lock).await);
        assert_eq!(outer.hold_count(), 2);
        stage.held_by(&outer).await;
        let released = at.hit(inner.release(), never_mind).await;
        assert_eq!(outer.hold_count(), 1);
        stage.held_by(&outer).await;
        outer.release().await.unwrap();
        stage.is_gone(&name).await;
        released.is_some()
    };
    stage
        .sweep("partial release", stage.if_redis(3), story)
        .await;
}

/// The lock goes to the next in line: in memory, or through the store.
pub(crate) async fn a_release_that_is_dropped_lets_the_next_one_in<F: Family>(stage: &Stage<F>) {
    let through_the_store = stage.with(|builder| builder.handoff_limit(0)).await;
    for (what, stage, places) in [
        ("release to the next in memory", stage, 1),
        (
            "release to the next by the store",
            &through_the_store,
            stage.if_redis(3),
        ),
    ] {
        let story = async |at: At| {
            let name = stage.name();
            let lock = stage.ours.lock(name.as_str());
            let guard = hold(&stage.ours.against(name.as_str())).await;
            let (next, last) = (Behind::wait(&lock), Behind::wait(&lock));
            let released = at.hit(guard.release(), never_mind).await;
            let next = next.gets_its_turn().await;
            if !F::SHARED {
                stage.held_by(&next).await;
            }
            next.release().await.unwrap();
            let last = last.gets_its_turn().await;
            stage.held_by(&last).await;
            last.release().await.unwrap();
            stage.is_gone(&name).await;
            released.is_some()
        };
        stage.sweep(what, places, story).await;
    }
}

pub(crate) async fn an_extension_leaves_the_lock_held<F: Family>(stage: &Stage<F>) {
    let story = async |at: At| {
        let name = stage.name();
        let lock = stage.ours.lock(name.as_str());
        let lock = lock.with_lease(Lease::Fixed(LEASE));
        let guard = hold(&lock).await;
        let extended = at.hit(guard.extend(LEASE * 2), never_mind).await;
        assert!(guard.remaining() <= LEASE * 2);
        stage.held_by(&guard).await;
        guard.release().await.unwrap();
        stage.is_gone(&name).await;
        extended.is_some()
    };
    stage.sweep("extend", stage.if_redis(3), story).await;
}

/// From its first poll on, what is held goes back and nobody waits any more, awaited or not.
pub(crate) async fn a_close_goes_on_without_its_caller<F: Family>(stage: &Stage<F>) {
    let story = async |at: At| {
        let stage = stage.with(|builder| builder).await;
        stage.is_at_rest();
        let (name, waited_for) = (stage.name(), stage.name());
        let guard = hold(&stage.ours.lock(name.as_str())).await;
        let theirs = hold(&stage.theirs.against(waited_for.as_str())).await;
        let mut waiting = Box::pin(stage.ours.lock(waited_for.as_str()).acquire());
        assert!(super::polls::begin(waiting.as_mut()));
        let closed = at.hit(stage.ours.close(), never_mind).await;
        if at.polls > 0 {
            let waited = tokio::time::timeout(SOON, waiting).await;
            assert!(waited.expect("nobody waits any more").is_err());
            assert!(!guard.is_held());
        } else {
            drop(waiting);
            assert!(guard.is_held());
            drop(guard);
        }
        theirs.release().await.unwrap();
        stage.is_gone(&name).await;
        stage.is_gone(&waited_for).await;
        closed.is_some()
    };
    stage.sweep("close", 1, story).await;
}
