//! 4 The watchdog and cleanup, beside the caller and after it.

use distlock::Guard;

use super::{PATIENCE, World, attack, becomes, begun, connect, enter, fixed, keep_alive, ms};
use super::{pending_until, runs, soon, take};
use crate::support::{Fault, Script};

/// 4: a data connection on which nothing moves does not cost a lock its renewals.
#[test]
fn a_stalled_data_connection_does_not_let_leases_lapse() {
    attack(async |world| {
        let client = connect(world.builder().command_timeout(10 * PATIENCE)).await;
        let guard = take(client.lock("stock").with_lease(keep_alive(6000))).await;
        let granted = guard.valid_until();
        world.next(Script::Acquire, Fault::HoldRequest);
        let mut stuck = begun(client.lock("another").acquire());
        world.until_injected(&mut stuck, 1).await;
        pending_until(&mut stuck, "more than a lease is over", || {
            guard.check().expect("it is renewed in time");
            guard.valid_until() > granted + ms(6000)
        })
        .await;
    });
}

/// 4: a connection that is merely slow is kept. A renewal times out behind a slow release, and the next one would have to wait for a new
/// connection to the same busy server.
#[test]
fn a_slow_watchdog_connection_is_not_replaced_while_it_answers() {
    attack(async |world| {
        let client = connect(world.builder().command_timeout(PATIENCE)).await;
        let dropped = take(client.lock("dropped")).await;
        let guard = take(client.lock("stock").with_lease(keep_alive(24_000))).await;
        let greetings = || {
            let requests = world.proxy.requests();
            requests.iter().filter(|words| words[0] == "HELLO").count()
        };
        // The release is answered while the renewal, due after 8 s, waits for its 8 s in vain.
        let late = Fault::DelayReply(ms(12_000));
        world.proxy.rule(runs(Script::Release), late);
        world.next(Script::Renew, Fault::DelayRequest(ms(10_000)));
        drop(dropped);
        becomes("a renewal is given up", || guard.at_risk().is_some()).await;
        let before = greetings();
        becomes("another is answered", || guard.at_risk().is_none()).await;
        assert!(guard.is_held());
        assert_eq!(greetings(), before, "the connection was replaced");
    });
}

/// 4: the watchdog stops renewing a hold before its release is sent. A renewal behind the release would find the hold gone, or keep alive a
/// lock that has no holder.
#[test]
fn nothing_is_renewed_once_its_release_was_sent() {
    attack(async |world| {
        let client = connect(world.builder().command_timeout(PATIENCE)).await;
        let guard = take(client.lock("stock").with_lease(keep_alive(9000))).await;
        let dropped = take(client.lock("dropped").with_lease(keep_alive(9000))).await;
        let owners = [guard.owner(), dropped.owner()];
        let renewed = || {
            owners
                .each_ref()
                .map(|it| world.runs_for(Script::Renew, it))
        };
        becomes("both are renewed", || !renewed().contains(&0)).await;
        world.proxy.rule(runs(Script::Release), Fault::HoldRequest);
        let releasing = tokio::spawn(guard.release());
        world.injected(1).await;
        drop(dropped);
        world.injected(2).await;
        let before = renewed();
        // The pause is longer than the interval between two renewals.
        tokio::time::sleep(ms(4000)).await;
        assert_eq!(renewed(), before);
        world.proxy.deliver_held();
        let released = soon("the release", releasing).await.expect("no panic");
        released.expect("its lease is not over");
        world.free("stock").await;
        world.free("dropped").await;
    });
}

/// 4: a release in the background is retried until the server has executed it.
#[test]
fn a_dropped_guard_is_released_through_an_outage_of_the_network() {
    attack(async |world| {
        let client = world.short_timeout_client().await;
        let guard = take(client.lock("stock").with_lease(fixed(600_000))).await;
        world.proxy.refuse(true);
        world.proxy.cut_all();
        drop(guard);
        tokio::time::sleep(ms(60_000)).await;
        assert_eq!(world.count("stock"), 1, "there is no way to the server");
        world.proxy.refuse(false);
        world.free("stock").await;
    });
}

/// 3.4: a partial release keeps the requested lease. Redisson's puts the lease of the last acquire in its place, or thirty seconds.
#[test]
fn a_partial_release_keeps_the_lease_that_was_asked_for() {
    async fn left(world: &World, outer: &Guard, what: &str) {
        becomes(what, || world.count("stock") == 1).await;
        let left = world.server.pttl("stock");
        assert!(left > 595_000, "{what}: {left} ms");
        assert!(outer.is_held());
    }
    attack(async |world| {
        let client = world.client().await;
        let lock = client.lock("stock").with_owner(&client.new_owner());
        let outer = take(lock.clone().with_lease(fixed(20_000))).await;
        let valid_until = outer.valid_until();
        let inner = enter(&lock.clone().with_lease(fixed(600_000))).await;
        inner.release().await.expect("it is ours");
        assert!(outer.valid_until() >= valid_until);
        left(world, &outer, "released").await;
        drop(enter(&lock.with_lease(fixed(20_000))).await);
        left(world, &outer, "dropped").await;
    });
}

/// 3.8: the server's clock decides inside scripts. No request carries a time of day, which might differ on every machine.
#[test]
fn no_request_carries_our_wall_clock() {
    attack(async |world| {
        let client = connect(world.builder().handoff_limit(0).command_timeout(ms(1000))).await;
        let lock = client.lock("stock").with_owner(&client.new_owner());
        let outer = take(lock.clone().with_lease(keep_alive(9000))).await;
        let inner = enter(&lock).await;
        becomes("it is renewed", || !world.runs(Script::Renew).is_empty()).await;
        inner.release().await.expect("it is ours");
        outer.release().await.expect("it is ours");
        let first = take(client.lock("stock")).await;
        let next = begun(client.lock("stock").acquire());
        first.release().await.expect("it is ours");
        drop(soon("its turn", next).await.expect("it is free"));
        world.next(Script::Acquire, Fault::HoldRequest);
        assert!(client.lock("order").try_acquire().await.is_err());
        world.marked("order").await;

        for script in Script::ALL {
            let runs = world.runs(script);
            assert!(!runs.is_empty(), "not run: {script:?}");
            for word in runs.iter().flatten() {
                let number: u128 = word.parse().unwrap_or(0);
                assert!(number < 1_000_000_000, "a time of day? {word}");
            }
        }
    });
}
