//! Each lock is in its slot, with all keys that belong to it.

use std::time::Duration;

use distlock::{Error, Lease, MultiLock};
use tokio::time::{Instant, timeout};

use super::{LONG, connect, release};
use crate::support::{Cluster, PATIENCE, builder, eventually, simulated};

#[test]
fn locks_of_all_slots_are_held_listed_and_released() {
    simulated(async || {
        let cluster = Cluster::start_masters();
        let (one, other) = (connect(&cluster).await, connect(&cluster).await);
        let mut guards = Vec::new();
        for number in 0..30 {
            let name = format!("lock-{number}");
            guards.push(one.lock(&*name).acquire().await.expect("it is free"));
            let refused = other.lock(&*name).try_acquire().await;
            assert!(refused.expect("it answers").is_none(), "{name} is held");
        }
        let mut servers = cluster.redis().iter();
        assert!(
            servers.all(|server| !server.keys().is_empty()),
            "all have some"
        );
        let listed = other.admin().list("lock-*").await;
        assert_eq!(listed.expect("they can be listed").len(), 30);
        for guard in guards {
            release(guard).await;
        }
        assert_eq!(cluster.held(), Vec::<String>::new());
    });
}

#[test]
fn a_list_costs_a_few_calls_for_a_page_and_one_for_a_lock() {
    const KEYS: u64 = 3000;
    simulated(async || {
        let cluster = Cluster::start_masters();
        let client = connect(&cluster).await;
        let mut guards = Vec::new();
        for number in 0..6 {
            let lock = client.lock(format!("lock-{number}")).with_lease(LONG);
            guards.push(lock.acquire().await.expect("it is free"));
        }
        for (node, master) in cluster.redis().iter().enumerate() {
            let fill = "for i = 1, tonumber(ARGV[1]) do
                          redis.call('HSET', KEYS[1] .. i, 'user', i, 'mode', 'eco')
                        end";
            let tag = format!("{{{}}}", cluster.name_at(node));
            master.cmd(&["EVAL", fill, "1", &tag, &KEYS.to_string()]);
        }
        // The servers know the scripts then.
        client.admin().list("*").await.expect("it answers");
        let calls = |command: &str| -> u64 {
            let servers = cluster.redis().iter();
            servers.map(|server| server.commandstats(command)).sum()
        };
        let scripts = || calls("evalsha_ro") + calls("eval_ro") + calls("evalsha") + calls("eval");
        let (scripts_before, scans_before) = (scripts(), calls("scan"));
        let listed = client.admin().list("*").await.expect("it answers");
        assert_eq!(listed.len(), 6, "{listed:?}");
        assert_eq!(scripts() - scripts_before, 6);
        let scans = calls("scan") - scans_before;
        assert!(scans <= 3 * KEYS / 100, "{scans} pages");
        drop(guards);
    });
}

#[test]
fn a_name_whose_keys_need_two_slots_is_rejected_with_the_reason() {
    simulated(async || {
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
            release(client.lock(name).acquire().await.expect("it is free")).await;
        }
    });
}

#[test]
fn several_locks_are_acquired_together_in_any_slots() {
    simulated(async || {
        let cluster = Cluster::start_masters();
        let client = connect(&cluster).await;
        for names in [["a", "b", "c"], ["{one}a", "{one}b", "{one}c"]] {
            let all = MultiLock::new(names.map(|name| client.lock(name).into()));
            let guard = all.acquire().await.expect("all are free");
            assert_eq!(cluster.held(), names);
            let busy = client.lock(names[1]).try_acquire().await;
            assert!(busy.expect("it answers").is_none());
            guard.release().await.expect("they are ours");
            assert_eq!(cluster.held(), Vec::<String>::new());
        }
    });
}

#[test]
fn a_hung_server_does_not_delay_connecting() {
    simulated(async || {
        let cluster = Cluster::start_masters();
        cluster.redis()[1].stop_process();
        // The client knows only what the two other servers report, and may wait long for the third.
        let begun = Instant::now();
        let builder = builder(&cluster.url()).connect_timeout(Duration::from_secs(60));
        let _client = builder.connect().await.expect("two of them are up");
        assert!(
            begun.elapsed() < Duration::from_secs(2),
            "{:?}",
            begun.elapsed()
        );
    });
}

/// The hanging server sends no reply for longer than the other lock's lease.
#[test]
fn a_hung_server_costs_no_lock_on_other_servers_its_lease() {
    simulated(async || {
        let cluster = Cluster::start_masters();
        cluster.configure("cluster-require-full-coverage", "no");
        let client = connect(&cluster).await;
        let lease = Duration::from_secs(30);
        let [hangs, goes_on] = [0, 1].map(|node| cluster.name_at(node));
        let hold = async |name: &str| {
            let lock = client.lock(name).with_lease(Lease::KeepAlive(lease));
            lock.acquire().await.expect("it is free")
        };
        let (lost, kept) = (hold(&hangs).await, hold(&goes_on).await);
        cluster.redis()[0].stop_process();
        let told = timeout(lease, lost.lost()).await;
        assert!(told.is_ok(), "no server can renew it");
        let left = cluster.redis()[1].pttl(&goes_on);
        assert!(left > 19_000, "{left}");
        assert!(kept.is_held());
        cluster.redis()[0].continue_process();
        release(kept).await;
        eventually(PATIENCE, "the other can be had again", async || {
            let free = client.lock(&*hangs).try_acquire().await;
            matches!(free, Ok(Some(_)))
        })
        .await;
    });
}
