//! 4 A lock that is handed off in memory.

use distlock::{Backoff, Client, Guard, Wait};

use super::{Acquiring, PATIENCE, World, attack, becomes, begun, connect, enter, keep_alive, ms};
use super::{pending_until, runs, soon, take};
use crate::support::{Fault, Script};

/// Returns a client whose hand-off window lasts as long as the test.
async fn generous(world: &World) -> Client {
    connect(world.builder().handoff_window(PATIENCE)).await
}

/// 4: a hold at risk is not handed off: the next waiter would get a lock that may be lost at any moment.
#[test]
fn nothing_is_handed_off_when_at_risk() {
    attack(async |world| {
        let client = generous(world).await;
        let lock = client.lock("stock").with_lease(keep_alive(6000));
        let held = take(lock.clone()).await;
        let waiting = begun(lock.acquire());
        world.proxy.rule(runs(Script::Renew), Fault::CutBefore);
        becomes("it is at risk", || held.at_risk().is_some()).await;
        let owner = held.owner();
        assert!(held.is_held(), "there is time left");
        held.release().await.expect("it is ours");
        world.proxy.clear_rules();
        let next = soon("its turn", waiting).await.expect("it is free");
        assert_ne!(next.owner(), owner, "handed off at risk");
        assert!(next.remaining() > ms(5000), "a lease of its own");
    });
}

/// 4: a waiter is handed the lock while a request of its own is under way. That request must not become a hold when it arrives at last.
#[test]
fn a_request_in_flight_of_the_receiver_of_a_hand_off_is_undone() {
    attack(async |world| {
        let client = generous(world).await;
        let (held, mut waiting) = head_beside_a_hold(world, &client).await;
        world.next(Script::Acquire, Fault::HoldRequest);
        world.until_injected(&mut waiting, 1).await;
        let owner = held.owner();
        // Its release would queue behind the held request; the hand-off of a dropped guard needs no request.
        drop(held);
        let handed = soon("the hand-off", waiting).await.expect("it is free");
        assert_eq!(handed.owner(), owner);
        world.marked("stock").await;
        drop(handed);
        world.free("stock").await;
        world.let_a_script_go().await;
        assert_eq!(world.holder("stock"), None, "a ghost");
    });
}

/// Returns a hold of this client that overtook the queue, and the head of the queue, which polls.
async fn head_beside_a_hold(world: &World, client: &Client) -> (Guard, Acquiring) {
    let other = world.other().await;
    let theirs = take(other.lock("stock")).await;
    let poll = Wait::Poll(Backoff::new(ms(1600), ms(1600)));
    let mut head = begun(client.lock("stock").with_wait(poll).acquire());
    pending_until(&mut head, "it has its answer", || {
        world.runs(Script::Acquire).len() == 1 && world.proxy.unanswered() == 0
    })
    .await;
    theirs.release().await.expect("it is ours");
    (enter(&client.lock("stock")).await, head)
}

/// 4 and 3.2: a partial release of the previous holder that is still under way must not lower the new holder's count.
#[test]
fn a_partial_release_of_the_giver_does_not_lower_the_count_of_the_receiver() {
    attack(async |world| {
        let client = generous(world).await;
        let (giver, taker) = (client.new_owner(), client.new_owner());
        let lock = client.lock("stock").with_owner(&giver);
        let (outer, inner) = (take(lock.clone()).await, take(lock).await);
        let lock = client.lock("stock").with_owner(&taker);
        let waiting = begun(lock.acquire());
        world.next(Script::Release, Fault::HoldRequest);
        // The release runs in the background, on the other connection.
        drop(inner);
        world.injected(1).await;
        outer.release().await.expect("it is ours");
        let outer = soon("its turn", waiting).await.expect("it is free");
        let inner = enter(&lock).await;
        assert_eq!(world.holder("stock"), Some((outer.owner(), 2)));
        world.let_a_script_go().await;
        assert_eq!(world.holder("stock"), Some((outer.owner(), 2)));
        assert_eq!(inner.hold_count(), 2);
    });
}
