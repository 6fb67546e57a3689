//! Clients that contend for one lock while many kinds of faults happen.

use std::env;
use std::sync::Arc;
use std::time::Duration;

use distlock::Durability;
use distlock_sim::{Clock, Random};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::faults::{Event, Fault, FaultKind, Schedule, Servers, server_name};
use crate::judge::{Judge, Ledger};
use crate::numbers::{Latches, Permits};
use crate::scenario::Run;
use crate::setup::{CONNECTING, Setup};
use crate::store::Store;
use crate::workload::{Kind, NAME, Process, Task};
use crate::world::{PORT, World};

/// The time during which faults happen.
pub(crate) const TROUBLE: Duration = Duration::from_secs(40);
/// The time during which the clients go on without faults.
const CALM: Duration = Duration::from_secs(5);
/// The longest time from the last fault until every call has ended and every client is served.
pub(crate) const RECOVERY: Duration = Duration::from_secs(120);
/// The longest time for which late requests may still arrive.
const LATE: Duration = Duration::from_secs(310);
/// An owner that belongs to no client.
const NOBODY: &[u8] = b"00000000-0000-0000-0000-000000000000:1";
/// A time that is longer than the lifetime of anything that the library leaves in the store.
const LONG: Duration = Duration::from_secs(3 * 3600);

/// A broken promise that a judge has to see.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Sabotage {
    /// The server forgets everything when it restarts.
    Forget,
    /// The wall clock of the server is set forward.
    SetForward,
    /// A key is left behind.
    Orphan,
    /// The server does not come back.
    StayDown,
    /// The clocks of the clients run slow by a twentieth.
    SlowClients,
    /// Tokens are lost, and the clock that would replace them is set back.
    Tokens,
    /// The store counts too many holds.
    Counts,
    /// A lock is left to an owner that belongs to no client.
    Ghost,
    /// The queue of a fair lock is reversed.
    Line,
    /// A lock is left to an owner that belongs to no client, while clients wait for it.
    Abandon,
    /// The lock's key gets a value of another type.
    Junk,
    /// The lock's key is removed, though no fault happens.
    Remove,
    /// A task whose result is never awaited panics.
    Panic,
    /// The server refuses commands for a while, though no fault happens.
    Refuse,
}

impl Sabotage {
    /// Adds the faults that this sabotage needs.
    pub(crate) fn add_faults(self, schedule: &mut Schedule) {
        let (kind, fault) = match self {
            Self::Forget => (FaultKind::Forget, Fault::Forget),
            Self::SetForward => {
                let by = Duration::from_secs(3);
                (FaultKind::SetForward, Fault::SetForward { server: 0, by })
            }
            Self::Remove | Self::Refuse => {
                schedule.0.clear();
                return;
            }
            _ => return,
        };
        for second in (5..40).step_by(5) {
            let at = Duration::from_secs(second);
            let fault = fault.clone();
            schedule.0.push(Event { at, kind, fault });
        }
        schedule.0.sort_by_key(|event| event.at);
    }
}

/// Has clients contend for a lock while the faults of the schedule happen, and then without faults.
pub(crate) async fn contend(run: Run, mut setup: Setup) {
    setup.has_stops = run.schedule.has(FaultKind::Stop);
    if env::var_os("DISTLOCK_TRACE").is_some() {
        eprintln!("{setup:?}");
    }
    let schedule = run.schedule.clone();
    Contest::new(run, setup).play(schedule).await;
}

/// A run, and the state that its clients share.
#[derive(Clone)]
struct Contest {
    world: World,
    setup: Setup,
    seed: u64,
    sabotage: Option<Sabotage>,
    ledger: Ledger,
    servers: Servers,
    store: Store,
    permits: Permits,
    latches: Arc<Latches>,
    /// The longest time from the last fault until every call has ended.
    recovery: Duration,
}

impl Contest {
    fn new(run: Run, setup: Setup) -> Self {
        let Run {
            world,
            seed,
            ledger,
            sabotage,
            schedule,
            ..
        } = run;
        let mut random = Random::stream(seed, 3);
        world.network.set_latency(setup.latency.0, setup.latency.1);
        let mut servers = Vec::new();
        for number in 0..setup.servers {
            let clock = Clock::drifting(drift(&mut random, setup.drift_ppm));
            let server =
                world.add_server(&server_name(number), seed + number as u64, clock.clone());
            servers.push((server, clock));
        }
        if setup.replicated {
            let (master, clock) = servers[0].clone();
            let replica = master.replica(seed + 100, Duration::from_millis(5));
            servers.push((replica, clock));
        }
        let servers = Servers::new(servers);
        let latches = Latches::new(setup.clients * setup.tasks);
        Self {
            store: Store::new(servers.clone()),
            ledger,
            permits: Permits::default(),
            latches,
            world,
            setup,
            seed,
            sabotage,
            servers,
            // Setting the clock back prolongs every lease in the store by as much.
            recovery: RECOVERY + schedule.set_back(),
        }
    }

    async fn play(self, schedule: Schedule) {
        let Self {
            world,
            setup,
            ledger,
            sabotage,
            servers,
            ..
        } = &self;
        // A fixed lease that ends before its holder has finished is a loss that needs no fault.
        if schedule.0.is_empty() && setup.fixed_percent == 0 {
            ledger.forbid_losses();
        }
        // If a reply may take longer than the command time-out, a command fails without a fault.
        if schedule.0.is_empty() && 2 * setup.latency.1 < setup.command_timeout {
            // A server of a quorum has no vote until it is old enough.
            let young = match setup.kind {
                Kind::Quorum => 2 * setup.lease,
                _ => Duration::ZERO,
            };
            ledger.forbid_errors(Instant::now() + young);
        }
        if setup.keeps_data {
            ledger.look_into(self.store.clone(), setup.kind);
        }
        if matches!(setup.kind, Kind::Permits | Kind::Counting) {
            let total = setup.total.to_string();
            servers.all()[0].call(&[b"SET", NAME.as_bytes(), total.as_bytes()]);
        }
        let mut random = Random::stream(self.seed, 4);
        let mut processes = Vec::new();
        for name in setup.client_names() {
            let drift = match sabotage {
                Some(Sabotage::SlowClients) => -50_000,
                _ => drift(&mut random, setup.drift_ppm),
            };
            world.machine_with_drift(&name, drift);
            processes.push(self.connect(name).await);
        }
        let end = Instant::now() + TROUBLE;
        let workers = self.work(&processes, end, 10, false);
        let faults = schedule.clone().run(world.clone(), servers.clone());
        let faults = tokio::spawn(faults);
        let sabotaging = tokio::spawn(self.clone().sabotage());
        sleep_until(end).await;
        faults.abort();
        sabotaging.abort();
        self.heal();
        self.finish(workers).await;
        // A connection that fell into a black hole is discovered by a failing call.
        let served = timeout(self.recovery, async {
            for process in &processes {
                self.serve(process).await;
            }
        });
        if served.await.is_err() {
            ledger.violation(Judge::Progress, "a client was not served again");
        }
        if sabotage != &Some(Sabotage::StayDown) {
            self.be_calm(&processes, &schedule).await;
        }
        for process in processes {
            for client in &process.clients {
                let client = client.clone();
                let closing = world
                    .machine(&process.name)
                    .task(async move { client.close().await });
                if let Err(error) = closing.await {
                    ledger.error(&error);
                }
            }
        }
        self.check_what_is_left().await;
    }

    async fn connect(&self, name: String) -> Process {
        let Self { world, setup, .. } = self;
        let mut clients = Vec::new();
        for server in 0..setup.servers {
            let scripts = if setup.scripts { "" } else { "?scripts=off" };
            let url = format!("redis://{}:{PORT}/{scripts}", server_name(server));
            let mut builder = world
                .client_of(&url, &name)
                .command_timeout(setup.command_timeout)
                .connect_timeout(CONNECTING)
                .default_lease(distlock::Lease::KeepAlive(setup.lease));
            if setup.failover_delay {
                builder = builder.failover_delay(setup.lease);
            }
            if setup.replicated {
                builder = builder.durability(Durability::Replicas {
                    acks: 1,
                    timeout: Duration::from_millis(300),
                });
            }
            let connecting = world.machine(&name).task(builder.connect());
            clients.push(connecting.await.expect("nothing is wrong yet"));
        }
        Process { name, clients }
    }

    fn task(&self, process: &Process) -> Task {
        Task {
            setup: self.setup.clone(),
            process: process.clone(),
            ledger: self.ledger.clone(),
            store: self.store.clone(),
        }
    }

    /// Lets all tasks of all processes take turns until the end.
    fn work(
        &self,
        processes: &[Process],
        end: Instant,
        stream: u64,
        calm: bool,
    ) -> Vec<JoinHandle<()>> {
        let tasks = processes.iter();
        let tasks = tasks.flat_map(|process| std::iter::repeat_n(process, self.setup.tasks));
        let tasks = (stream..).zip(tasks);
        tasks
            .map(|(number, process)| {
                let mut random = Random::stream(self.seed, number);
                let task = self.task(process);
                let run = self.clone();
                let machine = self.world.machine(&process.name);
                tokio::spawn(machine.task(async move {
                    while run.goes_on(end).await {
                        match run.setup.kind {
                            Kind::Counting => run.permits.turn(&task, &mut random, calm).await,
                            Kind::Latch => run.latches.turn(&task, &mut random).await,
                            _ if calm => task.calm_turn(&mut random).await,
                            _ => task.turn(&mut random).await,
                        }
                        sleep(random.up_to(run.setup.longest_pause())).await;
                    }
                }))
            })
            .collect()
    }

    /// Returns whether another turn begins. A turn that needs all tasks begins for all or for none.
    async fn goes_on(&self, end: Instant) -> bool {
        match self.setup.kind {
            Kind::Latch => self.latches.goes_on(end).await,
            _ => Instant::now() < end,
        }
    }

    async fn finish(&self, workers: Vec<JoinHandle<()>>) {
        let end = Instant::now() + self.recovery;
        for mut worker in workers {
            match tokio::time::timeout_at(end, &mut worker).await {
                Ok(ended) => ended.expect("a worker does not panic"),
                Err(_) => {
                    worker.abort();
                    let recovery = self.recovery;
                    let what = format!("a call has not ended {recovery:?} after the last fault");
                    self.ledger.violation(Judge::Resolution, what);
                }
            }
        }
    }

    fn heal(&self) {
        self.world.network.heal();
        self.servers.heal();
        for name in self.setup.client_names() {
            self.world.machine(&name).heal();
        }
        if self.sabotage == Some(Sabotage::StayDown) {
            for server in self.servers.all() {
                server.kill();
            }
        }
    }

    /// Waits until a client is served.
    async fn serve(&self, process: &Process) {
        let task = self.task(process);
        let serving = async {
            let mut random = Random::stream(self.seed, 5);
            while !task.is_served(&mut random).await {
                // An error that comes at once must not come again at the same moment for ever.
                sleep(Duration::from_millis(50)).await;
            }
        };
        self.world.machine(&process.name).task(serving).await;
    }

    /// Has the clients go on without faults, so that every error is a violation.
    async fn be_calm(&self, processes: &[Process], schedule: &Schedule) {
        // Messages in a black hole and late messages are noticed late, and so is data that a server has lost. A second copy of a request
        // may queue a waiter that no longer exists.
        let unseen = [
            FaultKind::BlackHole,
            FaultKind::Late,
            FaultKind::Duplicate,
            FaultKind::Promote,
        ];
        let is_unseen = unseen.iter().any(|kind| schedule.has(*kind));
        sleep(if is_unseen {
            LATE
        } else {
            3 * self.setup.lease
        })
        .await;
        // No reply takes longer than the command time-out.
        let [shortest, longest] = [1, 60].map(Duration::from_millis);
        self.world.network.set_latency(shortest, longest);
        self.ledger.set_calm(true);
        let end = Instant::now() + CALM;
        let workers = self.work(processes, end, 1000, true);
        let sabotaging = tokio::spawn(self.clone().sabotage_calm());
        tokio::select! {
            () = self.finish(workers) => {}
            () = self.ledger.watch_progress() => {}
        }
        sabotaging.abort();
    }

    async fn check_what_is_left(&self) {
        let Self {
            setup,
            ledger,
            store,
            ..
        } = self;
        let kind = setup.kind;
        if self.sabotage == Some(Sabotage::Ghost) {
            self.servers.all()[0].call(&[b"HSET", NAME.as_bytes(), NOBODY, b"1"]);
        }
        sleep(Duration::from_secs(2)).await;
        let closed = Instant::now();
        // A late request that is granted holds the lock without a client.
        while closed.elapsed() < LATE {
            if let Some(what) = store.is_held(kind, kind.names()) {
                let what = format!("all are closed, and the lock is held: {what}");
                ledger.violation(Judge::Orphans, what);
                break;
            }
            sleep(Duration::from_millis(900)).await;
        }
        if kind == Kind::Counting
            && let Some(what) = self.permits.check(setup.total, store.number(NAME))
        {
            ledger.violation(Judge::Counts, what);
        }
        if kind == Kind::Permits && store.number(NAME) != i64::from(setup.total) {
            let there = store.number(NAME);
            let what = format!("{there} of {} permits are there", setup.total);
            ledger.violation(Judge::Counts, what);
        }
        if self.sabotage == Some(Sabotage::Orphan) {
            let server = &self.servers.all()[0];
            server.call(&[b"SET", b"distlock_client:orphan", b"1"]);
        }
        sleep(LONG).await;
        for (key, state) in store.keys() {
            // The record of a promotion is kept for a while longer.
            let is_record = setup.failover_delay && key.starts_with("distlock_promoted");
            if !kind.may_stay(&key) && !is_record {
                let what = format!("`{key}` was left behind: {state}");
                ledger.violation(Judge::Orphans, what);
            }
        }
    }

    /// Breaks promises while faults happen.
    async fn sabotage(self) {
        let server = self.servers.all()[0].clone();
        loop {
            sleep(Duration::from_secs(2)).await;
            if self.sabotage == Some(Sabotage::Tokens) {
                // A new token is at least the server's time, so the clock is set back as well.
                self.servers.set_back(Duration::from_secs(3));
                for (key, _) in self.store.keys() {
                    if key.contains("token") {
                        server.call(&[b"DEL", key.as_bytes()]);
                    }
                }
            }
            if self.sabotage == Some(Sabotage::Panic) {
                drop(tokio::spawn(async { panic!("sabotage") }));
            }
            if self.sabotage == Some(Sabotage::Refuse) {
                server.set_fault(Some(distlock_sim::Fault::Busy));
                sleep(Duration::from_millis(500)).await;
                server.set_fault(None);
            }
            if self.sabotage == Some(Sabotage::Remove) {
                server.call(&[b"DEL", NAME.as_bytes()]);
            }
            if self.sabotage == Some(Sabotage::Abandon) {
                server.call(&[b"DEL", NAME.as_bytes()]);
                server.call(&[b"HSET", NAME.as_bytes(), NOBODY, b"1"]);
            }
        }
    }

    /// Breaks promises while no fault explains the consequences.
    async fn sabotage_calm(self) {
        let server = self.servers.all()[0].clone();
        loop {
            sleep(Duration::from_millis(70)).await;
            match self.sabotage {
                Some(Sabotage::Counts) => {
                    let owners = server.call(&[b"HKEYS", NAME.as_bytes()]);
                    if let distlock_sim::Value::Array(owners) = owners
                        && let Some(distlock_sim::Value::Bulk(owner)) = owners.first()
                    {
                        server.call(&[b"HINCRBY", NAME.as_bytes(), owner, b"1"]);
                    }
                }
                Some(Sabotage::Line) => {
                    let queue: &[u8] = b"redisson_lock_queue:{stock}";
                    if let distlock_sim::Value::Bulk(last) = server.call(&[b"RPOP", queue]) {
                        server.call(&[b"LPUSH", queue, &last]);
                    }
                }
                Some(Sabotage::Junk) => {
                    server.call(&[b"SET", NAME.as_bytes(), b"junk"]);
                }
                _ => return,
            }
        }
    }
}

/// Returns a clock's error, up to the limit in either direction.
fn drift(random: &mut Random, limit_ppm: u64) -> i64 {
    let drift = random.below(2 * limit_ppm + 1);
    i64::try_from(drift).expect("it is small") - i64::try_from(limit_ppm).expect("it is small")
}
