//! 3.5 and 3.6 How long a hold can be relied on, and how it ends.

use std::time::{Duration, Instant};

use distlock::{Error, LostReason};

use super::support::{Fault, eventually};
use super::{ACQUIRE, PASS, PATIENCE, RELEASE, RENEW, UNDO, World, begun, connect, fixed, in_time};
use super::{keep_alive, ms, script, soon, take};

/// 3.5: the server's clock starts when the request arrives there; ours must start no later, so that we
/// stop believing before it stops remembering.
#[tokio::test]
async fn validity_counts_from_before_the_request_was_sent() {
    const DELAY: Duration = ms(250);
    const LEASE: Duration = ms(8000);
    let world = World::start();
    let client = world.client().await;
    for fault in [Fault::DelayReply(DELAY), Fault::DelayRequest(DELAY)] {
        world.proxy.clear_rules();
        world.proxy.rule(script(ACQUIRE).nth(1), fault);
        let guard = take(
            client
                .lock("stock")
                .with_lease(distlock::Lease::Fixed(LEASE)),
        )
        .await;
        let latest = Instant::now() - DELAY + LEASE;
        let valid_until = guard.valid_until();
        assert!(valid_until <= latest, "{fault:?}: counted from the reply");
        // Nor is anything given away: two clocks need some allowance, no more.
        assert!(valid_until + LEASE / 2 > latest, "{fault:?}");

        world.proxy.rule(script(RENEW).nth(1), fault);
        guard.extend(LEASE).await.expect("it is ours");
        let latest = Instant::now() - DELAY + LEASE;
        assert!(guard.valid_until() > valid_until, "extended");
        assert!(
            guard.valid_until() <= latest,
            "{fault:?}: counted from the reply"
        );
        guard.release().await.expect("it is ours");
    }

    // The watchdog's renewals, too.
    let guard = take(client.lock("stock").with_lease(keep_alive(9000))).await;
    let granted = guard.valid_until();
    world.proxy.rule(script(RENEW), Fault::DelayReply(DELAY));
    eventually(PATIENCE, "it is renewed", async || {
        guard.valid_until() > granted + ms(100)
    })
    .await;
    let latest = Instant::now() - DELAY + ms(9000);
    assert!(guard.valid_until() <= latest, "counted from the reply");
}

/// 3.5: a grant whose lease is over when we hear of it is worth nothing, and must not stay either.
#[tokio::test]
async fn a_grant_with_no_validity_left_is_undone_not_returned() {
    let world = World::start();
    let client = world.client().await;
    // Stalled on its way there, so that the server still has the grant when we hear of it.
    world
        .proxy
        .rule(script(ACQUIRE).nth(1), Fault::DelayRequest(ms(500)));
    let late = client
        .lock("stock")
        .with_lease(fixed(400))
        .try_acquire()
        .await;
    assert!(
        matches!(
            late,
            Err(Error::Lost {
                reason: LostReason::Expired,
                ..
            })
        ),
        "{late:?}"
    );
    let asked = &world.runs(ACQUIRE)[0];
    let owner = asked
        .iter()
        .find(|word| word.matches('-').count() == 4 && !word.contains('{'));
    let owner = owner.expect("an owner is among its words").clone();
    eventually(PATIENCE, "it is undone", async || {
        world.runs_for(UNDO, &owner) >= 1
    })
    .await;
    world.free("stock").await;

    // The same when only the reply was late.
    world
        .proxy
        .rule(script(ACQUIRE).nth(1), Fault::DelayReply(ms(300)));
    let late = client
        .lock("stock")
        .with_lease(keep_alive(200))
        .acquire()
        .await;
    assert!(matches!(late, Err(Error::Lost { .. })), "{late:?}");
    eventually(PATIENCE, "it is undone", async || {
        world.runs(UNDO).len() >= 2
    })
    .await;
    assert_eq!(world.runs(RENEW).len(), 0, "never granted, never renewed");
}

/// 3.5: the same for a lock that the server has passed on to the next in line.
#[tokio::test]
async fn a_lock_passed_on_with_no_validity_left_is_undone_not_returned() {
    let world = World::start();
    let builder = world.builder().handoff_limit(0);
    let client = connect(builder.command_timeout(PATIENCE)).await;
    let lock = client.lock("stock").with_lease(keep_alive(4000));
    let held = take(lock.clone()).await;
    let next = begun(lock.acquire());
    world
        .proxy
        .rule(script(PASS).nth(1), Fault::DelayReply(ms(4400)));
    held.release().await.expect("it was ours");
    let next = soon("its turn", next).await.expect("it is free");
    assert!(next.is_held());
    let passed = &world.runs(PASS)[0];
    assert!(!passed.contains(&next.owner()), "returned all the same");
    eventually(PATIENCE, "it is undone", async || {
        !world.runs(UNDO).is_empty()
    })
    .await;
    assert_eq!(world.holder("stock"), Some((next.owner(), 1)));
}

/// 3.5: a refused renewal ends it at once, not when the lease would.
#[tokio::test]
async fn a_refused_renewal_ends_it_at_once() {
    let world = World::start();
    let client = world.client().await;
    let removed = take(client.lock("removed").with_lease(keep_alive(6000))).await;
    let taken = take(client.lock("taken").with_lease(keep_alive(6000))).await;
    assert!(removed.is_held() && taken.is_held());
    let valid_until = removed.valid_until().min(taken.valid_until());
    world.server.cmd(&["DEL", "removed", "taken"]);
    world.server.cmd(&["HSET", "taken", "somebody:1", "1"]);
    let (removed_lost, taken_lost) = in_time("the loss", async {
        tokio::join!(removed.lost(), taken.lost())
    })
    .await;
    assert!(
        Instant::now() < valid_until,
        "only noticed when the lease was over"
    );
    assert_eq!(
        removed_lost.map(|lost| lost.reason),
        Some(LostReason::Removed)
    );
    assert_eq!(
        taken_lost.map(|lost| lost.reason),
        Some(LostReason::TakenOver)
    );
    assert!(!removed.is_held() && !taken.is_held());
    assert_eq!(world.holder("taken"), Some(("somebody:1".to_owned(), 1)));
}

/// 3.5: a failed renewal changes nothing until the lease is over; one that succeeds heals it.
#[tokio::test]
async fn a_failed_renewal_changes_nothing_while_there_is_time() {
    let world = World::start();
    let client = world.client().await;
    let guard = take(client.lock("stock").with_lease(keep_alive(6000))).await;
    let valid_until = guard.valid_until();
    assert_eq!(guard.at_risk(), None);
    for attempt in 1..=2 {
        world
            .proxy
            .rule(script(RENEW).nth(attempt), Fault::CutBefore);
    }
    eventually(PATIENCE, "a renewal has failed", async || {
        guard.at_risk().is_some()
    })
    .await;
    assert!(guard.is_held(), "there is time left");
    let moved = guard.valid_until().max(valid_until) - guard.valid_until().min(valid_until);
    assert!(moved < ms(20), "moved by {moved:?}");
    eventually(PATIENCE, "a later one succeeds", async || {
        guard.at_risk().is_none()
    })
    .await;
    assert!(guard.is_held());
    assert!(guard.valid_until() > valid_until + ms(100));
}

/// 3.5: once lost, never un-lost, even if the server has the very same hold again.
#[tokio::test]
async fn a_lost_guard_stays_lost_when_its_hold_comes_back() {
    let world = World::start();
    let client = world.client().await;
    let guard = take(client.lock("stock").with_lease(keep_alive(6000))).await;
    world.server.cmd(&["DEL", "stock"]);
    assert!(in_time("the loss", guard.lost()).await.is_some());
    let renewals = world.runs(RENEW).len();
    eventually(PATIENCE, "its release was sent", async || {
        world.runs_for(RELEASE, &guard.owner()) >= 1
    })
    .await;
    world.server.cmd(&["HSET", "stock", &guard.owner(), "1"]);
    // Longer than between two renewals.
    let until = Instant::now() + ms(3000);
    while Instant::now() < until {
        assert!(!guard.is_held());
        tokio::time::sleep(ms(20)).await;
    }
    assert_eq!(world.runs(RENEW).len(), renewals, "renewed after the loss");
    assert!(matches!(guard.release().await, Err(Error::Lost { .. })));
}

/// 3.5: going lost stops renewal and still sends `release(0)`: here the server would keep the lock far
/// longer than its holder believes in it.
#[tokio::test]
async fn going_lost_still_sends_release_0() {
    let world = World::start();
    let client = world.client().await;
    // By the clock: renewals fail until the lease is over.
    let cut_off = take(client.lock("cut off").with_lease(keep_alive(4000))).await;
    world.proxy.rule(script(RENEW), Fault::CutBefore);
    world.server.cmd(&["PEXPIRE", "cut off", "600000"]);
    // By the longest hold.
    let lock = client.lock("too long").with_lease(fixed(600_000));
    let too_long = take(lock.with_max_hold(ms(4000))).await;
    assert_eq!(world.count("cut off") + world.count("too long"), 2);

    let lost = in_time("the loss", too_long.lost())
        .await
        .map(|lost| lost.reason);
    assert_eq!(lost, Some(LostReason::MaxHold));
    let lost = in_time("the loss", cut_off.lost())
        .await
        .map(|lost| lost.reason);
    assert_eq!(lost, Some(LostReason::Expired));
    world.free("too long").await;
    world.free("cut off").await;
    for guard in [cut_off, too_long] {
        assert!(world.runs_for(RELEASE, &guard.owner()) >= 1);
    }
}

/// 3.6: a renewal on the other connection overtakes its grant, is told "not yours", and ends a guard
/// that is good. Nothing is renewed before its grant is known.
#[tokio::test]
async fn a_renewal_that_overtakes_its_grant_does_not_end_a_good_guard() {
    let world = World::start();
    let client = world.client().await;
    for fault in [Fault::HoldRequest, Fault::HoldReply] {
        world.proxy.clear_requests();
        world.proxy.rule(script(ACQUIRE).nth(1), fault);
        // Were it renewed already, it would be every three seconds.
        let lock = client.lock("stock").with_lease(keep_alive(9000));
        let granted = tokio::spawn(take(lock));
        tokio::time::sleep(ms(3600)).await;
        assert_eq!(world.runs(RENEW).len(), 0, "renewed before its grant");
        world.proxy.clear_rules();
        world.proxy.let_go();
        let guard = in_time("the grant", granted).await.expect("no panic");
        let owner = guard.owner();
        eventually(PATIENCE, "it is renewed", async || {
            world.runs_for(RENEW, &owner) >= 2
        })
        .await;
        assert!(guard.is_held(), "{fault:?}");
        assert_eq!(world.holder("stock"), Some((owner, 1)));
        guard.release().await.expect("it is ours");
    }
}
