//! Sentinels that die, and sentinels that report a wrong master.

use std::time::Duration;

use distlock::Error;
use tokio::time::{sleep, timeout};

use super::{PATIENCE, connect, held_at, patient, slow_to_greet};
use crate::support::sentinel::{MASTER, client_connections, host, until_left};
use crate::support::{RedisServer, Topology, builder, eventually, simulated};

#[test]
fn crashed_sentinels_are_tolerated_while_one_is_alive() {
    simulated(async || {
        let topology = Topology::start().await;
        let client = connect(&topology).await;
        let guard = client.lock("few").acquire().await.expect("it is free");
        // The sentinel that is named first dies before the failover, on which the other two agree.
        topology.sentinels()[0].kill();
        let (old, new) = topology.kill_master().await;
        topology.sentinels()[1].kill();
        guard.release().await.expect("it is still ours");
        assert_eq!(held_at(new), Vec::<String>::new());
        // A client that connects now finds the master, too.
        let late = connect(&topology).await;
        let guard = late.lock("few").acquire().await.expect("it is free");
        guard.release().await.expect("it is ours");
        assert_ne!(host(old), host(new));
    });
}

#[test]
fn an_address_may_name_one_sentinel_of_three() {
    simulated(async || {
        let topology = Topology::start().await;
        let first = &topology.sentinels()[0];
        let url = format!("redis-sentinel://{}:26379/{MASTER}", host(first));
        let client = patient(&url).connect().await.expect("it is up");
        let guard = client.lock("one").acquire().await.expect("it is free");
        eventually(PATIENCE, "it tells of the others", async || {
            topology
                .sentinels()
                .iter()
                .all(|other| client_connections(other) == 1)
        })
        .await;
        first.kill();
        let (_, new) = topology.kill_master().await;
        guard.release().await.expect("it is still ours");
        assert_eq!(held_at(new), Vec::<String>::new());
    });
}

/// Makes one sentinel report another master than the others do.
fn mislead(sentinel: &RedisServer, (host, port): (&str, u16)) {
    sentinel.cmd(&["SENTINEL", "REMOVE", MASTER]);
    let port = port.to_string();
    sentinel.cmd(&["SENTINEL", "MONITOR", MASTER, host, &port, "2"]);
}

#[test]
fn a_sentinel_that_names_a_replica_is_not_trusted() {
    simulated(async || {
        let topology = Topology::start().await;
        let client = connect(&topology).await;
        let guard = client.lock("misled").acquire().await.expect("it is free");
        let (liar, others) = topology.sentinels().split_first().expect("there are three");
        mislead(liar, (&host(topology.replicas()[0]), 6379));
        // The liar is named first, with the others, or alone with one of them, which reports the third.
        let two = format!(
            "redis-sentinel://{}:26379,{}:26379/{MASTER}",
            host(liar),
            host(&others[0])
        );
        for url in [topology.url(), two] {
            let late = patient(&url).connect().await.expect("the master is up");
            let busy = late.lock("misled").try_acquire().await;
            assert!(busy.expect("the master is asked").is_none());
            let guard = late.lock("other").try_acquire().await;
            let guard = guard.expect("the master is asked").expect("it is free");
            guard.release().await.expect("it is ours");
        }
        guard.release().await.expect("it is still ours");
        // If no other sentinel can be reached, nothing is granted.
        others.iter().for_each(RedisServer::kill);
        let url = format!("redis-sentinel://{}:26379/{MASTER}", host(liar));
        let short = Duration::from_secs(2);
        let lonely = patient(&url).command_timeout(short).connect().await;
        let error = lonely.expect_err("a replica grants nothing");
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        assert!(error.to_string().contains("a replica, although"), "{error}");
    });
}

/// Starts a server that only the first sentinel takes for the master.
fn stranger_of(topology: &Topology) -> RedisServer {
    let stranger = RedisServer::start();
    mislead(&topology.sentinels()[0], ("127.0.0.1", stranger.port()));
    stranger
}

#[test]
fn a_sentinel_that_names_another_master_is_outvoted() {
    simulated(async || {
        let topology = Topology::start().await;
        let stranger = stranger_of(&topology);
        let client = connect(&topology).await;
        let guard = client.lock("outvoted").acquire().await.expect("it is free");
        sleep(Duration::from_secs(600)).await;
        guard.release().await.expect("it is still ours");
        assert_eq!(stranger.commandstats("evalsha"), 0);
        assert_eq!(client_connections(&stranger), 0);
    });
}

/// A sentinel that knows of a later failover is right, though it is alone: a majority has agreed to that failover.
#[test]
fn the_latest_failover_counts_and_one_before_it_does_not() {
    simulated(async || {
        let topology = Topology::start().await;
        let client = connect(&topology).await;
        let guard = client.lock("latest").acquire().await.expect("it is free");
        let (old, new) = topology.fail_over().await;
        until_left(old).await;
        // Two lag behind, and publish nothing; the one that knows is enough.
        for sentinel in &topology.simulated_sentinels()[1..] {
            sentinel.claim(Some((&host(old), 6379, 0)));
        }
        let late = connect(&topology).await;
        let busy = late.lock("latest").try_acquire().await;
        assert!(busy.expect("the new master is asked").is_none());
        sleep(Duration::from_secs(60)).await;
        assert_eq!(client_connections(old), 0);
        guard.release().await.expect("it is still ours");
        assert_eq!(held_at(new), Vec::<String>::new());
    });
}

/// Where it takes long to connect, the first reply arrives a moment before the others, and is not trusted yet.
#[test]
fn a_sentinel_that_names_another_master_and_replies_first_is_outvoted() {
    simulated(async || {
        let topology = Topology::start().await;
        let stranger = stranger_of(&topology);
        slow_to_greet(&topology, [1500, 1550, 1550]);
        let client = patient(&topology.url()).connect().await;
        let client = client.expect("they answer in time");
        let guard = client.lock("outvoted").acquire().await.expect("it is free");
        guard.release().await.expect("it is ours");
        assert_eq!(stranger.commandstats("role"), 0, "no client has gone there");
    });
}

/// Nor if none of them was reachable at first, which says nothing about now.
#[test]
fn a_sentinel_that_names_another_master_and_returns_first_is_outvoted() {
    simulated(async || {
        let topology = Topology::start().await;
        let stranger = stranger_of(&topology);
        slow_to_greet(&topology, [0, 50, 50]);
        topology.sentinels().iter().for_each(RedisServer::kill);
        let builder = patient(&topology.url()).lazy_connect(true);
        let builder = builder.command_timeout(Duration::from_secs(8));
        let client = builder.connect().await.expect("they may be down");
        let lock = client.lock("outvoted");
        lock.try_acquire().await.expect_err("no sentinel is there");
        for sentinel in topology.sentinels() {
            sentinel.simulated().revive();
        }
        eventually(PATIENCE, "they are heard", async || {
            lock.try_acquire().await.is_ok()
        })
        .await;
        assert_eq!(stranger.commandstats("role"), 0, "no client has gone there");
    });
}

#[test]
fn a_demoted_master_that_stays_alive_is_disconnected() {
    simulated(async || {
        let topology = Topology::start().await;
        let client = connect(&topology).await;
        // All kinds of connections exist: for callers, for the background, to subscribe, to watch.
        let guard = client.lock("left").acquire().await.expect("it is free");
        let other = connect(&topology).await;
        let waiting = tokio::spawn(other.lock("left").acquire());
        let mut watch = client.admin().watch("*");
        watch.next().await.expect("it sees the lock");
        let watching = tokio::spawn(async move {
            loop {
                let _ = watch.next().await;
            }
        });
        let (old, new) = topology.fail_over().await;
        until_left(old).await;
        // The same holds when its sentinels have made it a replica.
        topology.until_settled().await;
        assert_eq!(client_connections(old), 0);
        assert!(old.simulated().follows().is_some());
        guard.release().await.expect("it is still ours");
        let next = timeout(PATIENCE, waiting).await;
        let next = next.expect("it is free").expect("no panic");
        next.expect("no error").release().await.expect("it is ours");
        assert_eq!(held_at(new), Vec::<String>::new());
        watching.abort();
        // The task that looked after the clients ends with them.
        drop((client, other));
        eventually(PATIENCE, "every connection is closed", async || {
            let mut all = topology.servers().iter().chain(topology.sentinels());
            all.all(|server| client_connections(server) == 0)
        })
        .await;
    });
}

/// Returns how many channels each connection of a user is subscribed to.
pub(crate) fn channels_of(sentinel: &RedisServer, name: &str) -> Vec<String> {
    let list: String = sentinel.query(&["CLIENT", "LIST"]);
    let user = format!("user={name}");
    let own = list
        .lines()
        .filter(|line| line.split(' ').any(|field| field == user));
    let channels = own.filter_map(|line| line.split(' ').find(|field| field.starts_with("sub=")));
    channels.map(str::to_owned).collect()
}

#[test]
fn a_client_without_messages_finds_the_new_master_by_polling() {
    simulated(async || {
        let topology = Topology::start().await;
        let user = |server: &RedisServer, name: &str, rights: &str| {
            let words = ["ACL", "SETUSER", name, "on", ">word", "resetchannels"];
            server.cmd(
                &words
                    .into_iter()
                    .chain(rights.split(' '))
                    .collect::<Vec<_>>(),
            );
        };
        for sentinel in topology.sentinels() {
            user(sentinel, "deaf", "+sentinel");
            user(
                sentinel,
                "hears",
                "+sentinel +subscribe &+switch-master &+promoted-slave",
            );
        }
        for server in topology.servers() {
            // In this case the reports of the sentinels cannot be verified.
            user(server, "app", "~* &* +@all -role");
        }
        let connect = async |name: &str| {
            let url = topology.url_as("app:word@");
            let url = format!("{url}?sentinel_user={name}&sentinel_pass=word");
            patient(&url).connect().await.expect("it is up")
        };
        let until_each_has = async |name: &str, channels: &str| {
            eventually(PATIENCE, channels, async || {
                let mut sentinels = topology.sentinels().iter();
                sentinels.all(|sentinel| channels_of(sentinel, name) == [channels])
            })
            .await;
        };
        let hears = connect("hears").await;
        until_each_has("hears", "sub=2").await;
        drop(hears);
        let client = connect("deaf").await;
        let guard = client.lock("deaf").acquire().await.expect("it is free");
        until_each_has("deaf", "sub=0").await;
        let (old, new) = topology.fail_over().await;
        until_left(old).await;
        guard.release().await.expect("it is still ours");
        assert_eq!(held_at(new), Vec::<String>::new());
    });
}

/// The message of a switch is lost at every sentinel: the client also polls them now and then.
#[test]
fn a_switch_is_detected_though_its_message_is_lost() {
    simulated(async || {
        let topology = Topology::start().await;
        let client = builder(&topology.url()).connect().await.expect("it is up");
        let guard = client.lock("lost").acquire().await.expect("it is free");
        for sentinel in topology.simulated_sentinels() {
            sentinel.set_silent(true);
        }
        let (old, new) = topology.fail_over().await;
        let asked = timeout(Duration::from_secs(5), until_left(old)).await;
        asked.expect("they are asked every three seconds");
        guard.release().await.expect("it is still ours");
        assert_eq!(held_at(new), Vec::<String>::new());
    });
}
