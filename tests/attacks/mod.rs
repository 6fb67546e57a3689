//! Attacks that worked once, each as it was made.
#![cfg(feature = "redis")]
#![expect(clippy::disallowed_methods, reason = "tests keep their own time")]

use crate::support;

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use distlock::{Backoff, Client, Error, Lease, Wait};
use support::{ChaosProxy, Fault, Match, RedisServer, Script, batch, eventually};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Far longer than anything takes on a busy machine; only a failure waits for it.
const PATIENCE: Duration = ms(120_000);

/// A server on a busy machine is slow to answer, and not down.
async fn connect(url: &str) -> Client {
    let builder = Client::builder(url).command_timeout(PATIENCE / 4);
    let client = builder.connect_timeout(PATIENCE).connect().await;
    client.expect("the server is up")
}

/// Shown whole, forty holds made a gigabyte, and were lost while it was written.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_many_holds_is_shown_in_a_few_lines() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let mut guards = Vec::new();
    for number in 0..100 {
        let lock = client.lock(format!("shown-{number}"));
        let lock = lock.with_owner(&client.new_owner());
        guards.push(lock.acquire().await.expect("it is free"));
    }
    let shown = format!("{client:?} {:?} {:?}", client.lock("one"), guards[0]);
    assert!(shown.len() < 10_000, "{} bytes", shown.len());
    assert!(guards.iter().all(|guard| guard.is_held()));
}

/// Our own hold had ended, the next of us asked in vain, and a newcomer was told that it is busy.
#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_behind_a_head_that_is_not_answered_is_not_told_busy() {
    let server = RedisServer::start();
    let proxy = ChaosProxy::start(server.addr());
    let builder = Client::builder(&proxy.url()).handoff_limit(0);
    let client = builder.default_lease(Lease::Fixed(ms(60_000)));
    let client = client.connect().await.expect("the server is up");
    let held = client.lock("x").acquire().await.expect("it is free");
    let head = tokio::spawn(client.lock("x").acquire());
    eventually(PATIENCE, "it waits here", async || {
        format!("{client:?}").contains("waiting: 1")
    })
    .await;
    let acquire = concat!(
        include_str!("../../src/engine/redis/lua/format/owner.lua"),
        include_str!("../../src/engine/redis/lua/format/lock.lua"),
        include_str!("../../src/engine/redis/lua/mutex/acquire.lua"),
    );
    let hash = redis::Script::new(acquire).get_hash().to_owned();
    proxy.rule(Match::script(&[acquire, &hash]).nth(1), Fault::HoldRequest);
    held.release().await.expect("it is ours");
    eventually(PATIENCE, "it asks", async || proxy.injected().len() == 1).await;
    let got = client.lock("x").acquire_timeout(ms(300)).await;
    assert!(matches!(got, Err(Error::Timeout { .. })), "{got:?}");
    head.abort();
}

/// Nobody but the head asks; this one asked once a minute.
#[tokio::test(flavor = "multi_thread")]
async fn a_poller_at_the_head_does_not_hold_up_those_who_listen() {
    let server = RedisServer::start();
    let (a, b) = (connect(&server.url()).await, connect(&server.url()).await);
    let held = a.lock("x").acquire().await.expect("it is free");
    let seldom = Wait::Poll(Backoff::new(ms(60_000), ms(60_000)));
    let poller = b.lock("x").with_wait(seldom);
    let poller = tokio::spawn(async move { poller.acquire().await?.release().await });
    eventually(PATIENCE, "the poller has asked", async || {
        server.commandstats("evalsha") + server.commandstats("eval") >= 2
    })
    .await;
    let listener = tokio::spawn(b.lock("x").acquire_timeout(PATIENCE));
    eventually(PATIENCE, "somebody listens", async || {
        !server.pubsub_channels().is_empty()
    })
    .await;
    held.release().await.expect("it is ours");
    let got = listener.await.expect("no panic").expect("the server is up");
    assert!(got.is_some(), "it waits for the poller");
    poller.abort();
}

/// As in `select!` on `&mut future`: begun, and then not looked at for a while.
async fn begun_and_left<F: Future + Unpin + Send>(future: &mut F) {
    tokio::select! {
        biased;
        _ = future => panic!("it cannot be done yet"),
        () = std::future::ready(()) => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connect_that_nobody_polls_holds_up_nobody_else() {
    let server = RedisServer::start();
    let proxy = ChaosProxy::start(server.addr());
    let client = connect(&proxy.url()).await;
    let warm = client.lock("warm").acquire().await.expect("it is free");
    warm.release().await.expect("it is ours");
    proxy.cut_all();
    // Until the connection's end has been heard of: then the next call connects.
    eventually(PATIENCE, "it connects anew", async || {
        client.lock("warm").try_acquire().await.is_ok()
    })
    .await;
    proxy.cut_all();
    tokio::time::sleep(ms(300)).await;
    let mut left = Box::pin(client.lock("a").acquire());
    begun_and_left(&mut left).await;
    // On a busy machine the end may be heard of by a call that finds it.
    eventually(PATIENCE, "another connects", async || {
        let got = client.lock("b").try_acquire().await;
        got.is_ok_and(|got| got.is_some())
    })
    .await;
    drop(left);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_re_entry_that_nobody_polls_holds_up_no_other() {
    let server = RedisServer::start();
    let proxy = ChaosProxy::start(server.addr());
    let client = connect(&proxy.url()).await;
    let lock = client.lock("a").with_owner(&client.new_owner());
    let outer = lock.acquire().await.expect("it is free");
    proxy.rule(Match::any().nth(1), Fault::DelayReply(ms(300)));
    let mut left = Box::pin(lock.acquire());
    begun_and_left(&mut left).await;
    let got = tokio::time::timeout(PATIENCE, lock.try_acquire()).await;
    let got = got.expect("it waits for ever").expect("the server is up");
    assert!(got.is_some() && outer.is_held());
}

/// Twenty thousand releases stood before the next renewal, and the lock was lost without a warning.
#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_dropped_guards_does_not_starve_a_renewal() {
    const MANY: usize = 20_000;
    let server = RedisServer::start();
    Script::make_known(&server);
    let proxy = ChaosProxy::start(server.addr());
    let client = connect(&proxy.url()).await;
    let fixed = Lease::Fixed(ms(600_000));
    let mut guards = Vec::with_capacity(MANY);
    for batch in 0..MANY / 500 {
        let locks = (0..500).map(|number| client.lock(format!("burst-{batch}-{number}")));
        let asked = locks.map(|lock| tokio::spawn(lock.with_lease(fixed).acquire()));
        for asked in asked.collect::<Vec<_>>() {
            guards.push(asked.await.expect("no panic").expect("it is free"));
        }
    }
    // Renewed every four seconds: who stands behind all the others comes when they have gone, for the answers that each
    // waits for make them take three times as long.
    let releases = Match::words(|words| Script::Release.runs(words));
    proxy.rule(releases, Fault::DelayReply(ms(40)));
    let lease = Lease::KeepAlive(ms(12_000));
    let kept = client.lock("kept").with_lease(lease).acquire().await;
    let kept = kept.expect("it is free");
    let until = kept.valid_until();
    drop(guards);
    eventually(3 * PATIENCE, "it is renewed", async || {
        kept.check().expect("nobody has taken it");
        kept.valid_until() > until
    })
    .await;
    let left = server.query::<usize>(&["DBSIZE"]);
    assert!(left > 1, "it was renewed when all were given back");
    proxy.clear_rules();
    eventually(3 * PATIENCE, "all are given back", async || {
        kept.check().expect("it is renewed meanwhile");
        server.query::<usize>(&["DBSIZE"]) == 1
    })
    .await;
    kept.release().await.expect("it is ours");
}

/// One channel was refused after a reconnect, and with it all the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_channel_that_is_refused_after_a_reconnect_does_not_deafen_the_others() {
    let server = RedisServer::start();
    server.cmd(&["ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all"]);
    let url = server.url().replace("redis://", "redis://u:p@");
    let (a, b) = (connect(&server.url()).await, connect(&url).await);
    let first = a.lock("a").acquire().await.expect("it is free");
    let _second = a.lock("b").acquire().await.expect("it is free");
    let allowed = tokio::spawn(b.lock("a").acquire());
    let refused = tokio::spawn(b.lock("b").acquire());
    eventually(PATIENCE, "both listen", async || {
        server.pubsub_channels().len() == 2
    })
    .await;
    // The server ends the connections of who listens to what it may not.
    let only = "&redisson_lock__channel:{a}";
    server.cmd(&["ACL", "SETUSER", "u", "resetchannels", only]);
    let refused = tokio::time::timeout(PATIENCE, refused).await;
    let refused = refused.expect("it is told").expect("no panic");
    assert!(
        matches!(refused, Err(Error::PermissionDenied { .. })),
        "{refused:?}"
    );
    eventually(PATIENCE, "the other listens again", async || {
        server.pubsub_channels().len() == 1
    })
    .await;
    first.release().await.expect("it is ours");
    let got = tokio::time::timeout(PATIENCE, allowed).await;
    assert!(got.expect("its turn").expect("no panic").is_ok());
}

/// A dropped guard waited for a turn that went to a task of the very thread it stood on.
#[test]
fn nested_guards_that_are_dropped_in_many_tasks_do_not_hang() {
    let (done, over) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(4).enable_all().build();
        runtime.expect("threads can be had").block_on(async {
            let client = connect("memory:").await;
            let lock = client.lock("x").with_owner(&client.new_owner());
            let outer = lock.acquire().await.expect("it is free");
            let mut tasks = tokio::task::JoinSet::new();
            for _ in 0..4 {
                let lock = lock.clone();
                tasks.spawn(async move {
                    for round in 0..5_000 {
                        drop(lock.acquire().await.expect("its owner holds it"));
                        if round % 64 == 0 {
                            tokio::task::yield_now().await;
                        }
                    }
                });
            }
            tasks.join_all().await;
            assert_eq!(outer.hold_count(), 1);
            let seen = client.admin().inspect("x").await.expect("it answers");
            assert_eq!(seen.expect("it is held").holders[0].hold_count, 1);
        });
        done.send(()).expect("somebody waits below");
    });
    over.recv_timeout(3 * PATIENCE).expect("it does not hang");
}

/// What waited for the answers of a silent connection kept everything else from being cleaned up.
#[tokio::test(flavor = "multi_thread")]
async fn acquires_that_were_cancelled_on_a_silent_connection_hold_up_no_dropped_guard() {
    const LOST: usize = 640;
    let server = RedisServer::start();
    let proxy = ChaosProxy::start(server.addr());
    let client = Client::builder(&proxy.url()).default_lease(Lease::Fixed(ms(600_000)));
    let client = client.connect().await.expect("the server is up");
    let kept = client.lock("kept").acquire().await.expect("it is free");
    drop(client.lock("warm").acquire().await.expect("it is free"));
    eventually(PATIENCE, "the other connection is used", async || {
        server.keys() == ["kept"]
    })
    .await;
    let is_lost = |word: &[u8]| word.starts_with(b"lost-");
    let first = Match::words(move |words| words.iter().any(|word| is_lost(word))).nth(1);
    proxy.rule(first, Fault::HoldReply);
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..LOST {
        tasks.spawn(client.lock(format!("lost-{number}")).acquire());
    }
    eventually(PATIENCE, "all are sent", async || {
        let sent = proxy.requests().into_iter().flat_map(batch::apart);
        sent.filter(|words| words.iter().any(|word| is_lost(word.as_bytes())))
            .count()
            >= LOST
    })
    .await;
    tasks.shutdown().await;
    drop(kept);
    // One after the other, 64 at a time, they waited for twenty seconds.
    eventually(ms(10_000), "the dropped one is free", async || {
        !server.keys().contains(&"kept".to_owned())
    })
    .await;
}

/// Fields with a colon and a number were taken for owners, and a shopping cart for a lock to break.
#[tokio::test(flavor = "multi_thread")]
async fn a_hash_of_somebodys_data_is_no_lock_to_break() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let cart = [
        "HSET", "cart", "sku:1001", "2", "sku:1002", "1", "note", "hello",
    ];
    server.cmd(&cart);
    let refused = client.lock("cart").acquire_timeout(PATIENCE).await;
    assert!(
        matches!(refused, Err(Error::WrongKind { .. })),
        "{refused:?}"
    );
    let inspected = client.admin().inspect("cart").await;
    assert!(
        matches!(inspected, Err(Error::WrongKind { .. })),
        "{inspected:?}"
    );
    let forced = client.admin().force_release("cart").await;
    assert!(matches!(forced, Err(Error::WrongKind { .. })), "{forced:?}");
    assert_eq!(server.hgetall("cart").len(), 3);
}

/// A client that only tries, while others listen, kept each name it had stood back from for ever.
#[tokio::test(flavor = "multi_thread")]
async fn names_that_were_stood_back_from_are_forgotten() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let listener = redis::Client::open(server.own_url()).expect("it is an address");
    let mut listener = listener.get_connection().expect("the server is up");
    let mut listener = listener.as_pubsub();
    let try_it = async |name: String| {
        let guard = client.lock(name).try_acquire().await.expect("it answers");
        let guard = guard.expect("it is free");
        guard.release().await.expect("it is ours");
    };
    for number in 0..8 {
        let channel = format!("redisson_lock__channel:{{n{number}}}");
        listener.subscribe(channel).expect("anyone may listen");
        try_it(format!("n{number}")).await;
    }
    eventually(PATIENCE, "they are forgotten", async || {
        try_it("other".into()).await;
        !format!("{client:?}").contains("\"n")
    })
    .await;
}

/// Those who got the lock in memory were counted as gone from the line, once more.
#[tokio::test(flavor = "multi_thread")]
async fn as_many_are_shown_to_wait_as_do() {
    let client = connect("memory:").await;
    let mut held = client.lock("x").acquire().await.expect("it is free");
    let (sender, mut granted) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..20 {
        let (lock, sender) = (client.lock("x"), sender.clone());
        tokio::spawn(async move { sender.send(lock.acquire().await) });
    }
    for waiting in (14..=20).rev() {
        eventually(PATIENCE, "those who wait are shown", async || {
            format!("{client:?}").contains(&format!("waiting: {waiting}"))
        })
        .await;
        held.release().await.expect("it is ours");
        let next = granted.recv().await.expect("some wait");
        held = next.expect("it is free");
    }
}

/// An acquisition in memory that had to let others run first, for longer than its lease.
#[tokio::test(start_paused = true)]
async fn a_grant_in_memory_after_a_long_pause_is_still_good() {
    let client = connect("memory:").await;
    let lease = Lease::Fixed(ms(50));
    let mut acquiring = Box::pin(client.lock("stock").with_lease(lease).acquire());
    let paused = poll_fn(|cx| {
        // This poll has no time left for anything.
        while pin!(tokio::task::coop::consume_budget())
            .poll(cx)
            .is_ready()
        {}
        Poll::Ready(acquiring.as_mut().poll(cx).is_pending())
    });
    assert!(paused.await, "it was answered without a pause");
    tokio::time::advance(ms(200)).await;
    let guard = acquiring.await.unwrap();
    assert!(guard.is_held(), "granted, and over before it was seen");
}

/// Whoever asks again and again must not keep the holder from ever giving back.
#[tokio::test]
async fn asking_in_memory_without_a_pause_leaves_others_their_turn() {
    let client = connect("memory:").await;
    let guard = client.lock("stock").acquire().await.unwrap();
    let holder = tokio::spawn(async move {
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        guard.release().await.unwrap();
    });
    let started = Instant::now();
    while client.lock("stock").try_acquire().await.unwrap().is_none() {
        assert!(started.elapsed() < PATIENCE, "the holder starves");
    }
    holder.await.unwrap();
}
