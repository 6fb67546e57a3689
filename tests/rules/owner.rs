//! 3.1 An acquisition from zero gets an owner nobody has used before.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};

use distlock::{Backoff, Wait};

use super::support::{Fault, eventually};
use super::{
    ACQUIRE, PATIENCE, RELEASE, World, begun, connect, fixed, in_time, ms, pending_until, script,
    soon, take,
};

/// 3.1: a `release(0)` that was queued, and sent again because nobody heard of it, arrives once the
/// same owner holds the lock anew.
#[tokio::test]
async fn a_queued_release_never_frees_a_later_hold_of_the_same_owner() {
    let world = World::start();
    let client = world.hasty(ms(1000)).await;
    let me = client.new_owner();
    let lock = client.lock("stock").with_owner(&me);

    let first = take(lock.clone()).await;
    let old = first.owner();
    world.proxy.rule(script(RELEASE).nth(1), Fault::HoldRequest);
    drop(first);
    world.injected(1).await;
    // The release is tried again on another connection; the first one is still under way.
    let second = take(lock).await;
    assert_ne!(second.owner(), old, "its release is still under way");
    assert!(world.runs_for(RELEASE, &old) >= 2);

    world.let_a_script_go().await;
    assert_eq!(world.holder("stock"), Some((second.owner(), 1)));
    second.release().await.expect("it is still ours");
    assert_eq!(world.holder("stock"), None);
}

/// 3.1: both branches of a `join!` have the same task id and the same thread.
#[tokio::test]
async fn both_branches_of_a_join_do_not_both_hold_the_lock() {
    let world = World::start();
    let client = world.other().await;
    let inside = AtomicU32::new(0);
    let branch = || async {
        for _ in 0..20 {
            let guard = take(client.lock("stock")).await;
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
            tokio::task::yield_now().await;
            inside.fetch_sub(1, Ordering::SeqCst);
            guard.release().await.expect("it is ours");
        }
    };
    in_time("their turns", async { tokio::join!(branch(), branch()) }).await;

    let (one, two) = tokio::join!(
        client.lock("order").try_acquire(),
        client.lock("order").try_acquire()
    );
    let got = [one.expect("answered"), two.expect("answered")];
    assert_eq!(got.iter().flatten().count(), 1, "{got:?}");
}

/// 3.1: one whose undo has been queued is never used again either; on the wire an owner is Redisson's
/// `<uuid v4>:<i64>`.
#[tokio::test]
async fn every_acquisition_from_zero_has_an_owner_of_its_own_in_redissons_form() {
    let world = World::start();
    // Nothing is handed on, so that every grant is one from zero.
    let client = connect(world.builder().handoff_limit(0)).await;
    let me = client.new_owner();
    let mut owners = HashSet::new();
    for round in 0..20 {
        let mut lock = client.lock("stock").with_lease(fixed(30_000));
        if round % 2 == 0 {
            lock = lock.with_owner(&me);
        }
        let guard = take(lock).await;
        assert_eq!(world.holder("stock"), Some((guard.owner(), 1)));
        let owner = guard.owner();
        let (uuid, number) = owner.split_once(':').expect("a colon between the halves");
        let uuid = uuid::Uuid::parse_str(uuid).expect("the first half is a uuid");
        assert_eq!(uuid.get_version_num(), 4);
        number.parse::<i64>().expect("the second half is a number");
        assert!(owners.insert(owner), "used before");
        if round % 3 == 0 {
            drop(guard);
            world.free("stock").await;
        } else {
            guard.release().await.expect("it is ours");
        }
    }
}

/// 3.1: a waiter is one owner however often it asks, so that it can keep its place in a store that
/// queues; but not any more once a request of its was in doubt, and is being undone.
#[tokio::test]
async fn a_waiter_keeps_its_owner_until_a_request_in_that_name_is_in_doubt() {
    let world = World::start();
    // Long: a second doubt, of a machine that was slow for a moment, would be a third owner.
    let client = world.hasty(ms(2_000)).await;
    let held = take(world.other().await.lock("stock")).await;
    let often = Wait::Poll(Backoff::new(ms(5), ms(5)));
    let mut waiting = begun(client.lock("stock").with_wait(often).acquire());
    let asked_as = |world: &World| {
        let runs = world.runs(ACQUIRE).into_iter();
        let mut owners: Vec<_> = runs.map(|words| words[5].clone()).collect();
        let asked = owners.len();
        owners.dedup();
        (asked, owners)
    };
    pending_until(&mut waiting, "it has asked often", async || {
        asked_as(&world).0 > 10
    })
    .await;
    assert_eq!(asked_as(&world).1.len(), 1, "one owner all along");

    world.proxy.rule(script(ACQUIRE).nth(1), Fault::HoldReply);
    pending_until(&mut waiting, "it asks on", async || {
        asked_as(&world).1.len() > 1
    })
    .await;
    held.release().await.expect("it is ours");
    let guard = in_time("the lock", waiting).await.expect("it is free");
    let owners = asked_as(&world).1;
    assert_eq!(
        owners.len(),
        2,
        "a fresh one after the doubt, and never the old one again"
    );
    assert_eq!(guard.owner(), owners[1]);
}

/// 3.1: what users name is local to one client, and moves with a hand-off.
#[tokio::test]
async fn a_hand_off_moves_the_owners_name_with_it() {
    let world = World::start();
    let client = connect(world.builder().handoff_window(PATIENCE)).await;
    let (giver, taker) = (client.new_owner(), client.new_owner());
    let held = take(client.lock("stock").with_owner(&giver)).await;
    let waiting = begun(client.lock("stock").with_owner(&taker).acquire());

    let wire = held.owner();
    held.release().await.expect("it is ours");
    let handed = soon("its turn", waiting).await.expect("it is handed on");
    assert_eq!(handed.owner(), wire, "handed on, not released");

    // The giver has nothing to enter again; the taker has.
    assert!(
        client
            .lock("stock")
            .with_owner(&giver)
            .try_acquire()
            .await
            .expect("answered")
            .is_none()
    );
    let inner = client
        .lock("stock")
        .with_owner(&taker)
        .try_acquire()
        .await
        .expect("answered");
    let inner = inner.expect("its owner holds it");
    assert_eq!(world.holder("stock"), Some((wire, 2)));
    inner.release().await.expect("it is ours");
    handed.release().await.expect("it is ours");
    eventually(PATIENCE, "free", async || world.count("stock") == 0).await;
}

/// 3.1: an owner of another client is somebody else, and is refused rather than mixed up.
#[tokio::test]
async fn an_owner_of_another_client_is_refused() {
    let world = World::start();
    let (one, two) = (world.other().await, world.other().await);
    let stranger = one.new_owner();
    let _held = take(one.lock("stock").with_owner(&stranger)).await;
    let refused = two.lock("stock").with_owner(&stranger).try_acquire().await;
    assert!(
        matches!(refused, Err(distlock::Error::InvalidOption { .. })),
        "{refused:?}"
    );
}
