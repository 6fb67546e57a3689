//! Sentinels: their agreement, the replacement of a master, and their reports of it.

use std::time::Duration;

use distlock_sim::{Clock, Layout, Network, Server, Topology, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep, timeout};

use super::call;

const NAME: &str = Topology::NAME;
/// Upper bound for any failover.
const LONG: Duration = Duration::from_secs(60);

async fn settled(seed: u64, layout: Layout) -> (Network, Topology) {
    let network = Network::new(seed);
    let topology = Topology::start(&network, &Clock::new(), seed, layout);
    let settled = timeout(LONG, topology.until_settled()).await;
    settled.expect("nothing is wrong");
    (network, topology)
}

async fn next_master<'a>(topology: &'a Topology, old: &Server) -> &'a Server {
    let next = timeout(LONG, topology.until_not(old)).await;
    next.expect("a master is replaced")
}

fn field(fields: &Value, wanted: &str) -> String {
    let Value::Map(fields) = fields else {
        panic!("{fields:?}");
    };
    let value = fields.iter().find(|(name, _)| *name == Value::bulk(wanted));
    match value {
        Some((_, Value::Bulk(value))) => String::from_utf8_lossy(value).into_owned(),
        other => panic!("{wanted}: {other:?}"),
    }
}

fn epoch(topology: &Topology) -> Vec<String> {
    let asked = topology.sentinels().iter();
    let masters = asked.map(|sentinel| sentinel.call(&["SENTINEL", "MASTER", NAME]));
    masters
        .map(|master| field(&master, "config-epoch"))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_crashed_master_is_replaced_by_a_replica_and_follows_it_after_its_restart() {
    for seed in 1..=20 {
        let (_, topology) = settled(seed, Layout::default()).await;
        let old = topology.master().expect("they agree").clone();
        call(&old, "SET kept 1");
        sleep(Duration::from_millis(10)).await;
        let begun = Instant::now();
        old.kill();
        let new = next_master(&topology, &old).await;
        assert!(
            begun.elapsed() >= Duration::from_secs(1),
            "its silence is waited for"
        );
        assert_eq!(call(new, "GET kept"), Value::bulk("1"));
        sleep(Duration::from_secs(2)).await;
        let epochs = epoch(&topology);
        assert!(
            epochs
                .iter()
                .all(|epoch| *epoch == epochs[0] && *epoch != "0"),
            "{epochs:?}"
        );
        old.revive();
        assert_eq!(
            old.follows(),
            None,
            "at first it takes itself for the master"
        );
        timeout(LONG, topology.until_settled())
            .await
            .expect("it is demoted");
        assert_eq!(old.follows(), Some(new.address()));
        topology.stop_watching();
    }
}

#[tokio::test(start_paused = true)]
async fn the_replica_with_most_of_the_data_is_promoted() {
    for seed in 1..=20 {
        let (_, topology) = settled(seed, Layout::default()).await;
        let [master, behind, _] = topology.servers() else {
            panic!("there are three");
        };
        behind.cut_replication(true);
        call(master, "SET kept 1");
        sleep(Duration::from_millis(600)).await;
        behind.cut_replication(false);
        behind.set_lag(Duration::from_secs(3600));
        master.kill();
        let new = next_master(&topology, master).await;
        assert_eq!(call(new, "GET kept"), Value::bulk("1"));
        topology.stop_watching();
    }
}

#[tokio::test(start_paused = true)]
async fn a_promotion_loses_writes_that_no_replica_has() {
    let lag = Duration::from_millis(30);
    let (_, topology) = settled(
        1,
        Layout {
            lag,
            ..Layout::default()
        },
    )
    .await;
    let old = topology.master().expect("they agree").clone();
    call(&old, "SET lost 1");
    old.kill();
    let new = next_master(&topology, &old).await;
    assert_eq!(call(new, "GET lost"), Value::Nil);
}

#[tokio::test(start_paused = true)]
async fn one_sentinel_of_three_starts_no_failover_and_two_do() {
    let (_, topology) = settled(1, Layout::default()).await;
    let master = topology.master().expect("they agree").clone();
    topology.sentinels()[0].server().kill();
    topology.sentinels()[1].server().kill();
    master.kill();
    sleep(LONG).await;
    assert_eq!(
        topology.master().map(Server::address),
        Some(master.address())
    );
    topology.sentinels()[0].server().revive();
    let new = next_master(&topology, &master).await;
    assert_ne!(new.address(), master.address());
    topology.sentinels()[1].server().revive();
    timeout(LONG, async {
        while topology
            .master()
            .is_none_or(|named| named.address() != new.address())
        {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .expect("the one that was away is told");
}

#[tokio::test(start_paused = true)]
async fn a_partitioned_master_continues_until_the_partition_heals() {
    for seed in 1..=20 {
        let (_, topology) = settled(seed, Layout::default()).await;
        let old = topology.master().expect("they agree").clone();
        topology.isolate(&old);
        let new = next_master(&topology, &old).await;
        call(&old, "SET only 1");
        assert_eq!(
            (old.follows(), new.follows()),
            (None, None),
            "there are two masters"
        );
        assert_eq!(call(new, "GET only"), Value::Nil);
        topology.heal(&old);
        timeout(LONG, topology.until_settled())
            .await
            .expect("it is demoted");
        assert_eq!(call(&old, "GET only"), Value::Nil, "its data is replaced");
        topology.stop_watching();
    }
}

#[tokio::test(start_paused = true)]
async fn a_manual_failover_replaces_a_healthy_master() {
    let (_, topology) = settled(1, Layout::default()).await;
    for times in 1..=3 {
        let (old, new) = timeout(LONG, topology.fail_over())
            .await
            .expect("it is ordered");
        assert_eq!(new.follows(), None, "it is a master");
        assert_ne!(old.address(), new.address());
        timeout(LONG, topology.until_settled())
            .await
            .expect("all follow it");
        assert_eq!(epoch(&topology), vec![times.to_string(); 3]);
    }
    for server in topology.servers() {
        if server.follows().is_some() {
            server.kill();
        }
    }
    sleep(Duration::from_secs(6)).await;
    let refused = topology.sentinels()[0].call(&["SENTINEL", "FAILOVER", NAME]);
    assert_eq!(
        refused,
        Value::Error("NOGOODSLAVE No suitable replica to promote".into())
    );
}

#[tokio::test(start_paused = true)]
async fn clients_are_notified_of_a_switch_unless_the_message_is_lost() {
    for is_silent in [false, true] {
        let (network, topology) = settled(1, Layout::default()).await;
        topology.sentinels()[1].set_silent(is_silent);
        let connected = network.connect("client", "sentinel-1", 26379).await;
        let mut stream = connected.expect("it is up");
        let sent = stream
            .write_all(b"SUBSCRIBE +switch-master +promoted-slave\r\n")
            .await;
        sent.expect("it is read");
        let (old, new) = topology.fail_over().await;
        let ((old, _), (new, _)) = (old.address(), new.address());
        sleep(Duration::from_secs(1)).await;
        let mut heard = vec![0; 4096];
        let count = stream.read(&mut heard).await.expect("it is confirmed");
        let heard = String::from_utf8_lossy(&heard[..count]).into_owned();
        let mut rest = vec![0; 4096];
        let more = timeout(Duration::from_secs(1), stream.read(&mut rest)).await;
        let more = more.map_or(0, |count| count.expect("it is open"));
        let heard = heard + &String::from_utf8_lossy(&rest[..more]);
        let message = format!("{NAME} {old} 6379 {new} 6379");
        assert_eq!(heard.contains(&message), !is_silent, "{heard}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_sentinel_sends_a_configured_reply() {
    let (_, topology) = settled(1, Layout::default()).await;
    let liar = &topology.sentinels()[0];
    liar.claim(Some(("stranger", 1, 9)));
    let named = liar.call(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]);
    assert_eq!(
        named,
        Value::Array(vec![Value::bulk("stranger"), Value::bulk("1")])
    );
    assert_eq!(epoch(&topology), ["9", "0", "0"]);
    liar.claim(None);
    liar.call(&["SENTINEL", "REMOVE", NAME]);
    let named = liar.call(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]);
    assert_eq!(named, Value::NilArray);
    // The sentinel learns nothing of masters that it does not watch.
    sleep(LONG).await;
    let unknown = liar.call(&["SENTINEL", "MASTER", NAME]);
    assert_eq!(
        unknown,
        Value::Error("ERR No such master with that name".into())
    );
}

#[tokio::test(start_paused = true)]
async fn a_sentinel_delays_its_greeting_as_configured() {
    let (network, topology) = settled(1, Layout::default()).await;
    topology.sentinels()[0].set_greeting_delay(Duration::from_secs(5));
    let connected = network.connect("client", "sentinel-0", 26379).await;
    let mut stream = connected.expect("it is up");
    let begun = Instant::now();
    stream
        .write_all(b"HELLO 3\r\nPING\r\n")
        .await
        .expect("it is read");
    let mut said = vec![0; 4096];
    let count = stream.read(&mut said).await.expect("it answers");
    assert!(
        begun.elapsed() >= Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    let said = String::from_utf8_lossy(&said[..count]).into_owned();
    assert!(said.contains("$8\r\nsentinel\r\n"), "{said}");
}
