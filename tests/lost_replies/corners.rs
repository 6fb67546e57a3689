//! Losses that one lost request in a simple story does not show: losses that meet a release or a short lease, requests of a waiter that
//! arrive when it has gone, and lost subscriptions. Losses of re-entries are in [`reentries`](super::reentries).

use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use distlock::{ClientBuilder, Error, Guard, Lease};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::server::{TestServer, everything_arrives};
use super::{LEASE, Label, PATIENCE};
use crate::support::batch::apart;
use crate::support::{
    ChaosProxy, Fair, Family, Fault, Fenced, Match, Plain, Player, Script, Simple, Words, builder,
    eventually, simulated,
};

#[test]
fn closing_releases_dropped_guards_over_a_slow_network() {
    simulated(async || {
        let (server, proxy, client) =
            proxied::<Plain>(|builder| builder.command_timeout(PATIENCE)).await;
        let guard = client.lock("stock").acquire().await.unwrap();
        let delay = Fault::DelayRequest(TIMEOUT);
        proxy.rule(runs(Script::Release).nth(1), delay);
        drop(guard);
        injected(&proxy, 1).await;
        assert_eq!(
            server.holds("stock").await.len(),
            1,
            "it is still under way"
        );
        client.close().await.unwrap();
        assert_eq!(server.holds("stock").await, BTreeMap::new());
    });
}

#[test]
fn a_release_does_not_wait_for_an_unpolled_re_entry() {
    simulated(async || {
        let (server, proxy, client) = proxied::<Plain>(|builder| builder).await;
        let owner = client.new_owner();
        let lock = client.lock("stock").with_owner(&owner);
        let outer = lock.acquire().await.unwrap();
        let inner = lock.acquire().await.unwrap();
        let mut again = Box::pin(lock.acquire());
        assert!(begin(again.as_mut()));
        let released = timeout(PATIENCE, inner.release()).await;
        assert!(released.is_ok(), "it waits for ever");
        drop(again);
        outer.release().await.unwrap();
        eventually(PATIENCE, "it is free", async || {
            server.holds("stock").await.is_empty()
        })
        .await;
        drop(proxy);
    });
}

/// Documented limit: the count may then be lower than the number of guards. No other client is let in.
#[test]
fn a_partial_release_that_arrives_after_a_later_re_entry_does_not_free_the_lock() {
    simulated(async || {
        let (server, proxy, client) = proxied::<Plain>(|builder| builder).await;
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
        server.witness.executed(&late, 0).await;
        let inner = lock.acquire().await.unwrap();
        assert_eq!(
            server.holds("stock").await,
            BTreeMap::from([(outer.owner(), 2)])
        );

        proxy.deliver_held();
        server.witness.executed(&late, 1).await;
        assert!(outer.is_held() && inner.is_held());
        let theirs = server.other.lock("stock");
        assert!(theirs.try_acquire().await.unwrap().is_none());
        outer.release().await.unwrap();
        assert!(inner.is_held());
        assert!(theirs.try_acquire().await.unwrap().is_none());
        assert_eq!(
            server.holds("stock").await,
            BTreeMap::from([(inner.owner(), 1)])
        );
        inner.release().await.unwrap();
        assert!(theirs.try_acquire().await.unwrap().is_some());
    });
}

#[test]
fn an_unanswered_renewal_does_not_lose_a_lock_with_a_lease_below_the_timeout() {
    simulated(async || {
        // The silent connection costs a third of the lease; a busy machine may cost another.
        const LEASE: Duration = Duration::from_secs(8);
        let stalled = async |parameters, renewal: Match| {
            let build = |builder: ClientBuilder| builder.command_timeout(LEASE * 2);
            let proxied = proxied_with::<Plain>(parameters, build).await;
            let (_server, proxy, client) = proxied;
            let lock = client.lock("stock").with_lease(Lease::KeepAlive(LEASE));
            let guard = lock.acquire().await.unwrap();
            // The connection goes silent: replies behind this one do not arrive either.
            proxy.rule(renewal.nth(1), Fault::HoldReply);
            injected(&proxy, 1).await;
            let lost = timeout(LEASE * 3 / 2, guard.lost()).await;
            assert!(
                lost.is_err(),
                "the server answers on any other connection, but: {lost:?}"
            );
        };
        tokio::join!(
            stalled("", runs(Script::Renew)),
            stalled("scripts=off", Match::command("PEXPIRE")),
        );
    });
}

#[test]
fn short_waits_abandon_a_connection_that_never_replies() {
    simulated(async || {
        let wait = async |parameters, ask: Match| {
            let proxied = proxied_with::<Plain>(parameters, |builder| builder).await;
            let (_server, proxy, client) = proxied;
            proxy.rule(ask.nth(1), Fault::HoldReply);
            let begun = Instant::now();
            let guard = loop {
                match client.lock("stock").acquire_timeout(TIMEOUT / 3).await {
                    Ok(Some(guard)) => break guard,
                    // The grant of the first attempt is still being undone.
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
    });
}

#[test]
fn a_request_that_arrives_after_leaving_the_queue_adds_no_entry() {
    simulated(async || {
        let (server, proxy, client) = proxied::<Fair>(|builder| builder).await;
        let (theirs, waiting) = one_question_held_back(&server, &proxy, &client).await;
        give_up(&client, waiting).await;
        let line = server.queue("stock");
        assert_eq!(line, [""; 0], "it has left");
        assert!(proxy.unanswered() > 0, "one is still to come");
        proxy.deliver_held();
        everything_arrives(&proxy).await;
        assert_eq!(server.queue("stock"), [""; 0], "a ghost");
        theirs.release().await.unwrap();
        server.nothing_is_left("stock");
    });
}

/// The waiter does not receive its grant either, so that the grant is undone while another of its requests is still to arrive.
#[test]
fn a_request_that_arrives_after_its_grant_was_undone_adds_no_hold() {
    simulated(async || {
        let (server, proxy, client) = proxied::<Fair>(|builder| builder).await;
        let (theirs, waiting) = one_question_held_back(&server, &proxy, &client).await;
        proxy.rule(runs(Script::Acquire).nth(1), Fault::HoldReply);
        theirs.release().await.unwrap();
        injected(&proxy, 2).await;
        let granted = server.holds("stock").await;
        assert_eq!(granted.len(), 1, "the answer is on its way");
        give_up(&client, waiting).await;
        server.nothing_is_left("stock");
        assert!(proxy.unanswered() > 0, "one is still to come");
        proxy.deliver_held();
        everything_arrives(&proxy).await;
        server.nothing_is_left("stock");
    });
}

/// Returns a lock that another client holds, and a waiter of our client. One request of the waiter is held back, and the waiter has sent
/// another since.
async fn one_question_held_back(
    server: &TestServer<Fair>,
    proxy: &ChaosProxy,
    client: &Player<Fair>,
) -> (Guard<distlock::Fair>, Waiting) {
    let theirs = server.other.lock("stock").acquire().await.unwrap();
    let asked = || {
        let asks = |words: &[String]| Script::Acquire.runs(words);
        server.witness.count("stock", asks)
    };
    eventually(PATIENCE, "theirs is seen", async || asked() == 1).await;
    proxy.rule(runs(Script::Acquire).nth(2), Fault::HoldRequest);
    let waiting = tokio::spawn(client.lock("stock").acquire());
    eventually(PATIENCE, "it asks again", async || asked() == 3).await;
    injected(proxy, 1).await;
    assert_eq!(server.queue("stock").len(), 1, "it has one place");
    (theirs, waiting)
}

/// Cancels the waiter, and waits until the client has cleaned up.
async fn give_up(client: &Player<Fair>, waiting: Waiting) {
    waiting.abort();
    let ended = waiting.await;
    assert!(ended.is_err_and(|error| error.is_cancelled()));
    client.close().await.unwrap();
}

type Waiting = JoinHandle<Result<Guard<distlock::Fair>, Error>>;

mod any_fault_of_its_subscription_leaves_a_waiter_its_turn {
    use super::*;

    #[test]
    fn with_plain_locks() {
        simulated(async || lose_subscriptions::<Plain>().await);
    }

    #[test]
    fn with_simple_locks() {
        simulated(async || lose_subscriptions::<Simple>().await);
    }

    #[test]
    fn with_fenced_locks() {
        simulated(async || lose_subscriptions::<Fenced>().await);
    }

    #[test]
    fn with_fair_locks() {
        simulated(async || lose_subscriptions::<Fair>().await);
    }
}

async fn lose_subscriptions<F: Family>() {
    let faults = [
        Fault::CutBefore,
        Fault::DelayRequest(TIMEOUT * 2),
        Fault::HoldRequest,
    ];
    let faults = faults.map(Some);
    for fault in faults.into_iter().chain([None]) {
        lose_subscription::<F>("SUBSCRIBE", fault).await;
    }
    for fault in faults {
        lose_subscription::<F>("UNSUBSCRIBE", fault).await;
    }
}

/// Applies the fault to the first of these commands; without a fault, the connection ends once the command was executed.
async fn lose_subscription<F: Family>(word: &str, fault: Option<Fault>) {
    let _label = Label(format!("{word}, {fault:?}"));
    let (server, proxy, client) = proxied::<F>(|builder| builder.handoff_limit(0)).await;
    let theirs = server.other.lock("stock").acquire().await.unwrap();
    if let Some(fault) = fault {
        proxy.rule(Match::command(word).nth(1), fault);
    }
    let is_subscribed = || !server.redis.pubsub_channels().is_empty();
    let waiting = tokio::spawn(client.lock("stock").acquire());
    if word == "SUBSCRIBE" && fault.is_some() {
        injected(&proxy, 1).await;
    } else {
        eventually(PATIENCE, "it is subscribed", async || is_subscribed()).await;
    }
    if fault.is_none() {
        proxy.cut_all();
    }
    theirs.release().await.unwrap();
    // This is sooner than an absent waiter would be skipped in the queue.
    let turn = timeout(Duration::from_secs(8), waiting)
        .await
        .expect("no turn");
    let guard = turn.unwrap().unwrap();
    injected(&proxy, usize::from(fault.is_some())).await;
    assert_eq!(server.holds("stock").await.len(), 1);
    guard.release().await.unwrap();
    proxy.deliver_held();
    eventually(PATIENCE, "no connection is subscribed", async || {
        !is_subscribed()
    })
    .await;
    server.nothing_is_left("stock");
}

/// Returns a server, and a client of it behind a proxy.
pub(crate) async fn proxied<F: Family>(
    build: impl FnOnce(ClientBuilder) -> ClientBuilder,
) -> (TestServer<F>, ChaosProxy, Player<F>) {
    proxied_with("", build).await
}

/// Like [`proxied`], with these parameters in the client's address.
async fn proxied_with<F: Family>(
    parameters: &str,
    build: impl FnOnce(ClientBuilder) -> ClientBuilder,
) -> (TestServer<F>, ChaosProxy, Player<F>) {
    let server = TestServer::start().await;
    let proxy = server.proxy();
    let builder = builder(&proxy.url_with(parameters))
        .default_lease(Lease::KeepAlive(LEASE))
        .command_timeout(TIMEOUT);
    let client = build(builder).connect().await;
    let client = client.expect("the network is still whole");
    (server, proxy, Player::new(client))
}

pub(crate) fn runs(script: Script) -> Match {
    Match::words(move |words| script.runs(words))
}

/// Polls a call for the first time, which sends its request or queues it, and returns whether it waits.
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

/// Returns the call of this script that the proxy was last told to hold back.
pub(crate) fn held_back(proxy: &ChaosProxy, script: Script) -> Words {
    let injected = proxy.injected();
    let mut held = injected.iter().rev();
    let held = held.find_map(|text| text.strip_prefix("HoldRequest: "));
    let held = held.expect("it holds one back").split(' ');
    let mut calls = apart(held.map(ToOwned::to_owned).collect()).into_iter();
    let call = calls.find(|call| script.runs(call));
    call.expect("it was to hold back one of these")
}

/// A time-out that is long enough to arrange things while a call is under way.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(2);
