//! 4 The line of local waiters.

use std::time::Instant;

use distlock::{Backoff, Wait};

use super::support::{eventually, paced};
use super::{
    ACQUIRE, PATIENCE, RELEASE, World, begun, connect, in_time, ms, pending_until, soon, take,
};

/// 4: a nested acquire behind a stranger in the line would wait for itself.
#[tokio::test]
async fn an_owner_with_a_live_hold_bypasses_the_line() {
    let world = World::start();
    let client = world.client().await;
    let me = client.new_owner();
    let lock = client.lock("stock").with_owner(&me);
    let outer = take(lock.clone()).await;
    let mut stranger = begun(client.lock("stock").acquire());
    let inner = tokio::select! {
        _ = &mut stranger => panic!("two hold the lock"),
        inner = soon("the nested acquire", lock.acquire()) => inner.expect("it is ours"),
    };
    assert_eq!(world.holder("stock"), Some((outer.owner(), 2)));
    inner.release().await.expect("it is ours");
    outer.release().await.expect("it is ours");
    drop(
        soon("the stranger's turn", stranger)
            .await
            .expect("it is free"),
    );
}

/// 4: the same for one that was in the line before its owner got the lock.
#[tokio::test]
async fn a_waiter_whose_own_owner_gets_the_lock_leaves_the_line() {
    let world = World::start();
    let client = world.client().await;
    let me = client.new_owner();
    let lock = client.lock("stock").with_owner(&me);
    let held = take(client.lock("stock")).await;
    let first = begun(lock.acquire());
    let mut stranger = begun(client.lock("stock").acquire());
    let second = begun(lock.acquire());
    held.release().await.expect("it is ours");
    let outer = soon("the first one's turn", first).await.expect("free");
    let inner = tokio::select! {
        _ = &mut stranger => panic!("two hold the lock"),
        inner = soon("the nested acquire", second) => inner.expect("it is ours"),
    };
    assert_eq!(world.holder("stock"), Some((outer.owner(), 2)));
    drop(inner);
}

/// 4: the same for one that is the head of the line, and asks the server while its owner gets the lock
/// by another call.
#[tokio::test]
async fn a_head_whose_own_owner_gets_the_lock_enters_again() {
    let world = World::start();
    let (client, other) = (world.client().await, world.other().await);
    let me = client.new_owner();
    let lock = client.lock("stock").with_owner(&me);
    let held = take(other.lock("stock")).await;
    // Asks so seldom that the other call surely comes first.
    let seldom = Wait::Poll(Backoff::new(ms(3_000), ms(3_000)));
    let mut head = begun(lock.clone().with_wait(seldom).acquire());
    pending_until(
        &mut head,
        "the head was told that it is taken",
        async || world.runs(ACQUIRE).len() == 1,
    )
    .await;
    // Its answer must have arrived, too.
    let answered = async || client.admin().inspect("stock").await.is_ok();
    pending_until(&mut head, "answers come", answered).await;
    held.release().await.expect("it is ours");
    let outer = lock.try_acquire().await.expect("answered");
    let outer = outer.expect("it is free");
    let inner = soon("the head enters again", head).await.expect("ours");
    assert_eq!(world.holder("stock"), Some((outer.owner(), 2)));
    drop(inner);
}

/// 4: a client that asks again at once keeps everyone else out: a Java `tryLock(20 s)` did not get a
/// lock that was released hundreds of times. Where somebody else listened, it stands back.
#[tokio::test]
async fn a_client_that_has_had_its_turns_stands_back() {
    const ROUNDS: usize = 15;
    const MOST_ROUNDS: usize = 1000;
    let world = World::start();
    let client = connect(world.builder().handoff_limit(0)).await;
    let mut gaps = Vec::new();
    let mut alone = Vec::new();
    for listened in [false, true] {
        let mut ears = redis::Client::open(world.server.own_url())
            .expect("a url")
            .get_async_pubsub()
            .await
            .expect("the server answers");
        if listened {
            let channel = "redisson_lock__channel:{stock}";
            ears.subscribe(channel).await.expect("it listens");
        }
        for round in 0..MOST_ROUNDS {
            // On a busy machine it takes a while until a turn takes no longer than it must.
            let quick = alone.iter().any(|gap| *gap < ms(2));
            if round >= ROUNDS && (listened || quick) {
                break;
            }
            let held = take(client.lock("stock")).await;
            let next = begun(client.lock("stock").acquire());
            let released = Instant::now();
            let (gone, granted) = tokio::join!(held.release(), soon("its turn", next));
            gone.expect("it is ours");
            let gap = released.elapsed();
            granted.expect("free").release().await.expect("it is ours");
            if listened { &mut gaps } else { &mut alone }.push(gap);
        }
    }
    alone.sort();
    gaps.sort();
    eprintln!("alone {alone:?}\nlistened to {gaps:?}");
    // A few milliseconds each time; without them a turn takes a fraction of one.
    assert!(gaps[0] >= ms(2), "it did not stand back: {gaps:?}");
    assert!(alone[0] < ms(2), "it stands back for nobody: {alone:?}");
    assert_eq!(
        world.runs(RELEASE).len() + world.runs(super::PASS).len(),
        2 * (alone.len() + gaps.len())
    );
}

/// 4: a client that heard of its own release must not take that for a reason to hurry.
#[tokio::test]
async fn a_client_that_listens_itself_stands_back_too() {
    const ROUNDS: usize = 10;
    let world = World::start();
    let client = connect(world.builder().handoff_limit(0)).await;
    let other = world.other().await;
    let mut ears = redis::Client::open(world.server.own_url())
        .expect("a url")
        .get_async_pubsub()
        .await
        .expect("the server answers");
    let all = "redisson_lock__channel:*";
    ears.psubscribe(all).await.expect("it listens");
    let mut gaps = Vec::new();
    for round in 0..ROUNDS {
        // Somebody else holds the lock first, so that the line begins to listen.
        let name = format!("stock:{round}");
        let theirs = take(other.lock(name.clone())).await;
        let mut first = begun(client.lock(name.clone()).acquire());
        let asked = world.runs(ACQUIRE).len();
        pending_until(&mut first, "it listens", async || {
            world.runs(ACQUIRE).len() > asked
        })
        .await;
        let second = begun(client.lock(name).acquire());
        theirs.release().await.expect("it is ours");
        let first = soon("the first one's turn", first).await.expect("free");
        let released = Instant::now();
        let (gone, granted) = tokio::join!(first.release(), soon("its turn", second));
        gone.expect("it is ours");
        gaps.push(released.elapsed());
        granted.expect("free").release().await.expect("it is ours");
    }
    gaps.sort();
    eprintln!("{gaps:?}");
    assert!(gaps[0] >= ms(2), "it did not stand back: {gaps:?}");
}

/// 4: those who poll are counted by nobody; now and then it stands back for them as well.
#[tokio::test]
async fn now_and_then_a_client_stands_back_for_those_who_poll() {
    let world = World::start();
    let client = connect(world.builder().handoff_limit(0)).await;
    let mut held = take(client.lock("stock")).await;
    let started = Instant::now();
    let (mut links, mut released) = (0, 0);
    while released < 3 {
        let next = begun(client.lock("stock").acquire());
        held.release().await.expect("it is ours");
        held = soon("its turn", next).await.expect("it is free");
        links += 1;
        released = world.runs(RELEASE).len();
        assert!(
            started.elapsed() < PATIENCE,
            "given back {released} times out of {links}"
        );
    }
    let passed = world.runs(super::PASS).len();
    eprintln!("passed on {passed} times, given back {released} times");
    assert_eq!(passed + released, links);
    assert!(passed > 0, "nobody else was there to stand back for");
}

/// 4: and so others do get their turn, those who listen and those who poll, next to a client that
/// never stops asking.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_get_their_turn_beside_a_client_that_never_stops_asking() {
    let world = World::start();
    let (client, other) = (world.client().await, world.other().await);
    let greedy: Vec<_> = (0..4)
        .map(|_| {
            let lock = client.lock("stock");
            tokio::spawn(async move {
                loop {
                    let guard = lock.acquire().await.expect("the server answers");
                    guard.release().await.expect("it is ours");
                }
            })
        })
        .collect();
    let poll = Wait::Poll(Backoff::new(ms(2), ms(20)));
    for wait in [Wait::Notify, poll] {
        let mut longest = ms(0);
        for _ in 0..5 {
            let before = world.runs(RELEASE).len() + world.runs(super::PASS).len();
            let lock = other.lock("stock").with_wait(wait);
            let what = format!("its turn by {wait:?}");
            let (turn, took) = paced(in_time(&what, lock.acquire())).await;
            longest = longest.max(took);
            turn.expect("the server answers")
                .release()
                .await
                .expect("ours");
            eventually(PATIENCE, "the greedy one goes on", async || {
                world.runs(RELEASE).len() + world.runs(super::PASS).len() > before
            })
            .await;
            world.proxy.clear_requests();
        }
        eprintln!("{wait:?}: waited for {longest:?} at most");
        assert!(longest < ms(3000), "{wait:?}: {longest:?}");
    }
    for task in greedy {
        task.abort();
    }
}
