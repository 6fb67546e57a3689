//! A hold that has ended is never renewed again, however it ended.

use std::ops::RangeInclusive;
use std::time::Duration;

use distlock::{Lease, LostReason};
use tokio::time::sleep;

use super::{COMMAND, GONE, LEASE, LeaseFixture, PERIOD, ROUND_TRIP, connect, renewed};
use crate::support::{PATIENCE, eventually, simulated};

#[test]
fn a_released_dropped_forgotten_lost_closed_or_fixed_hold_is_not_renewed() {
    simulated(async || {
        let scene = LeaseFixture::new().await;
        let closing = connect(&scene.proxy.url(), LEASE, COMMAND).await;
        let alive = scene.hold("alive").await;
        let [released, dropped] = [scene.hold("released").await, scene.hold("dropped").await];
        let [forgotten, lost] = [scene.hold("forgotten").await, scene.hold("lost").await];
        let closed = closing.lock("closed").acquire().await.unwrap();
        let fixed = scene.client.lock("fixed").with_lease(FIXED);
        let fixed = fixed.acquire().await.unwrap();
        let over = [&released, &dropped, &forgotten, &lost, &closed, &fixed];
        let over = over.map(|guard| (guard.name().to_owned(), guard.owner()));

        renewed(&alive).await;
        scene.server.cmd(&["DEL", "lost"]);
        let reason = lost.lost().await.map(|lost| lost.reason);
        assert_eq!(reason, Some(LostReason::Removed));
        // The release falls between two renewals, so that none is under way.
        sleep(PERIOD / 2).await;
        released.release().await.unwrap();
        drop(dropped);
        forgotten.forget();
        closing.close().await.unwrap();
        assert_eq!(scene.server.pttl("closed"), GONE, "`close` has waited");
        assert!(!closed.is_held());
        let counted = over.each_ref().map(|(_, owner)| scene.journal.count(owner));
        let alive_before = scene.journal.count(&alive.owner());

        sleep(3 * PERIOD).await;
        let renewals = scene.journal.count(&alive.owner()) - alive_before;
        assert!(PER_LEASE.contains(&renewals), "{renewals}");
        for ((name, owner), counted) in over.iter().zip(counted) {
            assert_eq!(counted > 0, name != "fixed", "`{name}`: {counted}");
            assert_eq!(scene.journal.count(owner), counted, "`{name}`");
        }
        let reason = fixed.lost().await.map(|lost| lost.reason);
        assert_eq!(reason, Some(LostReason::Expired));
        eventually(PATIENCE, "nothing of them is left", async || {
            over.iter().all(|(name, _)| scene.server.pttl(name) == GONE)
        })
        .await;
    });
}

/// The number of renewals of a hold in the time of a lease. They are sent on a grid, each a little early.
const PER_LEASE: RangeInclusive<usize> = 3..=4;
const FIXED: Lease = Lease::Fixed(Duration::from_secs(25));

/// In Redisson the renewals of an outer hold end with an inner hold that has a fixed lease, and the renewals of an inner hold that is kept
/// alive go on after its end.
#[test]
fn renewals_continue_for_as_long_as_one_guard_of_an_owner_is_kept_alive() {
    simulated(async || {
        let scene = LeaseFixture::new().await;
        let owner = scene.client.new_owner();
        let lock = scene.client.lock("nested").with_owner(&owner);
        let short = lock.clone().with_lease(Lease::Fixed(PERIOD));
        let outer = lock.acquire().await.unwrap();
        let inner = [
            short.acquire().await.unwrap(),
            short.acquire().await.unwrap(),
            short.acquire().await.unwrap(),
        ];
        let [released, dropped, forgotten] = inner;
        assert_eq!(outer.hold_count(), 4);
        released.release().await.unwrap();
        drop(dropped);
        forgotten.forget();
        sleep(2 * LEASE).await;
        outer.check().expect("it is kept alive");
        assert_eq!(outer.hold_count(), 1);
        outer.release().await.unwrap();
        assert_eq!(scene.server.pttl("nested"), GONE);

        let fixed = lock.clone().with_lease(FIXED).acquire().await.unwrap();
        let end = fixed.valid_until();
        let inner = lock.acquire().await.unwrap();
        sleep(2 * PERIOD).await;
        let renewals = scene.journal.count(&fixed.owner());
        assert!(renewals >= 2, "{renewals}");
        inner.release().await.unwrap();
        sleep(LEASE).await;
        assert_eq!(scene.journal.count(&fixed.owner()), renewals);
        fixed.check().expect("it has its own time still");
        assert_eq!(fixed.valid_until(), end, "neither shorter nor longer");
    });
}

/// In Redisson timers multiply with every lock that is acquired while none is held.
#[test]
fn d30_short_lived_locks_cause_no_extra_renewals_of_others() {
    simulated(async || {
        let scene = LeaseFixture::new().await;
        for _ in 0..300 {
            scene.hold("comes-and-goes").await.release().await.unwrap();
        }
        let guard = scene.hold("stays").await;
        sleep(10 * PERIOD).await;
        let renewals = scene.journal.count(&guard.owner());
        assert!((10..=11).contains(&renewals), "{renewals}");
    });
}

/// Redisson renews only the first thread of a name, even after that thread has lost the lock.
#[test]
fn d31_a_hold_that_follows_a_lost_one_is_renewed() {
    simulated(async || {
        let scene = LeaseFixture::new().await;
        let lock = scene.client.lock("followed");
        let loser = lock.clone().with_owner(&scene.client.new_owner());
        let mut lost = Vec::new();
        for _ in 0..3 {
            lost.push(loser.acquire().await.unwrap());
        }
        scene.server.cmd(&["DEL", "followed"]);
        let guard = lock.acquire().await.unwrap();
        sleep(LEASE + ROUND_TRIP).await;
        let renewals = scene.journal.count(&guard.owner());
        assert!(PER_LEASE.contains(&renewals), "{renewals}");
        guard.check().expect("it is kept alive");
        assert!(lost.iter().all(|lost| !lost.is_held()));
    });
}
