//! Attacks that once succeeded, each reproduced as it was made, on a simulated server.

use std::time::Duration;

use distlock::{Backoff, Client, Error, Lease, Wait};

use crate::support::java::Subscriber;
use crate::support::{
    ChaosProxy, Fault, Match, RedisServer, Script, batch, builder, eventually, simulated,
};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Upper bound for any wait; only a failure waits this long.
const PATIENCE: Duration = ms(120_000);

async fn connect(url: &str) -> Client {
    let builder = builder(url).command_timeout(PATIENCE / 4);
    let client = builder.connect_timeout(PATIENCE).connect().await;
    client.expect("the server is up")
}

/// Printed in full, forty holds made a gigabyte of text, and were lost while it was written.
#[test]
fn a_client_with_many_holds_is_shown_in_a_few_lines() {
    simulated(async || {
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
    });
}

/// This client's own hold had ended, its next waiter had no reply yet, and a newcomer was refused as if the lock were busy.
#[test]
fn a_new_waiter_behind_an_unanswered_head_is_not_reported_busy() {
    simulated(async || {
        let server = RedisServer::start();
        let proxy = ChaosProxy::start(server.addr());
        let builder = builder(&proxy.url()).handoff_limit(0);
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
    });
}

/// Only the head of the queue sends requests; this one, a waiter in poll mode, sent one per minute.
#[test]
fn a_poller_at_the_head_does_not_delay_subscribed_waiters() {
    simulated(async || {
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
    });
}

/// Polls a future once and then leaves it for a while, as `select!` on `&mut future` does.
async fn begun_and_left<F: Future + Unpin + Send>(future: &mut F) {
    tokio::select! {
        biased;
        _ = future => panic!("it cannot be done yet"),
        () = std::future::ready(()) => {}
    }
}

#[test]
fn an_unpolled_connect_delays_no_other_caller() {
    simulated(async || {
        let server = RedisServer::start();
        let proxy = ChaosProxy::start(server.addr());
        let client = connect(&proxy.url()).await;
        let warm = client.lock("warm").acquire().await.expect("it is free");
        warm.release().await.expect("it is ours");
        proxy.cut_all();
        // The client must first notice that the connection has ended: then the next call connects.
        eventually(PATIENCE, "it connects anew", async || {
            client.lock("warm").try_acquire().await.is_ok()
        })
        .await;
        proxy.cut_all();
        tokio::time::sleep(ms(300)).await;
        let mut left = Box::pin(client.lock("a").acquire());
        begun_and_left(&mut left).await;
        // On a busy machine it may be a call that discovers the end of the connection.
        eventually(PATIENCE, "another connects", async || {
            let got = client.lock("b").try_acquire().await;
            got.is_ok_and(|got| got.is_some())
        })
        .await;
        drop(left);
    });
}

#[test]
fn an_unpolled_re_entry_delays_no_other() {
    simulated(async || {
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
    });
}

/// Twenty thousand releases were queued before the next renewal, and the lock was lost without a warning.
#[test]
fn a_burst_of_dropped_guards_does_not_starve_a_renewal() {
    simulated(async || {
        const MANY: usize = 20_000;
        let server = RedisServer::start();
        Script::load_all(&server);
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
        // Renewals are due every four seconds. A renewal that is queued behind all releases is sent only after them, and the delay of each
        // reply makes them take three times as long as that.
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
    });
}

/// Requests that waited for the replies of a silent connection kept all other cleanup from being done.
#[test]
fn acquires_cancelled_on_a_silent_connection_delay_no_dropped_guard() {
    simulated(async || {
        const LOST: usize = 640;
        let server = RedisServer::start();
        let proxy = ChaosProxy::start(server.addr());
        let client = builder(&proxy.url()).default_lease(Lease::Fixed(ms(600_000)));
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
        // In rounds of 64, one after the other, their waits used to add up to twenty seconds.
        eventually(ms(10_000), "the dropped one is free", async || {
            !server.keys().contains(&"kept".to_owned())
        })
        .await;
    });
}

/// Fields with a colon and a number were taken for owners, and a shopping cart for a lock to force-unlock.
#[test]
fn a_hash_of_application_data_is_not_force_released() {
    simulated(async || {
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
    });
}

/// A client that only tries, while others are waiting, kept every name at which it had yielded to others, without end.
#[test]
fn yielded_names_are_forgotten() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let mut listeners = Vec::new();
        let try_it = async |name: String| {
            let guard = client.lock(name).try_acquire().await.expect("it answers");
            let guard = guard.expect("it is free");
            guard.release().await.expect("it is ours");
        };
        for number in 0..8 {
            let channel = format!("redisson_lock__channel:{{n{number}}}");
            listeners.push(Subscriber::start(&server, &channel).await);
            try_it(format!("n{number}")).await;
        }
        eventually(PATIENCE, "they are forgotten", async || {
            try_it("other".into()).await;
            !format!("{client:?}").contains("\"n")
        })
        .await;
    });
}
