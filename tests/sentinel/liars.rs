//! Sentinels that die, and those that say what is not so.

use std::time::Duration;

use distlock::Error;

use super::support::replication::role;
use super::support::sentinel::{MASTER, visitors};
use super::support::{ChaosProxy, RedisServer, Rights, Topology, eventually};
use super::{
    PATIENCE, beside, connect, connections_to, held_at, patient, slow_to_greet, until_left,
};

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_that_die_are_no_harm_while_one_lives() {
    let topology = Topology::start();
    let client = connect(&topology).await;
    let guard = client.lock("few").acquire().await.expect("it is free");
    // The one that is named first goes before the failover, which the other two agree on.
    beside(|| topology.sentinels()[0].kill());
    let (old, new) = beside(|| topology.kill_master());
    beside(|| topology.sentinels()[1].kill());
    guard.release().await.expect("it is still ours");
    assert_eq!(beside(|| held_at(new)), Vec::<String>::new());
    // Nor for one that comes now.
    let late = connect(&topology).await;
    let guard = late.lock("few").acquire().await.expect("it is free");
    guard.release().await.expect("it is ours");
    assert_ne!(old.port(), new.port());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_may_name_one_sentinel_of_three() {
    let topology = Topology::start();
    let first = &topology.sentinels()[0];
    let url = format!("redis-sentinel://{}/{MASTER}", first.addr());
    let client = patient(&url).connect().await.expect("it is up");
    let guard = client.lock("one").acquire().await.expect("it is free");
    // It has told of the others.
    eventually(PATIENCE, "the others are asked", async || {
        let knows_us = |sentinel: &RedisServer| visitors(sentinel) == 1;
        beside(|| topology.sentinels().iter().all(knows_us))
    })
    .await;
    beside(|| first.kill());
    let (_, new) = beside(|| topology.kill_master());
    guard.release().await.expect("it is still ours");
    assert_eq!(beside(|| held_at(new)), Vec::<String>::new());
}

/// Has one sentinel believe in another master than the others do.
fn mislead(sentinel: &RedisServer, port: u16) {
    sentinel.cmd(&["SENTINEL", "REMOVE", MASTER]);
    let port = port.to_string();
    sentinel.cmd(&["SENTINEL", "MONITOR", MASTER, "127.0.0.1", &port, "2"]);
    for line in Rights::from_env().for_sentinels(MASTER).lines() {
        if let [
            "sentinel",
            what @ ("auth-user" | "auth-pass"),
            master,
            value,
        ] = line.split(' ').collect::<Vec<_>>()[..]
        {
            sentinel.cmd(&["SENTINEL", "SET", master, what, value]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_that_names_a_replica_is_not_believed() {
    let topology = Topology::start();
    let client = connect(&topology).await;
    let guard = client.lock("misled").acquire().await.expect("it is free");
    let (liar, others) = topology.sentinels().split_first().expect("there are three");
    let replica = beside(|| topology.replicas())[0];
    beside(|| mislead(liar, replica.port()));
    // Named first, with one other, and alone, which tells of the others.
    for hosts in [
        format!("{},{},{}", liar.addr(), others[0].addr(), others[1].addr()),
        format!("{},{}", liar.addr(), others[0].addr()),
    ] {
        let url = format!("redis-sentinel://{hosts}/{MASTER}");
        let late = patient(&url).connect().await.expect("the master is up");
        let busy = late.lock("misled").try_acquire().await;
        assert!(busy.expect("the master is asked").is_none());
        let guard = late.lock("other").try_acquire().await;
        let guard = guard.expect("the master is asked").expect("it is free");
        guard.release().await.expect("it is ours");
    }
    guard.release().await.expect("it is still ours");
    // Where nobody else is left to ask, nothing is granted.
    beside(|| others.iter().for_each(RedisServer::kill));
    let url = format!("redis-sentinel://{}/{MASTER}", liar.addr());
    let short = Duration::from_secs(2);
    let lonely = patient(&url).command_timeout(short).connect().await;
    let error = lonely.expect_err("a replica grants nothing");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("a replica, though"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_that_names_another_master_is_outvoted() {
    let topology = Topology::start();
    let stranger = RedisServer::start();
    beside(|| mislead(&topology.sentinels()[0], stranger.port()));
    let client = connect(&topology).await;
    let guard = client.lock("outvoted").acquire().await.expect("it is free");
    // Some looks later it is still so.
    tokio::time::sleep(Duration::from_secs(4)).await;
    guard.release().await.expect("it is still ours");
    assert_eq!(beside(|| stranger.commandstats("evalsha")), 0);
    assert_eq!(beside(|| visitors(&stranger)), 0);
}

/// Where it takes long to connect, the first who answers is heard a moment before the others, and is not yet believed.
#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_that_names_another_master_and_is_heard_first_is_outvoted() {
    let topology = Topology::start();
    let stranger = RedisServer::start();
    beside(|| mislead(&topology.sentinels()[0], stranger.port()));
    let proxies = slow_to_greet(&topology, [1500, 1550, 1550]);
    let addresses: Vec<_> = proxies.iter().map(ChaosProxy::addr).collect();
    let client = patient(&topology.url_at("", &addresses)).connect().await;
    let client = client.expect("they answer in time");
    let guard = client.lock("outvoted").acquire().await.expect("it is free");
    guard.release().await.expect("it is ours");
    let asked = beside(|| stranger.commandstats("role"));
    assert_eq!(asked, 0, "nobody has gone there");
}

/// Nor where none of them was there at first, which says nothing of now.
#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_that_names_another_master_and_is_back_first_is_outvoted() {
    let topology = Topology::start();
    let stranger = RedisServer::start();
    beside(|| mislead(&topology.sentinels()[0], stranger.port()));
    let proxies = slow_to_greet(&topology, [0, 50, 50]);
    proxies.iter().for_each(|proxy| proxy.refuse(true));
    let addresses: Vec<_> = proxies.iter().map(ChaosProxy::addr).collect();
    let builder = patient(&topology.url_at("", &addresses)).may_be_down(true);
    let builder = builder.command_timeout(Duration::from_secs(8));
    let client = builder.connect().await.expect("they may be down");
    client
        .lock("outvoted")
        .try_acquire()
        .await
        .expect_err("nobody is there");
    proxies.iter().for_each(|proxy| proxy.refuse(false));
    eventually(PATIENCE, "they are heard", async || {
        client.lock("outvoted").try_acquire().await.is_ok()
    })
    .await;
    let asked = beside(|| stranger.commandstats("role"));
    assert_eq!(asked, 0, "nobody has gone there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demoted_master_that_lives_on_is_left() {
    let topology = Topology::start();
    let client = connect(&topology).await;
    // Every connection that there is: for callers, for nobody, to listen, to watch.
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
    let (old, new) = beside(|| topology.fail_over());
    until_left(old).await;
    // Also when its sentinels have made a replica of it.
    beside(|| topology.until_settled());
    assert_eq!(connections_to(old.port()), 0);
    assert_eq!(beside(|| role(old)).as_deref(), Some("slave"));
    guard.release().await.expect("it is still ours");
    let next = tokio::time::timeout(PATIENCE, waiting).await;
    let next = next.expect("it is free").expect("no panic");
    next.expect("no error").release().await.expect("it is ours");
    assert_eq!(beside(|| held_at(new)), Vec::<String>::new());
    watching.abort();
    // With the clients goes whatever looked after them.
    drop((client, other));
    eventually(PATIENCE, "nobody is left", async || {
        let nobody = |server: &RedisServer| visitors(server) == 0;
        let all = || topology.servers().iter().chain(topology.sentinels());
        beside(|| all().all(nobody))
    })
    .await;
}

/// Gives a server, or a sentinel, a user.
fn user(server: &RedisServer, name: &str, rights: &str) {
    // Before Redis 7.0 new users may listen to everything.
    let words = ["ACL", "SETUSER", name, "on", ">word", "resetchannels"];
    let words: Vec<&str> = words.into_iter().chain(rights.split(' ')).collect();
    server.cmd(&words);
}

/// How many channels each connection of a user listens to.
pub(crate) fn heard_by(sentinel: &RedisServer, name: &str) -> Vec<String> {
    let list: String = sentinel.query(&["CLIENT", "LIST"]);
    let user = format!("user={name}");
    let own = list
        .lines()
        .filter(|line| line.split(' ').any(|field| field == user));
    let channels = own.filter_map(|line| line.split(' ').find(|field| field.starts_with("sub=")));
    channels.map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_hears_no_messages_finds_the_new_master_by_asking() {
    let topology = Topology::start();
    beside(|| {
        for sentinel in topology.sentinels() {
            user(sentinel, "deaf", "+sentinel");
            user(
                sentinel,
                "hears",
                "+sentinel +subscribe &+switch-master &+promoted-slave",
            );
        }
        for server in topology.servers() {
            // Then nobody checks what the sentinels say.
            user(server, "app", "~* &* +@all -role");
        }
    });
    let connect = async |name: &str| {
        let url = topology.url_as("app:word@");
        let url = format!("{url}?sentinel_user={name}&sentinel_pass=word");
        patient(&url).connect().await.expect("it is up")
    };
    let hears = connect("hears").await;
    for sentinel in topology.sentinels() {
        eventually(PATIENCE, "both channels are heard", async || {
            beside(|| heard_by(sentinel, "hears")) == ["sub=2"]
        })
        .await;
    }
    drop(hears);
    let client = connect("deaf").await;
    let guard = client.lock("deaf").acquire().await.expect("it is free");
    for sentinel in topology.sentinels() {
        eventually(PATIENCE, "it is asked", async || {
            beside(|| heard_by(sentinel, "deaf")) == ["sub=0"]
        })
        .await;
    }
    let (old, new) = beside(|| topology.fail_over());
    until_left(old).await;
    guard.release().await.expect("it is still ours");
    assert_eq!(beside(|| held_at(new)), Vec::<String>::new());
}
