//! Some sequences, turn by turn on both engines.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use distlock::internals::engine::memory::Memory;
use distlock::internals::engine::{Engine, StoreError, StoreErrorKind};
use distlock::internals::protocol::{Action, Kind, LockSnapshot, Moment, Reply, Request, Subject};

use super::clock::Clock;
use super::compare::{Coverage, Divergence, TRAVELLERS, name_of};
use super::generator::{Cast, Road, Step};
use super::keyspace::Keyspace;
use super::kinds::Kinds;
use super::listening::{Fence, listen, listen_at};
use super::pair::{Pair, Ticks, all};
use super::sequence::{Asked, Fate, Sequence};
use super::support::SeededRng;

/// Actions of one sequence.
pub(crate) const TICKS: u32 = 14;
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
    /// That the store lives by.
    pub(crate) clock: Clock,
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

/// Sequences that have been played.
pub(crate) trait Played: Send + 'static {
    /// Ends them. The same names must be locked, and what was marked as undone, and nothing else,
    /// remembered: `keys` is what the store held from `sent` on for the time it took to look.
    fn end(
        self,
        keys: &Keyspace,
        sent: Moment,
        latency: Duration,
    ) -> impl Future<Output = Outcome> + Send;
}

impl Lane {
    pub(crate) async fn run(self) -> Run {
        tokio::time::sleep(self.phase).await;
        let mut run = Run::start(&self).await;
        let mut ticks = Ticks::begin(self.clock.clone());
        for tick in 0..TICKS {
            if tick == LEAVE {
                run.leave(&self.engines).await;
            }
            let period = ticks.next().await;
            run.tick(|Sequence { cast, rng, .. }, held| cast.next(held, period, rng))
                .await;
            run.outcome.slowest_tick = run.outcome.slowest_tick.max(ticks.taken());
        }
        ticks.next().await;
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
    pair: Pair,
    patient: bool,
    fence: Fence,
    sequences: Vec<Sequence>,
    outcome: Outcome,
}

/// Steps that wait for company, by the index of their sequence.
type Batch = Vec<(usize, Step)>;

impl Run {
    async fn start(lane: &Lane) -> Self {
        let pair = Pair::new(lane.engines[0].clone(), lane.clock.clone());
        let mut seeds = SeededRng::new(lane.seed);
        let mut sequences = Vec::with_capacity(lane.sequences);
        for index in 0..lane.sequences {
            let name = format!("{}{index}", lane.name);
            let mut rng = SeededRng::new(seeds.next_u64());
            let cast = Cast::new(lane.kinds, &mut rng);
            let mut listeners = Vec::new();
            for (number, channel) in cast.channels(&name, &mut rng).into_iter().enumerate() {
                let engine = lane.engines[number % lane.engines.len()].clone();
                let here = listen_at(pair.memory.clone() as Arc<dyn Engine>, channel.clone()).await;
                listeners.push((here, listen_at(engine, channel).await));
            }
            sequences.push(Sequence::new(name, cast, rng, listeners));
        }
        Self {
            pair,
            patient: lane.patient,
            fence: Fence::build(&lane.engines, &lane.name).await,
            sequences,
            outcome: Outcome::default(),
        }
    }

    /// One action at most of every sequence.
    async fn tick(
        &mut self,
        mut next: impl FnMut(&mut Sequence, Option<&LockSnapshot>) -> Option<Step> + Send,
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
            let held = held(&self.pair.memory, sequence);
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
                self.call_background(std::mem::take(&mut mixed)).await;
            }
            if renewals.len() == RENEWALS {
                self.call_background(std::mem::take(&mut renewals)).await;
            }
            if together.len() == TOGETHER {
                self.call_together(std::mem::take(&mut together)).await;
            }
        }
        self.call_together(together).await;
        self.call_background(mixed).await;
        self.call_background(renewals).await;

        self.fence.wait().await;
        self.outcome.others += Fence::CALLS;
        for index in acted {
            let divergence = self.sequences[index].listen(self.patient).await;
            self.outcome.divergences.extend(divergence);
        }
    }

    async fn call(&mut self, index: usize, step: Step) {
        let request = self.sequences[index].request(&step);
        let sent = self.pair.now();
        let memory = self.pair.memory.clone().call(request.clone()).await;
        let store = self.pair.store.clone().call(request).await;
        let asked = self.since(sent);
        self.record(asked, index, step, memory, store);
    }

    /// All at the same time, as callers do who know nothing of each other.
    async fn call_together(&mut self, batch: Batch) {
        let requests = self.requests(&batch);
        let sent = self.pair.now();
        let memory = self
            .pair
            .memory
            .clone()
            .call_background(requests.clone())
            .await;
        let calls = requests
            .into_iter()
            .map(|request| self.pair.store.clone().call(request));
        let store = all(calls.collect()).await;
        let asked = self.since(sent);
        self.record_all(asked, batch, memory, store);
    }

    async fn call_background(&mut self, batch: Batch) {
        let requests = self.requests(&batch);
        let sent = self.pair.now();
        let memory = self
            .pair
            .memory
            .clone()
            .call_background(requests.clone())
            .await;
        let store = self.pair.store.clone().call_background(requests).await;
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
        memory: Vec<Result<Reply, StoreError>>,
        store: Vec<Result<Reply, StoreError>>,
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
        memory: Result<Reply, StoreError>,
        store: Result<Reply, StoreError>,
    ) {
        let sequence = &mut self.sequences[index];
        // Memory's time stands still until the next step: this is how that one left it.
        let ttl = held(&self.pair.memory, sequence).and_then(|holding| holding.ttl);
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

    fn since(&mut self, sent: Moment) -> Asked {
        let asked = self.pair.since(sent);
        self.outcome.slowest_answer = self.outcome.slowest_answer.max(asked.latency);
        asked
    }
}

impl Played for Run {
    async fn end(mut self, keys: &Keyspace, sent: Moment, latency: Duration) -> Outcome {
        self.pair.live_at(sent);
        let asked = Asked { sent, latency };
        let found = self.pair.memory.clone().scan("*".into(), 0).await;
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
}

/// How the lock stands in memory's time.
fn held(memory: &Memory, sequence: &Sequence) -> Option<LockSnapshot> {
    // Whatever it is answers to one of these.
    let kinds = [Kind::Mutex, Kind::Write, Kind::Simple, Kind::Semaphore];
    kinds.into_iter().find_map(|kind| {
        let request = Subject::new(kind, sequence.name.clone()).request(Action::Inspect);
        let unused = || unreachable!("the store has a clock of its own");
        match memory.call_now(&request, &unused) {
            Some(Ok(Reply::Inspected(held))) => held,
            Some(Err(failure)) if failure.kind == StoreErrorKind::WrongKind => None,
            other => panic!("memory answers on the spot, and not {other:?}"),
        }
    })
}
