//! 3.9 Notifications are hints.

use std::sync::Arc;

use distlock::Client;
use tokio::task::{JoinSet, yield_now};
use tokio::time::Instant;

use super::{Acquiring, Alarm, PATIENCE, World, attack, becomes, begun, connect, ms};
use super::{pending_until, runs, soon, take};
use crate::support::{Fault, Match, Script};

/// Returns a waiter that has subscribed, and then sent its request once more.
async fn listener(world: &World, client: &Client, name: &str) -> Acquiring {
    let asked = world.runs(Script::Acquire).len();
    let mut waiting = begun(client.lock(name).acquire());
    pending_until(&mut waiting, "it listens, and has asked again", || {
        world.runs(Script::Acquire).len() == asked + 2 && world.proxy.unanswered() == 0
    })
    .await;
    waiting
}

/// 3.9: the lock is released after a waiter's request was refused and before its subscription is active.
#[test]
fn a_release_between_request_and_subscription_is_not_missed() {
    attack(async |world| {
        let (client, other) = (world.client().await, world.other().await);
        let held = take(other.lock("stock")).await;
        let subscribing = Match::command("SUBSCRIBE");
        world.proxy.rule(subscribing, Fault::HoldRequest);
        let mut waiting = begun(client.lock("stock").acquire());
        world.until_injected(&mut waiting, 1).await;
        let asked = world.runs(Script::Acquire).len();
        assert_eq!(asked, 1, "told that it is taken");
        held.release().await.expect("it is ours");
        assert_eq!(world.server.pubsub_channels(), [""; 0]);
        world.proxy.deliver_held();
        let guard = soon("a request behind the subscription", waiting).await;
        drop(guard.expect("it is free"));
    });
}

/// 3.9: the subscriber's connection breaks and notifications of releases are lost; once it is reconnected, no waiter may keep waiting for
/// them.
#[test]
fn after_a_reconnect_every_waiter_polls_again() {
    const WAITERS: usize = 8;
    attack(async |world| {
        let (client, other) = (world.client().await, world.other().await);
        let (mut held, mut waiting) = (Vec::new(), Vec::new());
        for number in 0..WAITERS {
            let name = format!("stock:{number}");
            held.push(take(other.lock(name.as_str())).await);
            waiting.push(tokio::spawn(listener(world, &client, &name).await));
        }
        world.proxy.refuse(true);
        assert_eq!(world.server.kill_pubsub_clients(), 1);
        for guard in held {
            guard.release().await.expect("it is ours");
        }
        assert!(waiting.iter().all(|waiter| !waiter.is_finished()));
        world.proxy.refuse(false);
        // This is sooner than each would have polled without a notification.
        for waiter in waiting {
            let granted = soon("a request after the reconnect", waiter).await;
            drop(granted.expect("no panic").expect("it is free"));
        }
    });
}

/// 3.9: the one wake that a message brings goes to a head that is dropped before it can use it.
#[test]
fn a_cancelled_head_passes_its_wake_on() {
    attack(async |world| {
        let (client, other) = (world.client().await, world.other().await);
        let held = take(other.lock("stock")).await;
        let mut head = listener(world, &client, "stock").await;
        let next = tokio::spawn(client.lock("stock").acquire());
        yield_now().await;
        let alarm = Arc::new(Alarm::default());
        assert!(alarm.poll(&mut head).is_pending());
        held.release().await.expect("it is ours");
        becomes("the head is woken", || alarm.rang()).await;
        drop(head);
        let granted = soon("the next one's turn", next).await;
        let granted = granted.expect("no panic").expect("it is free");
        assert_eq!(world.holder("stock"), Some((granted.owner(), 1)));
    });
}

/// 3.9: the last waiter leaves, and the next one comes while the server has not executed the unsubscribe yet: the new subscription must not
/// be removed with the old one.
#[test]
fn a_waiter_that_arrives_while_the_last_one_leaves_is_still_notified() {
    attack(async |world| {
        let (client, other) = (world.client().await, world.other().await);
        let held = take(other.lock("stock")).await;
        let first = listener(world, &client, "stock").await;
        let leaving = Match::command("UNSUBSCRIBE");
        world.proxy.rule(leaving, Fault::DelayRequest(ms(200)));
        drop(first);
        world.injected(1).await;
        let mut second = begun(client.lock("stock").acquire());
        pending_until(&mut second, "the first has left", || {
            world.server.commandstats("unsubscribe") > 0
        })
        .await;
        pending_until(&mut second, "it listens", || {
            !world.server.pubsub_channels().is_empty()
        })
        .await;
        let asked = world.runs(Script::Acquire).len();
        pending_until(&mut second, "it has asked since", || {
            world.runs(Script::Acquire).len() > asked
        })
        .await;
        held.release().await.expect("it is ours");
        let got = soon("the message", second).await.expect("it is free");
        drop(got);
    });
}

/// 3.9: one subscription gets stuck on its way, and with it the waiter that waits for its confirmation; other waiters subscribed on the
/// same connection are notified all the same.
#[test]
fn a_subscription_that_is_not_confirmed_keeps_no_message_from_the_others() {
    attack(async |world| {
        let builder = world.builder().command_timeout(PATIENCE);
        let client = connect(builder.connect_timeout(PATIENCE)).await;
        let other = world.other().await;
        let heard = take(other.lock("heard")).await;
        let stuck = take(other.lock("stuck")).await;
        let hears = listener(world, &client, "heard").await;
        let subscribing = Match::command("SUBSCRIBE");
        world.proxy.rule(subscribing, Fault::HoldRequest);
        let mut waits = begun(client.lock("stuck").acquire());
        world.until_injected(&mut waits, 1).await;
        heard.release().await.expect("it is ours");
        let granted = soon("the message of the other channel", hears).await;
        drop(granted.expect("it is free"));
        world.proxy.deliver_held();
        stuck.release().await.expect("it is ours");
        drop(soon("its own turn", waits).await.expect("it is free"));
    });
}

/// 3.9: waiters that come and go while the subscriber is disconnected do not make the client reconnect more often.
#[test]
fn reconnects_keep_their_backoff_while_waiters_come_and_go() {
    const WAITERS: usize = 20;
    attack(async |world| {
        let (client, other) = (world.client().await, world.other().await);
        let mut held = Vec::new();
        for number in 0..WAITERS {
            held.push(take(other.lock(format!("stock:{number}"))).await);
        }
        let mut first = listener(world, &client, "stock:0").await;
        // Cleanup has its connection already, and makes no other.
        drop(take(client.lock("warm")).await);
        world.free("warm").await;
        let greetings = Match::command("HELLO");
        world.proxy.rule(greetings, Fault::CutBefore);
        assert_eq!(world.server.kill_pubsub_clients(), 1);
        let over = Instant::now() + ms(1500);
        let mut waiting = JoinSet::new();
        for number in 1..WAITERS {
            let lock = client.lock(format!("stock:{number}"));
            waiting.spawn(async move {
                while Instant::now() < over {
                    let waited = lock.acquire_timeout(ms(200)).await;
                    assert!(!matches!(waited, Ok(Some(_))), "it is held");
                }
            });
        }
        tokio::select! {
            _ = &mut first => panic!("it is held"),
            _ = waiting.join_all() => {}
        }
        // The backoff is 20, 40, 80, 160, 320 and 500 ms, each possibly halved by jitter. Without backoff there are a thousand attempts.
        let attempts = world.proxy.injected().len();
        assert!((3..=12).contains(&attempts), "{attempts} attempts");
        world.proxy.clear_rules();
        held.swap_remove(0).release().await.expect("it is ours");
        drop(soon("the reconnect", first).await.expect("it is free"));
    });
}

/// 3.9: the head does not lose a message that arrives while it has a request under way.
#[test]
fn a_message_that_arrives_while_the_head_polls_is_not_lost() {
    attack(async |world| {
        let (client, other) = (world.client().await, world.other().await);
        let held = take(other.lock("stock")).await;
        // The second request, behind the subscription, is answered "taken", but late.
        let second = runs(Script::Acquire).nth(2);
        world.proxy.rule(second, Fault::HoldReply);
        let mut waiting = begun(client.lock("stock").acquire());
        world.until_injected(&mut waiting, 1).await;
        held.release().await.expect("it is ours");
        pending_until(&mut waiting, "a second later", {
            let until = Instant::now() + ms(1000);
            move || Instant::now() >= until
        })
        .await;
        world.proxy.deliver_held();
        let guard = soon("another request", waiting).await.expect("it is free");
        assert_eq!(world.holder("stock"), Some((guard.owner(), 1)));
    });
}

/// 4: a subscription ends with the queue when the last waiter in it is handed the lock.
#[test]
fn a_subscription_ends_when_the_last_waiter_is_handed_the_lock() {
    attack(async |world| {
        let (client, other) = (world.client().await, world.other().await);
        let theirs = take(other.lock("stock")).await;
        let channels = || world.server.pubsub_channels().len();
        let first = listener(world, &client, "stock").await;
        let second = begun(client.lock("stock").acquire());
        theirs.release().await.expect("it is ours");
        let first = soon("its turn", first).await.expect("it is free");
        assert_eq!(channels(), 1, "there is a waiter");
        first.release().await.expect("it is ours");
        let second = soon("its turn", second).await.expect("it is free");
        becomes("the subscription ends", || channels() == 0).await;
        assert!(second.is_held());
    });
}
