//! Several clients contend for locks of a cluster while its masters are replaced and slots move.
//!
//! With acknowledgements by the replica and a delay as long as every lease, no two guards of one lock are valid at once, however masters
//! are replaced; with the delay alone this holds if the replaced masters have died. With neither, two guards are valid at once, which shows
//! that the judge can see it. Moving a slot needs neither.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock_sim::{Cluster, Random, Server, slot_of};
use tokio::time::{sleep, timeout};

use crate::scenario::{Run, Scenario};
use crate::sentinel::{
    CLIENTS, LOCKS, PATIENCE, Settings, check_what_is_left, connect, end, has_two_holders, start,
};
use crate::world::World;

const SAFE: Settings = Settings {
    lease: Duration::from_secs(6),
    delay: true,
    acks: 1,
};
/// Settings with a lease that is longer than it takes to replace a dead master: a holder's guard is still valid then.
const DELAY_ALONE: Settings = Settings {
    lease: Duration::from_secs(10),
    delay: true,
    acks: 0,
};
const NEITHER: Settings = Settings {
    lease: Duration::from_secs(10),
    delay: false,
    acks: 0,
};

/// An event in the cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    Killed,
    /// The master is killed, and its replica lacks its latest grants.
    LostWrite,
    /// The same, and the replica lacks the grants of a whole lease.
    LostLease,
    Ordered,
    TakenOver,
    /// The master lives on, and a client with it.
    Split,
    /// A slot moves, and is open for a while; a node learns of it late.
    Moved,
}

const ALL: &[Event] = &[
    Event::Killed,
    Event::LostWrite,
    Event::Ordered,
    Event::TakenOver,
    Event::Split,
    Event::Moved,
];
const DEATHS: &[Event] = &[Event::Killed, Event::LostWrite];
const MOVES: &[Event] = &[Event::Moved];
const LOSSES: &[Event] = &[Event::LostLease];
const ROUNDS: usize = 3;
const NODE_TIMEOUT: Duration = Duration::from_millis(1500);

/// Lets the event happen to the master of a lock, and returns when all nodes agree again.
async fn happen(
    world: &World,
    cluster: &Cluster,
    event: Event,
    terms: Settings,
    random: &mut Random,
) {
    let slot = slot_of(LOCKS[usize::from(random.percent(50))]);
    let old = cluster.owner(slot).expect("all nodes agree");
    let replica = cluster.replicas_of(old)[0];
    let is_replaced = async || {
        while cluster.owner(slot) == Some(old) {
            sleep(Duration::from_millis(50)).await;
        }
    };
    match event {
        Event::Killed | Event::LostWrite | Event::LostLease => {
            if event != Event::Killed {
                cluster.cut_replication(replica, true);
                let lost = random.up_to(Duration::from_secs(2));
                sleep(if event == Event::LostLease {
                    terms.lease
                } else {
                    lost
                })
                .await;
            }
            cluster.kill(old);
            is_replaced().await;
            cluster.cut_replication(replica, false);
            sleep(random.up_to(Duration::from_secs(2))).await;
            cluster.revive(old, true);
        }
        Event::Ordered => cluster.fail_over(replica),
        Event::TakenOver => cluster.take_over(replica),
        Event::Split => {
            let client = format!("client-{}", random.below(CLIENTS as u64));
            let nodes = 0..cluster.servers().len();
            let others: Vec<&str> = nodes
                .filter(|node| *node != old)
                .map(|node| cluster.host(node))
                .collect();
            cluster.cut_off(old);
            for host in &others {
                world.network.block(&client, host);
                world.network.block(host, &client);
            }
            is_replaced().await;
            sleep(terms.lease * 2).await;
            for host in &others {
                world.network.unblock(&client, host);
                world.network.unblock(host, &client);
            }
            cluster.rejoin(old);
        }
        Event::Moved => {
            let others: Vec<usize> = cluster
                .masters()
                .into_iter()
                .filter(|node| *node != old)
                .collect();
            let to =
                others[usize::try_from(random.below(others.len() as u64)).expect("it is small")];
            let unaware = others.iter().find(|node| **node != to).copied();
            let unaware = unaware.expect("there are three masters");
            cluster.begin_migration(slot, old, to);
            sleep(random.up_to(Duration::from_millis(300))).await;
            cluster.move_keys(slot, old, to);
            sleep(random.up_to(Duration::from_millis(300))).await;
            cluster.move_keys(slot, old, to);
            cluster.set_unaware(unaware, true);
            cluster.end_migration(slot, to);
            sleep(random.up_to(Duration::from_secs(2))).await;
            cluster.set_unaware(unaware, false);
        }
    }
    cluster.settled().await;
}

async fn contend(run: Run, terms: Settings, events: &'static [Event]) {
    let Run {
        world,
        seed,
        ledger,
        ..
    } = &run;
    let mut random = Random::stream(*seed, 50);
    let cluster = Cluster::new(&world.network, 3, 1, *seed);
    cluster.set_node_timeout(NODE_TIMEOUT);
    cluster.set_lag(random.up_to(Duration::from_millis(30)));
    // The servers are old enough to grant something then.
    sleep(terms.lease + Duration::from_secs(1)).await;
    let mode = ["", "?pubsub=plain", "?pubsub=both"]
        [usize::try_from(random.below(3)).expect("it is small")];
    let url = format!("redis-cluster://{}{mode}", cluster.addresses(3));
    let clients = connect(world, &url, terms).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let workers = start(&run, &clients, terms, &is_over);
    for _ in 0..ROUNDS {
        sleep(Duration::from_secs(1) + random.up_to(2 * terms.lease)).await;
        let event =
            events[usize::try_from(random.below(events.len() as u64)).expect("it is small")];
        run.fault(event);
        let happened = happen(world, &cluster, event, terms, &mut random);
        let happened = timeout(PATIENCE, happened).await;
        happened.unwrap_or_else(|_| panic!("{event:?} is not over after {PATIENCE:?}"));
    }
    is_over.store(true, Ordering::Relaxed);
    let closed_cleanly = end(workers, clients, ledger).await;
    let masters = cluster.masters().into_iter();
    let masters: Vec<Server> = masters.map(|node| cluster.server(node).clone()).collect();
    // The nodes stop talking, and only time passes.
    drop(cluster);
    check_what_is_left(masters, ledger, terms, closed_cleanly).await;
}

/// Returns the scenarios: with acknowledgements and the delay, with the delay alone, and with neither while slots move.
pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("cluster-acks", |run| contend(run, SAFE, ALL)),
        Scenario::new("cluster-delay", |run| contend(run, DELAY_ALONE, DEATHS)),
        Scenario::new("cluster-slots", |run| contend(run, NEITHER, MOVES)),
    ]
}

/// Control: some seed shows two holders, so that the judge can see them.
#[test]
fn in_a_cluster_two_clients_hold_a_lock_when_a_write_is_lost() {
    let control = Scenario::new("control", |run| contend(run, NEITHER, LOSSES));
    assert!(has_two_holders(&control), "two were never seen");
}
