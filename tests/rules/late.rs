//! 3.3 Late requests die.

use distlock::{Backoff, Error, Wait};

use super::support::Fault;
use super::{ACQUIRE, PASS, UNDO, World, begun, connect, fixed, in_time, ms};
use super::{script, take};

/// 3.3: an acquire stalls on its way, its undo finds nothing, and then it is executed after all: a
/// ghost would hold the lock for a whole lease.
#[tokio::test]
async fn a_stalled_acquire_that_arrives_after_its_undo_is_refused() {
    let world = World::start();
    let client = world.hasty(ms(1000)).await;
    world.proxy.rule(script(ACQUIRE).nth(1), Fault::HoldRequest);
    let stalled = client.lock("stock").try_acquire().await;
    assert!(matches!(stalled, Err(Error::Timeout { .. })), "{stalled:?}");
    world.marked("stock").await;

    world.let_a_script_go().await;
    assert_eq!(world.holder("stock"), None, "a ghost");
    // And others are not refused with it.
    let guard = take(client.lock("stock")).await;
    assert_eq!(world.holder("stock"), Some((guard.owner(), 1)));
}

/// 3.3: the same for a caller who did not wait for the time-out but dropped the future.
#[tokio::test]
async fn a_stalled_acquire_whose_caller_has_gone_is_refused() {
    let world = World::start();
    let client = world.client().await;
    world.proxy.rule(script(ACQUIRE).nth(1), Fault::HoldRequest);
    let mut asking = begun(client.lock("stock").acquire());
    super::pending_until(&mut asking, "the request is held", async || {
        world.proxy.injected().len() == 1
    })
    .await;
    drop(asking);
    world.marked("stock").await;
    world.let_a_script_go().await;
    assert_eq!(world.holder("stock"), None, "a ghost");
}

/// 3.3: and one whose caller has gone when its grant arrives is given back then.
#[tokio::test]
async fn a_grant_that_arrives_after_its_caller_has_gone_is_given_back() {
    let world = World::start();
    let client = world.client().await;
    world.proxy.rule(script(ACQUIRE).nth(1), Fault::HoldReply);
    let mut asking = begun(client.lock("stock").acquire());
    super::pending_until(&mut asking, "the reply is held", async || {
        world.proxy.injected().len() == 1
    })
    .await;
    assert_eq!(world.count("stock"), 1, "it was granted");
    drop(asking);
    world.proxy.let_go();
    world.free("stock").await;
}

/// 3.3: a stalled re-entry would leave a count that no guard stands for.
#[tokio::test]
async fn a_stalled_re_entry_that_arrives_after_its_undo_is_refused() {
    let world = World::start();
    let client = world.hasty(ms(1000)).await;
    let me = client.new_owner();
    let lock = client.lock("stock").with_owner(&me);
    let outer = take(lock.clone()).await;
    world.proxy.rule(script(ACQUIRE).nth(1), Fault::HoldRequest);
    let stalled = lock.try_acquire().await;
    assert!(matches!(stalled, Err(Error::Timeout { .. })), "{stalled:?}");
    world.marked("stock").await;
    world.let_a_script_go().await;
    assert_eq!(world.holder("stock"), Some((outer.owner(), 1)));
    assert!(outer.is_held());

    // The next re-entry is another attempt, and is not refused with it.
    let inner = take(lock).await;
    assert_eq!(world.holder("stock"), Some((inner.owner(), 2)));
}

/// 3.3: the undo of a re-entry meets a count that is still too high for another reason, a guard that
/// has just gone, and must not take that for the re-entry having been carried out. As scripts, since
/// that moment is too short to be met from outside.
#[tokio::test]
async fn a_stalled_re_entry_is_refused_even_if_another_guard_went_before_its_undo() {
    let world = World::start();
    let (channel, marks) = ("redisson_lock__channel:{stock}", "distlock_undone:{stock}");
    // Two guards, of which one has gone; the third, whose request has stalled, is taken back.
    world.server.cmd(&["HSET", "stock", "me:1", "2"]);
    world.server.cmd(&["PEXPIRE", "stock", "30000"]);
    let undo = [
        "EVAL", UNDO, "2", "stock", marks, "me:1", "3", "1", "300000", channel,
    ];
    world.server.cmd(&undo);
    assert_eq!(world.holder("stock"), Some(("me:1".to_owned(), 1)));
    let enter = |attempt| {
        [
            "EVAL", ACQUIRE, "2", "stock", marks, "me:1", attempt, "3", "30000",
        ]
    };
    assert_eq!(world.server.query::<i64>(&enter("3")), -4, "undone");
    assert_eq!(world.holder("stock"), Some(("me:1".to_owned(), 1)));
    assert_eq!(world.server.query::<i64>(&enter("4")), -3, "another one");
    assert_eq!(world.holder("stock"), Some(("me:1".to_owned(), 3)));
}

/// 3.3: a release that is to pass the lock on stalls on its way and arrives when its sender has long
/// given up: it must not grant anything then.
#[tokio::test]
async fn a_stalled_pass_that_arrives_late_grants_nothing() {
    let world = World::start();
    let builder = world.builder().command_timeout(ms(1000)).handoff_limit(0);
    let client = connect(builder).await;
    let held = take(client.lock("stock")).await;
    let next = begun(client.lock("stock").acquire());
    world.proxy.rule(script(PASS).nth(1), Fault::HoldRequest);
    let stalled = held.release().await;
    assert!(matches!(stalled, Err(Error::Timeout { .. })), "{stalled:?}");
    world.marked("stock").await;
    drop(next);
    world.free("stock").await;
    world.let_a_script_go().await;
    assert_eq!(world.holder("stock"), None, "a ghost");
}

/// 3.3: the same if the release that replaces it has not come through yet, so that it still finds the
/// old hold. As scripts, since cleanup sends both on one connection.
#[tokio::test]
async fn a_stalled_pass_that_still_finds_the_old_hold_grants_nothing() {
    let world = World::start();
    let (channel, marks) = ("redisson_lock__channel:{stock}", "distlock_undone:{stock}");
    world.server.cmd(&["HSET", "stock", "me:1", "1"]);
    let undo = [
        "EVAL", UNDO, "2", "stock", marks, "me:2", "1", "0", "300000", channel,
    ];
    assert_eq!(world.server.query::<i64>(&undo), -6, "marked");
    let pass = |to| {
        [
            "EVAL", PASS, "2", "stock", marks, "me:1", to, "30000", "0", channel,
        ]
    };
    assert_eq!(world.server.query::<i64>(&pass("me:2")), 0, "released only");
    assert_eq!(world.holder("stock"), None, "a ghost");

    world.server.cmd(&["HSET", "stock", "me:1", "1"]);
    assert_eq!(world.server.query::<i64>(&pass("me:3")), -3, "not undone");
    assert_eq!(world.holder("stock"), Some(("me:3".to_owned(), 1)));
}

/// 3.3: who lost the reply does not know whether the lock is free, and must not say that it is taken.
#[tokio::test]
async fn a_lost_reply_is_never_reported_as_busy() {
    let world = World::start();
    let faults = [
        Fault::CutAfter,
        Fault::CutBefore,
        Fault::HoldReply,
        Fault::HoldRequest,
        Fault::SwallowReply,
    ];
    for fault in faults {
        // A client for each: a connection that lost a reply is abandoned with it.
        let client = world.hasty(ms(150)).await;
        let patiences = [None, Some(ms(80)), Some(ms(150))];
        for (round, patience) in patiences.into_iter().cycle().enumerate() {
            // On a very busy machine a deadline may pass before the request has even left.
            let injected = world.proxy.injected();
            let happened = injected
                .iter()
                .any(|what| what.starts_with(&format!("{fault:?}")));
            if happened && round >= patiences.len() {
                break;
            }
            assert!(round < 30, "{fault:?} never happened: {injected:?}");
            world.proxy.clear_rules();
            // Another each time: what comes late of an earlier one is not counted.
            let name = format!("{fault:?}-{round}");
            let first = script(ACQUIRE).arg(3, &name).nth(1);
            world.proxy.rule(first, fault);
            let client = match fault {
                Fault::SwallowReply => &world.hasty(ms(150)).await,
                _ => &client,
            };
            let lock = client.lock(&*name);
            let got = match patience {
                None => lock.try_acquire().await,
                Some(wait) => lock.acquire_timeout(wait).await,
            };
            assert!(
                matches!(got, Err(Error::Timeout { .. } | Error::Unavailable { .. })),
                "{fault:?} within {patience:?}: {got:?}"
            );
            world.proxy.let_go();
            world.free(&name).await;
        }
    }
}

/// 3.3: nor is it when the lock was taken once, and nobody could say since.
#[tokio::test]
async fn a_wait_that_ends_in_an_outage_is_not_reported_as_busy() {
    let world = World::start();
    let client = world.hasty(ms(1500)).await;
    let other = world.other().await;
    let held = take(other.lock("stock")).await;
    let poll = Wait::Poll(Backoff::new(ms(20), ms(20)));
    let lock = client.lock("stock").with_wait(poll);
    let mut waiting = begun(lock.acquire_timeout(ms(4000)));
    super::pending_until(
        &mut waiting,
        "it was told that the lock is taken",
        async || world.runs(ACQUIRE).len() >= 2,
    )
    .await;
    world.proxy.partition(true);
    held.release().await.expect("it is ours");
    let got = in_time("its deadline", waiting).await;
    assert!(matches!(got, Err(Error::Timeout { .. })), "{got:?}");
    world.proxy.partition(false);
    world.free("stock").await;
}

/// 3.3: nor is it when it was a task of this very client that had the lock, and has given it back.
#[tokio::test]
async fn a_lost_reply_behind_a_hold_of_its_own_client_is_not_reported_as_busy() {
    let world = World::start();
    let client = world.hasty(super::PATIENCE).await;
    let held = take(client.lock("stock")).await;
    // Another lease, so that it must ask for itself.
    let lock = client.lock("stock").with_lease(fixed(20_000));
    let waiting = begun(lock.acquire_timeout(ms(3000)));
    world.proxy.rule(script(ACQUIRE).nth(1), Fault::HoldReply);
    held.release().await.expect("it is ours");
    let got = in_time("its deadline", waiting).await;
    assert_eq!(world.proxy.injected().len(), 1, "it asked");
    assert!(
        matches!(got, Err(Error::Timeout { .. })),
        "nobody but itself had the lock: {got:?}"
    );
    world.free("stock").await;
}

/// 3.3: releases of answered acquires need no mark, so they leave none.
#[tokio::test]
async fn an_ordinary_life_leaves_no_marks() {
    let world = World::start();
    let client = world.client().await;
    take(client.lock("stock"))
        .await
        .release()
        .await
        .expect("ours");
    drop(take(client.lock("stock").with_lease(fixed(30_000))).await);
    world.free("stock").await;
    assert_eq!(world.server.keys(), Vec::<String>::new());
    assert_eq!(world.runs(UNDO).len(), 0);
}
