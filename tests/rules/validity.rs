//! 3.5 and 3.6 The validity of a hold, and how it ends.

use std::time::Duration;

use distlock::{Error, Guard, LostReason};
use tokio::time::Instant;

use super::{PATIENCE, attack, becomes, begun, connect, fixed, keep_alive, ms, runs, soon, take};
use crate::support::{Fault, Script};

/// 3.5: the server's clock starts when the request arrives there; the client's must start no later, so that the guard becomes invalid
/// before the store's lease expires.
#[test]
fn validity_counts_from_before_the_request_was_sent() {
    const DELAY: Duration = ms(250);
    const LEASE: Duration = ms(9000);
    /// Checks the validity of a guard whose request was delayed and is answered now.
    fn counted(guard: &Guard, what: &str) {
        let left = guard.valid_until() - Instant::now().into_std();
        assert!(left <= LEASE - DELAY, "{what}: {left:?}, from the reply");
        // Validity is not wasted either: two clocks need some allowance, no more.
        assert!(left > LEASE - DELAY - ms(400), "{what}: {left:?}");
    }
    attack(async |world| {
        let client = world.client().await;
        for fault in [Fault::DelayReply(DELAY), Fault::DelayRequest(DELAY)] {
            world.next(Script::Acquire, fault);
            let guard = take(client.lock("stock").with_lease(fixed(9000))).await;
            counted(&guard, "granted");
            tokio::time::sleep(ms(2000)).await;
            world.next(Script::Renew, fault);
            guard.extend(LEASE).await.expect("it is ours");
            counted(&guard, "extended");
            guard.release().await.expect("it is ours");
        }
        // The same holds for the watchdog's renewals.
        let guard = take(client.lock("stock").with_lease(keep_alive(9000))).await;
        let granted = guard.valid_until();
        world.next(Script::Renew, Fault::DelayReply(DELAY));
        becomes("it is renewed", || guard.valid_until() > granted).await;
        counted(&guard, "renewed");
    });
}

/// 3.5: a grant whose lease has expired when its reply arrives is worthless, and must not stay in the store either.
#[test]
fn a_grant_with_no_validity_left_is_undone_not_returned() {
    attack(async |world| {
        let client = world.client().await;
        for (undone, fault, lease) in [
            // The request stalls on its way, so that the server still has the grant when the reply arrives.
            (1, Fault::DelayRequest(ms(500)), fixed(400)),
            (2, Fault::DelayReply(ms(300)), keep_alive(200)),
        ] {
            world.next(Script::Acquire, fault);
            let late = client.lock("stock").with_lease(lease).try_acquire().await;
            let Err(Error::Lost { reason, .. }) = late else {
                panic!("{fault:?}: {late:?}");
            };
            assert_eq!(reason, LostReason::Expired);
            let owner = &world.runs(Script::Acquire)[undone - 1][5];
            becomes("it is undone", || world.runs_for(Script::Undo, owner) >= 1).await;
            world.free("stock").await;
        }
        assert_eq!(world.runs(Script::Renew).len(), 0, "never granted");
    });
}

/// 3.5: the same holds for a lock that the server has granted to the next waiter in the queue.
#[test]
fn a_lock_handed_off_with_no_validity_left_is_undone_not_returned() {
    attack(async |world| {
        let builder = world.builder().handoff_limit(0);
        let client = connect(builder.command_timeout(PATIENCE)).await;
        let lock = client.lock("stock").with_lease(keep_alive(4000));
        let held = take(lock.clone()).await;
        let next = begun(lock.acquire());
        world.next(Script::Pass, Fault::DelayReply(ms(4400)));
        held.release().await.expect("it was ours");
        let next = soon("its turn", next).await.expect("it is free");
        assert!(next.is_held());
        let passed = &world.runs(Script::Pass)[0];
        assert!(!passed.contains(&next.owner()), "returned all the same");
        becomes("it is undone", || !world.runs(Script::Undo).is_empty()).await;
        assert_eq!(world.holder("stock"), Some((next.owner(), 1)));
    });
}

/// 3.5: a lost guard stays lost, even if the server has the very same hold again.
#[test]
fn a_lost_guard_stays_lost_when_its_hold_reappears() {
    attack(async |world| {
        let client = world.client().await;
        let guard = take(client.lock("stock").with_lease(keep_alive(6000))).await;
        world.server.cmd(&["DEL", "stock"]);
        assert!(guard.lost().await.is_some());
        let renewals = world.runs(Script::Renew).len();
        becomes("its release was sent", || {
            world.runs_for(Script::Release, &guard.owner()) >= 1
        })
        .await;
        world.server.cmd(&["HSET", "stock", &guard.owner(), "1"]);
        for _ in 0..1000 {
            assert!(!guard.is_held());
            tokio::time::sleep(ms(20)).await;
        }
        assert_eq!(world.runs(Script::Renew).len(), renewals);
        assert!(matches!(guard.release().await, Err(Error::Lost { .. })));
    });
}

/// 3.5: a loss stops renewal and still sends `release(0)`: here the server would keep the lock far longer than the guard is valid.
#[test]
fn a_loss_still_sends_release_0() {
    attack(async |world| {
        let client = world.client().await;
        // This hold is lost by the clock: renewals fail until the lease has expired.
        let cut_off = take(client.lock("cut off").with_lease(keep_alive(4000))).await;
        world.proxy.rule(runs(Script::Renew), Fault::CutBefore);
        world.server.cmd(&["PEXPIRE", "cut off", "600000"]);
        // This hold is lost by its `max_hold`.
        let lock = client.lock("too long").with_lease(fixed(600_000));
        let too_long = take(lock.with_max_hold(ms(4000))).await;
        assert_eq!(world.count("cut off") + world.count("too long"), 2);
        for (guard, reason) in [
            (too_long, LostReason::MaxHold),
            (cut_off, LostReason::Expired),
        ] {
            let lost = guard.lost().await.map(|lost| lost.reason);
            assert_eq!(lost, Some(reason));
            world.free(guard.name()).await;
            assert!(world.runs_for(Script::Release, &guard.owner()) >= 1);
        }
    });
}

/// 3.6: a renewal on the other connection overtakes its grant, is answered "not yours", and ends a guard that is good. A hold is therefore
/// not renewed before its grant is known.
#[test]
fn a_renewal_that_overtakes_its_grant_does_not_end_a_valid_guard() {
    attack(async |world| {
        let client = connect(world.builder().command_timeout(PATIENCE)).await;
        for fault in [Fault::HoldRequest, Fault::HoldReply] {
            world.proxy.clear_requests();
            world.next(Script::Acquire, fault);
            // If it were renewed already, a renewal would come every three seconds.
            let lock = client.lock("stock").with_lease(keep_alive(9000));
            let granted = tokio::spawn(lock.acquire());
            tokio::time::sleep(ms(3600)).await;
            assert_eq!(world.runs(Script::Renew).len(), 0, "before its grant");
            world.proxy.deliver_held();
            let guard = soon("the grant", granted).await.expect("no panic");
            let guard = guard.expect("it is free");
            let owner = guard.owner();
            becomes("it is renewed", || {
                world.runs_for(Script::Renew, &owner) >= 2
            })
            .await;
            assert!(guard.is_held(), "{fault:?}");
            assert_eq!(world.holder("stock"), Some((owner, 1)));
            guard.release().await.expect("it is ours");
        }
    });
}
