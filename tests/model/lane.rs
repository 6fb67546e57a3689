//! Some sequences, turn by turn on both engines.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use distlock::internals::engine::memory::Memory;
use distlock::internals::engine::{Answer, Cause, Engine, Failure};
use distlock::internals::protocol::{Action, Holding, Kind, Moment, Reply, Request, Subject};
use tokio::time::Instant;

use super::compare::{Coverage, Divergence, TRAVELLERS, name_of};
use super::generator::{Cast, Kinds, Road, Step};
use super::keyspace::Keyspace;
use super::listening::{Fence, listen, listen_at};
use super::sequence::{Asked, Fate, Sequence};
use super::support::SeededRng;

/// Between two actions on one name.
pub(crate) const TICK: Duration = Duration::from_millis(1000);
/// Leases grow no longer than for this.
const LONGEST_TICK: Duration = Duration::from_secs(3);
/// Actions of one sequence.
const TICKS: u32 = 14;
/// Before this tick some of the listeners go.
const LEAVE: u32 = 8;
/// The watchdog's batches are as long, or longer.
const RENEWALS: usize = 64;
/// Others travel one by one; a long batch would take long.
const MIXED: usize = 6;
/// More than go into one call, with what other lanes ask at the same time.
const TOGETHER: usize = 40;

/// Some sequences, and where they run.
pub(crate) struct Lane {
    pub(crate) name: String,
    pub(crate) seed: u64,
    pub(crate) sequences: usize,
    pub(crate) kinds: Kinds,
    pub(crate) phase: Duration,
    /// Whether news may take its time there, and come more often than there is any.
    pub(crate) patient: bool,
    /// Two clients of one store: the first asks, both listen.
    pub(crate) engines: [Arc<dyn Engine>; 2],
}

/// What has been shown.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Those that went through.
    pub(crate) sequences: usize,
    pub(crate) unclear: usize,
    pub(crate) coverage: Coverage,
    /// The same, of what was asked together.
    pub(crate) together: Coverage,
    /// What was sent that may travel in company, whether it counts or not.
    pub(crate) may_travel: u64,
    /// What else was sent.
    pub(crate) others: u64,
    pub(crate) divergences: Vec<Divergence>,
    pub(crate) slowest_answer: Duration,
    pub(crate) slowest_tick: Duration,
}

impl Outcome {
    pub(crate) fn add(&mut self, other: Self) {
        self.sequences += other.sequences;
        self.unclear += other.unclear;
        self.coverage.add(&other.coverage);
        self.together.add(&other.together);
        self.may_travel += other.may_travel;
        self.others += other.others;
        self.divergences.extend(other.divergences);
        self.slowest_answer = self.slowest_answer.max(other.slowest_answer);
        self.slowest_tick = self.slowest_tick.max(other.slowest_tick);
    }
}

impl Lane {
    pub(crate) async fn run(&self) -> Run {
        tokio::time::sleep(self.phase).await;
        let mut run = Run::start(self).await;
        let mut due = Instant::now();
        for tick in 0..TICKS {
            if tick == LEAVE {
                run.leave(&self.engines).await;
            }
            // Behind time, the ticks grow longer, and the leases with them.
            let last = due;
            due = (last + TICK).max(Instant::now());
            let period = (due - last).min(LONGEST_TICK);
            tokio::time::sleep_until(due).await;
            run.tick(|Sequence { cast, rng, .. }, held| cast.next(held, period, rng))
                .await;
            run.outcome.slowest_tick = run.outcome.slowest_tick.max(due.elapsed());
        }
        tokio::time::sleep_until(due + TICK).await;
        let look = Step {
            kind: self.kinds.main(),
            action: Action::Inspect,
            road: Road::Call,
        };
        run.tick(|_, _| Some(look.clone())).await;
        run
    }
}

/// A lane under way.
pub(crate) struct Run {
    memory: Arc<Memory>,
    store: Arc<dyn Engine>,
    patient: bool,
    begun: Instant,
    /// The time memory lives in, in microseconds.
    clock: Arc<AtomicU64>,
    fence: Fence,
    sequences: Vec<Sequence>,
    outcome: Outcome,
}

/// Steps that wait for company, by the index of their sequence.
type Batch = Vec<(usize, Step)>;

impl Run {
    async fn start(lane: &Lane) -> Self {
        let clock = Arc::new(AtomicU64::new(0));
        let now = {
            let clock = clock.clone();
            move || Moment::at(Duration::from_micros(clock.load(Ordering::Relaxed)))
        };
        let memory = Arc::new(Memory::new(Arc::new(now)));
        let mut seeds = SeededRng::new(lane.seed);
        let mut sequences = Vec::with_capacity(lane.sequences);
        for index in 0..lane.sequences {
            let name = format!("{}{index}", lane.name);
            let mut rng = SeededRng::new(seeds.next_u64());
            let cast = Cast::new(lane.kinds, &mut rng);
            let mut listeners = Vec::new();
            for (number, channel) in cast.channels(&name, &mut rng).into_iter().enumerate() {
                let engine = lane.engines[number % lane.engines.len()].clone();
                let here = listen_at(memory.clone() as Arc<dyn Engine>, channel.clone()).await;
                listeners.push((here, listen_at(engine, channel).await));
            }
            sequences.push(Sequence::new(name, cast, rng, listeners));
        }
        Self {
            memory,
            store: lane.engines[0].clone(),
            patient: lane.patient,
            begun: Instant::now(),
            clock,
            fence: Fence::build(&lane.engines, &lane.name).await,
            sequences,
            outcome: Outcome::default(),
        }
    }

    /// One action at most of every sequence.
    async fn tick(
        &mut self,
        mut next: impl FnMut(&mut Sequence, Option<&Holding>) -> Option<Step> + Send,
    ) {
        let mut renewals = Batch::new();
        let mut mixed = Batch::new();
        let mut together = Batch::new();
        let mut acted = BTreeSet::new();
        for index in 0..self.sequences.len() {
            let sequence = &mut self.sequences[index];
            // One that is over has said all it can.
            if sequence.fate() != Fate::Same {
                continue;
            }
            let held = held(&self.memory, sequence);
            let Some(step) = next(sequence, held.as_ref()) else {
                continue;
            };
            acted.insert(index);
            if step.road == Road::Together && TRAVELLERS.contains(&name_of(&step.action)) {
                self.outcome.may_travel += 1;
            } else {
                self.outcome.others += 1;
            }
            match step.road {
                Road::ApartMixed => mixed.push((index, step)),
                Road::ApartRenewals => renewals.push((index, step)),
                Road::Call => self.call(index, step).await,
                Road::Together => together.push((index, step)),
            }
            if mixed.len() == MIXED {
                self.call_apart(std::mem::take(&mut mixed)).await;
            }
            if renewals.len() == RENEWALS {
                self.call_apart(std::mem::take(&mut renewals)).await;
            }
            if together.len() == TOGETHER {
                self.call_together(std::mem::take(&mut together)).await;
            }
        }
        self.call_together(together).await;
        self.call_apart(mixed).await;
        self.call_apart(renewals).await;

        self.fence.wait().await;
        self.outcome.others += Fence::CALLS;
        for index in acted {
            let divergence = self.sequences[index].listen(self.patient).await;
            self.outcome.divergences.extend(divergence);
        }
    }

    async fn call(&mut self, index: usize, step: Step) {
        let request = self.sequences[index].request(&step);
        let sent = self.now();
        let memory = self.memory.clone().call(request.clone()).await;
        let store = self.store.clone().call(request).await;
        let asked = self.since(sent);
        self.record(asked, index, step, memory, store);
    }

    /// All at the same time, as callers do who know nothing of each other.
    async fn call_together(&mut self, batch: Batch) {
        let requests = self.requests(&batch);
        let sent = self.now();
        let memory = self.memory.clone().call_apart(requests.clone()).await;
        let calls = requests
            .into_iter()
            .map(|request| self.store.clone().call(request));
        let store = all(calls.collect()).await;
        let asked = self.since(sent);
        self.record_all(asked, batch, memory, store);
    }

    async fn call_apart(&mut self, batch: Batch) {
        let requests = self.requests(&batch);
        let sent = self.now();
        let memory = self.memory.clone().call_apart(requests.clone()).await;
        let store = self.store.clone().call_apart(requests).await;
        let asked = self.since(sent);
        self.record_all(asked, batch, memory, store);
    }

    fn requests(&self, batch: &Batch) -> Vec<Request> {
        let request = |(index, step): &(usize, Step)| {
            let sequence: &Sequence = &self.sequences[*index];
            sequence.request(step)
        };
        batch.iter().map(request).collect()
    }

    fn record_all(
        &mut self,
        asked: Asked,
        batch: Batch,
        memory: Vec<Result<Reply, Failure>>,
        store: Vec<Result<Reply, Failure>>,
    ) {
        assert_eq!(memory.len(), batch.len(), "a reply to every request");
        assert_eq!(store.len(), batch.len(), "a reply to every request");
        for (((index, step), memory), store) in batch.into_iter().zip(memory).zip(store) {
            self.record(asked, index, step, memory, store);
        }
    }

    fn record(
        &mut self,
        asked: Asked,
        index: usize,
        step: Step,
        memory: Result<Reply, Failure>,
        store: Result<Reply, Failure>,
    ) {
        let sequence = &mut self.sequences[index];
        // Memory's time stands still until the next step: this is how that one left it.
        let ttl = held(&self.memory, sequence).and_then(|holding| holding.ttl);
        let until = ttl.map(|ttl| asked.sent + ttl);
        let divergence = sequence.record(step, asked, memory, store, until);
        self.outcome.divergences.extend(divergence);
    }

    /// Some listeners go, on both sides.
    async fn leave(&mut self, engines: &[Arc<dyn Engine>; 2]) {
        for sequence in &mut self.sequences {
            if sequence.rng.chance(30) {
                sequence.listeners.pop();
            }
        }
        // Orders are obeyed in turn: once we listen anew, those have gone.
        for engine in engines {
            listen(engine.clone(), &format!("{}gone", self.fence.name)).await;
        }
    }

    /// Ends the run. The same names must be locked, and what was marked as undone, and nothing else,
    /// remembered: `keys` is what the store held from `sent` on for the time it took to look.
    pub(crate) async fn end(
        mut self,
        keys: &Keyspace,
        sent: Instant,
        latency: Duration,
    ) -> Outcome {
        let sent = self.live_at(sent);
        let asked = Asked { sent, latency };
        let found = self.memory.clone().find("*".into(), 0).await;
        let found = found.expect("memory does not fail").found.into_iter();
        let names: BTreeSet<_> = found.map(|lock| lock.name).collect();
        for sequence in &mut self.sequences {
            let name = &*sequence.name;
            let by_key = keys.locks.contains(name);
            let held = [names.contains(name), keys.listed.contains(name), by_key];
            let undone = keys.undone.get(name);
            let found = sequence.find(held, asked);
            let found = found.or_else(|| sequence.remember(undone));
            self.outcome.divergences.extend(found);
        }
        for sequence in &self.sequences {
            match sequence.fate() {
                Fate::Diverged => {}
                Fate::Same => {
                    self.outcome.sequences += 1;
                    for line in sequence.lines() {
                        self.outcome.coverage.count(line);
                        if line.step.road == Road::Together {
                            self.outcome.together.count(line);
                        }
                    }
                }
                Fate::Unclear => self.outcome.unclear += 1,
            }
        }
        self.outcome
    }

    /// Moves memory's time to the present.
    fn now(&self) -> Moment {
        self.live_at(Instant::now())
    }

    fn live_at(&self, now: Instant) -> Moment {
        let now = now.duration_since(self.begun).as_micros();
        let now = u64::try_from(now).expect("not that long");
        self.clock.store(now, Ordering::Relaxed);
        Moment::at(Duration::from_micros(now))
    }

    fn since(&mut self, sent: Moment) -> Asked {
        let latency = Moment::at(self.begun.elapsed()).since(sent);
        self.outcome.slowest_answer = self.outcome.slowest_answer.max(latency);
        Asked { sent, latency }
    }
}

/// Waits for all of them, and looks at each in turn: the first poll sends it.
async fn all<T>(calls: Vec<Answer<T>>) -> Vec<T> {
    let mut calls: Vec<_> = calls.into_iter().map(|call| (call, None)).collect();
    poll_fn(|cx| {
        for (call, answer) in &mut calls {
            if answer.is_none()
                && let Poll::Ready(ready) = call.as_mut().poll(cx)
            {
                *answer = Some(ready);
            }
        }
        let done = calls.iter().all(|(_, answer)| answer.is_some());
        if done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    calls.into_iter().filter_map(|(_, answer)| answer).collect()
}

/// How the lock stands in memory's time.
fn held(memory: &Memory, sequence: &Sequence) -> Option<Holding> {
    // Whatever it is answers to one of these.
    let kinds = [Kind::Mutex, Kind::Write, Kind::Simple];
    kinds.into_iter().find_map(|kind| {
        let request = Subject::new(kind, sequence.name.clone()).request(Action::Inspect);
        let unused = || unreachable!("the store has a clock of its own");
        match memory.call_now(&request, &unused) {
            Some(Ok(Reply::Inspected(held))) => held,
            Some(Err(failure)) if failure.cause == Cause::WrongKind => None,
            other => panic!("memory answers on the spot, and not {other:?}"),
        }
    })
}
