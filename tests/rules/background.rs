//! 4 The watchdog and cleanup, beside the caller and after it.

use std::time::Duration;

use super::support::{Fault, eventually};
use super::{PATIENCE, RELEASE, RENEW, World, begun, fixed, keep_alive, ms, pending_until, script};
use super::{soon, take};

/// 4: user code blocks the only thread of the runtime, and with it everything that runs there, for two
/// leases. The watchdog has a thread and a connection of its own.
#[tokio::test]
async fn a_blocked_runtime_does_not_let_leases_lapse() {
    const LEASE: Duration = ms(6000);
    let world = World::start();
    let client = world.client().await;
    let guard = take(client.lock("stock").with_lease(keep_alive(6000))).await;
    std::thread::sleep(2 * LEASE);
    assert!(guard.is_held());
    assert_eq!(world.holder("stock"), Some((guard.owner(), 1)));
    assert!(world.runs_for(RENEW, &guard.owner()) >= 2);
    guard.release().await.expect("it is still ours");
}

/// 4: nor does a data connection on which nothing moves.
#[tokio::test]
async fn a_stalled_data_connection_does_not_let_leases_lapse() {
    let world = World::start();
    let client = world.hasty(PATIENCE).await;
    let guard = take(client.lock("stock").with_lease(keep_alive(6000))).await;
    world.proxy.rule(script(super::ACQUIRE), Fault::HoldRequest);
    let mut stuck = begun(client.lock("another").acquire());
    pending_until(&mut stuck, "the connection is stuck", async || {
        world.proxy.injected().len() == 1
    })
    .await;
    let granted = guard.valid_until();
    pending_until(&mut stuck, "more than a lease is over", async || {
        guard.check().expect("it is renewed in time");
        guard.valid_until() > granted + ms(6000)
    })
    .await;
}

/// 4: nor the watchdog's own connection, if nothing moves on that: the next attempt takes another.
#[tokio::test]
async fn a_stalled_watchdog_connection_does_not_let_leases_lapse() {
    let world = World::start();
    let client = world.client().await;
    let guard = take(client.lock("stock").with_lease(keep_alive(6000))).await;
    world.proxy.rule(script(RENEW).nth(1), Fault::HoldReply);
    world.injected(1).await;
    eventually(PATIENCE, "it is renewed all the same", async || {
        world.runs_for(RENEW, &guard.owner()) >= 3
    })
    .await;
    assert!(guard.is_held());
    assert_eq!(world.holder("stock"), Some((guard.owner(), 1)));
}

/// 4: but a connection that is merely slow is kept: a renewal is given up behind a release that took long,
/// and the next one would wait for a new connection to the same busy server.
#[tokio::test]
async fn a_slow_watchdog_connection_is_not_replaced_while_it_answers() {
    let world = World::start();
    let client = world.hasty(PATIENCE).await;
    let dropped = take(client.lock("dropped")).await;
    let guard = take(client.lock("stock").with_lease(keep_alive(24_000))).await;
    let greetings = || {
        let requests = world.proxy.requests();
        requests.iter().filter(|words| words[0] == "HELLO").count()
    };
    // The release is answered while the renewal, due after 8 s, waits for its 8 s in vain.
    world
        .proxy
        .rule(script(RELEASE), Fault::DelayReply(ms(12_000)));
    let renewal = script(RENEW).nth(1);
    world.proxy.rule(renewal, Fault::DelayRequest(ms(10_000)));
    drop(dropped);
    eventually(2 * PATIENCE, "a renewal is given up", async || {
        guard.at_risk().is_some()
    })
    .await;
    let before = greetings();
    eventually(2 * PATIENCE, "another is answered", async || {
        guard.at_risk().is_none()
    })
    .await;
    assert!(guard.is_held());
    assert_eq!(greetings(), before, "the connection was replaced");
}

/// 4: a hold leaves the watchdog's care before its release is sent: a renewal behind it would find it
/// gone, or keep alive what nobody holds.
#[tokio::test]
async fn nothing_is_renewed_once_its_release_was_sent() {
    let world = World::start();
    let client = world.client().await;
    let guard = take(client.lock("stock").with_lease(keep_alive(4500))).await;
    let dropped = take(client.lock("dropped").with_lease(keep_alive(4500))).await;
    eventually(PATIENCE, "both are renewed", async || {
        world.runs_for(RENEW, &guard.owner()) > 0 && world.runs_for(RENEW, &dropped.owner()) > 0
    })
    .await;
    let owners = [guard.owner(), dropped.owner()];
    world.proxy.rule(script(RELEASE), Fault::HoldRequest);
    let releasing = tokio::spawn(guard.release());
    world.injected(1).await;
    drop(dropped);
    world.injected(2).await;
    let renewed = |owner: &String| world.runs_for(RENEW, owner);
    let before = owners.each_ref().map(renewed);
    // Twice as long as between two renewals.
    tokio::time::sleep(ms(3000)).await;
    assert_eq!(owners.each_ref().map(renewed), before);
    world.proxy.let_go();
    let gone = soon("the release", releasing).await.expect("no panic");
    // The lease may have ended before the release arrived; either way nobody kept it alive.
    drop(gone);
    world.free("stock").await;
    world.free("dropped").await;
}

/// 4: cleanup runs beside the watchdog, so it outlives the caller's runtime, and drop works outside of
/// any.
#[test]
fn a_guard_dropped_after_its_runtime_has_gone_is_released() {
    let world = World::start();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be had");
    let (dropped, renewed) = runtime.block_on(async {
        let client = world.client().await;
        let dropped = take(client.lock("dropped").with_lease(fixed(600_000))).await;
        let renewed = take(client.lock("renewed").with_lease(keep_alive(6000))).await;
        (dropped, renewed)
    });
    drop(runtime);
    assert_eq!(world.holder("dropped"), Some((dropped.owner(), 1)));
    drop(dropped);
    let checks = tokio::runtime::Runtime::new().expect("a runtime can be had");
    checks.block_on(async {
        world.free("dropped").await;
        eventually(PATIENCE, "the other is still renewed", async || {
            world.runs_for(RENEW, &renewed.owner()) >= 2
        })
        .await;
    });
    assert!(renewed.is_held());
    drop(renewed);
    checks.block_on(world.free("renewed"));
}

/// 4: a release that nobody waits for is tried until the server has heard of it.
#[tokio::test]
async fn a_dropped_guard_is_released_through_an_outage_of_the_network() {
    let world = World::start();
    let client = world.hasty(ms(1000)).await;
    let guard = take(client.lock("stock").with_lease(fixed(600_000))).await;
    world.proxy.refuse(true);
    world.proxy.cut_all();
    drop(guard);
    tokio::time::sleep(ms(400)).await;
    assert_eq!(world.count("stock"), 1, "there is no way to the server");
    world.proxy.refuse(false);
    world.free("stock").await;
}
