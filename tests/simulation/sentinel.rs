//! Several clients contend for locks while sentinels replace one master after the other.
//!
//! With acknowledgements by all replicas and a delay as long as every lease, no two guards of one lock are valid at once, however masters
//! are replaced; with the delay alone this holds if the replaced masters have died. With neither, two guards are valid at once, which shows
//! that the judge can see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock::{Client, Durability, Lease};
use distlock_sim::{Clock, Layout, Random, Server, Topology};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::judge::{Claim, Judge, Ledger};
use crate::scenario::{Run, Scenario};
use crate::workload::View;
use crate::world::World;

/// The settings of all clients.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) lease: Duration,
    /// Whether `failover_delay` is set, as long as the lease.
    pub(super) delay: bool,
    pub(super) acks: u32,
}

const SAFE: Settings = Settings {
    lease: Duration::from_secs(4),
    delay: true,
    acks: 2,
};
/// Settings with a lease that is longer than it takes to replace a dead master: a holder's guard is still valid then.
const DELAY_ALONE: Settings = Settings {
    lease: Duration::from_secs(8),
    delay: true,
    acks: 0,
};
const NEITHER: Settings = Settings {
    lease: Duration::from_secs(8),
    delay: false,
    acks: 0,
};

/// The way in which a master is replaced.
#[derive(Clone, Copy, Debug)]
enum Failover {
    Killed,
    /// The master is killed, and no replica has its latest grants.
    LostWrite,
    Ordered,
    /// The master lives on, and a client with it.
    Split,
}

const DEATHS: &[Failover] = &[Failover::Killed, Failover::LostWrite];
const ALL: &[Failover] = &[
    Failover::Killed,
    Failover::LostWrite,
    Failover::Ordered,
    Failover::Split,
];

pub(super) const CLIENTS: usize = 4;
pub(super) const LOCKS: [&str; 2] = ["stock-0", "stock-1"];
/// Upper bound for the latency of the network.
const UNDER_WAY: Duration = Duration::from_millis(500);
const ROUNDS: usize = 3;
/// Upper bound for any failover, and for serving every client after the last one.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// A time that is longer than the lifetime of anything that the library leaves in the store.
const LONG: Duration = Duration::from_secs(3 * 3600);

/// Acquires locks over and over: some for a moment, some for longer than a lease.
async fn work(
    client: Client,
    name: String,
    terms: Settings,
    mut random: Random,
    keeps: bool,
    is_over: Arc<AtomicBool>,
    ledger: Ledger,
) {
    while !is_over.load(Ordering::Relaxed) {
        let lock = client.lock(LOCKS[usize::from(random.percent(50))]);
        let got = match random.percent(50) {
            true => lock.try_acquire().await,
            false => {
                let (begun, longest) = (Instant::now(), Duration::from_secs(1));
                let got = lock.acquire_timeout(longest).await;
                if matches!(got, Ok(None)) {
                    ledger.busy(&name, begun, longest);
                }
                got
            }
        };
        match got {
            Ok(Some(guard)) => {
                let view: Arc<dyn View> = Arc::new(guard.held());
                let entry = ledger.enter(&name, Claim::Alone, terms.lease, &view);
                let longest = if keeps {
                    terms.lease * 3 / 2
                } else {
                    Duration::from_millis(40)
                };
                // A lost guard is released nevertheless.
                if timeout(random.up_to(longest), view.lost()).await.is_ok() {
                    ledger.loss();
                }
                let releasing = ledger.release(entry);
                releasing.ended(&guard.release().await);
            }
            Ok(None) => {}
            Err(error) => ledger.error(&error),
        }
        sleep(random.up_to(Duration::from_millis(200))).await;
    }
}

/// Connects the clients of a run, each on a machine of its own.
pub(super) async fn connect(world: &World, url: &str, terms: Settings) -> Vec<(String, Client)> {
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let name = format!("client-{number}");
        let mut builder = world
            .client_of(url, &name)
            .default_lease(Lease::KeepAlive(terms.lease));
        if terms.delay {
            builder = builder.failover_delay(terms.lease);
        }
        if terms.acks > 0 {
            let (acks, timeout) = (terms.acks, Duration::from_millis(500));
            builder = builder.durability(Durability::Replicas { acks, timeout });
        }
        clients.push((name, builder.connect().await.expect("nothing is wrong yet")));
    }
    clients
}

/// Starts two workers of each client.
pub(super) fn start(
    run: &Run,
    clients: &[(String, Client)],
    terms: Settings,
    is_over: &Arc<AtomicBool>,
) -> Vec<JoinHandle<()>> {
    let workers = clients
        .iter()
        .flat_map(|client| [(client, false), (client, true)])
        .zip(1..);
    let workers = workers.map(|(((name, client), keeps), number)| {
        let random = Random::stream(run.seed, number);
        tokio::spawn(work(
            client.clone(),
            name.clone(),
            terms,
            random,
            keeps,
            is_over.clone(),
            run.ledger.clone(),
        ))
    });
    workers.collect()
}

/// Waits for the workers to end; then each client is served once more with either lock, and closed. Returns whether every client could undo
/// and release everything before it was closed.
pub(super) async fn end(
    workers: Vec<JoinHandle<()>>,
    clients: Vec<(String, Client)>,
    ledger: &Ledger,
) -> bool {
    for worker in workers {
        match timeout(PATIENCE, worker).await {
            Ok(ended) => ended.expect("a worker does not panic"),
            Err(_) => ledger.violation(Judge::Resolution, "a call has not ended"),
        }
    }
    let mut closed_cleanly = true;
    for (name, client) in clients {
        let served = timeout(PATIENCE, async {
            for lock in LOCKS {
                // The guard is dropped, and closing the client waits for the remaining cleanup.
                while let Err(error) = client.lock(lock).acquire().await {
                    ledger.error(&error);
                    // An error that comes at once must not come again at the same moment for ever.
                    sleep(Duration::from_millis(50)).await;
                }
            }
        });
        if served.await.is_err() {
            ledger.violation(Judge::Progress, format!("{name} was not served again"));
        }
        if let Err(error) = client.close().await {
            ledger.error(&error);
            closed_cleanly = false;
        }
    }
    closed_cleanly
}

/// Replaces the master in this way, and returns when all servers follow the next one.
async fn replace(
    world: &World,
    topology: &Topology,
    how: Failover,
    terms: Settings,
    random: &mut Random,
) {
    let old = topology.master().expect("the sentinels agree").clone();
    let settled = match how {
        Failover::Killed | Failover::LostWrite => {
            if matches!(how, Failover::LostWrite) {
                old.cut_links(true);
                sleep(random.up_to(Duration::from_millis(500))).await;
            }
            old.kill();
            topology.until_not(&old).await;
            sleep(random.up_to(Duration::from_secs(2))).await;
            old.revive();
            topology.until_settled()
        }
        Failover::Ordered => {
            topology.fail_over().await;
            topology.until_settled()
        }
        Failover::Split => {
            let client = format!("client-{}", random.below(CLIENTS as u64));
            topology.isolate(&old);
            let others = topology.servers().iter().chain(
                topology
                    .sentinels()
                    .iter()
                    .map(|sentinel| sentinel.server()),
            );
            for (host, _) in others
                .map(Server::address)
                .filter(|address| *address != old.address())
            {
                world.network.block(&client, &host);
                world.network.block(&host, &client);
            }
            topology.until_not(&old).await;
            sleep(terms.lease * 2).await;
            topology.heal(&old);
            topology.until_settled()
        }
    };
    settled.await;
}

/// Checks that a lock is free when all clients are closed, or when the lease has expired if one could not finish. Later only the record of
/// a promotion, which is kept for a month, is in the store.
pub(super) async fn check_what_is_left(
    masters: Vec<Server>,
    ledger: &Ledger,
    terms: Settings,
    closed_cleanly: bool,
) {
    let left = async |after: Duration, is_allowed: fn(&str) -> bool| {
        sleep(after).await;
        for (_, key, state) in masters.iter().flat_map(Server::keyspace) {
            let key = String::from_utf8_lossy(&key).into_owned();
            if !is_allowed(&key) {
                let what = format!("`{key}` was left behind for {after:?}: {state:?}");
                ledger.violation(Judge::Orphans, what);
            }
        }
    };
    let after = if closed_cleanly {
        UNDER_WAY
    } else {
        2 * terms.lease
    };
    left(after, |key| !LOCKS.contains(&key)).await;
    left(LONG, |key| key.starts_with("distlock_promoted")).await;
}

async fn contend(run: Run, terms: Settings, failovers: &'static [Failover]) {
    let Run {
        world,
        seed,
        ledger,
        ..
    } = &run;
    let mut random = Random::stream(*seed, 50);
    let layout = Layout {
        lag: random.up_to(Duration::from_millis(30)),
        ..Layout::default()
    };
    let topology = Topology::start(&world.network, &Clock::new(), *seed, layout);
    topology.until_settled().await;
    // The servers are old enough to grant something then.
    sleep(terms.lease + Duration::from_secs(1)).await;
    let clients = connect(world, &topology.url(), terms).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let workers = start(&run, &clients, terms, &is_over);
    for _ in 0..ROUNDS {
        sleep(Duration::from_secs(1) + random.up_to(2 * terms.lease)).await;
        let how =
            failovers[usize::try_from(random.below(failovers.len() as u64)).expect("it is small")];
        run.fault(how);
        let replaced = replace(world, &topology, how, terms, &mut random);
        let replaced = timeout(PATIENCE, replaced).await;
        replaced.unwrap_or_else(|_| panic!("{how:?} is not over after {PATIENCE:?}"));
    }
    is_over.store(true, Ordering::Relaxed);
    let closed_cleanly = end(workers, clients, ledger).await;
    topology.stop_watching();
    let master = topology.master().expect("the sentinels agree").clone();
    check_what_is_left(vec![master], ledger, terms, closed_cleanly).await;
}

/// Returns the scenarios: with acknowledgements and the delay, and with the delay alone.
pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("sentinel-acks", |run| contend(run, SAFE, ALL)),
        Scenario::new("sentinel-delay", |run| contend(run, DELAY_ALONE, DEATHS)),
    ]
}

/// Returns whether some seed of a scenario shows two valid guards of one lock.
pub(super) fn has_two_holders(scenario: &Scenario) -> bool {
    (1..=100).any(|seed| {
        let outcome = scenario.play(seed).expect("the run comes to its end");
        let mut violations = outcome.summary.violations.iter();
        violations.any(|violation| violation.judge == Judge::Exclusion)
    })
}

/// Control: some seed shows two holders, so that the judge can see them.
#[test]
fn behind_sentinels_two_clients_hold_a_lock_when_a_write_is_lost() {
    let control = Scenario::new("control", |run| contend(run, NEITHER, ALL));
    assert!(has_two_holders(&control), "two were never seen");
}
