//! Scenarios for one promise each: little goes wrong, and what happens then is judged more strictly, also by what is in the
//! store.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use distlock::{Client, ClientBuilder, Durability, Lease};
use distlock_sim::{Clock, MessageFault, Random, Server, Value};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::faults::{FaultKind, Schedule, Servers};
use crate::judge::{Claim, Judge, Ledger};
use crate::scenario::{Run, Scenario};
use crate::workload::{Kind, Limit, Subject, View};
use crate::world::{HOST, PORT, World};

mod others;

/// How long the clients contend.
const BUSY: Duration = Duration::from_secs(30);
/// How often the store is compared with the guards.
const SAMPLE: Duration = Duration::from_millis(20);
/// The name of the lock.
const NAME: &[u8] = b"stock";

/// A scenario for each of some kinds of locks.
#[derive(Clone, Copy)]
struct Promise {
    name: &'static str,
    kinds: &'static [Kind],
    lease: Duration,
    /// How long a lock is held, mostly; and one in so many times how long.
    hold: Duration,
    long_hold: (u64, Duration),
    clients: usize,
    /// How many tasks each client has, and how long each rests between two turns.
    tasks: u64,
    pause: Duration,
    trouble: Trouble,
    rules: Rules,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Trouble {
    Nothing,
    /// Single messages are lost, and their connections with them.
    Cuts,
    /// Messages to those who wait are lost, and their connections with them.
    Deafness,
    /// Short outages of one client's network, with a pause between them.
    Blips,
    /// Every fault of the usual schedule.
    Faults,
    /// Replies are slow, and then there are none.
    Slow,
    /// Clients vanish and others take their places.
    Crashes,
    /// The lock is forced open under its holder.
    Robbery,
    /// The server restarts without its data.
    Forgets,
    /// The same, with `failover_delay`.
    DelayedForgets,
    /// A replica takes the place of the master.
    Promotions,
}

/// What is promised under this trouble.
#[derive(Clone, Copy, Debug)]
struct Rules {
    /// How long a guard may be valid whose hold the store does not have.
    grace: Duration,
    /// How long a lock may be free while a client waits for it.
    idle: Option<Duration>,
    /// How long a lock may be held without a guard.
    orphan: Option<Duration>,
    /// How long anybody waits.
    wait: Duration,
    /// Whether a lock may be lost.
    losses: bool,
    /// Whether two may have it.
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

static PROMISES: [Promise; 15] = [
    Promise {
        name: "calm",
        kinds: ALL,
        lease: seconds(3),
        hold: millis(200),
        long_hold: (5, seconds(5)),
        clients: 3,
        tasks: 2,
        pause: millis(20),
        trouble: Trouble::Nothing,
        rules: Rules {
            idle: Some(seconds(1)),
            losses: false,
            tidy: true,
            wait: seconds(45),
            ..STRICT
        },
    },
    Promise {
        name: "crowd",
        kinds: EXCLUSIVE,
        lease: seconds(300),
        hold: millis(200),
        long_hold: (0, Duration::ZERO),
        clients: 3,
        tasks: 4,
        pause: millis(20),
        trouble: Trouble::Nothing,
        rules: Rules {
            idle: Some(seconds(1)),
            losses: false,
            tidy: true,
            wait: seconds(20),
            ..STRICT
        },
    },
    Promise {
        name: "single",
        kinds: &[Kind::Plain, Kind::Simple, Kind::Fenced],
        lease: seconds(300),
        hold: millis(200),
        long_hold: (0, Duration::ZERO),
        clients: 1,
        tasks: 2,
        pause: millis(20),
        trouble: Trouble::Nothing,
        rules: Rules {
            idle: Some(seconds(1)),
            losses: false,
            tidy: true,
            wait: seconds(20),
            ..STRICT
        },
    },
    Promise {
        name: "alone",
        kinds: EXCLUSIVE,
        lease: seconds(30),
        hold: millis(100),
        long_hold: (0, Duration::ZERO),
        clients: 3,
        tasks: 1,
        pause: seconds(2),
        trouble: Trouble::Nothing,
        rules: Rules {
            idle: Some(seconds(1)),
            losses: false,
            wait: seconds(20),
            ..STRICT
        },
    },
    Promise {
        name: "cuts",
        kinds: EXCLUSIVE,
        lease: seconds(20),
        hold: millis(500),
        long_hold: (10, seconds(15)),
        clients: 3,
        tasks: 2,
        pause: millis(20),
        trouble: Trouble::Cuts,
        rules: Rules {
            orphan: Some(seconds(8)),
            losses: false,
            tidy: true,
            wait: seconds(120),
            ..STRICT
        },
    },
    Promise {
        name: "reconnects",
        kinds: EXCLUSIVE,
        lease: seconds(20),
        hold: millis(500),
        long_hold: (10, seconds(3)),
        clients: 3,
        tasks: 1,
        pause: seconds(3),
        trouble: Trouble::Deafness,
        rules: Rules {
            idle: Some(millis(1300)),
            losses: false,
            wait: seconds(120),
            ..STRICT
        },
    },
    Promise {
        name: "delays",
        kinds: &[Kind::Plain, Kind::Fair, Kind::Fenced],
        lease: seconds(3),
        hold: millis(500),
        long_hold: (30, seconds(6)),
        clients: 3,
        tasks: 2,
        pause: millis(20),
        trouble: Trouble::DelayedForgets,
        rules: Rules {
            grace: seconds(3),
            wait: seconds(120),
            ..STRICT
        },
    },
    Promise {
        name: "blips",
        kinds: &[Kind::Plain, Kind::Read, Kind::Permits],
        lease: seconds(12),
        hold: seconds(2),
        long_hold: (60, seconds(30)),
        clients: 3,
        tasks: 2,
        pause: millis(20),
        trouble: Trouble::Blips,
        rules: Rules {
            losses: false,
            wait: seconds(180),
            ..STRICT
        },
    },
    Promise {
        name: "long-leases",
        kinds: ALL,
        lease: seconds(300),
        hold: millis(300),
        long_hold: (5, seconds(4)),
        clients: 3,
        tasks: 2,
        pause: millis(20),
        trouble: Trouble::Faults,
        rules: Rules {
            tidy: true,
            wait: seconds(150),
            ..STRICT
        },
    },
    Promise {
        name: "long-holds",
        kinds: ALL,
        lease: seconds(3),
        hold: seconds(1),
        long_hold: (60, seconds(8)),
        clients: 3,
        tasks: 2,
        pause: millis(20),
        trouble: Trouble::Faults,
        rules: Rules {
            wait: seconds(180),
            drift: true,
            ..STRICT
        },
    },
    Promise {
        name: "slow-replies",
        kinds: ALL,
        lease: seconds(3),
        hold: seconds(1),
        long_hold: (80, seconds(12)),
        clients: 3,
        tasks: 2,
        pause: millis(20),
        trouble: Trouble::Slow,
        rules: Rules {
            wait: seconds(180),
            ..STRICT
        },
    },
    Promise {
        name: "crashes",
        kinds: ALL,
        lease: seconds(3),
        hold: millis(500),
        long_hold: (20, seconds(3)),
        clients: 3,
        tasks: 2,
        pause: millis(20),
        trouble: Trouble::Crashes,
        rules: Rules {
            wait: seconds(60),
            losses: true,
            ..STRICT
        },
    },
    Promise {
        name: "robbery",
        kinds: EXCLUSIVE,
        lease: seconds(6),
        hold: millis(500),
        long_hold: (50, seconds(12)),
        clients: 3,
        tasks: 2,
        pause: millis(20),
        trouble: Trouble::Robbery,
        rules: Rules {
            grace: seconds(4),
            exclusive: false,
            wait: seconds(120),
            ..STRICT
        },
    },
    Promise {
        name: "forgets",
        kinds: EXCLUSIVE,
        lease: seconds(30),
        hold: millis(500),
        long_hold: (50, seconds(12)),
        clients: 3,
        tasks: 2,
        pause: millis(20),
        trouble: Trouble::Forgets,
        rules: Rules {
            grace: seconds(3),
            exclusive: false,
            wait: seconds(120),
            ..STRICT
        },
    },
    Promise {
        name: "promotions",
        kinds: &[Kind::Plain, Kind::Fair, Kind::Fenced],
        lease: seconds(3),
        hold: millis(500),
        long_hold: (30, seconds(6)),
        clients: 3,
        tasks: 2,
        pause: millis(20),
        trouble: Trouble::Promotions,
        rules: Rules {
            wait: seconds(120),
            ..STRICT
        },
    },
];

/// Compares the guards with the store. Clones are the same.
#[derive(Clone)]
struct Audit {
    ledger: Ledger,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    next: u64,
    guards: BTreeMap<u64, Watched>,
    waiting: BTreeMap<u64, Instant>,
    idle_since: Option<Instant>,
    orphan_since: Option<Instant>,
}

struct Watched {
    kind: Kind,
    view: Arc<dyn View>,
    was_held: bool,
    /// Since when the store does not have it.
    missing_since: Option<Instant>,
}

/// Something that is noted for as long as this lives.
struct Noted(Audit, u64);

impl Drop for Noted {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.guards.remove(&self.1);
        state.waiting.remove(&self.1);
    }
}

impl Audit {
    fn new(ledger: &Ledger) -> Self {
        Self {
            ledger: ledger.clone(),
            state: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waits(&self) -> Noted {
        let mut state = self.lock();
        state.next += 1;
        let number = state.next;
        state.waiting.insert(number, Instant::now());
        Noted(self.clone(), number)
    }

    fn holds(&self, kind: Kind, view: &Arc<dyn View>) -> Noted {
        let mut state = self.lock();
        state.next += 1;
        let number = state.next;
        let watched = Watched {
            kind,
            view: view.clone(),
            was_held: true,
            missing_since: None,
        };
        state.guards.insert(number, watched);
        Noted(self.clone(), number)
    }

    /// First come, first served: no waiter is left that came clearly earlier.
    fn granted_in_order(&self, begun: Instant) {
        let overtaken = {
            let state = self.lock();
            let mut waiting = state.waiting.values();
            waiting.any(|since| *since + seconds(1) < begun)
        };
        if overtaken {
            let what = "a waiter was overtaken by one that came a second later";
            self.ledger.violation(Judge::FairOrder, what);
        }
    }

    /// Compares the store with the guards.
    fn sample(&self, server: &Server, kind: Kind, rules: &Rules) {
        let now = Instant::now();
        let mut found = Vec::new();
        let mut state = self.lock();
        for watched in state.guards.values_mut() {
            let held = watched.view.is_held();
            if held && !watched.was_held {
                found.push((Judge::Loss, "a lost hold was valid again".to_owned()));
            }
            watched.was_held = held;
            if !held || stands(server, watched.kind, &owner_of(&*watched.view)) {
                watched.missing_since = None;
            } else {
                let since = *watched.missing_since.get_or_insert(now);
                if now - since >= rules.grace {
                    let what = "a valid guard's hold was not in the store";
                    found.push((Judge::Backing, what.to_owned()));
                }
            }
        }
        if let Some(wrong) = flaw(server, kind) {
            found.push((Judge::Counts, wrong));
        }
        let waits = state.waiting.values().min().copied();
        if waits.is_some_and(|since| now - since > rules.wait) {
            let what = format!("a waiter waited for more than {:?}", rules.wait);
            found.push((Judge::Progress, what));
        }
        // The slowest message of a lock that was just released is on its way.
        let idle = waits.filter(|_| is_free(server, kind));
        state.idle_since = idle.map(|since| state.idle_since.unwrap_or(now).max(since));
        if let (Some(since), Some(longest)) = (state.idle_since, rules.idle)
            && now - since > longest
        {
            let what = format!("it was free for {longest:?} while a client waited for it");
            found.push((Judge::Progress, what));
            state.idle_since = None;
        }
        let orphan = state.guards.is_empty() && kind != Kind::Permits && !is_free(server, kind);
        state.orphan_since = orphan.then(|| state.orphan_since.unwrap_or(now));
        if let (Some(since), Some(longest)) = (state.orphan_since, rules.orphan)
            && now - since > longest
        {
            let what = format!("it was held without a guard for {longest:?}");
            found.push((Judge::Orphans, what));
        }
        drop(state);
        for (judge, what) in found {
            self.ledger.violation(judge, what);
        }
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

/// Whether the store has a hold of this owner.
fn stands(server: &Server, kind: Kind, owner: &str) -> bool {
    let exists = |field: &str| number(&server.call(&[b"HEXISTS", NAME, field.as_bytes()])) == 1;
    match kind {
        Kind::Plain | Kind::Fair | Kind::Fenced | Kind::Read => exists(owner),
        Kind::Write => exists(&format!("{owner}:write")),
        Kind::Simple => server.call(&[b"GET", NAME]) == Value::Bulk(owner.into()),
        // By its number, in `flaw`.
        _ => true,
    }
}

/// Whether a waiter could have it.
fn is_free(server: &Server, kind: Kind) -> bool {
    match kind {
        Kind::Permits => number(&server.call(&[b"GET", NAME])) > 0,
        _ => number(&server.call(&[b"EXISTS", NAME])) == 0,
    }
}

/// A lock of this kind.
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

/// Lets the faults of the schedule happen until the end.
async fn let_faults_happen(run: &Run, end: Instant) {
    let servers = Servers::new(vec![(run.world.server.clone(), Clock::new())]);
    let _ = timeout_at(end, run.schedule.clone().run(run.world.clone(), servers)).await;
    sleep_until(end).await;
    run.world.network.heal();
    run.world.server.revive();
}

/// All scenarios for one promise each: those of a single lock, by the name of the promise and its kind, and the others.
pub(crate) fn scenarios() -> Vec<Scenario> {
    let single = PROMISES.iter().flat_map(|promise| {
        promise.kinds.iter().map(move |&kind| {
            let name = format!("{}-{kind:?}", promise.name).to_lowercase();
            let scenario = Scenario::new(name, move |run| promise.keep(run, kind));
            match promise.trouble {
                Trouble::Faults => scenario.with_faults(FAULTS, move |seed, kinds| {
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

/// What must not be in the store.
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

/// Everything that the tasks of one run share.
#[derive(Clone)]
struct Stage {
    promise: Promise,
    kind: Kind,
    run: Run,
    world: World,
    /// The server that clients reach.
    server: Arc<Mutex<Server>>,
    ledger: Ledger,
    audit: Audit,
    end: Instant,
}

impl Promise {
    /// One run: clients contend for a lock, and the judges see whether the promise is kept.
    async fn keep(self, run: Run, kind: Kind) {
        if kind == Kind::Permits {
            run.world.server.call(&[b"SET", NAME, b"2"]);
        }
        let stage = Stage {
            promise: self,
            kind,
            server: Arc::new(Mutex::new(run.world.server.clone())),
            world: run.world.clone(),
            ledger: run.ledger.clone(),
            audit: Audit::new(&run.ledger),
            end: Instant::now() + BUSY,
            run,
        };
        let auditor = tokio::spawn(stage.clone().audits());
        let mut clients = Clients::new(&stage);
        for place in 0..self.clients {
            clients.start(place, self.tasks).await;
        }
        clients.disturb().await;
        stage.world.network.heal();
        stage.server().revive();
        clients.finish().await;
        if self.rules.tidy {
            let left = flaw(&stage.server(), kind).or_else(|| {
                let held = match kind {
                    Kind::Permits => number(&stage.server().call(&[b"ZCARD", OUT])) > 0,
                    _ => !is_free(&stage.server(), kind),
                };
                held.then(|| "it was held after all clients were closed".into())
            });
            if let Some(left) = left {
                stage.ledger.violation(Judge::Orphans, left);
            }
        }
        auditor.abort();
        if !self.rules.exclusive {
            stage.ledger.pardon(Judge::Exclusion);
        }
    }

    fn builder(&self, builder: ClientBuilder) -> ClientBuilder {
        match self.trouble {
            Trouble::Promotions => builder
                .durability(Durability::Replicas {
                    acks: 1,
                    timeout: millis(500),
                })
                .default_lease(Lease::KeepAlive(self.lease))
                .failover_delay(self.lease),
            Trouble::DelayedForgets => builder
                .default_lease(Lease::KeepAlive(self.lease))
                .failover_delay(self.lease),
            _ => builder,
        }
    }
}

impl Stage {
    fn server(&self) -> Server {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        server.clone()
    }

    async fn audits(self) {
        loop {
            self.audit
                .sample(&self.server(), self.kind, &self.promise.rules);
            sleep(SAMPLE).await;
        }
    }

    /// One task: acquires, holds and releases until the end.
    async fn work(self, client: Client, name: String, mut random: Random) {
        let subject = lock_of(self.kind, &client, Lease::KeepAlive(self.promise.lease));
        while Instant::now() < self.end {
            self.turn(&*subject, &name, &mut random).await;
            sleep(random.up_to(self.promise.pause)).await;
        }
    }

    async fn turn(&self, subject: &dyn Subject, name: &str, random: &mut Random) {
        let begun = Instant::now();
        let waits = self.audit.waits();
        let got = match random.below(10) {
            0..=2 => {
                let longest = random.up_to(millis(600));
                match timeout(longest, subject.acquire(Limit::Forever)).await {
                    Ok(got) => got,
                    Err(_) => return,
                }
            }
            3..=5 => subject.acquire(Limit::Timeout(seconds(20))).await,
            _ => subject.acquire(Limit::Forever).await,
        };
        drop(waits);
        let guard = match got {
            Ok(Some(guard)) => guard,
            Ok(None) => return,
            Err(error) => {
                if self.promise.trouble == Trouble::Nothing {
                    let what = format!("an error without a fault: {error}");
                    self.ledger.violation(Judge::Errors, what);
                }
                return self.ledger.error(&error);
            }
        };
        let view = guard.view();
        let entry = self.ledger.enter(name, claim(self.kind), &view);
        let held = self.audit.holds(self.kind, &view);
        if self.kind == Kind::Fair && self.promise.trouble == Trouble::Nothing {
            self.audit.granted_in_order(begun);
        }
        let (percent, long) = self.promise.long_hold;
        let longest = if random.percent(percent) {
            long
        } else {
            self.promise.hold
        };
        // One that waits for it from the beginning must be woken.
        let mut lost = tokio::spawn(view.lost());
        tokio::select! {
            () = sleep(random.up_to(longest)) => {}
            _ = &mut lost => {
                if !self.promise.rules.losses {
                    let what = "a lock was lost for no reason";
                    self.ledger.violation(Judge::Loss, what);
                }
                // What was lost stays lost.
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
        self.ledger.leave(entry);
        drop(held);
        let held = view.is_held();
        if random.percent(25) {
            drop(guard);
        } else if let Err(error) = guard.release().await {
            if held && error.is_lost() && !self.promise.rules.losses {
                let what = format!("a valid guard's release failed: {error}");
                self.ledger.violation(Judge::Loss, what);
            }
            self.ledger.error(&error);
        }
    }
}

/// The clients of one run, and their tasks.
struct Clients {
    stage: Stage,
    random: Random,
    members: Vec<(String, Client, JoinSet<()>)>,
    started: u64,
}

impl Clients {
    fn new(stage: &Stage) -> Self {
        Self {
            stage: stage.clone(),
            random: Random::stream(stage.run.seed, 3),
            members: Vec::new(),
            started: 0,
        }
    }

    /// A new client with so many tasks takes a place.
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
        if trouble == Trouble::Faults {
            return let_faults_happen(&self.stage.run, end).await;
        }
        let robber = self.stage.world.client("robber").connect().await;
        let robber = robber.expect("nothing is wrong yet");
        let mut replicas = Vec::new();
        if trouble == Trouble::Promotions {
            let seed = self.stage.run.seed + 1;
            replicas.push(self.stage.server().replica(seed, millis(30)));
        }
        while Instant::now() < end {
            let place = self.random.below(self.members.len() as u64);
            let place = usize::try_from(place).expect("it is small");
            let name = self.members[place].0.clone();
            if trouble != Trouble::Nothing {
                self.stage.run.fault(trouble);
            }
            match trouble {
                Trouble::Nothing | Trouble::Faults => sleep(seconds(1)).await,
                Trouble::Cuts => {
                    sleep(self.random.up_to(millis(300))).await;
                    let fault = [MessageFault::Cut, MessageFault::CutAfter]
                        [usize::from(self.random.percent(50))];
                    match self.random.percent(50) {
                        true => network.fault_next(&name, HOST, fault),
                        false => network.fault_next(HOST, &name, fault),
                    }
                }
                Trouble::Blips => {
                    sleep(seconds(6) + self.random.up_to(seconds(3))).await;
                    let names: Vec<_> = self.members.iter().map(|member| &member.0).collect();
                    names.iter().for_each(|name| network.block(name, HOST));
                    sleep(millis(3500)).await;
                    names.iter().for_each(|name| network.unblock(name, HOST));
                }
                Trouble::Slow => {
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
                Trouble::Crashes => {
                    sleep(seconds(3) + self.random.up_to(seconds(6))).await;
                    network.block(&name, HOST);
                    network.block(HOST, &name);
                    self.members[place].2.shutdown().await;
                    self.start(place, self.stage.promise.tasks).await;
                }
                Trouble::Robbery => {
                    sleep(seconds(1) + self.random.up_to(seconds(4))).await;
                    let forced = robber.admin().force_release("stock").await;
                    forced.map_or_else(|error| self.stage.ledger.error(&error), drop);
                }
                Trouble::Deafness => {
                    sleep(self.random.up_to(millis(500))).await;
                    network.fault_next(HOST, &name, MessageFault::Cut);
                }
                Trouble::Forgets | Trouble::DelayedForgets => {
                    sleep(seconds(3) + self.random.up_to(seconds(8))).await;
                    self.stage.server().restart(false);
                }
                Trouble::Promotions => {
                    sleep(seconds(3) + self.random.up_to(seconds(6))).await;
                    let Some(next) = replicas.pop() else { continue };
                    // The last writes do not arrive in time.
                    next.cut_replication(true);
                    sleep(self.random.up_to(millis(1500))).await;
                    self.stage.server().kill();
                    next.promote();
                    network.listen(HOST, PORT, &next);
                    *self
                        .stage
                        .server
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner) = next.clone();
                    replicas.push(next.replica(self.random.below(1000), millis(30)));
                }
            }
        }
        let _ = robber.close().await;
    }

    /// Every call ends, and every client is closed.
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
        sleep(seconds(5)).await;
    }
}
