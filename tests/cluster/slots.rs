//! Each lock is in its slot, with all that belongs to it.

use std::time::{Duration, Instant};

use distlock::{Error, Lease, MultiLock};

use super::support::{Cluster, eventually};
use super::{PATIENCE, beside, connect, held_in, patient};

#[tokio::test(flavor = "multi_thread")]
async fn locks_of_all_slots_are_held_listed_and_given_back() {
    let cluster = Cluster::start_masters();
    let (one, other) = (connect(&cluster).await, connect(&cluster).await);
    let mut guards = Vec::new();
    for number in 0..30 {
        let name = format!("lock-{number}");
        guards.push(one.lock(&*name).acquire().await.expect("it is free"));
        let refused = other.lock(&*name).try_acquire().await;
        assert!(refused.expect("it answers").is_none(), "{name} is held");
    }
    let used = beside(|| cluster.servers().iter().all(|one| !one.keys().is_empty()));
    assert!(used, "all servers have some of them");
    let listed = other.admin().list("lock-*").await;
    assert_eq!(listed.expect("they can be listed").len(), 30);
    for guard in guards {
        guard.release().await.expect("it is ours");
    }
    assert_eq!(beside(|| held_in(&cluster)), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_costs_a_few_calls_for_a_page_and_one_for_a_lock() {
    const KEYS: u64 = 3000;
    let cluster = Cluster::start_masters();
    let client = connect(&cluster).await;
    // No renewal counts among the calls.
    let lease = Lease::Fixed(Duration::from_secs(600));
    let mut guards = Vec::new();
    for number in 0..6 {
        let lock = client.lock(format!("lock-{number}")).with_lease(lease);
        guards.push(lock.acquire().await.expect("it is free"));
    }
    beside(|| {
        for master in cluster.masters() {
            let mut tags = (0..).map(|number| format!("{{tag-{number}}}"));
            let here = |tag: &String| cluster.owner(tag).addr() == master.addr();
            let tag = tags.find(here).expect("some slot is here");
            let fill = "for i = 1, tonumber(ARGV[1]) do
                          redis.call('HSET', KEYS[1] .. i, 'user', i, 'mode', 'eco')
                        end";
            master.cmd(&["EVAL", fill, "1", &tag, &KEYS.to_string()]);
        }
    });
    // The scripts are known to the servers then.
    client.admin().list("*").await.expect("it answers");
    beside(|| {
        for master in cluster.masters() {
            master.cmd(&["CONFIG", "RESETSTAT"]);
        }
    });
    let listed = client.admin().list("*").await.expect("it answers");
    assert_eq!(listed.len(), 6, "{listed:?}");
    let calls = |command: &'static str| -> u64 {
        let masters = cluster.masters();
        beside(|| {
            masters
                .iter()
                .map(|master| master.commandstats(command))
                .sum()
        })
    };
    let scripts = calls("evalsha_ro") + calls("eval_ro") + calls("evalsha") + calls("eval");
    assert!(scripts <= 6 + 2, "{scripts} scripts");
    assert!(calls("scan") <= 3 * KEYS / 100, "{} pages", calls("scan"));
    drop(guards);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_whose_keys_cannot_be_together_is_refused_with_the_reason() {
    let cluster = Cluster::start_masters();
    let client = connect(&cluster).await;
    for name in ["open{brace", "close}brace", "{}order"] {
        let refused = client.lock(name).acquire().await;
        let Err(error @ Error::InvalidName { .. }) = refused else {
            panic!("{name}: {refused:?}");
        };
        assert!(error.to_string().contains("in one slot"), "{error}");
        assert!(!error.is_transient());
    }
    let latch = client.latch("{start}").count().await;
    assert!(matches!(latch, Err(Error::InvalidName { .. })), "{latch:?}");
    for name in ["{order}:42", "order:{42}", "no braces at all"] {
        let guard = client.lock(name).acquire().await.expect("it is free");
        guard.release().await.expect("it is ours");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_locks_are_taken_together_whatever_their_slots() {
    let cluster = Cluster::start_masters();
    let client = connect(&cluster).await;
    for names in [["a", "b", "c"], ["{one}a", "{one}b", "{one}c"]] {
        let all = MultiLock::new(names.map(|name| client.lock(name).into()));
        let guard = all.acquire().await.expect("all are free");
        assert_eq!(beside(|| held_in(&cluster)), names);
        let busy = client.lock(names[1]).try_acquire().await;
        assert!(busy.expect("it answers").is_none());
        guard.release().await.expect("they are ours");
        assert_eq!(beside(|| held_in(&cluster)), Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_does_not_hold_up_connecting() {
    let cluster = Cluster::start_masters();

    beside(|| cluster.servers()[1].stop_process());
    // It knows nothing but what the two others say, and has all the time in the world to wait for the third.
    let begun = Instant::now();
    let builder = patient(&cluster.url()).connect_timeout(PATIENCE);
    let second = builder.connect().await.expect("two of them are up");
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
    beside(|| cluster.servers()[1].continue_process());
    drop(second);
}

/// The server that hangs answers nothing for longer than the other lock's lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_costs_no_lock_elsewhere_its_lease() {
    let cluster = Cluster::start_masters_with(&["--cluster-require-full-coverage", "no"]);
    let client = connect(&cluster).await;
    let lease = Duration::from_secs(6);
    let [hangs, goes_on] = beside(|| {
        let at = |place: usize| {
            let mut names = (0..).map(|number| format!("lock-{number}"));
            let port = cluster.servers()[place].port();
            let there = |name: &String| cluster.owner(name).port() == port;
            names.find(|name| there(name)).expect("some name is there")
        };
        [at(0), at(1)]
    });
    let hold = async |name: &str| {
        let lock = client.lock(name).with_lease(Lease::KeepAlive(lease));
        lock.acquire().await.expect("it is free")
    };
    let (lost, kept) = (hold(&hangs).await, hold(&goes_on).await);
    beside(|| cluster.servers()[0].stop_process());
    let told = tokio::time::timeout(PATIENCE, lost.lost()).await;
    assert!(told.is_ok(), "nobody can renew it");
    // Renewed at least once since then.
    let left = beside(|| cluster.servers()[1].pttl(&goes_on));
    assert!(left > 0, "{left}");
    assert!(kept.is_held());
    beside(|| cluster.servers()[0].continue_process());
    kept.release().await.expect("it is ours");
    eventually(PATIENCE, "the other can be had again", async || {
        let free = client.lock(&*hangs).try_acquire().await;
        matches!(free, Ok(Some(_)))
    })
    .await;
}
