//! A write that replicas have not acknowledged does not count.

use std::time::Duration;

use distlock::{Client, Durability, Error, Guard, Lease, Lock, Member, MultiLock, Risk};
use tokio::time::{Instant, timeout};

use super::pair::Pair;
use crate::support::{
    Fair, Family, Fenced, PATIENCE, Plain, Read, RedisServer, Semaphore, Simple, Write, builder,
    eventually, simulated,
};

const LONG: Duration = Duration::from_secs(600);
/// Time-out of a wait that is bound to fail.
const SHORT: Duration = Duration::from_millis(300);

#[test]
fn a_reported_grant_is_already_on_the_replica() {
    simulated(async || {
        let pair = Pair::start();
        let client = connect(&pair.master, PATIENCE / 2).await;
        for round in 0..200 {
            let name = format!("there-{round}");
            let guard = client.lock(&*name).acquire().await.expect("it is free");
            let there: bool = pair.replica.query(&["EXISTS", &name]);
            assert!(there, "{name}");
            guard.release().await.expect("it is ours");
        }
    });
}

#[test]
fn an_unreplicated_grant_is_not_reported_and_undone() {
    simulated(async || {
        let pair = Pair::start();
        let client = connect(&pair.master, SHORT).await;
        pair.cut(true);
        refused::<Plain>(&client).await;
        refused::<Fenced>(&client).await;
        refused::<Fair>(&client).await;
        refused::<Simple>(&client).await;
        refused::<Read>(&client).await;
        refused::<Write>(&client).await;
        refused::<Semaphore>(&client).await;
        let both = MultiLock::new(["one", "other"].map(|name| Member::from(client.lock(name))));
        let error = both.try_acquire().await.expect_err("no replica has it");
        assert!(error.to_string().contains("0 of 1 replicas"), "{error}");
        for name in ["one", "other"] {
            is_free(&pair.master, name).await;
        }
        pair.cut(false);
        let guard = taken(client.lock("one")).await;
        guard.release().await.expect("it is ours");
    });
}

/// The error does not claim that the server sent no reply.
#[test]
fn a_timed_out_waiter_gets_the_number_of_acknowledgements() {
    simulated(async || {
        let pair = Pair::start();
        let client = connect(&pair.master, SHORT).await;
        let lease = Lease::Fixed(SHORT);
        waited_in_vain(&pair, client.lock("plain").with_lease(lease)).await;
        waited_in_vain(&pair, client.fair_lock("fair").with_lease(lease)).await;
    });
}

async fn waited_in_vain<K: 'static>(pair: &Pair, lock: Lock<K>) {
    let name = lock.name().to_owned();
    let theirs = "5b3e1d7c-0000-4000-8000-000000000000:1";
    pair.master.cmd(&["HSET", &name, theirs, "1"]);
    pair.master.cmd(&["PEXPIRE", &name, "700"]);
    pair.cut(true);
    let waited = lock.acquire_timeout(SHORT * 9).await;
    pair.cut(false);
    let error = waited.expect_err("no replica has it");
    assert!(matches!(error, Error::NotReplicated { .. }), "{error:?}");
    assert!(error.to_string().contains("0 of 1 replicas"), "{error}");
}

async fn refused<F: Family>(client: &Client) {
    let kind = std::any::type_name::<F>();
    let lock = F::lock(client, kind.into()).with_lease(Lease::KeepAlive(LONG));
    let error = lock.try_acquire().await.expect_err("no replica has it");
    assert!(
        matches!(error, Error::NotReplicated { .. }),
        "{kind}: {error}"
    );
    assert!(error.is_transient());
    eventually(PATIENCE, "it is taken back", async || {
        let found = client.admin().inspect(kind).await.expect("it can be seen");
        found.is_none()
    })
    .await;
}

#[test]
fn an_unreplicated_renewal_does_not_extend_a_lease() {
    simulated(async || {
        let pair = Pair::start();
        let client = connect(&pair.master, SHORT).await;
        let lease = Lease::KeepAlive(Duration::from_secs(12));
        let guard = taken(client.lock("kept").with_lease(lease)).await;
        pair.cut(true);
        eventually(PATIENCE, "it is at risk", async || {
            guard.at_risk() == Some(Risk::RenewalFailed)
        })
        .await;
        let until = guard.valid_until();
        // The server itself has renewed the lock.
        eventually(PATIENCE, "another was in vain", async || {
            pair.master.pttl("kept") > 11_000
        })
        .await;
        assert_eq!(guard.valid_until(), until);
        pair.cut(false);
        eventually(PATIENCE, "it is safe again", async || {
            guard.at_risk().is_none() && guard.valid_until() > until
        })
        .await;
        // This time the replication link stays cut.
        pair.cut(true);
        let lost = timeout(PATIENCE, guard.lost()).await;
        lost.expect("it is lost in time").expect("not given back");
    });
}

#[test]
fn busy_replies_and_releases_do_not_depend_on_replicas() {
    simulated(async || {
        let pair = Pair::start();
        let (ours, theirs) = (
            connect(&pair.master, SHORT).await,
            connect(&pair.master, SHORT).await,
        );
        let guard = taken(ours.lock("busy")).await;
        pair.cut(true);
        let busy = theirs.lock("busy").try_acquire().await;
        assert!(busy.expect("nothing is promised").is_none());
        guard.release().await.expect("nothing is promised");
        is_free(&pair.master, "busy").await;
    });
}

/// Replicas acknowledge writes: a renewal or re-entry that wrote nothing would be acknowledged by replicas that lack the write before it.
#[test]
fn renewals_that_extend_nothing_are_written_as_well() {
    simulated(async || {
        let pair = Pair::start();
        let client = connect(&pair.master, PATIENCE / 2).await;
        writes::<Plain>(&client, &pair.master).await;
        writes::<Fenced>(&client, &pair.master).await;
        writes::<Fair>(&client, &pair.master).await;
        writes::<Simple>(&client, &pair.master).await;
        writes::<Read>(&client, &pair.master).await;
        writes::<Write>(&client, &pair.master).await;
        writes::<Semaphore>(&client, &pair.master).await;
    });
}

async fn writes<F: Family>(client: &Client, master: &RedisServer) {
    let kind = std::any::type_name::<F>();
    let mut lock = F::lock(client, kind.into());
    if F::AGAIN {
        lock = lock.with_owner(&client.new_owner());
    }
    let long = lock.clone().with_lease(Lease::Fixed(LONG));
    let guard = long.acquire().await.expect("it is free");
    let before = changes(master);
    guard.extend(LONG / 2).await.expect("it is ours");
    assert_ne!(changes(master), before, "{kind} is renewed");
    if F::AGAIN {
        let before = changes(master);
        let short = lock.with_lease(Lease::Fixed(LONG / 2));
        let again = short.acquire().await.expect("it is ours");
        assert_ne!(changes(master), before, "{kind} is entered again");
        again.release().await.expect("it is ours");
    }
    guard.release().await.expect("it is ours");
}

/// Returns the amount of data that the server has written.
fn changes(server: &RedisServer) -> String {
    let info: String = server.query(&["INFO", "replication"]);
    let mut lines = info.lines();
    let changes = lines.find_map(|line| line.strip_prefix("master_repl_offset:"));
    changes.expect("it says so").to_owned()
}

#[test]
fn an_unachievable_durability_is_rejected_at_once() {
    simulated(async || {
        let ask = |url: &str, acks, timeout| {
            let durability = Durability::Replicas { acks, timeout };
            builder(url).durability(durability).connect()
        };
        let url = "redis://127.0.0.1:1/";
        for (client, why) in [
            (ask(url, 0, SHORT).await, "`acks` must be at least 1"),
            (
                ask(url, 1, Duration::ZERO).await,
                "at least one millisecond",
            ),
            (ask(url, 1, LONG).await, "shorter than command_timeout"),
            (
                ask("memory:", 1, SHORT).await,
                "not supported for `memory:`",
            ),
            (
                ask("redis://127.0.0.1:1/?scripts=off", 1, SHORT).await,
                "need scripts",
            ),
        ] {
            let error = client.expect_err(why);
            assert!(error.to_string().contains(why), "{error}");
        }
    });
}

/// Acquires the lock, once the replica keeps up.
async fn taken(lock: Lock) -> Guard {
    let give_up = Instant::now() + PATIENCE;
    loop {
        match lock.acquire().await {
            Ok(guard) => return guard,
            Err(Error::NotReplicated { .. }) if Instant::now() < give_up => {}
            Err(error) => panic!("it is free: {error}"),
        }
    }
}

async fn is_free(server: &RedisServer, name: &str) {
    eventually(PATIENCE, "it is free", async || {
        !server.query::<bool>(&["EXISTS", name])
    })
    .await;
}

async fn connect(server: &RedisServer, timeout: Duration) -> Client {
    let client = builder(&server.url())
        .command_timeout(PATIENCE)
        .durability(Durability::Replicas { acks: 1, timeout });
    client.connect().await.expect("the server is up")
}
