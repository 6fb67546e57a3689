//! What replicas have not acknowledged does not count.

use std::time::{Duration, Instant};

use distlock::{Client, Durability, Error, Guard, Lease, Lock, Member, MultiLock, Risk};

use super::pair::Pair;
use super::support::{
    Fair, Family, Fenced, PATIENCE, Plain, Read, RedisServer, Semaphore, Simple, Write, eventually,
};

const LONG: Duration = Duration::from_secs(600);
/// What is in vain takes this long.
const SHORT: Duration = Duration::from_millis(300);
/// How often something is tried that a busy machine may have kept from being quick.
const TRIES: usize = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_is_told_is_on_the_replica_already() {
    let pair = Pair::start().await;
    let client = connect(&pair.master, PATIENCE / 2).await;
    for round in 0..200 {
        let name = format!("there-{round}");
        let guard = client.lock(&*name).acquire().await.expect("it is free");
        let there: bool = pair.replica.query(&["EXISTS", &name]);
        assert!(there, "{name}");
        guard.release().await.expect("it is ours");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_replica_has_is_not_granted_and_taken_back() {
    let pair = Pair::start().await;
    let client = connect(&pair.master, SHORT).await;
    pair.replica.stop_process();
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
    pair.replica.continue_process();
    let guard = taken(client.lock("one")).await;
    guard.release().await.expect("it is ours");
}

/// Not that nobody answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_waited_in_vain_hears_how_many_acknowledged() {
    let pair = Pair::start().await;
    let client = connect(&pair.master, SHORT).await;
    let lease = Lease::Fixed(SHORT);
    waited_in_vain(&pair, client.lock("plain").with_lease(lease)).await;
    waited_in_vain(&pair, client.fair_lock("fair").with_lease(lease)).await;
}

async fn waited_in_vain<K: 'static>(pair: &Pair, lock: Lock<K>) {
    let name = lock.name().to_owned();
    let theirs = "5b3e1d7c-0000-4000-8000-000000000000:1";
    for _ in 0..TRIES {
        pair.master.cmd(&["DEL", &name]);
        pair.master.cmd(&["HSET", &name, theirs, "1"]);
        pair.master.cmd(&["PEXPIRE", &name, "700"]);
        pair.replica.stop_process();
        let waited = lock.acquire_timeout(SHORT * 9).await;
        pair.replica.continue_process();
        match waited {
            Err(error @ Error::NotReplicated { .. }) => {
                assert!(error.to_string().contains("0 of 1 replicas"), "{error}");
                return;
            }
            // A machine that stands still leaves no time to try it.
            Ok(None) | Err(Error::Timeout { .. }) => is_free(&pair.master, &name).await,
            other => panic!("{other:?}"),
        }
    }
    panic!("it never hears of the replicas");
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_no_replica_has_does_not_make_it_last_longer() {
    let pair = Pair::start().await;
    let client = connect(&pair.master, SHORT).await;
    let lease = Lease::KeepAlive(Duration::from_secs(12));
    let guard = taken(client.lock("kept").with_lease(lease)).await;
    pair.replica.stop_process();
    eventually(PATIENCE, "it is at risk", async || {
        guard.at_risk() == Some(Risk::RenewalFailed)
    })
    .await;
    let until = guard.valid_until();
    // The server itself has renewed it.
    eventually(PATIENCE, "another was in vain", async || {
        pair.master.pttl("kept") > 11_000
    })
    .await;
    assert_eq!(guard.valid_until(), until);
    pair.replica.continue_process();
    eventually(PATIENCE, "it is safe again", async || {
        guard.at_risk().is_none() && guard.valid_until() > until
    })
    .await;
    // And now for good.
    pair.replica.stop_process();
    let lost = tokio::time::timeout(PATIENCE, guard.lost()).await;
    lost.expect("it is lost in time").expect("not given back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_busy_is_busy_and_what_is_given_back_is_free_whatever_replicas_do() {
    let pair = Pair::start().await;
    let (ours, theirs) = (
        connect(&pair.master, SHORT).await,
        connect(&pair.master, SHORT).await,
    );
    let guard = taken(ours.lock("busy")).await;
    pair.replica.stop_process();
    let busy = theirs.lock("busy").try_acquire().await;
    assert!(busy.expect("nothing is promised").is_none());
    guard.release().await.expect("nothing is promised");
    is_free(&pair.master, "busy").await;
}

/// Replicas acknowledge what was written: a renewal or re-entry that writes nothing would be acknowledged by those that lack
/// the one before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_makes_nothing_longer_is_written_as_well() {
    let pair = Pair::start().await;
    let client = connect(&pair.master, PATIENCE / 2).await;
    writes::<Plain>(&client, &pair.master).await;
    writes::<Fenced>(&client, &pair.master).await;
    writes::<Fair>(&client, &pair.master).await;
    writes::<Simple>(&client, &pair.master).await;
    writes::<Read>(&client, &pair.master).await;
    writes::<Write>(&client, &pair.master).await;
    writes::<Semaphore>(&client, &pair.master).await;
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

/// How often something was written. Not how much replicas were sent: that grows with each question to them.
fn changes(server: &RedisServer) -> String {
    let info: String = server.query(&["INFO", "persistence"]);
    let mut lines = info.lines();
    let changes = lines.find_map(|line| line.strip_prefix("rdb_changes_since_last_save:"));
    changes.expect("it says so").to_owned()
}

#[tokio::test]
async fn what_cannot_be_promised_is_refused_at_once() {
    let ask = |url: &str, acks, timeout| {
        let durability = Durability::Replicas { acks, timeout };
        Client::builder(url).durability(durability).connect()
    };
    let url = "redis://127.0.0.1:1/";
    for (client, why) in [
        (ask(url, 0, SHORT).await, "no replica is asked for"),
        (ask(url, 1, Duration::ZERO).await, "need some time"),
        (ask(url, 1, LONG).await, "shorter than command_timeout"),
        (ask("memory:", 1, SHORT).await, "`memory:` is no server"),
        (
            ask("redis://127.0.0.1:1/?scripts=off", 1, SHORT).await,
            "need scripts",
        ),
    ] {
        let error = client.expect_err(why);
        assert!(error.to_string().contains(why), "{error}");
    }
}

/// The lock, once the replica keeps up.
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
    let client = Client::builder(&server.url())
        .command_timeout(PATIENCE)
        .durability(Durability::Replicas { acks: 1, timeout });
    client.connect().await.expect("the server is up")
}
