//! 3.9 Notifications are hints.

use std::sync::Arc;
use std::time::Instant;

use super::support::{Fault, Match, eventually, paced};
use super::{
    ACQUIRE, Alarm, PATIENCE, World, begun, fixed, in_time, keep_alive, ms, pending_until,
};
use super::{RELEASE, connect, script, soon, take};

/// 3.9: the lock is released after a waiter was told that it is taken and before it hears of releases.
#[tokio::test]
async fn a_release_between_asking_and_listening_is_not_missed() {
    let world = World::start();
    let (client, other) = (world.client().await, world.other().await);
    let held = take(other.lock("stock")).await;
    world
        .proxy
        .rule(Match::command("SUBSCRIBE"), Fault::HoldRequest);
    let mut waiting = begun(client.lock("stock").acquire());
    pending_until(&mut waiting, "it wants to listen", async || {
        world.proxy.injected().len() == 1
    })
    .await;
    assert_eq!(world.runs(ACQUIRE).len(), 1, "told that it is taken");
    held.release().await.expect("it is ours");
    assert_eq!(world.server.pubsub_channels(), Vec::<String>::new());

    world.proxy.let_go();
    let guard = soon("a look after listening", waiting).await;
    guard
        .expect("it is free")
        .release()
        .await
        .expect("it is ours");
}

/// 3.9: the listening connection breaks, releases go unheard, and nobody may wait for them any more
/// once there is a connection again.
#[tokio::test]
async fn after_a_reconnect_every_waiter_asks_again() {
    const WAITERS: usize = 8;
    let world = World::start();
    let (client, other) = (world.client().await, world.other().await);
    let mut held = Vec::new();
    let mut waiting = Vec::new();
    for number in 0..WAITERS {
        let name = format!("stock:{number}");
        held.push(take(other.lock(name.clone())).await);
        waiting.push(tokio::spawn(client.lock(name).acquire()));
    }
    // Each asks, listens, and asks again.
    eventually(PATIENCE, "all listen", async || {
        world.runs(ACQUIRE).len() >= 2 * WAITERS
    })
    .await;
    world.proxy.refuse(true);
    assert_eq!(world.server.kill_pubsub_clients(), 1);
    eventually(PATIENCE, "nobody listens", async || {
        world.server.pubsub_channels().is_empty()
    })
    .await;
    for guard in held {
        guard.release().await.expect("it is ours");
    }
    assert!(waiting.iter().all(|waiter| !waiter.is_finished()));
    world.proxy.refuse(false);
    // Sooner than each would have asked without being told.
    soon("a look after the reconnect", async {
        for waiter in waiting {
            let granted = waiter.await.expect("no panic");
            drop(granted.expect("it is free"));
        }
    })
    .await;
}

/// 3.9: the one wake that a message brings goes to a head that is dropped before it gets to use it.
#[tokio::test]
async fn a_cancelled_head_passes_its_wake_on() {
    let world = World::start();
    let (client, other) = (world.client().await, world.other().await);
    let held = take(other.lock("stock")).await;
    let mut head = begun(client.lock("stock").acquire());
    pending_until(&mut head, "the head listens", async || {
        world.runs(ACQUIRE).len() == 2
    })
    .await;
    let next = tokio::spawn(client.lock("stock").acquire());
    tokio::task::yield_now().await;
    let alarm = Arc::new(Alarm::default());
    assert!(alarm.poll(&mut head).is_pending());
    held.release().await.expect("it is ours");
    eventually(PATIENCE, "the head is woken", async || alarm.rang()).await;
    drop(head);
    let granted = soon("the next one's turn", next).await;
    let granted = granted.expect("no panic").expect("it is free");
    assert_eq!(world.holder("stock"), Some((granted.owner(), 1)));
}

/// 3.9: the last waiter leaves, and the next one comes while the server has not heard of that yet: its
/// subscription must not go with the other's.
#[tokio::test]
async fn a_waiter_that_comes_while_the_last_one_leaves_still_hears() {
    let world = World::start();
    let (client, other) = (world.client().await, world.other().await);
    let held = take(other.lock("stock")).await;
    let mut first = begun(client.lock("stock").acquire());
    pending_until(&mut first, "it listens and has asked again", async || {
        world.runs(ACQUIRE).len() >= 2
    })
    .await;
    let leaving = Match::command("UNSUBSCRIBE");
    world.proxy.rule(leaving, Fault::DelayRequest(ms(200)));
    drop(first);
    world.injected(1).await;
    let mut second = begun(client.lock("stock").acquire());
    pending_until(&mut second, "the first has left", async || {
        world.server.commandstats("unsubscribe") > 0
    })
    .await;
    pending_until(&mut second, "it listens", async || {
        !world.server.pubsub_channels().is_empty()
    })
    .await;
    let asked = world.runs(ACQUIRE).len();
    pending_until(&mut second, "it has asked since", async || {
        world.runs(ACQUIRE).len() > asked
    })
    .await;
    held.release().await.expect("it is ours");
    let got = soon("the message", second).await.expect("it is free");
    drop(got);
}

/// 3.9: the lock becomes free without a word: its key is deleted, its holder's lease runs out, or the
/// message never comes. Every sleep ends by itself.
#[tokio::test]
async fn no_waiter_hangs_because_a_message_was_lost() {
    let world = World::start();
    let (client, other) = (world.client().await, world.other().await);
    take(other.lock("deleted")).await.forget();
    let silent = take(other.lock("silent")).await;
    let expires = take(other.lock("expired").with_lease(fixed(1500))).await;
    let over = expires.valid_until();
    expires.forget();
    let waiter = |name: &'static str| {
        let lock = client.lock(name);
        tokio::spawn(async move {
            let guard = lock.acquire().await.expect("the server answers");
            (guard, Instant::now())
        })
    };
    let (deleted, expired, unheard) = (waiter("deleted"), waiter("expired"), waiter("silent"));
    eventually(PATIENCE, "all listen", async || {
        world.runs(ACQUIRE).len() >= 6
    })
    .await;
    world.server.cmd(&["DEL", "deleted"]);
    // Released as somebody would whose PUBLISH fails.
    world.server.cmd(&["HDEL", "silent", &silent.owner()]);

    let freed = async {
        for waiter in [deleted, unheard] {
            let (_guard, _) = in_time("freed", waiter).await.expect("no panic");
        }
    };
    let (((_, at), after), ((), cap)) = tokio::join!(
        paced(async { in_time("expired", expired).await.expect("no panic") }),
        paced(freed),
    );
    assert!(at >= over, "the holder's lease was not over");
    assert!(after < ms(3200), "long after the holder's lease: {after:?}");
    assert!(cap < ms(4500), "longer than the cap: {cap:?}");
}

/// 3.9 and 4: only the head of a line talks to the server, with one subscription for all, and one
/// message wakes one waiter.
#[tokio::test]
async fn only_the_head_of_a_line_asks_and_listens() {
    const WAITERS: usize = 20;
    let world = World::start();
    let client = connect(world.builder().handoff_limit(0)).await;
    let other = world.other().await;
    let held = take(other.lock("stock")).await;
    let mut waiting: Vec<_> = (0..WAITERS)
        .map(|_| tokio::spawn(client.lock("stock").acquire()))
        .collect();
    eventually(PATIENCE, "somebody listens", async || {
        world.runs(ACQUIRE).len() == 2
    })
    .await;
    let channel = "redisson_lock__channel:{stock}";
    let (_, listeners): (String, u64) = world.server.query(&["PUBSUB", "NUMSUB", channel]);
    assert_eq!(listeners, 1);
    held.release().await.expect("it is ours");
    let first = soon("the first one's turn", waiting.remove(0)).await;
    let first = first.expect("no panic").expect("it is free");
    assert_eq!(world.runs(ACQUIRE).len(), 3, "one wake for one message");
    assert_eq!(world.holder("stock"), Some((first.owner(), 1)));
    for waiter in waiting {
        waiter.abort();
    }
}

/// 3.9: one subscription gets stuck on its way, and with it whoever waits for its confirmation; those who
/// listen on the same connection hear their messages all the same.
#[tokio::test]
async fn a_subscription_that_is_not_confirmed_keeps_no_message_from_the_others() {
    let world = World::start();
    let builder = world.builder().command_timeout(PATIENCE);
    let client = connect(builder.connect_timeout(PATIENCE)).await;
    let other = world.other().await;
    let (heard, stuck) = (
        take(other.lock("heard")).await,
        take(other.lock("stuck")).await,
    );
    let mut hears = begun(client.lock("heard").acquire());
    pending_until(&mut hears, "it listens", async || {
        world.runs(ACQUIRE).len() == 2
    })
    .await;
    let subscribing = Match::command("SUBSCRIBE");
    world.proxy.rule(subscribing, Fault::HoldRequest);
    let mut waits = begun(client.lock("stuck").acquire());
    pending_until(&mut waits, "its subscription is stuck", async || {
        world.proxy.injected().len() == 1
    })
    .await;
    heard.release().await.expect("it is ours");
    let granted = soon("the message of the other channel", hears).await;
    drop(granted.expect("it is free"));
    world.proxy.let_go();
    stuck.release().await.expect("it is ours");
    drop(soon("its own turn", waits).await.expect("it is free"));
}

/// 3.9: whoever starts or stops waiting while there is no listening connection does not make the client
/// try more often to have one.
#[tokio::test]
async fn however_many_come_and_go_reconnecting_keeps_its_pauses() {
    const WAITERS: usize = 20;
    let world = World::start();
    let (client, other) = (world.client().await, world.other().await);
    let mut held = Vec::new();
    for number in 0..WAITERS {
        held.push(take(other.lock(format!("stock:{number}"))).await);
    }
    let mut first = begun(client.lock("stock:0").acquire());
    pending_until(&mut first, "it listens", async || {
        !world.server.pubsub_channels().is_empty()
    })
    .await;
    let greetings = Match::command("HELLO");
    world.proxy.rule(greetings, Fault::CutBefore);
    assert_eq!(world.server.kill_pubsub_clients(), 1);
    let over = Instant::now() + ms(1500);
    let mut waiting = tokio::task::JoinSet::new();
    for number in 1..WAITERS {
        let lock = client.lock(format!("stock:{number}"));
        waiting.spawn(async move {
            while Instant::now() < over {
                // On a busy machine its time may be over before the server has said who holds it.
                let waited = lock.acquire_timeout(ms(10)).await;
                assert!(!matches!(waited, Ok(Some(_))), "nobody gave it back");
            }
        });
    }
    let all = async {
        while waiting
            .join_next()
            .await
            .transpose()
            .expect("no panic")
            .is_some()
        {}
    };
    tokio::select! {
        _ = &mut first => panic!("nobody gave it back"),
        () = in_time("they come and go", all) => {}
    }
    // Pauses of 20, 40, 80, 160, 320 and 500 ms, each perhaps but half as long; and what waits of 10 ms
    // leave to clean up on a busy machine may want a connection, too. Without pauses it is a thousand.
    let attempts = world.proxy.injected().len();
    assert!((3..=150).contains(&attempts), "{attempts} attempts");
    world.proxy.clear_rules();
    held.swap_remove(0).release().await.expect("it is ours");
    drop(
        soon("a look after the reconnect", first)
            .await
            .expect("it is free"),
    );
}

/// 3.9: a message that comes while the head has a request under way is not lost to it.
#[tokio::test]
async fn a_message_that_comes_while_the_head_is_asking_is_not_lost() {
    let world = World::start();
    let (client, other) = (world.client().await, world.other().await);
    let held = take(other.lock("stock").with_lease(keep_alive(30_000))).await;
    // The second ask, behind the subscription, is answered "taken", but late.
    world.proxy.rule(script(ACQUIRE).nth(2), Fault::HoldReply);
    let mut waiting = begun(client.lock("stock").acquire());
    pending_until(&mut waiting, "it asks again", async || {
        world.proxy.injected().len() == 1
    })
    .await;
    held.release().await.expect("it is ours");
    assert_eq!(world.runs(RELEASE).len(), 0, "the other's way is its own");
    world.proxy.let_go();
    let guard = soon("another look", waiting).await.expect("it is free");
    assert_eq!(world.holder("stock"), Some((guard.owner(), 1)));
}

/// 3.9 and 4: the subscription is counted, and ends with the last who listens: a race between the two
/// ends of one that goes must not leave it behind.
#[tokio::test]
async fn a_subscription_ends_with_the_last_who_listens() {
    const ROUNDS: usize = 60;
    let world = World::start();
    let (client, other) = (world.client().await, world.other().await);
    for round in 0..ROUNDS {
        let name = format!("stock:{round}");
        let held = take(other.lock(name.clone())).await;
        let mut waiting = begun(client.lock(name).acquire());
        pending_until(&mut waiting, "it listens", async || {
            !world.server.pubsub_channels().is_empty()
        })
        .await;
        match round % 2 {
            0 => drop(waiting),
            _ => {
                held.release().await.expect("it is ours");
                drop(soon("its turn", waiting).await.expect("it is free"));
            }
        }
        eventually(PATIENCE, "nobody listens any more", async || {
            world.server.pubsub_channels().is_empty()
        })
        .await;
    }
}

/// 4: nor does it outlive the line when the last one in it is handed the lock.
#[tokio::test]
async fn a_subscription_ends_when_the_last_in_line_is_handed_the_lock() {
    let world = World::start();
    let (client, other) = (world.client().await, world.other().await);
    let theirs = take(other.lock("stock")).await;
    let channel = "redisson_lock__channel:{stock}";
    let listeners = || -> u64 {
        world
            .server
            .query::<(String, u64)>(&["PUBSUB", "NUMSUB", channel])
            .1
    };
    let mut first = begun(client.lock("stock").acquire());
    pending_until(&mut first, "it listens", async || listeners() == 1).await;
    let second = begun(client.lock("stock").acquire());
    theirs.release().await.expect("it is ours");
    let first = soon("its turn", first).await.expect("it is free");
    assert_eq!(listeners(), 1, "somebody waits");
    first.release().await.expect("it is ours");
    let second = soon("its turn", second).await.expect("it is free");
    eventually(PATIENCE, "nobody listens", async || listeners() == 0).await;
    assert!(second.is_held());
}
