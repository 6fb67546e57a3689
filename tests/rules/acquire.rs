//! 4 One acquisition: its deadline, outages, and what it costs.

use std::task::Poll;
use std::time::{Duration, Instant};

use distlock::{Backoff, Error, Lock, Wait};
use tokio::runtime::Handle;

use super::support::{Fault, Match, eventually, paced};
use super::{
    ACQUIRE, PATIENCE, RELEASE, World, begun, connect, in_time, ms, pending_until, script, take,
};

/// 4: each of connecting, subscribing and asking may take its time, but not one after the other beyond
/// the caller's.
#[tokio::test]
async fn one_deadline_covers_connect_subscribe_and_script() {
    const WAIT: Duration = ms(1000);
    let world = World::start();
    // All of them far longer than the wait.
    let patient = world
        .builder()
        .command_timeout(PATIENCE)
        .connect_timeout(PATIENCE);
    let (client, other) = (connect(patient).await, world.other().await);
    let _held = take(other.lock("taken")).await;
    let on_time = async |what: &str, lock: Lock| {
        let started = Instant::now();
        let (got, took) = paced(lock.acquire_timeout(WAIT)).await;
        assert!(started.elapsed() >= WAIT, "{what}: {:?}", started.elapsed());
        assert!(took < WAIT + ms(1500), "{what}: {took:?}");
        got
    };

    world.proxy.rule(script(ACQUIRE), Fault::HoldRequest);
    let got = on_time("script", client.lock("script")).await;
    assert!(matches!(got, Err(Error::Timeout { .. })), "{got:?}");
    world.proxy.clear_rules();
    world.proxy.let_go();

    world
        .proxy
        .rule(Match::command("SUBSCRIBE"), Fault::HoldRequest);
    let got = on_time("subscribe", client.lock("taken")).await;
    assert!(matches!(got, Ok(None)), "somebody else has it: {got:?}");
    world.proxy.clear_rules();
    world.proxy.let_go();

    // Without a connection, and with a network that lets none be made.
    world.proxy.refuse(true);
    world.proxy.cut_all();
    eventually(PATIENCE, "the connection is known to be gone", async || {
        let refused = client.lock("connect").try_acquire().await;
        matches!(refused, Err(Error::Unavailable { .. }))
    })
    .await;
    world.proxy.partition(true);
    world.proxy.refuse(false);
    let got = on_time("connect", client.lock("connect")).await;
    assert!(matches!(got, Err(Error::Timeout { .. })), "{got:?}");
    world.proxy.partition(false);
}

/// 4: the deadline of a re-entry, too, which may have to wait for another of the same owner.
#[tokio::test]
async fn one_deadline_covers_a_re_entry_behind_another() {
    let world = World::start();
    let client = connect(world.builder().command_timeout(PATIENCE)).await;
    let me = client.new_owner();
    let lock = client.lock("stock").with_owner(&me);
    let outer = take(lock.clone()).await;
    let inner = take(lock.clone()).await;
    world.proxy.rule(script(RELEASE).nth(1), Fault::HoldReply);
    let mut releasing = begun(inner.release());
    pending_until(&mut releasing, "the release is under way", async || {
        world.proxy.injected().len() == 1
    })
    .await;
    let (got, took) = paced(lock.acquire_timeout(ms(300))).await;
    assert!(took < ms(1800), "{took:?} instead of 300 ms");
    assert!(matches!(got, Err(Error::Timeout { .. })), "{got:?}");
    world.proxy.let_go();
    in_time("the release", releasing).await.expect("it is ours");
    eventually(PATIENCE, "the count is the guards'", async || {
        world.count("stock") == 1
    })
    .await;
    outer.release().await.expect("it is ours");
}

/// 4: who asks for the first time while the server is away hears of it at once; who was waiting goes
/// on waiting.
#[tokio::test]
async fn a_waiter_rides_through_an_outage_but_a_first_attempt_does_not() {
    let world = World::start();
    let (client, other) = (world.hasty(ms(1000)).await, world.other().await);
    let _held = take(other.lock("stock")).await;
    let _polled = take(other.lock("order")).await;
    // One that listens, and one that asks all the time and so meets the outage again and again.
    let poll = Wait::Poll(Backoff::new(ms(20), ms(40)));
    let waiting = [
        tokio::spawn(client.lock("stock").acquire()),
        tokio::spawn(client.lock("order").with_wait(poll).acquire()),
    ];
    eventually(PATIENCE, "they wait", async || {
        world.runs(ACQUIRE).len() > 3
    })
    .await;
    world.server.kill();
    let down = Instant::now();
    while down.elapsed() < ms(500) {
        let lock = client.lock("another");
        let first = in_time("a first attempt", lock.acquire()).await;
        assert!(matches!(first, Err(Error::Unavailable { .. })), "{first:?}");
        tokio::time::sleep(ms(50)).await;
    }
    assert!(
        waiting.iter().all(|waiter| !waiter.is_finished()),
        "gave up"
    );
    world.server.restart();
    for waiter in waiting {
        let guard = in_time("it asks again", waiter).await.expect("no panic");
        let guard = guard.expect("it is free");
        assert_eq!(world.holder(guard.name()), Some((guard.owner(), 1)));
    }
}

/// 4: "the store is down" is not said of a store that is up, because the connection to it died while
/// nobody used it. Every request may be sent again.
#[tokio::test]
async fn a_connection_that_died_while_idle_is_no_outage() {
    let world = World::start();
    let client = world.client().await;
    take(client.lock("stock"))
        .await
        .release()
        .await
        .expect("ours");
    world.proxy.cut_all();
    eventually(PATIENCE, "the server has let go of it", async || {
        world
            .server
            .query::<String>(&["CLIENT", "LIST"])
            .lines()
            .count()
            == 1
    })
    .await;
    // Idle for long enough to have been told by the kernel.
    tokio::time::sleep(ms(200)).await;
    let guard = client.lock("stock").try_acquire().await;
    let guard = guard.expect("the server is up").expect("it is free");
    guard.release().await.expect("it is ours");
}

/// 4: a waiter that was waiting behind a hold of its own client has never asked the server, but it was
/// waiting.
#[tokio::test]
async fn a_waiter_behind_a_hold_of_its_own_client_rides_through_an_outage() {
    let world = World::start();
    let client = world.hasty(ms(1000)).await;
    let held = take(client.lock("stock")).await;
    let mut waiting = begun(
        client
            .lock("stock")
            .with_lease(super::keep_alive(5000))
            .acquire(),
    );
    world.server.kill();
    let gave_back = held.release().await;
    assert!(gave_back.is_err(), "there is no server");
    // Several times as long as it takes to ask once.
    let early = tokio::time::timeout(ms(1000), &mut waiting).await;
    assert!(early.is_err(), "it did not wait on: {early:?}");
    world.server.restart();
    let guard = in_time("it asks again", waiting).await.expect("it is free");
    assert_eq!(world.holder("stock"), Some((guard.owner(), 1)));
}

/// 4: an acquire and a release without contention are nothing but a request each. Looked at after
/// every single poll, on a runtime with no other thread: a task could not have come and gone between.
#[tokio::test]
async fn a_happy_path_spawns_no_task() {
    let world = World::start();
    let client = world.client().await;
    let me = client.new_owner();
    take(client.lock("stock"))
        .await
        .release()
        .await
        .expect("warm");
    let before = Handle::current().metrics().num_alive_tasks();
    assert!(before > 0, "the connection's own task is there");

    let looking = async |work: &mut (dyn Future<Output = ()> + Unpin)| {
        std::future::poll_fn(|cx| {
            let polled = std::pin::Pin::new(&mut *work).poll(cx);
            let alive = Handle::current().metrics().num_alive_tasks();
            assert_eq!(alive, before, "a task was spawned");
            polled
        })
        .await;
    };
    for round in 0..10 {
        let lock = client.lock("stock").with_owner(&me);
        let mut work = Box::pin(async {
            let outer = lock.acquire().await.expect("it is free");
            let inner = lock.try_acquire().await.expect("answered");
            inner
                .expect("it is ours")
                .release()
                .await
                .expect("it is ours");
            match round % 2 {
                0 => outer.release().await.expect("it is ours"),
                _ => drop(outer),
            }
        });
        looking(&mut work).await;
        world.free("stock").await;
    }

    // The eyes work: one that is spawned is seen.
    let mut spawning = Box::pin(async {
        let before = Handle::current().metrics().num_alive_tasks();
        let task = tokio::spawn(std::future::pending::<()>());
        std::future::poll_fn(|_| Poll::Ready(())).await;
        assert_eq!(Handle::current().metrics().num_alive_tasks(), before + 1);
        task.abort();
    });
    (&mut spawning).await;
}
