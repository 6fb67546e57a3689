//! What one lost request in a simple story does not show: losses that meet a release, a hand-off or a
//! short lease.

use std::collections::BTreeMap;
use std::pin::{Pin, pin};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use distlock::{Client, ClientBuilder, Error, Guard, Lease, Lock};

use super::support::batch::apart;
use super::support::{ChaosProxy, Fault, Match, Script, Words, eventually};
use super::world::World;
use super::{LEASE, PATIENCE};

#[tokio::test]
async fn a_lost_re_entry_leaves_no_ghost_when_the_outer_guard_goes_meanwhile() {
    let (world, proxy, client) = proxied(|builder| builder).await;
    let owner = client.new_owner();
    let lock = client.lock("stock").with_owner(&owner);
    let first = lock.acquire().await.unwrap();
    let second = lock.acquire().await.unwrap();

    // While a partial release is under way, a re-entry and the outer release line up behind it. When the
    // re-entry is sent, it is the only guard left: it asks for a count of one.
    proxy.rule(runs(Script::Release).nth(1), Fault::HoldReply);
    proxy.rule(runs(Script::Acquire).nth(1), Fault::HoldRequest);
    let mut second = pin!(second.release());
    assert!(begin(second.as_mut()));
    injected(&proxy, 1).await;
    let mut third = pin!(lock.acquire());
    assert!(begin(third.as_mut()));
    let mut first = pin!(first.release());
    assert!(begin(first.as_mut()));
    proxy.let_go();
    let (second, third, first) = tokio::join!(second, third, first);
    assert!(matches!(third, Err(Error::Timeout { .. })), "{third:?}");
    second.unwrap();
    // It may wait behind the re-entry for as long as a call may take.
    assert!(
        matches!(first, Ok(()) | Err(Error::Timeout { .. })),
        "{first:?}"
    );
    eventually(PATIENCE, "it is given back", async || {
        world.holds("stock").await.is_empty()
    })
    .await;
    client.close().await.unwrap();

    let late = held_back(&proxy, Script::Acquire);
    assert_eq!(world.witness.count("stock", |words| words == late), 0);
    proxy.let_go();
    world.witness.executed(&late, 0).await;
    assert_eq!(world.holds("stock").await, BTreeMap::new(), "a ghost");
}

#[tokio::test]
async fn the_next_in_line_can_re_enter_though_a_re_entry_of_the_last_holder_was_undone() {
    let (world, proxy, client) = proxied(|builder| builder.handoff_window(LEASE)).await;
    let (one, other) = (client.new_owner(), client.new_owner());
    let guard = client.lock("stock").with_owner(&one).acquire().await;
    let guard = guard.unwrap();
    proxy.rule(runs(Script::Acquire).nth(1), Fault::CutBefore);
    let again = client.lock("stock").with_owner(&one).acquire().await;
    assert!(matches!(again, Err(Error::Unavailable { .. })), "{again:?}");
    eventually(PATIENCE, "it is undone", async || {
        world
            .witness
            .count("stock", |words| Script::Undo.runs(words))
            > 0
    })
    .await;

    let lock = client.lock("stock").with_owner(&other);
    let mut waiting = pin!(lock.acquire());
    assert!(begin(waiting.as_mut()));
    guard.release().await.unwrap();
    let outer = waiting.await.unwrap();
    let inner = lock.acquire().await;
    assert!(inner.is_ok(), "{inner:?}");
    assert!(outer.is_held());
    let said = BTreeMap::from([(outer.owner(), 2)]);
    assert_eq!(world.holds("stock").await, said);
}

#[tokio::test]
async fn a_late_re_entry_does_not_count_for_whom_the_lock_was_handed_to() {
    let (world, proxy, client) = proxied(|builder| {
        let builder = builder.handoff_window(LEASE);
        builder.command_timeout(TIMEOUT / 2)
    })
    .await;
    // Whether the release or the undo of the re-entry comes first is a matter of luck.
    for round in 0..6 {
        let name = format!("stock-{round}");
        let owner = client.new_owner();
        let lock = client.lock(name.as_str()).with_owner(&owner);
        let guard = acquire(&lock).await;
        let mut waiting: Pin<Box<dyn Future<Output = Result<Guard, Error>>>> =
            Box::pin(client.lock(name.as_str()).acquire());
        assert!(begin(waiting.as_mut()));
        let re_entry = runs(Script::Acquire).arg(3, &name).nth(1);
        proxy.rule(re_entry, Fault::HoldRequest);
        let mut again = Box::pin(lock.acquire());
        assert!(begin(again.as_mut()));
        injected(&proxy, round + 1).await;
        drop(again);
        // Through the store it cannot overtake the re-entry, and in time it is done in the background.
        let released = guard.release().await;
        assert!(
            matches!(released, Ok(()) | Err(Error::Timeout { .. })),
            "{released:?}"
        );
        let guard = waiting.await.unwrap();

        let late = held_back(&proxy, Script::Acquire);
        proxy.let_go();
        world.witness.executed(&late, 0).await;
        let said = BTreeMap::from([(guard.owner(), guard.hold_count())]);
        eventually(PATIENCE, &format!("redis has {said:?}"), async || {
            world.holds(&name).await == said
        })
        .await;
    }
}

#[tokio::test]
async fn a_closed_client_has_released_what_was_dropped_however_slow_the_network() {
    let (world, proxy, client) = proxied(|builder| builder.command_timeout(PATIENCE)).await;
    let guard = client.lock("stock").acquire().await.unwrap();
    let delay = Fault::DelayRequest(TIMEOUT);
    proxy.rule(runs(Script::Release).nth(1), delay);
    drop(guard);
    injected(&proxy, 1).await;
    assert_eq!(world.holds("stock").await.len(), 1, "it is still under way");
    client.close().await.unwrap();
    assert_eq!(world.holds("stock").await, BTreeMap::new());
}

#[tokio::test]
async fn a_release_does_not_wait_for_a_re_entry_that_nobody_polls() {
    let (world, proxy, client) = proxied(|builder| builder).await;
    let owner = client.new_owner();
    let lock = client.lock("stock").with_owner(&owner);
    let outer = lock.acquire().await.unwrap();
    let inner = lock.acquire().await.unwrap();
    let mut again = Box::pin(lock.acquire());
    assert!(begin(again.as_mut()));
    let released = tokio::time::timeout(PATIENCE, inner.release()).await;
    assert!(released.is_ok(), "it waits for ever");
    drop(again);
    outer.release().await.unwrap();
    eventually(PATIENCE, "it is free", async || {
        world.holds("stock").await.is_empty()
    })
    .await;
    drop(proxy);
}

#[tokio::test]
async fn a_re_entry_that_is_late_and_polled_late_counts_once() {
    let (world, proxy, client) = proxied(|builder| builder).await;
    let owner = client.new_owner();
    let lock = client.lock("stock").with_owner(&owner);
    let outer = lock.acquire().await.unwrap();
    proxy.rule(runs(Script::Acquire).nth(1), Fault::HoldRequest);
    let mut again = Box::pin(lock.acquire());
    assert!(begin(again.as_mut()));
    injected(&proxy, 1).await;
    // Its recount does not wait for ever for a re-entry that nobody polls.
    drop(outer);
    eventually(PATIENCE, "the count is brought down", async || {
        world
            .witness
            .count("stock", |words| Script::Release.runs(words))
            > 0
    })
    .await;
    let late = held_back(&proxy, Script::Acquire);
    proxy.let_go();
    world.witness.executed(&late, 0).await;
    let again = again.await;
    let said = match &again {
        Ok(guard) => BTreeMap::from([(guard.owner(), guard.hold_count())]),
        Err(error) => {
            assert!(matches!(error, Error::Timeout { .. }), "{error}");
            BTreeMap::new()
        }
    };
    eventually(PATIENCE, &format!("redis has {said:?}"), async || {
        world.holds("stock").await == said
    })
    .await;
}

/// The documented limit: the count may then be lower than the number of guards. Nobody else gets in.
#[tokio::test]
async fn a_partial_release_that_comes_after_a_later_re_entry_lets_nobody_in() {
    let (world, proxy, client) = proxied(|builder| builder).await;
    let owner = client.new_owner();
    let lock = client.lock("stock").with_owner(&owner);
    let outer = lock.acquire().await.unwrap();
    let inner = lock.acquire().await.unwrap();
    proxy.rule(runs(Script::Release).nth(1), Fault::HoldRequest);
    let released = inner.release().await;
    assert!(
        matches!(released, Err(Error::Timeout { .. })),
        "{released:?}"
    );
    let late = held_back(&proxy, Script::Release);
    world.witness.executed(&late, 0).await;
    let inner = lock.acquire().await.unwrap();
    assert_eq!(
        world.holds("stock").await,
        BTreeMap::from([(outer.owner(), 2)])
    );

    proxy.let_go();
    world.witness.executed(&late, 1).await;
    assert!(outer.is_held() && inner.is_held());
    let theirs = world.other.lock("stock");
    assert!(theirs.try_acquire().await.unwrap().is_none());
    outer.release().await.unwrap();
    assert!(inner.is_held());
    assert!(theirs.try_acquire().await.unwrap().is_none());
    assert_eq!(
        world.holds("stock").await,
        BTreeMap::from([(inner.owner(), 1)])
    );
    inner.release().await.unwrap();
    assert!(theirs.try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn a_renewal_without_answer_does_not_cost_a_lock_with_a_lease_shorter_than_the_time_out() {
    const LEASE: Duration = Duration::from_secs(3);
    let (_world, proxy, client) = proxied(|builder| builder.command_timeout(LEASE * 2)).await;
    let lock = client.lock("stock").with_lease(Lease::KeepAlive(LEASE));
    let guard = lock.acquire().await.unwrap();
    // A connection that has gone silent: what is behind this reply does not come either.
    proxy.rule(runs(Script::Renew).nth(1), Fault::HoldReply);
    injected(&proxy, 1).await;
    let lost = tokio::time::timeout(LEASE * 3 / 2, guard.lost()).await;
    assert!(
        lost.is_err(),
        "the server answers on any other connection, but: {lost:?}"
    );
}

#[tokio::test]
async fn short_waits_do_not_cling_to_a_connection_that_never_answers() {
    let (_world, proxy, client) = proxied(|builder| builder).await;
    proxy.rule(runs(Script::Acquire).nth(1), Fault::HoldReply);
    let begun = Instant::now();
    let guard = loop {
        match client.lock("stock").acquire_timeout(TIMEOUT / 3).await {
            Ok(Some(guard)) => break guard,
            // What the first one got is still being taken back.
            Ok(None) => {}
            Err(error) => assert!(matches!(error, Error::Timeout { .. }), "{error}"),
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "it never tries another connection"
        );
    };
    guard.release().await.unwrap();
}

/// A server, and a client of it behind a proxy.
async fn proxied(
    build: impl FnOnce(ClientBuilder) -> ClientBuilder,
) -> (World, ChaosProxy, Client) {
    let world = World::start().await;
    let proxy = ChaosProxy::start(world.server.addr());
    let builder = Client::builder(&proxy.url())
        .default_lease(Lease::KeepAlive(LEASE))
        .command_timeout(TIMEOUT)
        .connect_timeout(super::CONNECT_TIMEOUT);
    let client = build(builder).connect().await;
    (world, proxy, client.expect("the network is still whole"))
}

/// The lock. A busy machine may be too slow for the command time-out; the store has not refused it then.
async fn acquire(lock: &Lock) -> Guard {
    let give_up = Instant::now() + PATIENCE;
    loop {
        match lock.acquire().await {
            Ok(guard) => return guard,
            Err(Error::Timeout { .. }) if Instant::now() < give_up => {}
            Err(error) => panic!("nobody has it: {error}"),
        }
    }
}

fn runs(script: Script) -> Match {
    Match::words(move |words| script.runs(words))
}

/// The first poll of a call sends its request, or puts it where it waits; says whether it waits.
fn begin<F: Future + ?Sized>(call: Pin<&mut F>) -> bool {
    call.poll(&mut Context::from_waker(Waker::noop()))
        .is_pending()
}

async fn injected(proxy: &ChaosProxy, times: usize) {
    eventually(PATIENCE, "the network does wrong", async || {
        proxy.injected().len() == times
    })
    .await;
}

/// The call of this script that the proxy was last told to hold back.
fn held_back(proxy: &ChaosProxy, script: Script) -> Words {
    let injected = proxy.injected();
    let mut held = injected.iter().rev();
    let held = held.find_map(|text| text.strip_prefix("HoldRequest: "));
    let held = held.expect("it holds one back").split(' ');
    let mut calls = apart(held.map(ToOwned::to_owned).collect()).into_iter();
    let call = calls.find(|call| script.runs(call));
    call.expect("it was to hold back one of these")
}

/// Long enough to arrange things while a call is under way.
const TIMEOUT: Duration = Duration::from_secs(2);
