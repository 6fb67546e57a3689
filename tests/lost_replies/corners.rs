//! What one lost request in a simple story does not show: losses that meet a release or a short lease. Those of re-entries
//! are in [`reentries`](super::reentries).

use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use distlock::{Client, ClientBuilder, Error, Guard, Lease, Lock};

use super::support::batch::apart;
use super::support::{ChaosProxy, Family, Fault, Match, Plain, Player, Script, Words, eventually};
use super::world::World;
use super::{LEASE, PATIENCE};

#[tokio::test]
async fn a_closed_client_has_released_what_was_dropped_however_slow_the_network() {
    let (world, proxy, client) =
        proxied::<Plain>(|builder| builder.command_timeout(PATIENCE)).await;
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
    let (world, proxy, client) = proxied::<Plain>(|builder| builder).await;
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

/// The documented limit: the count may then be lower than the number of guards. Nobody else gets in.
#[tokio::test]
async fn a_partial_release_that_comes_after_a_later_re_entry_lets_nobody_in() {
    let (world, proxy, client) = proxied::<Plain>(|builder| builder).await;
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
    // The silent connection costs a third of it; another one is what a busy machine may cost.
    const LEASE: Duration = Duration::from_secs(8);
    let stalled = async |parameters, renewal: Match| {
        let build = |builder: ClientBuilder| builder.command_timeout(LEASE * 2);
        let proxied = proxied_with::<Plain>(parameters, build).await;
        let Some((_world, proxy, client)) = proxied else {
            return;
        };
        let lock = client.lock("stock").with_lease(Lease::KeepAlive(LEASE));
        let guard = lock.acquire().await.unwrap();
        // A connection that has gone silent: what is behind this reply does not come either.
        proxy.rule(renewal.nth(1), Fault::HoldReply);
        injected(&proxy, 1).await;
        let lost = tokio::time::timeout(LEASE * 3 / 2, guard.lost()).await;
        assert!(
            lost.is_err(),
            "the server answers on any other connection, but: {lost:?}"
        );
    };
    tokio::join!(
        stalled("", runs(Script::Renew)),
        stalled("scripts=off", Match::command("PEXPIRE")),
    );
}

#[tokio::test]
async fn short_waits_do_not_cling_to_a_connection_that_never_answers() {
    let wait = async |parameters, ask: Match| {
        let proxied = proxied_with::<Plain>(parameters, |builder| builder).await;
        let Some((_world, proxy, client)) = proxied else {
            return;
        };
        proxy.rule(ask.nth(1), Fault::HoldReply);
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
    };
    tokio::join!(
        wait("", runs(Script::Acquire)),
        wait("scripts=off", Match::command("EXEC")),
    );
}

/// A server, and a client of it behind a proxy.
pub(crate) async fn proxied<F: Family>(
    build: impl FnOnce(ClientBuilder) -> ClientBuilder,
) -> (World<F>, ChaosProxy, Player<F>) {
    let proxied = proxied_with("", build).await;
    proxied.expect("every server runs scripts")
}

/// The same with these parameters in the client's address, if they can be.
async fn proxied_with<F: Family>(
    parameters: &str,
    build: impl FnOnce(ClientBuilder) -> ClientBuilder,
) -> Option<(World<F>, ChaosProxy, Player<F>)> {
    let world = World::start().await;
    if parameters == "scripts=off" && !world.server.can_do_without_scripts().await {
        return None;
    }
    let proxy = world.server.proxy();
    let builder = Client::builder(&proxy.url_with(parameters))
        .default_lease(Lease::KeepAlive(LEASE))
        .command_timeout(TIMEOUT)
        .connect_timeout(super::CONNECT_TIMEOUT);
    let client = build(builder).connect().await;
    let client = client.expect("the network is still whole");
    Some((world, proxy, Player::new(client)))
}

/// The lock. A busy machine may be too slow for the command time-out; the store has not refused it then.
pub(crate) async fn acquire<K>(lock: &Lock<K>) -> Guard<K> {
    let give_up = Instant::now() + PATIENCE;
    loop {
        match lock.acquire().await {
            Ok(guard) => return guard,
            Err(Error::Timeout { .. }) if Instant::now() < give_up => {}
            Err(error) => panic!("nobody has it: {error}"),
        }
    }
}

pub(crate) fn runs(script: Script) -> Match {
    Match::words(move |words| script.runs(words))
}

/// The first poll of a call sends its request, or puts it where it waits; says whether it waits.
pub(crate) fn begin<F: Future + ?Sized>(call: Pin<&mut F>) -> bool {
    call.poll(&mut Context::from_waker(Waker::noop()))
        .is_pending()
}

pub(crate) async fn injected(proxy: &ChaosProxy, times: usize) {
    eventually(PATIENCE, "the network does wrong", async || {
        proxy.injected().len() == times
    })
    .await;
}

/// The call of this script that the proxy was last told to hold back.
pub(crate) fn held_back(proxy: &ChaosProxy, script: Script) -> Words {
    let injected = proxy.injected();
    let mut held = injected.iter().rev();
    let held = held.find_map(|text| text.strip_prefix("HoldRequest: "));
    let held = held.expect("it holds one back").split(' ');
    let mut calls = apart(held.map(ToOwned::to_owned).collect()).into_iter();
    let call = calls.find(|call| script.runs(call));
    call.expect("it was to hold back one of these")
}

/// Long enough to arrange things while a call is under way.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(2);
