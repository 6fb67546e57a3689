//! Some sequences of requests of several locks at once, turn by turn on both engines.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use distlock::internals::engine::Engine;
use distlock::internals::protocol::{Moment, Request};

use super::company::Company;
use super::group::{Group, Question};
use super::keyspace::Keyspace;
use super::lane::{Lane, Outcome, Played, TICKS};
use super::listening::{Fence, listen_at};
use super::pair::{Pair, Ticks, all};
use super::sequence::{Asked, Fate};
use super::support::SeededRng;

/// Companies whose moves are under way at the same time.
const AT_ONCE: usize = 8;

/// Plays them, each to its end.
pub(crate) async fn play(lane: Lane) -> Run {
    tokio::time::sleep(lane.phase).await;
    let mut run = Run::start(&lane).await;
    let mut ticks = Ticks::begin();
    for _ in 0..TICKS {
        let period = ticks.next().await;
        run.tick(period).await;
        run.outcome.slowest_tick = run.outcome.slowest_tick.max(ticks.taken());
    }
    run
}

/// A lane under way.
pub(crate) struct Run {
    pair: Pair,
    patient: bool,
    fence: Fence,
    groups: Vec<Group>,
    outcome: Outcome,
}

impl Run {
    async fn start(lane: &Lane) -> Self {
        let pair = Pair::new(lane.engines[0].clone(), lane.clock);
        let mut seeds = SeededRng::new(lane.seed);
        let mut groups = Vec::with_capacity(lane.sequences);
        for index in 0..lane.sequences {
            let name = format!("{}{index}", lane.name);
            let mut rng = SeededRng::new(seeds.next_u64());
            let company = Company::new(&name, &mut rng);
            let mut listeners = Vec::new();
            for (number, channel) in company.channels(&mut rng).into_iter().enumerate() {
                let engine = lane.engines[number % lane.engines.len()].clone();
                let here = listen_at(pair.memory.clone() as Arc<dyn Engine>, channel.clone()).await;
                listeners.push((here, listen_at(engine, channel).await));
            }
            groups.push(Group::new(name, company, rng, listeners));
        }
        Self {
            pair,
            patient: lane.patient,
            fence: Fence::build(&lane.engines, &lane.name).await,
            groups,
            outcome: Outcome::default(),
        }
    }

    /// One move at most of every company, and a look at what it has left.
    async fn tick(&mut self, period: Duration) {
        let all: Vec<_> = (0..self.groups.len()).collect();
        for some in all.chunks(AT_ONCE) {
            let playing = |index: &usize| self.groups[*index].fate() == Fate::Same;
            let some: Vec<_> = some.iter().copied().filter(playing).collect();
            self.look(&some, Company::counts).await;
            let now = self.pair.now();
            let moves = some.iter().filter_map(|index| {
                let next = self.groups[*index].next(period, now)?;
                Some((*index, Question::Asks(next)))
            });
            let moves = moves.collect();
            self.ask(moves).await;
            self.look(&some, Company::looks).await;
        }
        self.fence.wait().await;
        for group in &mut self.groups {
            let divergence = group.listen(self.patient).await;
            self.outcome.divergences.extend(divergence);
        }
    }

    async fn look(&mut self, some: &[usize], looks: impl Fn(&Company) -> Vec<Request>) {
        let looks = some
            .iter()
            .map(|index| (*index, Question::Looks(looks(&self.groups[*index].company))));
        let looks = looks.collect();
        self.ask(looks).await;
    }

    async fn ask(&mut self, questions: Vec<(usize, Question)>) {
        let sent = self.pair.now();
        let memory = self.pair.memory.clone() as Arc<dyn Engine>;
        let memory = questions.iter().map(|(_, question)| question.ask(&memory));
        let memory = all(memory.collect()).await;
        let store = questions
            .iter()
            .map(|(_, question)| question.ask(&self.pair.store));
        let store = all(store.collect()).await;
        let asked = self.pair.since(sent);
        self.outcome.slowest_answer = self.outcome.slowest_answer.max(asked.latency);
        for (((index, question), memory), store) in questions.into_iter().zip(memory).zip(store) {
            let divergence = self.groups[index].record(question, asked, memory, store);
            self.outcome.divergences.extend(divergence);
        }
    }
}

impl Played for Run {
    async fn end(mut self, keys: &Keyspace, sent: Moment, latency: Duration) -> Outcome {
        self.pair.live_at(sent);
        let asked = Asked { sent, latency };
        let found = self.pair.memory.clone().find("*".into(), 0).await;
        let found = found.expect("memory does not fail").found.into_iter();
        let names: BTreeSet<_> = found.map(|lock| lock.name).collect();
        for group in &mut self.groups {
            let divergence = group.end(&names, keys, asked);
            self.outcome.divergences.extend(divergence);
            match group.fate() {
                Fate::Diverged => {}
                Fate::Same => {
                    self.outcome.sequences += 1;
                    group.count(&mut self.outcome.coverage);
                }
                Fate::Unclear => self.outcome.unclear += 1,
            }
        }
        self.outcome
    }
}
