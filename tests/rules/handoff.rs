//! 4 A lock that is passed on in memory.

use std::sync::Arc;

use distlock::{Backoff, Client, Guard, Lease, Wait};
use tokio::sync::Mutex;

use super::support::{Fault, eventually};
use super::{
    ACQUIRE, PASS, PATIENCE, RELEASE, RENEW, World, begun, connect, fixed, in_time, keep_alive, ms,
};
use super::{pending_until, script, soon, take};

/// A client that would hand on for as long as the test runs.
async fn generous(world: &World) -> Client {
    connect(world.builder().handoff_window(PATIENCE)).await
}

/// The owners of a chain of `links` waiters, each of whom gives the lock to the next.
async fn chain(client: &Client, lease: Lease, links: usize) -> Vec<String> {
    let owners = Arc::new(Mutex::new(Vec::new()));
    let first = take(client.lock("stock").with_lease(lease)).await;
    owners.lock().await.push(first.owner());
    let waiting: Vec<_> = (0..links)
        .map(|_| {
            let owners = owners.clone();
            let lock = client.lock("stock").with_lease(lease);
            begun(async move {
                let guard = lock.acquire().await.expect("its turn comes");
                owners.lock().await.push(guard.owner());
                guard.release().await.expect("it is ours");
            })
        })
        .collect();
    let waiting: Vec<_> = waiting.into_iter().map(tokio::spawn).collect();
    first.release().await.expect("it is ours");
    for waiter in waiting {
        in_time("its turn", waiter).await.expect("no panic");
    }
    let owners = owners.lock().await;
    owners.clone()
}

/// How often each owner came in a row.
fn runs(owners: &[String]) -> Vec<usize> {
    owners
        .chunk_by(|one, two| one == two)
        .map(<[_]>::len)
        .collect()
}

/// 4: at most `handoff_limit` times in a row, and each time without a round trip; then it goes through
/// the server, which gives it to an owner of its own.
#[tokio::test]
async fn a_lock_is_handed_on_a_bounded_number_of_times_in_a_row() {
    let world = World::start();
    let builder = world.builder().handoff_limit(3).handoff_window(PATIENCE);
    let client = connect(builder).await;
    let owners = chain(&client, keep_alive(30_000), 11).await;
    assert_eq!(runs(&owners), [4, 4, 4]);
    let round_trips = world.runs(RELEASE).len() + world.runs(PASS).len();
    assert_eq!(round_trips, 3);
    assert_eq!(world.holder("stock"), None);
}

/// 4: within `handoff_window` of the last grant by the server.
#[tokio::test]
async fn nothing_is_handed_on_when_the_grant_is_too_long_ago() {
    let world = World::start();
    let client = connect(world.builder().handoff_window(ms(0))).await;
    let owners = chain(&client, keep_alive(30_000), 5).await;
    assert_eq!(runs(&owners), [1; 6]);
}

/// 4: fixed leases never; what is left of one is not what the next one asked for.
#[tokio::test]
async fn fixed_leases_are_never_handed_on() {
    let world = World::start();
    let client = generous(&world).await;
    let owners = chain(&client, fixed(30_000), 5).await;
    assert_eq!(runs(&owners), [1; 6]);
    // The same client does hand on what is kept alive.
    let owners = chain(&client, keep_alive(30_000), 5).await;
    assert_eq!(runs(&owners), [6]);
}

/// 4: nor to one that asked for another lease.
#[tokio::test]
async fn nothing_is_handed_on_to_one_with_another_lease() {
    let world = World::start();
    let client = generous(&world).await;
    let held = take(client.lock("stock").with_lease(keep_alive(30_000))).await;
    let longer = begun(
        client
            .lock("stock")
            .with_lease(keep_alive(60_000))
            .acquire(),
    );
    let owner = held.owner();
    held.release().await.expect("it is ours");
    let longer = soon("its turn", longer).await.expect("it is free");
    assert_ne!(longer.owner(), owner);
    assert!(world.server.pttl("stock") > 50_000);
}

/// 4: what is at risk is not passed on: the next one would get a lock that may be over any moment.
#[tokio::test]
async fn nothing_is_handed_on_when_at_risk_or_with_less_than_two_thirds_left() {
    let world = World::start();
    let client = generous(&world).await;
    let lock = client.lock("stock").with_lease(keep_alive(6000));
    let held = take(lock.clone()).await;
    let waiting = begun(lock.acquire());
    world.proxy.rule(script(RENEW), Fault::CutBefore);
    eventually(PATIENCE, "it is at risk", async || held.at_risk().is_some()).await;
    let owner = held.owner();
    assert!(held.is_held(), "there is time left");
    held.release().await.expect("it is ours");
    world.proxy.clear_rules();
    let next = soon("its turn", waiting).await.expect("it is free");
    assert_ne!(next.owner(), owner, "handed on at risk");
    assert!(next.remaining() > ms(500), "a lease of its own");
    little_left();
}

/// The rest of the rule, where time can be made up.
#[cfg(feature = "internals")]
fn little_left() {
    use distlock::internals::protocol::Moment;
    use distlock::internals::protocol::lease::{Lease, Terms};

    let terms = Terms {
        lease: ms(30_000),
        keep_alive: true,
        max_hold: None,
        cut: None,
    };
    let sent = Moment::at(ms(1_000_000));
    let fresh = || Lease::granted(terms, sent, sent + ms(1)).expect("it is valid");
    assert!(fresh().may_hand_on(sent + ms(1)));
    assert!(fresh().may_hand_on(sent + ms(9_800)));
    assert!(
        !fresh().may_hand_on(sent + ms(10_000)),
        "less than two thirds"
    );
    assert!(!fresh().may_hand_on(sent + ms(40_000)), "over");
    let mut failed = fresh();
    failed.renewal_failed(terms.lease, sent + ms(1));
    assert!(!failed.may_hand_on(sent + ms(2)), "at risk");
    let mut renewed = fresh();
    renewed.renewed(terms.lease, sent + ms(9_000), sent + ms(9_001));
    assert!(renewed.may_hand_on(sent + ms(18_000)), "renewed since");
}

#[cfg(not(feature = "internals"))]
fn little_left() {}

/// 4: what passes is a guard; a receiver that is dropped in that very moment drops it, and that gives
/// the lock back.
#[tokio::test]
async fn a_dropped_hand_off_releases_the_lock() {
    let world = World::start();
    let client = generous(&world).await;
    let held = take(client.lock("stock")).await;
    let receiver = begun(client.lock("stock").acquire());
    let owner = held.owner();
    held.release().await.expect("it is ours");
    assert_eq!(world.holder("stock"), Some((owner, 1)), "handed on");
    drop(receiver);
    world.free("stock").await;

    // With a third one behind it, who gets it instead.
    let held = take(client.lock("stock")).await;
    let (receiver, third) = (
        begun(client.lock("stock").acquire()),
        begun(client.lock("stock").acquire()),
    );
    let owner = held.owner();
    drop(held);
    drop(receiver);
    let third = soon("the third one's turn", third).await.expect("free");
    assert_eq!(world.holder("stock"), Some((third.owner(), 1)));
    assert_eq!(third.owner(), owner);
}

/// 4: a waiter is handed the lock while a request of its own is under way. That must not become a hold
/// when it arrives at last.
#[tokio::test]
async fn an_ask_in_flight_of_the_receiver_of_a_hand_off_is_undone() {
    let world = World::start();
    let client = generous(&world).await;
    let (held, waiting) = head_beside_a_hold(&world, &client).await;
    let mut waiting = waiting;
    world.proxy.rule(script(ACQUIRE).nth(1), Fault::HoldRequest);
    pending_until(&mut waiting, "the head asks", async || {
        world.proxy.injected().len() == 1
    })
    .await;
    let owner = held.owner();
    // Its release would queue behind the held request; a dropped guard's hand-off needs no request.
    drop(held);
    let handed = soon("the hand-off", waiting)
        .await
        .expect("it is handed on");
    assert_eq!(handed.owner(), owner);
    world.marked("stock").await;
    drop(handed);
    world.free("stock").await;
    world.let_a_script_go().await;
    assert_eq!(world.holder("stock"), None, "a ghost");
}

/// A hold of this client that came past the line, and the head of the line, who still polls.
async fn head_beside_a_hold(
    world: &World,
    client: &Client,
) -> (Guard, super::Waiting<Result<Guard, distlock::Error>>) {
    let other = world.other().await;
    let theirs = take(other.lock("stock")).await;
    let poll = Wait::Poll(Backoff::new(ms(1600), ms(1600)));
    let mut head = begun(client.lock("stock").with_wait(poll).acquire());
    pending_until(
        &mut head,
        "the head was told that it is taken",
        async || world.runs(ACQUIRE).len() == 1,
    )
    .await;
    let answered = async || client.admin().inspect("stock").await.is_ok();
    pending_until(&mut head, "answers come", answered).await;
    theirs.release().await.expect("it is ours");
    let ours = client.lock("stock").try_acquire().await;
    (ours.expect("answered").expect("it is free"), head)
}

/// 4 and 3.3: a hand-off keeps the owner, and so everything that was ever undone for it. A re-entry of
/// the receiver must not be taken for one that its predecessor took back.
#[tokio::test]
async fn a_mark_of_the_giver_does_not_refuse_a_re_entry_of_the_receiver() {
    let world = World::start();
    let builder = world.builder().handoff_window(PATIENCE);
    let client = connect(builder.command_timeout(ms(1000))).await;
    let (giver, taker) = (client.new_owner(), client.new_owner());
    let held = take(client.lock("stock").with_owner(&giver)).await;
    let waiting = begun(client.lock("stock").with_owner(&taker).acquire());
    world.proxy.rule(script(ACQUIRE).nth(1), Fault::HoldRequest);
    let stalled = client.lock("stock").with_owner(&giver).try_acquire().await;
    assert!(stalled.is_err(), "its request is held");
    world.marked("stock").await;
    world.proxy.let_go();

    held.release().await.expect("it is ours");
    let outer = soon("its turn", waiting).await.expect("it is free");
    let inner = client.lock("stock").with_owner(&taker).try_acquire().await;
    let inner = inner
        .expect("its owner holds it")
        .expect("its owner holds it");
    assert!(outer.is_held());
    assert_eq!(world.holder("stock"), Some((outer.owner(), 2)));
    drop(inner);
}

/// 4 and 3.2: a partial release of the giver that is still under way must not lower the receiver's
/// count.
#[tokio::test]
async fn a_partial_release_of_the_giver_does_not_lower_the_count_of_the_receiver() {
    let world = World::start();
    let client = generous(&world).await;
    let (giver, taker) = (client.new_owner(), client.new_owner());
    let lock = client.lock("stock").with_owner(&giver);
    let (outer, inner) = (take(lock.clone()).await, take(lock).await);
    let waiting = begun(client.lock("stock").with_owner(&taker).acquire());
    world.proxy.rule(script(RELEASE).nth(1), Fault::HoldRequest);
    // In the background, on the other connection.
    drop(inner);
    world.injected(1).await;
    outer.release().await.expect("it is ours");
    let outer = soon("its turn", waiting).await.expect("it is free");
    let inner = client.lock("stock").with_owner(&taker).try_acquire().await;
    let inner = inner.expect("answered").expect("its owner holds it");
    assert_eq!(world.holder("stock"), Some((outer.owner(), 2)));
    world.let_a_script_go().await;
    assert_eq!(world.holder("stock"), Some((outer.owner(), 2)));
    assert_eq!(inner.hold_count(), 2);
}
