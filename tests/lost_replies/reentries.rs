//! Re-entries whose loss meets a release, a hand-off or a poll that comes late, with every kind of lock.

use std::collections::BTreeMap;
use std::pin::pin;

use distlock::Error;

use super::corners::{TIMEOUT, begin, held_back, injected, proxied, runs};
use super::{LEASE, PATIENCE};
use crate::support::{Fair, Family, Fault, Fenced, Plain, Script, Simple, eventually, simulated};

/// Makes a test of each of these functions, with each kind of lock.
macro_rules! with_every_lock {
    ($($corner:ident,)+) => {
        mod with_every_lock {
            use super::{Fair, Fenced, Plain, Simple, simulated};

            $(
                #[test]
                fn $corner() {
                    simulated(async || {
                        super::$corner::<Plain>().await;
                        super::$corner::<Fenced>().await;
                        super::$corner::<Fair>().await;
                        super::$corner::<Simple>().await;
                    });
                }
            )+
        }
    };
}

with_every_lock! {
    a_lost_re_entry_leaves_no_orphaned_hold_when_the_outer_guard_is_released_meanwhile,
    the_next_waiter_can_re_enter_though_a_re_entry_of_the_last_holder_was_undone,
    a_late_re_entry_does_not_count_for_the_receiver_of_a_hand_off,
    a_re_entry_that_is_late_and_polled_late_counts_once,
}

async fn a_lost_re_entry_leaves_no_orphaned_hold_when_the_outer_guard_is_released_meanwhile<
    F: Family,
>() {
    let (server, proxy, client) = proxied::<F>(|builder| builder).await;
    let owner = client.new_owner();
    let lock = client.lock("stock").with_owner(&owner);
    let first = lock.acquire().await.unwrap();
    let second = lock.acquire().await.unwrap();

    // While a partial release is under way, a re-entry and the outer release queue behind it. When the re-entry is sent, its guard is the
    // only one left: it requests a count of one.
    proxy.rule(runs(Script::Release).nth(1), Fault::HoldReply);
    proxy.rule(runs(Script::Acquire).nth(1), Fault::HoldRequest);
    let mut second = pin!(second.release());
    assert!(begin(second.as_mut()));
    injected(&proxy, 1).await;
    let mut third = pin!(lock.acquire());
    assert!(begin(third.as_mut()));
    let mut first = pin!(first.release());
    assert!(begin(first.as_mut()));
    proxy.deliver_held();
    let (second, third, first) = tokio::join!(second, third, first);
    assert!(matches!(third, Err(Error::Timeout { .. })), "{third:?}");
    second.unwrap();
    // The release may wait behind the re-entry for as long as the command time-out.
    assert!(
        matches!(first, Ok(()) | Err(Error::Timeout { .. })),
        "{first:?}"
    );
    eventually(PATIENCE, "it is given back", async || {
        server.holds("stock").await.is_empty()
    })
    .await;
    client.close().await.unwrap();

    let late = held_back(&proxy, Script::Acquire);
    assert_eq!(server.witness.count("stock", |words| words == late), 0);
    proxy.deliver_held();
    server.witness.executed(&late, 0).await;
    assert_eq!(server.holds("stock").await, BTreeMap::new(), "a ghost");
}

async fn the_next_waiter_can_re_enter_though_a_re_entry_of_the_last_holder_was_undone<F: Family>() {
    let (server, proxy, client) = proxied::<F>(|builder| builder.handoff_window(LEASE)).await;
    let (one, other) = (client.new_owner(), client.new_owner());
    let guard = client.lock("stock").with_owner(&one).acquire().await;
    let guard = guard.unwrap();
    proxy.rule(runs(Script::Acquire).nth(1), Fault::CutBefore);
    let again = client.lock("stock").with_owner(&one).acquire().await;
    assert!(matches!(again, Err(Error::Unavailable { .. })), "{again:?}");
    eventually(PATIENCE, "it is undone", async || {
        server
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
    let said = server.counted(BTreeMap::from([(outer.owner(), 2)]));
    assert_eq!(server.holds("stock").await, said);
}

async fn a_late_re_entry_does_not_count_for_the_receiver_of_a_hand_off<F: Family>() {
    let (server, proxy, client) = proxied::<F>(|builder| {
        let builder = builder.handoff_window(LEASE);
        builder.command_timeout(TIMEOUT / 2)
    })
    .await;
    // It is random whether the release or the undo of the re-entry comes first.
    for round in 0..6 {
        let name = format!("stock-{round}");
        let owner = client.new_owner();
        let lock = client.lock(name.as_str()).with_owner(&owner);
        let guard = lock.acquire().await.unwrap();
        let mut waiting = Box::pin(client.lock(name.as_str()).acquire());
        assert!(begin(waiting.as_mut()));
        let waiting = tokio::spawn(waiting);
        // A waiter with a request of its own sends it twice, before and after it subscribes.
        let asks = |words: &[String]| Script::Acquire.runs(words);
        eventually(PATIENCE, "it waits", async || {
            !F::IN_ORDER || server.witness.count(&name, asks) >= 3
        })
        .await;
        let re_entry = runs(Script::Acquire).arg(3, &name).nth(1);
        proxy.rule(re_entry, Fault::HoldRequest);
        let mut again = Box::pin(lock.acquire());
        assert!(begin(again.as_mut()));
        injected(&proxy, round + 1).await;
        drop(again);
        // A release through the store cannot overtake the re-entry, and completes in the background.
        let released = guard.release().await;
        assert!(
            matches!(released, Ok(()) | Err(Error::Timeout { .. })),
            "{released:?}"
        );
        let guard = waiting.await.unwrap().unwrap();

        let late = held_back(&proxy, Script::Acquire);
        proxy.deliver_held();
        server.witness.executed(&late, 0).await;
        let said = BTreeMap::from([(guard.owner(), guard.hold_count())]);
        let said = server.counted(said);
        eventually(PATIENCE, &format!("redis has {said:?}"), async || {
            server.holds(&name).await == said
        })
        .await;
    }
}

async fn a_re_entry_that_is_late_and_polled_late_counts_once<F: Family>() {
    let (server, proxy, client) = proxied::<F>(|builder| builder).await;
    let owner = client.new_owner();
    let lock = client.lock("stock").with_owner(&owner);
    let outer = lock.acquire().await.unwrap();
    proxy.rule(runs(Script::Acquire).nth(1), Fault::HoldRequest);
    let mut again = Box::pin(lock.acquire());
    assert!(begin(again.as_mut()));
    injected(&proxy, 1).await;
    // The release recounts, and does not wait for ever for a re-entry that is not polled.
    drop(outer);
    eventually(PATIENCE, "the count is brought down", async || {
        server
            .witness
            .count("stock", |words| Script::Release.runs(words))
            > 0
    })
    .await;
    let late = held_back(&proxy, Script::Acquire);
    proxy.deliver_held();
    server.witness.executed(&late, 0).await;
    let again = again.await;
    let said = match &again {
        Ok(guard) => BTreeMap::from([(guard.owner(), guard.hold_count())]),
        Err(error) => {
            assert!(matches!(error, Error::Timeout { .. }), "{error}");
            BTreeMap::new()
        }
    };
    let said = server.counted(said);
    eventually(PATIENCE, &format!("redis has {said:?}"), async || {
        server.holds("stock").await == said
    })
    .await;
}
