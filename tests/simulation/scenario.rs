//! The scenarios by name, and one run of one of them: a world, the faults of a seed, clients, and the findings of the judges.

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use distlock_sim::Counts;

use crate::faults::{FaultKind, Schedule};
use crate::judge::{Judge, Ledger, Summary, Violation};
use crate::run::Sabotage;
use crate::world::{World, attempt};

/// The most panics of a run that are shown.
const MAX_PANICS: usize = 5;

/// All scenarios: those with many kinds of faults, those for one promise each, and those in which masters are replaced.
pub(crate) static SCENARIOS: LazyLock<Vec<Scenario>> = LazyLock::new(|| {
    let mut all = crate::setup::scenarios();
    all.extend(crate::promises::scenarios());
    all.extend(crate::sentinel::scenarios());
    all.extend(crate::cluster::scenarios());
    all
});

/// One run of a scenario. Clones are the same run.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) world: World,
    pub(crate) seed: u64,
    pub(crate) ledger: Ledger,
    /// The faults, if the scenario draws them beforehand.
    pub(crate) schedule: Schedule,
    pub(crate) sabotage: Option<Sabotage>,
    /// The number of faults of each kind.
    faults: Arc<Mutex<BTreeMap<String, u64>>>,
}

impl Run {
    /// Counts a fault that is not in the schedule.
    pub(crate) fn fault(&self, kind: impl fmt::Debug) {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = format!("{kind:?}").to_lowercase();
        let name = kind.trim_matches('"').split('(').next();
        *faults
            .entry(name.unwrap_or_default().to_owned())
            .or_default() += 1;
    }
}

/// The result of a run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) summary: Summary,
    pub(crate) counts: Counts,
    pub(crate) schedule: Schedule,
    /// The number of faults of each kind.
    pub(crate) faults: BTreeMap<String, u64>,
    pub(crate) simulated: Duration,
    /// Hash of every message, with its time.
    pub(crate) trace: u64,
}

type Play = dyn Fn(Run) -> Pin<Box<dyn Future<Output = ()>>> + Send + Sync;
type Draw = dyn Fn(u64, &[FaultKind]) -> Schedule + Send + Sync;

/// A scenario, by the name that the command line has for it.
pub(crate) struct Scenario {
    pub(crate) name: String,
    play: Arc<Play>,
    /// The kinds of faults that the scenario draws beforehand.
    pub(crate) kinds: Vec<FaultKind>,
    draw: Box<Draw>,
}

impl Scenario {
    pub(crate) fn new<F: Future<Output = ()> + 'static>(
        name: impl Into<String>,
        play: impl Fn(Run) -> F + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            play: Arc::new(move |run| Box::pin(play(run))),
            kinds: Vec::new(),
            draw: Box::new(|_, _| Schedule::default()),
        }
    }

    /// Returns the same scenario with faults of these kinds, which are drawn from the seed.
    pub(crate) fn with_faults(
        self,
        kinds: impl Into<Vec<FaultKind>>,
        draw: impl Fn(u64, &[FaultKind]) -> Schedule + Send + Sync + 'static,
    ) -> Self {
        Self {
            kinds: kinds.into(),
            draw: Box::new(draw),
            ..self
        }
    }

    pub(crate) fn named(name: &str) -> &'static Self {
        Self::find(name).unwrap_or_else(|| panic!("there is no scenario `{name}`"))
    }

    /// Returns the scenario of that name, if there is one.
    pub(crate) fn find(name: &str) -> Option<&'static Self> {
        SCENARIOS.iter().find(|scenario| scenario.name == name)
    }

    /// Returns the command that plays a seed again.
    pub(crate) fn replay(&self, seed: u64) -> String {
        #[cfg(distlock_planted)]
        if let Some(bug) = distlock::simulation::active() {
            return format!("scripts/planted --seed {seed} {} {}", bug.name, self.name);
        }
        let faults = env::var("DISTLOCK_FAULTS").unwrap_or_default();
        let command = format!("scripts/simulate --seed {seed} {} {faults}", self.name);
        command.trim_end().to_owned()
    }

    /// Returns the faults of a seed: of the kinds that the command names, if it names any.
    pub(crate) fn schedule(&self, seed: u64) -> Schedule {
        let mut kinds = self.kinds.clone();
        if let Ok(wanted) = env::var("DISTLOCK_FAULTS") {
            kinds.retain(|kind| wanted.split(' ').any(|wanted| wanted == kind.name()));
        }
        self.schedule_of(seed, &kinds)
    }

    /// Returns the faults of a seed, of these kinds.
    pub(crate) fn schedule_of(&self, seed: u64, kinds: &[FaultKind]) -> Schedule {
        (self.draw)(seed, kinds)
    }

    /// Plays one seed. An error says why the run did not complete, which is no finding of a judge.
    pub(crate) fn play(&self, seed: u64) -> Result<Outcome, String> {
        self.attempt(seed, self.schedule(seed), None)
    }

    /// Plays one seed with other faults than its own, and perhaps with sabotage.
    pub(crate) fn play_with(
        &self,
        seed: u64,
        schedule: Schedule,
        sabotage: Option<Sabotage>,
    ) -> Outcome {
        let outcome = self.attempt(seed, schedule, sabotage);
        outcome.unwrap_or_else(|error| panic!("{}, seed {seed}: {error}", self.name))
    }

    fn attempt(
        &self,
        seed: u64,
        mut schedule: Schedule,
        sabotage: Option<Sabotage>,
    ) -> Result<Outcome, String> {
        if let Some(sabotage) = sabotage {
            sabotage.add_faults(&mut schedule);
        }
        let play = self.play.clone();
        let (mut outcome, panics) = attempt(seed, async move |world| {
            let run = Run {
                world,
                seed,
                ledger: Ledger::new(),
                faults: Arc::new(Mutex::new(schedule.counts())),
                schedule,
                sabotage,
            };
            play(run.clone()).await;
            let faults = run.faults.lock().unwrap_or_else(PoisonError::into_inner);
            Outcome {
                summary: run.ledger.summary(),
                counts: run.world.network.counts(),
                faults: faults.clone(),
                schedule: run.schedule.clone(),
                simulated: run.world.elapsed(),
                trace: run.world.network.trace(),
            }
        })?;
        // Panics come first, because other findings may follow from them.
        let panics = panics.into_iter().take(MAX_PANICS).map(|panic| Violation {
            judge: Judge::Panic,
            at: panic.at,
            what: panic.what,
        });
        outcome.summary.violations.splice(0..0, panics);
        Ok(outcome)
    }
}
