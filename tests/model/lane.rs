//! A lane: some sequences, played turn by turn on both engines.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use distlock::internals::engine::memory::Memory;
use distlock::internals::engine::{Engine, StoreError, StoreErrorKind};
use distlock::internals::protocol::{Action, Kind, LockSnapshot, Moment, Reply, Request, Subject};

use super::clock::Clock;
use super::compare::{Coverage, Divergence, TRAVELLERS, name_of};
use super::generator::{CallPath, NameOwners, Step};
use super::keyspace::Keyspace;
use super::kinds::Kinds;
use super::listening::{Fence, listen, listen_at};
use super::pair::{Pair, Ticks, all};
use super::sequence::{Agreement, Asked, Sequence};
use super::support::SeededRng;

/// The number of actions of one sequence.
pub(crate) const TICKS: u32 = 14;
/// Some of the listeners leave before this tick.
const LEAVE: u32 = 8;
/// The length of a batch of renewals; the watchdog's batches are as long, or longer.
const RENEWALS: usize = 64;
/// The length of a list of other requests; they are sent one by one, so that a long list would take long.
const MIXED: usize = 6;
/// The number of requests at the same time: more than one batch takes, together with those of other lanes.
const TOGETHER: usize = 40;

/// Some sequences, and where they run.
pub(crate) struct Lane {
    pub(crate) name: String,
    pub(crate) seed: u64,
    pub(crate) sequences: usize,
    pub(crate) kinds: Kinds,
    pub(crate) phase: Duration,
    /// Whether the store may notify late, and more often than there are releases.
    pub(crate) patient: bool,
    /// Two clients of one store: the first sends the requests, both subscribe.
    pub(crate) engines: [Arc<dyn Engine>; 2],
    /// The clock of the store's leases.
    pub(crate) clock: Clock,
}

/// The results of played sequences.
#[derive(Default)]
pub(crate) struct Outcome {
    /// The number of sequences that counted.
    pub(crate) sequences: usize,
    pub(crate) unclear: usize,
    pub(crate) coverage: Coverage,
    /// The coverage of the requests that were sent at the same time.
    pub(crate) together: Coverage,
    /// How many requests that may be batched were sent, whether they count or not.
    pub(crate) may_travel: u64,
    /// How many other requests were sent.
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
pub(crate) trait PlayedSequence: Send + 'static {
    /// Ends the sequences and judges them: in both engines the same names must be locked, and exactly the undone acquires
    /// remembered. `keys` is the content of the store, read from `sent` on within `latency`.
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
            road: CallPath::Call,
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

/// Steps that wait for others of their batch, by the index of their sequence.
type Batch = Vec<(usize, Step)>;

impl Run {
    async fn start(lane: &Lane) -> Self {
        let pair = Pair::new(lane.engines[0].clone(), lane.clock.clone());
        let mut seeds = SeededRng::new(lane.seed);
        let mut sequences = Vec::with_capacity(lane.sequences);
        for index in 0..lane.sequences {
            let name = format!("{}{index}", lane.name);
            let mut rng = SeededRng::new(seeds.next_u64());
            let cast = NameOwners::new(lane.kinds, &mut rng);
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

    /// Plays at most one action of every sequence.
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
            // A sequence that is decided needs no further step.
            if sequence.fate() != Agreement::Same {
                continue;
            }
            let held = held(&self.pair.memory, sequence);
            let Some(step) = next(sequence, held.as_ref()) else {
                continue;
            };
            acted.insert(index);
            if step.road == CallPath::Together && TRAVELLERS.contains(&name_of(&step.action)) {
                self.outcome.may_travel += 1;
            } else {
                self.outcome.others += 1;
            }
            match step.road {
                CallPath::ApartMixed => mixed.push((index, step)),
                CallPath::ApartRenewals => renewals.push((index, step)),
                CallPath::Call => self.call(index, step).await,
                CallPath::Together => together.push((index, step)),
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

    /// Sends all requests at the same time, like callers that do not know of each other.
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
        // Memory's time stands still until the next step: this is the state that the step has left.
        let ttl = held(&self.pair.memory, sequence).and_then(|holding| holding.ttl);
        let until = ttl.map(|ttl| asked.sent + ttl);
        let divergence = sequence.record(step, asked, memory, store, until);
        self.outcome.divergences.extend(divergence);
    }

    /// Drops some listeners, on both sides.
    async fn leave(&mut self, engines: &[Arc<dyn Engine>; 2]) {
        for sequence in &mut self.sequences {
            if sequence.rng.chance(30) {
                sequence.listeners.pop();
            }
        }
        // An engine processes subscriptions in order: once a new one is confirmed, the dropped ones have ended.
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

impl PlayedSequence for Run {
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
                Agreement::Diverged => {}
                Agreement::Same => {
                    self.outcome.sequences += 1;
                    for line in sequence.lines() {
                        self.outcome.coverage.count(line);
                        if line.step.road == CallPath::Together {
                            self.outcome.together.count(line);
                        }
                    }
                }
                Agreement::Unclear => self.outcome.unclear += 1,
            }
        }
        self.outcome
    }
}

/// Returns the state of the lock in memory's time.
fn held(memory: &Memory, sequence: &Sequence) -> Option<LockSnapshot> {
    // The state belongs to one of these kinds.
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
