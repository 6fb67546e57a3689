//! 3.3 Late requests die.

use distlock::{Client, Error};

use super::{PATIENCE, World, attack, begun, connect, enter, fixed, ms, soon, take};
use crate::support::{Fault, Script};

/// 3.3: an acquire stalls on its way, its undo finds nothing, and then the acquire is executed after all: an orphan would hold the lock for
/// a whole lease.
#[test]
fn a_stalled_acquire_that_arrives_after_its_undo_is_refused() {
    attack(async |world| {
        let client = world.short_timeout_client().await;
        world.next(Script::Acquire, Fault::HoldRequest);
        let stalled = client.lock("stock").try_acquire().await;
        assert!(matches!(stalled, Err(Error::Timeout { .. })), "{stalled:?}");
        world.marked("stock").await;
        world.let_a_script_go().await;
        assert_eq!(world.holder("stock"), None, "a ghost");
        // Requests of other owners are not refused with it.
        let guard = take(client.lock("stock")).await;
        assert_eq!(world.holder("stock"), Some((guard.owner(), 1)));
    });
}

/// 3.3: a stalled re-entry would leave a count to which no guard belongs.
#[test]
fn a_stalled_re_entry_that_arrives_after_its_undo_is_refused() {
    attack(async |world| {
        let client = world.short_timeout_client().await;
        let lock = client.lock("stock").with_owner(&client.new_owner());
        let outer = take(lock.clone()).await;
        world.next(Script::Acquire, Fault::HoldRequest);
        let stalled = lock.try_acquire().await;
        assert!(matches!(stalled, Err(Error::Timeout { .. })), "{stalled:?}");
        world.marked("stock").await;
        world.let_a_script_go().await;
        assert_eq!(world.holder("stock"), Some((outer.owner(), 1)));
        assert!(outer.is_held());
        // The next re-entry is another attempt, and is not refused with it.
        let inner = take(lock).await;
        assert_eq!(world.holder("stock"), Some((inner.owner(), 2)));
    });
}

/// 3.3: the same holds for a caller that did not wait for the time-out but dropped the future, before its request or its reply arrived.
#[test]
fn an_acquire_whose_caller_was_dropped_leaves_no_hold() {
    attack(async |world| {
        let client = world.client().await;
        for (faults, fault) in [(1, Fault::HoldRequest), (2, Fault::HoldReply)] {
            world.next(Script::Acquire, fault);
            let mut asking = begun(client.lock("stock").acquire());
            world.until_injected(&mut asking, faults).await;
            let granted = u32::from(fault == Fault::HoldReply);
            assert_eq!(world.count("stock"), granted);
            drop(asking);
            if granted == 0 {
                world.marked("stock").await;
            }
            world.proxy.deliver_held();
            world.free("stock").await;
            tokio::time::sleep(ms(1000)).await;
            assert_eq!(world.holder("stock"), None, "a ghost after {fault:?}");
        }
    });
}

/// 3.3: the undo of a re-entry meets a count that is still too high for another reason, a guard that has just gone, and must not conclude
/// that the re-entry was executed. The test calls scripts, since that moment is too short to be met from outside.
#[test]
fn a_stalled_re_entry_is_refused_even_if_another_guard_was_released_before_its_undo() {
    attack(async |world| {
        // The owner had two guards, of which one has gone; the third, whose request has stalled, is undone.
        world.server.cmd(&["HSET", "stock", "me:1", "2"]);
        world.server.cmd(&["PEXPIRE", "stock", "30000"]);
        eval(world, UNDO, &["me:1", "3", "1", "300000", CHANNEL]);
        assert_eq!(world.holder("stock"), Some(("me:1".to_owned(), 1)));
        let enter = |attempt| eval(world, ACQUIRE, &["me:1", attempt, "3", "30000"]);
        assert_eq!(enter("3"), -4, "undone");
        assert_eq!(world.holder("stock"), Some(("me:1".to_owned(), 1)));
        assert_eq!(enter("4"), -3, "another one");
        assert_eq!(world.holder("stock"), Some(("me:1".to_owned(), 3)));
    });
}

/// 3.3: a release that is to hand the lock off in the store stalls on its way and arrives when its sender has long given up: it must not
/// grant anything then.
#[test]
fn a_stalled_transfer_that_arrives_late_grants_nothing() {
    attack(async |world| {
        let builder = world.builder().command_timeout(ms(1000)).handoff_limit(0);
        let client = connect(builder).await;
        let held = take(client.lock("stock")).await;
        let next = begun(client.lock("stock").acquire());
        world.next(Script::Pass, Fault::HoldRequest);
        let stalled = held.release().await;
        assert!(matches!(stalled, Err(Error::Timeout { .. })), "{stalled:?}");
        world.marked("stock").await;
        drop(next);
        world.free("stock").await;
        world.let_a_script_go().await;
        assert_eq!(world.holder("stock"), None, "a ghost");
    });
}

/// 3.3: the same holds if the release that replaces it has not arrived yet, so that the late one still finds the old hold. The test calls
/// scripts, since cleanup sends both on one connection.
#[test]
fn a_stalled_transfer_that_still_finds_the_old_hold_grants_nothing() {
    attack(async |world| {
        let pass = |to| eval(world, PASS, &["me:1", to, "30000", "0", CHANNEL]);
        world.server.cmd(&["HSET", "stock", "me:1", "1"]);
        let undone = eval(world, UNDO, &["me:2", "1", "0", "300000", CHANNEL]);
        assert_eq!(undone, -6, "marked");
        assert_eq!(pass("me:2"), 0, "released only");
        assert_eq!(world.holder("stock"), None, "a ghost");

        world.server.cmd(&["HSET", "stock", "me:1", "1"]);
        assert_eq!(pass("me:3"), -3, "not undone");
        assert_eq!(world.holder("stock"), Some(("me:3".to_owned(), 1)));
    });
}

fn eval(world: &World, script: &str, args: &[&str]) -> i64 {
    let keys = ["EVAL", script, "2", "stock", "distlock_undone:{stock}"];
    world.server.query(&[&keys[..], args].concat())
}

/// 3.3: a caller that lost the reply does not know whether the lock is free, and must not report that it is taken: whatever is lost, and
/// however long the caller waits.
#[test]
fn a_lost_reply_is_never_reported_as_busy() {
    async fn lose(world: &World, client: &Client, fault: Fault, wait: Option<u64>) {
        let name = format!("{fault:?} {wait:?}");
        let before = world.proxy.injected().len();
        world.next(Script::Acquire, fault);
        let lock = client.lock(&*name);
        let got = match wait {
            None => lock.try_acquire().await,
            Some(wait) => lock.acquire_timeout(ms(wait)).await,
        };
        let silent = matches!(got, Err(Error::Timeout { .. } | Error::Unavailable { .. }));
        assert!(silent, "{name}: {got:?}");
        world.injected(before + 1).await;
        world.proxy.deliver_held();
        world.free(&name).await;
    }
    attack(async |world| {
        for fault in [
            Fault::CutAfter,
            Fault::CutBefore,
            Fault::HoldReply,
            Fault::HoldRequest,
            Fault::SwallowReply,
        ] {
            // The wait ends before the time-out of a command, at it and after it.
            for wait in [
                None,
                Some(300),
                Some(950),
                Some(1000),
                Some(1050),
                Some(3000),
            ] {
                // Each case has a client of its own: a connection that lost a reply is abandoned with it.
                lose(world, &world.short_timeout_client().await, fault, wait).await;
            }
        }
    });
}

/// 3.3: the lock is not reported as busy either when a task of this very client held it, and has released it.
#[test]
fn a_lost_reply_behind_a_hold_of_its_own_client_is_not_reported_as_busy() {
    attack(async |world| {
        let client = connect(world.builder().command_timeout(PATIENCE)).await;
        let held = take(client.lock("stock")).await;
        // Its lease differs from the holder's, so that it must send a request of its own.
        let lock = client.lock("stock").with_lease(fixed(20_000));
        let waiting = begun(lock.acquire_timeout(ms(500)));
        world.next(Script::Acquire, Fault::HoldReply);
        held.release().await.expect("it is ours");
        let got = soon("its deadline", waiting).await;
        assert_eq!(world.proxy.injected().len(), 1, "it asked");
        assert!(matches!(got, Err(Error::Timeout { .. })), "{got:?}");
        world.free("stock").await;
        world.proxy.deliver_held();
        drop(enter(&client.lock("stock")).await);
    });
}

const ACQUIRE: &str = concat!(
    include_str!("../../src/engine/redis/lua/format/owner.lua"),
    include_str!("../../src/engine/redis/lua/format/lock.lua"),
    include_str!("../../src/engine/redis/lua/mutex/acquire.lua"),
);
const PASS: &str = include_str!("../../src/engine/redis/lua/mutex/transfer.lua");
const UNDO: &str = include_str!("../../src/engine/redis/lua/mutex/undo.lua");
const CHANNEL: &str = "redisson_lock__channel:{stock}";
