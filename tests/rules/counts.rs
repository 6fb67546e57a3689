//! 3.2 Counts are absolute and go one way.

use distlock::{Error, LostReason};

use super::support::Fault;
use super::{ACQUIRE, PASS, RELEASE, World, connect, eventually, ms, script, take};
use super::{PATIENCE, RENEW, UNDO};

/// 3.2: every script arrives twice, as if each had been sent again after a lost reply.
#[tokio::test]
async fn sending_an_acquire_or_release_twice_changes_nothing() {
    let world = World::start();
    let client = connect(world.builder().handoff_limit(0)).await;
    for text in [ACQUIRE, PASS, RELEASE, RENEW, UNDO] {
        world.proxy.rule(script(text), Fault::DuplicateRequest);
    }
    let me = client.new_owner();
    let lock = client.lock("stock").with_owner(&me);
    let outer = take(lock.clone()).await;
    assert_eq!(world.holder("stock"), Some((outer.owner(), 1)));
    let inner = take(lock.clone()).await;
    assert_eq!(world.holder("stock"), Some((outer.owner(), 2)));
    let innermost = take(lock).await;
    assert_eq!(world.holder("stock"), Some((outer.owner(), 3)));

    innermost.release().await.expect("it is ours");
    assert_eq!(world.holder("stock"), Some((outer.owner(), 2)));
    // In the background, which sends it on another connection.
    drop(inner);
    eventually(PATIENCE, "the count follows", async || {
        world.count("stock") == 1
    })
    .await;
    outer.release().await.expect("it is ours");
    assert_eq!(world.holder("stock"), None);
    world.injected(6).await;
}

/// 3.2: Redisson #7367. The reply to an acquire is lost, the caller tries again, and the count stands
/// at 2 for one holder: held for ever.
#[tokio::test]
async fn after_a_lost_reply_the_hold_count_is_not_2() {
    let world = World::start();
    let client = world.client().await;
    let me = client.new_owner();
    let lock = client.lock("stock").with_owner(&me);
    world.proxy.rule(script(ACQUIRE).nth(1), Fault::CutAfter);
    let lost = lock.try_acquire().await;
    assert!(matches!(lost, Err(Error::Unavailable { .. })), "{lost:?}");
    assert_eq!(world.proxy.injected().len(), 1, "it was carried out");

    let guard = take(lock.clone()).await;
    assert_eq!(world.holder("stock"), Some((guard.owner(), 1)));

    // The same for a re-entry.
    world.proxy.rule(script(ACQUIRE).nth(1), Fault::CutAfter);
    let lost = lock.try_acquire().await;
    assert!(matches!(lost, Err(Error::Unavailable { .. })), "{lost:?}");
    world.injected(2).await;
    eventually(PATIENCE, "the count is the guards'", async || {
        world.count("stock") == 1
    })
    .await;
    let inner = take(lock).await;
    assert_eq!(world.holder("stock"), Some((guard.owner(), 2)));
    inner.release().await.expect("it is ours");
    guard.release().await.expect("it is ours");
    assert_eq!(world.holder("stock"), None);
}

/// 3.2: n ≥ 2 only where the field exists. A re-entry into a hold that is gone would make the outer
/// one up.
#[tokio::test]
async fn a_re_entry_does_not_make_up_a_hold_that_is_gone() {
    let world = World::start();
    let client = world.client().await;
    let me = client.new_owner();
    let lock = client.lock("stock").with_owner(&me);
    let outer = take(lock.clone()).await;
    assert!(outer.is_held());
    world.server.cmd(&["DEL", "stock"]);
    let inner = lock.try_acquire().await;
    assert!(
        matches!(
            inner,
            Err(Error::Lost {
                reason: LostReason::Removed,
                ..
            })
        ),
        "{inner:?}"
    );
    assert!(!outer.is_held(), "it has been told");
    assert_eq!(world.holder("stock"), None);
}

/// 3.2: a release only lowers and never creates, also where somebody else holds the lock by now.
#[tokio::test]
async fn a_release_creates_nothing_and_touches_nobody_elses_hold() {
    let world = World::start();
    let client = world.client().await;
    let me = client.new_owner();
    let lock = client.lock("stock").with_owner(&me);
    let (outer, inner) = (take(lock.clone()).await, take(lock).await);
    world.server.cmd(&["DEL", "stock"]);
    assert!(
        inner.release().await.is_err(),
        "a partial release of nothing"
    );
    assert_eq!(world.server.keys(), Vec::<String>::new());
    assert!(outer.release().await.is_err(), "a release of nothing");
    assert_eq!(world.server.keys(), Vec::<String>::new());

    let guard = take(client.lock("stock")).await;
    world.server.cmd(&["DEL", "stock"]);
    let other = take(world.other().await.lock("stock")).await;
    let late = guard.release().await;
    assert!(
        matches!(
            late,
            Err(Error::Lost {
                reason: LostReason::TakenOver,
                ..
            })
        ),
        "{late:?}"
    );
    assert_eq!(world.holder("stock"), Some((other.owner(), 1)));
}

/// 3.2: a partial release whose reply is lost is finished by sending the number of guards that are
/// left *then*, not one less.
#[tokio::test]
async fn a_partial_release_that_is_sent_again_lowers_the_count_once() {
    let world = World::start();
    let client = world.hasty(ms(1000)).await;
    let me = client.new_owner();
    let lock = client.lock("stock").with_owner(&me);
    let outer = take(lock.clone()).await;
    let (second, third) = (take(lock.clone()).await, take(lock).await);
    world.proxy.rule(script(RELEASE).nth(1), Fault::HoldReply);
    assert!(third.release().await.is_err(), "its reply is held");
    eventually(PATIENCE, "cleanup sends it again", async || {
        world.runs(RELEASE).len() >= 2
    })
    .await;
    world.proxy.let_go();
    assert_eq!(world.holder("stock"), Some((outer.owner(), 2)));
    assert_eq!(outer.hold_count(), 2);
    second.release().await.expect("it is ours");
    assert_eq!(world.holder("stock"), Some((outer.owner(), 1)));
}
