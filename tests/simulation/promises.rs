//! Scenarios for one promise each: few faults happen, and the judges are stricter, and also compare the guards with the state of the store.

use std::time::Duration;

use distlock::{Client, ClientBuilder, Durability, Lease};
use distlock_sim::{Clock, MessageFault, Random, Server, Value};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::faults::{FaultKind, Schedule, Servers};
use crate::judge::{Claim, Judge, Ledger};
use crate::scenario::{Run, Scenario};
use crate::sentinel::has_two_holders;
use crate::store::Store;
use crate::workload::{Kind, Limit, Subject, View};
use crate::world::{HOST, PORT, World};

mod others;

/// Upper bound for the time that a reply is under way.
const REPLY: Duration = Duration::from_millis(500);
/// The time without faults that a client gets after a fault, so that it can connect again.
const REST: Duration = Duration::from_secs(1);
/// The time during which the clients contend.
const BUSY: Duration = Duration::from_secs(30);
/// The interval at which the store is compared with the guards.
const SAMPLE: Duration = Duration::from_millis(20);
/// The name of the lock.
const NAME: &[u8] = b"stock";

/// A scenario for each of some kinds of locks.
#[derive(Clone, Copy)]
struct Promise {
    name: &'static str,
    kinds: &'static [Kind],
    lease: Duration,
    /// The longest usual hold; and the percentage of longer holds, with their duration.
    hold: Duration,
    long_hold: (u64, Duration),
    clients: usize,
    /// The number of tasks of each client, and the pause of each between two turns.
    tasks: u64,
    pause: Duration,
    trouble: FaultSet,
    rules: Rules,
}

/// The faults of a scenario.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum FaultSet {
    Nothing,
    /// Single messages are lost, and their connections with them.
    Cuts,
    /// Messages to waiters are lost, and their connections with them.
    Deafness,
    /// Short outages of one client's network, with a pause between them.
    Blips,
    /// Every fault of the usual schedule.
    Faults,
    /// Replies are slow, and later they do not arrive at all.
    Slow,
    /// Clients crash and others take their places.
    Crashes,
    /// The lock is forced open under its holder.
    Robbery,
    /// The server restarts without its data.
    Forgets,
    /// The server restarts without its data, with `failover_delay` set.
    DelayedForgets,
    /// A replica takes the place of the master.
    Promotions,
}

/// The promises that hold under this trouble.
#[derive(Clone, Copy, Debug)]
struct Rules {
    /// The longest time for which a guard may be valid without its hold in the store.
    grace: Duration,
    /// The longest time for which a lock may be free while a client waits for it.
    idle: Option<Duration>,
    /// The longest time for which a lock may be held without a guard.
    orphan: Option<Duration>,
    /// The longest wait.
    wait: Duration,
    /// Whether a lock may be lost.
    losses: bool,
    /// Whether no two guards are ever valid at once. Otherwise a guard that was granted before the store lost its hold may be valid beside
    /// another, during the grace.
    exclusive: bool,
    /// Whether nothing is held soon after all clients were closed.
    tidy: bool,
    /// Whether clocks differ by almost a hundredth.
    drift: bool,
}

const STRICT: Rules = Rules {
    grace: Duration::ZERO,
    idle: None,
    orphan: None,
    wait: Duration::from_secs(30),
    losses: true,
    exclusive: true,
    tidy: false,
    drift: false,
};

const EXCLUSIVE: &[Kind] = &[
    Kind::Plain,
    Kind::Fair,
    Kind::Simple,
    Kind::Fenced,
    Kind::Write,
];
const ALL: &[Kind] = &[
    Kind::Plain,
    Kind::Fair,
    Kind::Simple,
    Kind::Fenced,
    Kind::Write,
    Kind::Read,
    Kind::Permits,
];

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The settings that most promises share.
const USUAL: Promise = Promise {
    name: "",
    kinds: ALL,
    lease: seconds(3),
    hold: millis(500),
    long_hold: (0, Duration::ZERO),
    clients: 3,
    tasks: 2,
    pause: millis(20),
    trouble: FaultSet::Nothing,
    rules: STRICT,
};

static PROMISES: [Promise; 15] = [
    Promise {
        name: "calm",
        hold: millis(200),
        long_hold: (5, seconds(5)),
        rules: Rules {
            idle: Some(seconds(1)),
            losses: false,
            tidy: true,
            wait: seconds(45),
            ..STRICT
        },
        ..USUAL
    },
    Promise {
        name: "crowd",
        kinds: EXCLUSIVE,
        lease: seconds(300),
        hold: millis(200),
        tasks: 4,
        rules: Rules {
            idle: Some(seconds(1)),
            losses: false,
            tidy: true,
            wait: seconds(20),
            ..STRICT
        },
        ..USUAL
    },
    Promise {
        name: "single",
        kinds: &[Kind::Plain, Kind::Simple, Kind::Fenced],
        lease: seconds(300),
        hold: millis(200),
        clients: 1,
        rules: Rules {
            idle: Some(seconds(1)),
            losses: false,
            tidy: true,
            wait: seconds(20),
            ..STRICT
        },
        ..USUAL
    },
    Promise {
        name: "alone",
        kinds: EXCLUSIVE,
        lease: seconds(30),
        hold: millis(100),
        tasks: 1,
        pause: seconds(2),
        rules: Rules {
            idle: Some(seconds(1)),
            losses: false,
            wait: seconds(20),
            ..STRICT
        },
        ..USUAL
    },
    Promise {
        name: "cuts",
        kinds: EXCLUSIVE,
        lease: seconds(20),
        long_hold: (10, seconds(15)),
        trouble: FaultSet::Cuts,
        rules: Rules {
            orphan: Some(seconds(8)),
            losses: false,
            tidy: true,
            wait: seconds(120),
            ..STRICT
        },
        ..USUAL
    },
    Promise {
        name: "reconnects",
        kinds: EXCLUSIVE,
        lease: seconds(20),
        long_hold: (10, seconds(3)),
        tasks: 1,
        pause: seconds(3),
        trouble: FaultSet::Deafness,
        rules: Rules {
            idle: Some(millis(1300)),
            losses: false,
            wait: seconds(120),
            ..STRICT
        },
        ..USUAL
    },
    Promise {
        name: "delays",
        kinds: &[Kind::Plain, Kind::Fair, Kind::Fenced],
        long_hold: (30, seconds(6)),
        trouble: FaultSet::DelayedForgets,
        rules: Rules {
            grace: seconds(3),
            wait: seconds(120),
            ..STRICT
        },
        ..USUAL
    },
    Promise {
        name: "blips",
        kinds: &[Kind::Plain, Kind::Read, Kind::Permits],
        lease: seconds(12),
        hold: seconds(2),
        long_hold: (60, seconds(30)),
        trouble: FaultSet::Blips,
        rules: Rules {
            losses: false,
            wait: seconds(180),
            ..STRICT
        },
        ..USUAL
    },
    Promise {
        name: "long-leases",
        lease: seconds(300),
        hold: millis(300),
        long_hold: (5, seconds(4)),
        trouble: FaultSet::Faults,
        rules: Rules {
            tidy: true,
            wait: seconds(150),
            ..STRICT
        },
        ..USUAL
    },
    Promise {
        name: "long-holds",
        hold: seconds(1),
        long_hold: (60, seconds(8)),
        trouble: FaultSet::Faults,
        rules: Rules {
            wait: seconds(180),
            drift: true,
            ..STRICT
        },
        ..USUAL
    },
    Promise {
        name: "slow-replies",
        hold: seconds(1),
        long_hold: (80, seconds(12)),
        trouble: FaultSet::Slow,
        rules: Rules {
            wait: seconds(180),
            ..STRICT
        },
        ..USUAL
    },
    Promise {
        name: "crashes",
        long_hold: (20, seconds(3)),
        trouble: FaultSet::Crashes,
        rules: Rules {
            wait: seconds(60),
            losses: true,
            ..STRICT
        },
        ..USUAL
    },
    Promise {
        name: "robbery",
        kinds: EXCLUSIVE,
        lease: seconds(6),
        long_hold: (50, seconds(12)),
        trouble: FaultSet::Robbery,
        rules: Rules {
            grace: seconds(4),
            exclusive: false,
            wait: seconds(120),
            ..STRICT
        },
        ..USUAL
    },
    Promise {
        name: "forgets",
        kinds: EXCLUSIVE,
        lease: seconds(30),
        long_hold: (50, seconds(12)),
        trouble: FaultSet::Forgets,
        rules: Rules {
            grace: seconds(3),
            exclusive: false,
            wait: seconds(120),
            ..STRICT
        },
        ..USUAL
    },
    Promise {
        name: "promotions",
        kinds: &[Kind::Plain, Kind::Fair, Kind::Fenced],
        long_hold: (30, seconds(6)),
        trouble: FaultSet::Promotions,
        rules: Rules {
            wait: seconds(120),
            ..STRICT
        },
        ..USUAL
    },
];

/// Compares the store with the guards and the waiters, until it is dropped.
async fn watch(ledger: Ledger, servers: Servers, kind: Kind, rules: Rules) {
    let (mut idle_since, mut orphan_since) = (None::<Instant>, None::<Instant>);
    loop {
        let (server, now) = (servers.first(), Instant::now());
        if let Some(wrong) = flaw(&server, kind) {
            ledger.violation(Judge::Counts, wrong);
        }
        let waits = ledger.first_waits_since();
        if waits.is_some_and(|since| now - since > rules.wait) {
            let what = format!("a waiter waited for more than {:?}", rules.wait);
            ledger.violation(Judge::Progress, what);
        }
        // A free lock is no violation at once: the slowest message about its release may still be on its way.
        let idle = waits.filter(|_| is_free(&server, kind));
        idle_since = idle.map(|since| idle_since.unwrap_or(now).max(since));
        if let (Some(since), Some(longest)) = (idle_since, rules.idle)
            && now - since > longest
        {
            let what = format!("it was free for {longest:?} while a client waited for it");
            ledger.violation(Judge::Progress, what);
            idle_since = None;
        }
        let orphan = !ledger.has_guards() && kind != Kind::Permits && !is_free(&server, kind);
        orphan_since = orphan.then(|| orphan_since.unwrap_or(now));
        if let (Some(since), Some(longest)) = (orphan_since, rules.orphan)
            && now - since > longest
        {
            let what = format!("it was held without a guard for {longest:?}");
            ledger.violation(Judge::Orphans, what);
        }
        sleep(SAMPLE).await;
    }
}

fn number(value: &Value) -> i64 {
    match value {
        Value::Integer(number) => *number,
        Value::Bulk(text) => String::from_utf8_lossy(text).parse().unwrap_or(0),
        _ => 0,
    }
}

const OUT: &[u8] = b"{stock}:timeout";

/// Returns whether a waiter could acquire the lock.
fn is_free(server: &Server, kind: Kind) -> bool {
    match kind {
        Kind::Permits => number(&server.call(&[b"GET", NAME])) > 0,
        _ => number(&server.call(&[b"EXISTS", NAME])) == 0,
    }
}

/// Returns a lock of this kind.
fn lock_of(kind: Kind, client: &Client, lease: Lease) -> Box<dyn Subject> {
    match kind {
        Kind::Fair => Box::new(client.fair_lock("stock").with_lease(lease)),
        Kind::Simple => Box::new(client.simple_lock("stock").with_lease(lease)),
        Kind::Fenced => Box::new(client.fenced_lock("stock").with_lease(lease)),
        Kind::Read => Box::new(client.rw_lock("stock").read().with_lease(lease)),
        Kind::Write => Box::new(client.rw_lock("stock").write().with_lease(lease)),
        Kind::Permits => Box::new(client.semaphore("stock").permit().with_lease(lease)),
        _ => Box::new(client.lock("stock").with_lease(lease)),
    }
}

fn claim(kind: Kind) -> Claim {
    match kind {
        Kind::Read => Claim::Shared,
        Kind::Permits => Claim::Permits { count: 1, total: 2 },
        _ => Claim::Alone,
    }
}

fn owner_of(view: &dyn View) -> String {
    let first = view.locks().into_iter().next();
    first.map(|(_, owner)| owner).unwrap_or_default()
}

/// The kinds of faults in these schedules.
const FAULTS: [FaultKind; 8] = {
    use FaultKind::{BlackHole, Cut, CutAfter, Down, Late, Partition, Refuse, Stall};
    [
        Cut, CutAfter, Late, BlackHole, Partition, Refuse, Down, Stall,
    ]
};

/// Returns the server of the world.
fn servers_of(run: &Run) -> Servers {
    Servers::new(vec![(run.world.server.clone(), Clock::new())])
}

/// Lets the faults of the schedule happen until the end.
async fn let_faults_happen(run: &Run, end: Instant) {
    let servers = servers_of(run);
    let _ = timeout_at(end, run.schedule.clone().run(run.world.clone(), servers)).await;
    sleep_until(end).await;
    run.world.network.heal();
    run.world.server.revive();
}

/// Returns all scenarios for one promise each: those of a single lock, by the name of the promise and its kind, and the others.
pub(crate) fn scenarios() -> Vec<Scenario> {
    let single = PROMISES.iter().flat_map(|promise| {
        promise.kinds.iter().map(move |&kind| {
            let name = format!("{}-{kind:?}", promise.name).to_lowercase();
            let scenario = Scenario::new(name, move |run| promise.keep(run, kind));
            match promise.trouble {
                FaultSet::Faults => scenario.with_faults(FAULTS, move |seed, kinds| {
                    let names: Vec<_> = (1..=promise.clients)
                        .map(|number| format!("client-{number}"))
                        .collect();
                    Schedule::generate(&mut Random::stream(seed, 3), BUSY, kinds, &names, 1)
                }),
                _ => scenario,
            }
        })
    });
    single.chain(others::scenarios()).collect()
}

/// Returns a state of the store that must not occur.
fn flaw(server: &Server, kind: Kind) -> Option<String> {
    if kind == Kind::Permits {
        let out = number(&server.call(&[b"ZCARD", OUT]));
        let all = number(&server.call(&[b"GET", NAME])) + out;
        return (all != 2).then(|| format!("{all} permits were there, and not 2"));
    }
    if number(&server.call(&[b"PTTL", NAME])) == -1 {
        return Some("a lock had no time to live".into());
    }
    let most = match kind {
        Kind::Plain | Kind::Fair | Kind::Fenced => 1,
        Kind::Write => 2,
        _ => return None,
    };
    let fields = number(&server.call(&[b"HLEN", NAME]));
    (fields > most).then(|| "two owners were in the store".into())
}

/// The state that the tasks of one run share.
#[derive(Clone)]
struct Stage {
    promise: Promise,
    kind: Kind,
    run: Run,
    world: World,
    /// The server that clients reach.
    servers: Servers,
    ledger: Ledger,
    end: Instant,
}

impl Promise {
    /// Plays one run: clients contend for a lock, and the judges check whether the promise is kept.
    async fn keep(self, run: Run, kind: Kind) {
        if kind == Kind::Permits {
            run.world.server.call(&[b"SET", NAME, b"2"]);
        }
        let stage = Stage {
            promise: self,
            kind,
            servers: servers_of(&run),
            world: run.world.clone(),
            ledger: run.ledger.clone(),
            end: Instant::now() + BUSY,
            run,
        };
        stage.ledger.set_calm(self.trouble == FaultSet::Nothing);
        if !self.rules.exclusive {
            stage.ledger.let_grants_overtake(REPLY);
        }
        let store = Store::new(stage.servers.clone());
        stage.ledger.look_into(store, kind);
        let servers = stage.servers.clone();
        let watch = watch(stage.ledger.clone(), servers, kind, self.rules);
        let watching = tokio::spawn(watch);
        let mut clients = Clients::new(&stage);
        for place in 0..self.clients {
            clients.start(place, self.tasks).await;
        }
        clients.disturb().await;
        // A crashed client does not come back.
        if self.trouble != FaultSet::Crashes {
            stage.world.network.heal();
            stage.servers.first().revive();
        }
        clients.finish().await;
        if self.rules.tidy {
            let left = flaw(&stage.servers.first(), kind).or_else(|| {
                let held = match kind {
                    Kind::Permits => number(&stage.servers.first().call(&[b"ZCARD", OUT])) > 0,
                    _ => !is_free(&stage.servers.first(), kind),
                };
                held.then(|| "it was held after all clients were closed".into())
            });
            if let Some(left) = left {
                stage.ledger.violation(Judge::Orphans, left);
            }
        }
        watching.abort();
    }

    fn builder(&self, builder: ClientBuilder) -> ClientBuilder {
        match self.trouble {
            FaultSet::Promotions => builder
                .durability(Durability::Replicas {
                    acks: 1,
                    timeout: millis(500),
                })
                .default_lease(Lease::KeepAlive(self.lease))
                .failover_delay(self.lease),
            FaultSet::DelayedForgets => builder
                .default_lease(Lease::KeepAlive(self.lease))
                .failover_delay(self.lease),
            _ => builder,
        }
    }
}

impl Stage {
    /// Runs one task, which acquires, holds and releases until the end.
    async fn work(self, client: Client, name: String, mut random: Random) {
        let subject = lock_of(self.kind, &client, Lease::KeepAlive(self.promise.lease));
        while Instant::now() < self.end {
            self.turn(&*subject, &name, &mut random).await;
            sleep(random.up_to(self.promise.pause)).await;
        }
    }

    async fn turn(&self, subject: &dyn Subject, name: &str, random: &mut Random) {
        let waiting = self.ledger.wait(name);
        let got = match random.below(10) {
            0..=2 => {
                let longest = random.up_to(millis(600));
                match timeout(longest, subject.acquire(Limit::Forever)).await {
                    Ok(got) => got,
                    Err(_) => return,
                }
            }
            3..=5 => {
                let (begun, longest) = (Instant::now(), seconds(20));
                let got = subject.acquire(Limit::Timeout(longest)).await;
                if matches!(got, Ok(None)) {
                    self.ledger.busy(name, begun, longest);
                }
                got
            }
            _ => subject.acquire(Limit::Forever).await,
        };
        let guard = match got {
            Ok(Some(guard)) => guard,
            Ok(None) => return,
            Err(error) => return self.ledger.error(&error),
        };
        if self.kind == Kind::Fair {
            waiting.granted_fairly();
        } else {
            drop(waiting);
        }
        let view = guard.view();
        let (ledger, lease) = (&self.ledger, self.promise.lease);
        let entry = ledger.enter(name, claim(self.kind), lease, &view);
        let (store, grace) = (Store::new(self.servers.clone()), self.promise.rules.grace);
        self.ledger.follow(entry, self.kind, store, grace);
        let (percent, long) = self.promise.long_hold;
        let longest = if random.percent(percent) {
            long
        } else {
            self.promise.hold
        };
        // `lost()` is called before the loss, so that its future has to be woken and not only to be ready.
        let mut lost = tokio::spawn(view.lost());
        tokio::select! {
            () = sleep(random.up_to(longest)) => {}
            _ = &mut lost => {
                self.ledger.loss();
                if !self.promise.rules.losses {
                    let what = "a lock was lost for no reason";
                    self.ledger.violation(Judge::Loss, what);
                }
                // A lost guard stays lost.
                sleep(random.up_to(seconds(2))).await;
            }
        }
        if !view.is_held() && !lost.is_finished() {
            sleep(millis(200)).await;
            if !lost.is_finished() {
                let what = "a holder was not notified of its loss";
                self.ledger.violation(Judge::Loss, what);
            }
        }
        lost.abort();
        let held = view.is_held();
        if random.percent(25) {
            self.ledger.leave(entry);
            return drop(guard);
        }
        let releasing = self.ledger.release(entry);
        let released = guard.release().await;
        if let Err(error) = &released
            && held
            && error.is_lost()
            && !self.promise.rules.losses
        {
            let what = format!("a valid guard's release failed: {error}");
            self.ledger.violation(Judge::Loss, what);
        }
        releasing.ended(&released);
    }
}

/// The clients of one run, and their tasks.
struct Clients {
    stage: Stage,
    random: Random,
    members: Vec<(String, Client, JoinSet<()>)>,
    started: u64,
    /// The time of the last message with a fault, for the client of each place.
    faulted: Vec<Option<Instant>>,
}

impl Clients {
    fn new(stage: &Stage) -> Self {
        Self {
            stage: stage.clone(),
            random: Random::stream(stage.run.seed, 3),
            members: Vec::new(),
            started: 0,
            faulted: vec![None; stage.promise.clients],
        }
    }

    /// Starts a new client with this many tasks in a place.
    async fn start(&mut self, place: usize, tasks: u64) {
        self.started += 1;
        let name = format!("client-{}", self.started);
        let drift = match self.stage.promise.rules.drift {
            true => [-9_000, 0, 9_000][place],
            false => 0,
        };
        self.stage.world.machine_with_drift(&name, drift);
        let builder = self.stage.world.client(&name);
        let client = self.stage.promise.builder(builder).connect().await;
        let client = client.expect("nothing is wrong with the network of a new client");
        let mut working = JoinSet::new();
        for task in 0..tasks {
            let random = Random::stream(self.stage.run.seed, 100 * self.started + task);
            let stage = self.stage.clone();
            working.spawn(stage.work(client.clone(), name.clone(), random));
        }
        let member = (name, client, working);
        if place < self.members.len() {
            self.members[place] = member;
        } else {
            self.members.push(member);
        }
    }

    /// Lets the trouble happen until its end.
    async fn disturb(&mut self) {
        let (network, end) = (self.stage.world.network.clone(), self.stage.end);
        let trouble = self.stage.promise.trouble;
        let (ledger, rules) = (self.stage.ledger.clone(), self.stage.promise.rules);
        if trouble == FaultSet::Faults {
            return let_faults_happen(&self.stage.run, end).await;
        }
        let robber = match trouble {
            FaultSet::Robbery => {
                let robber = self.stage.world.client("robber").connect().await;
                Some(robber.expect("nothing is wrong yet"))
            }
            _ => None,
        };
        let mut replicas = Vec::new();
        if trouble == FaultSet::Promotions {
            let seed = self.stage.run.seed + 1;
            replicas.push(self.stage.servers.first().replica(seed, millis(30)));
        }
        while Instant::now() < end {
            let place = self.random.below(self.members.len() as u64);
            let place = usize::try_from(place).expect("it is small");
            let name = self.members[place].0.clone();
            if !matches!(
                trouble,
                FaultSet::Nothing | FaultSet::Cuts | FaultSet::Deafness
            ) {
                self.stage.run.fault(trouble);
            }
            match trouble {
                FaultSet::Nothing | FaultSet::Faults => sleep(seconds(1)).await,
                FaultSet::Cuts => {
                    sleep(self.random.up_to(millis(300))).await;
                    let fault = [MessageFault::Cut, MessageFault::CutAfter]
                        [usize::from(self.random.percent(50))];
                    match self.random.percent(50) {
                        true => self.fault_one(place, &name, HOST, fault),
                        false => self.fault_one(place, HOST, &name, fault),
                    }
                }
                FaultSet::Blips => {
                    sleep(seconds(6) + self.random.up_to(seconds(3))).await;
                    let names: Vec<_> = self.members.iter().map(|member| &member.0).collect();
                    names.iter().for_each(|name| network.block(name, HOST));
                    sleep(millis(3500)).await;
                    names.iter().for_each(|name| network.unblock(name, HOST));
                }
                FaultSet::Slow => {
                    for (name, ..) in &self.members {
                        for _ in 0..4 {
                            let by = millis(100) + self.random.up_to(millis(800));
                            network.fault_next(HOST, name, MessageFault::Stall(by));
                        }
                    }
                    sleep(self.random.up_to(millis(1200))).await;
                    for (name, ..) in &self.members {
                        network.block(name, HOST);
                        network.block(HOST, name);
                    }
                    sleep(millis(4500)).await;
                    network.heal();
                    sleep(self.random.up_to(seconds(2))).await;
                }
                FaultSet::Crashes => {
                    sleep(seconds(3) + self.random.up_to(seconds(6))).await;
                    network.block(&name, HOST);
                    network.block(HOST, &name);
                    self.members[place].2.shutdown().await;
                    self.start(place, self.stage.promise.tasks).await;
                }
                FaultSet::Robbery => {
                    sleep(seconds(1) + self.random.up_to(seconds(4))).await;
                    let Some(robber) = &robber else { continue };
                    ledger.begin_store_loss(rules.grace);
                    let forced = robber.admin().force_release("stock").await;
                    ledger.end_store_loss();
                    forced.map_or_else(|error| ledger.error(&error), drop);
                }
                FaultSet::Deafness => {
                    sleep(self.random.up_to(millis(500))).await;
                    self.fault_one(place, HOST, &name, MessageFault::Cut);
                }
                FaultSet::Forgets | FaultSet::DelayedForgets => {
                    sleep(seconds(3) + self.random.up_to(seconds(8))).await;
                    let server = self.stage.servers.first();
                    if rules.exclusive {
                        server.restart(false);
                        continue;
                    }
                    ledger.begin_store_loss(rules.grace);
                    server.restart(false);
                    ledger.end_store_loss();
                }
                FaultSet::Promotions => {
                    sleep(seconds(3) + self.random.up_to(seconds(6))).await;
                    let Some(next) = replicas.pop() else { continue };
                    // The last writes do not reach the replica in time.
                    next.cut_replication(true);
                    sleep(self.random.up_to(millis(1500))).await;
                    self.stage.servers.first().kill();
                    next.promote();
                    network.listen(HOST, PORT, &next);
                    self.stage.servers.replace_first(&next);
                    replicas.push(next.replica(self.random.below(1000), millis(30)));
                }
            }
        }
        if let Some(robber) = robber {
            let _ = robber.close().await;
        }
    }

    /// Applies a fault to the next message on a link, unless its client has not recovered from the last one: a client whose every
    /// connection is cut can keep no promise.
    fn fault_one(&mut self, place: usize, from: &str, to: &str, fault: MessageFault) {
        let network = &self.stage.world.network;
        let has_rested = self.faulted[place].is_none_or(|at| at.elapsed() >= REST);
        if has_rested && !network.has_fault_next(from, to) {
            network.fault_next(from, to, fault);
            self.faulted[place] = Some(Instant::now());
            self.stage.run.fault(self.stage.promise.trouble);
        }
    }

    /// Waits until every call has ended, and closes every client.
    async fn finish(mut self) {
        let longest = self.stage.promise.rules.wait;
        let end = Instant::now() + longest;
        for (name, _, working) in &mut self.members {
            let ended = timeout_at(end, async {
                while let Some(ended) = working.join_next().await {
                    ended.expect("a task does not panic");
                }
            });
            if ended.await.is_err() {
                let what = format!("a call of {name} has not ended after {longest:?}");
                self.stage.ledger.violation(Judge::Resolution, what);
            }
            working.abort_all();
        }
        // Requests that were lost are undone by then.
        sleep(seconds(20)).await;
        for (_, client, _) in self.members {
            if let Err(error) = client.close().await {
                self.stage.ledger.error(&error);
            }
        }
        sleep(REPLY).await;
    }
}

/// Control: without the grace two guards are valid at once, so that the judge can see them.
#[test]
fn two_clients_hold_a_lock_for_a_while_when_the_store_has_lost_a_hold() {
    for name in ["robbery", "forgets"] {
        let mut promises = PROMISES.iter();
        let mut promise = *promises.find(|it| it.name == name).expect("it is there");
        promise.rules.grace = Duration::ZERO;
        let control = Scenario::new("control", move |run| promise.keep(run, Kind::Plain));
        assert!(has_two_holders(&control), "{name}: two were never seen");
    }
}
