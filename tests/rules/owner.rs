//! 3.1 and 3.2 An acquire from zero gets an owner id that was never used before.

use distlock::{Backoff, Wait};

use super::{attack, begun, ms, pending_until, soon, take};
use crate::support::{Fault, Script};

/// 3.1: a `release(0)` that was queued, and retried because it had no reply, arrives once the same owner holds the lock anew.
#[test]
fn a_queued_release_never_frees_a_later_hold_of_the_same_owner() {
    attack(async |world| {
        let client = world.short_timeout_client().await;
        let lock = client.lock("stock").with_owner(&client.new_owner());
        let first = take(lock.clone()).await;
        let old = first.owner();
        world.next(Script::Release, Fault::HoldRequest);
        drop(first);
        world.injected(1).await;
        // The release is retried on another connection; the first one is still under way.
        let second = lock.acquire().await.expect("it is free");
        assert_ne!(second.owner(), old, "its release is still under way");
        assert!(world.runs_for(Script::Release, &old) >= 2);

        world.let_a_script_go().await;
        assert_eq!(world.holder("stock"), Some((second.owner(), 1)));
        second.release().await.expect("it is still ours");
        assert_eq!(world.holder("stock"), None);
    });
}

/// 3.1: a waiter keeps one owner id for all of its requests, so that it keeps its position in a store that queues; but only until a request
/// of its is indeterminate, and is being undone.
#[test]
fn a_waiter_keeps_its_owner_until_a_request_in_that_name_is_in_doubt() {
    attack(async |world| {
        let client = world.short_timeout_client().await;
        let held = take(world.other().await.lock("stock")).await;
        let often = Wait::Poll(Backoff::new(ms(5), ms(5)));
        let mut waiting = begun(client.lock("stock").with_wait(often).acquire());
        let asked_as = || {
            let runs = world.runs(Script::Acquire).into_iter();
            let mut owners: Vec<_> = runs.map(|words| words[5].clone()).collect();
            let asked = owners.len();
            owners.dedup();
            (asked, owners)
        };
        pending_until(&mut waiting, "it has asked often", || asked_as().0 > 10).await;
        assert_eq!(asked_as().1.len(), 1, "one owner all along");

        world.next(Script::Acquire, Fault::HoldReply);
        pending_until(&mut waiting, "it asks on", || asked_as().1.len() > 1).await;
        held.release().await.expect("it is ours");
        let guard = soon("the lock", waiting).await.expect("it is free");
        let owners = asked_as().1;
        assert_eq!(owners.len(), 2, "a fresh one after the doubt, to the end");
        assert_eq!(guard.owner(), owners[1]);
    });
}
