//! One seed of one scenario: a world, a schedule of faults, a workload, and the judges' findings.

use std::time::Duration;

use distlock_sim::{Counts, Random};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::faults::{Event, Fault, Schedule};
use crate::judge::{Ledger, Summary};
use crate::workload::{Kind, LEASE, turn};
use crate::world::{World, simulate};

const CLIENTS: usize = 4;
/// How long faults happen.
const TROUBLE: Duration = Duration::from_secs(60);
/// The longest time from the last fault until every call has ended and every client is served.
const RECOVERY: Duration = Duration::from_secs(120);
/// Longer than anything that the library leaves in the store.
const LONG: Duration = Duration::from_secs(3 * 3600);

/// A scenario, by the name that the command line has for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
}

pub(crate) const SCENARIOS: [Scenario; 7] = [
    Scenario::new("plain", Kind::Plain),
    Scenario::new("fair", Kind::Fair),
    Scenario::new("simple", Kind::Simple),
    Scenario::new("fenced", Kind::Fenced),
    Scenario::new("read", Kind::Read),
    Scenario::new("write", Kind::Write),
    Scenario::new("permits", Kind::Permits),
];

/// A broken promise that a judge has to see.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Sabotage {
    /// The server forgets everything when it restarts.
    Forget,
    /// A key is left behind.
    Orphan,
    /// The server does not come back.
    StayDown,
}

/// The result of a seed.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) summary: Summary,
    pub(crate) counts: Counts,
    pub(crate) schedule: Schedule,
    /// Hash of every message, with its time.
    pub(crate) trace: u64,
}

impl Scenario {
    const fn new(name: &'static str, kind: Kind) -> Self {
        Self { name, kind }
    }

    pub(crate) fn named(name: &str) -> Self {
        let mut all = SCENARIOS.into_iter();
        all.find(|scenario| scenario.name == name)
            .unwrap_or_else(|| panic!("there is no scenario `{name}`"))
    }

    /// The command that plays a seed again.
    pub(crate) fn replay(&self, seed: u64) -> String {
        format!("scripts/simulate --seed {seed} {}", self.name)
    }

    /// Plays one seed.
    pub(crate) fn play(&self, seed: u64) -> Outcome {
        self.play_with(seed, self.schedule(seed), None)
    }

    /// The faults of a seed.
    pub(crate) fn schedule(&self, seed: u64) -> Schedule {
        let clients: Vec<_> = (0..CLIENTS).map(client_name).collect();
        Schedule::generate(&mut Random::stream(seed, 1), TROUBLE, &clients)
    }

    /// Plays one seed with other faults than its own, and perhaps with sabotage.
    pub(crate) fn play_with(
        &self,
        seed: u64,
        mut schedule: Schedule,
        sabotage: Option<Sabotage>,
    ) -> Outcome {
        if sabotage == Some(Sabotage::Forget) {
            for second in (5..60).step_by(5) {
                let at = Duration::from_secs(second);
                schedule.0.push(Event {
                    at,
                    fault: Fault::Forget,
                });
            }
            schedule.0.sort_by_key(|event| event.at);
        }
        let kind = self.kind;
        simulate(seed, &self.replay(seed), move |world| {
            contend(world, kind, seed, schedule, sabotage)
        })
    }
}

fn client_name(number: usize) -> String {
    format!("client-{number}")
}

async fn contend(
    world: World,
    kind: Kind,
    seed: u64,
    schedule: Schedule,
    sabotage: Option<Sabotage>,
) -> Outcome {
    let ledger = Ledger::default();
    let mut clients = Vec::new();
    kind.prepare(&world);
    for name in (0..CLIENTS).map(client_name) {
        let client = world.client(&name).connect().await;
        clients.push((name, client.expect("nothing is wrong yet")));
    }
    let end = Instant::now() + TROUBLE;
    let workers = clients.iter().cloned();
    let workers = workers.flat_map(|client| [client.clone(), client]);
    let workers: Vec<_> = (10..)
        .zip(workers)
        .map(|(number, (name, client))| {
            let ledger = ledger.clone();
            let mut random = Random::stream(seed, number);
            tokio::spawn(async move {
                while Instant::now() < end {
                    turn(kind, &mut random, &client, &name, &ledger).await;
                    sleep(random.up_to(Duration::from_millis(50))).await;
                }
            })
        })
        .collect();
    let faults = tokio::spawn(schedule.clone().run(world.clone()));
    sleep_until(end).await;
    faults.abort();
    world.network.heal();
    match sabotage {
        Some(Sabotage::StayDown) => world.server.kill(),
        _ => world.server.revive(),
    }
    for worker in workers {
        match timeout(RECOVERY, worker).await {
            Ok(ended) => ended.expect("a worker does not panic"),
            Err(_) => ledger.violation(format!(
                "a call has not ended {RECOVERY:?} after the last fault"
            )),
        }
    }
    // Every client is served again. A connection that fell into a black hole is noticed by a call that fails.
    for (name, client) in &clients {
        let served = timeout(RECOVERY, async {
            let subject = kind.subject(client, distlock::Lease::KeepAlive(LEASE));
            while let Err(error) = subject.acquire(crate::workload::Limit::Forever).await {
                ledger.error(&error);
            }
        });
        if served.await.is_err() {
            ledger.violation(format!("{name} was not served again"));
        }
    }
    for (_, client) in clients {
        if let Err(error) = client.close().await {
            ledger.error(&error);
        }
    }
    if sabotage == Some(Sabotage::Orphan) {
        world
            .server
            .call(&[b"SET", b"distlock_client:orphan", b"1"]);
    }
    sleep(LONG).await;
    for (_, key, state) in world.server.keyspace() {
        let key = String::from_utf8_lossy(&key).into_owned();
        if !kind.may_stay(&key) {
            ledger.violation(format!("`{key}` was left behind: {state:?}"));
        }
    }
    Outcome {
        summary: ledger.summary(),
        counts: world.network.counts(),
        schedule,
        trace: world.network.trace(),
    }
}
