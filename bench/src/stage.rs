//! The stage of all acts: the contestants' processes, how long things take, and the commands that each of them sends.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::time::Duration;

use crate::child::Child;
use crate::failure::Outcome;
use crate::options::Pace;
use crate::roster::Contestant;
use crate::scenario::Act;
use crate::server::CommandCounts;

/// The state that all acts share.
pub(crate) struct Stage {
    folder: PathBuf,
    pace: Pace,
    /// Processes kept from act to act, so that a virtual machine is warmed up once. Idle they cost nothing: each connects anew for each
    /// act.
    idle: HashMap<&'static str, Vec<Child>>,
    /// The sampled commands, by contestant and cell.
    sent: HashMap<String, CommandCounts>,
    warm: HashSet<String>,
    pub(crate) versions: BTreeMap<&'static str, String>,
}

/// A contestant's reply to a work order.
pub(crate) enum Ready {
    Cannot(String),
    Yes,
}

impl Stage {
    pub(crate) fn new(folder: PathBuf, pace: Pace) -> Self {
        Self {
            folder,
            pace,
            idle: HashMap::new(),
            sent: HashMap::new(),
            warm: HashSet::new(),
            versions: BTreeMap::new(),
        }
    }

    /// Returns processes of this contestant. A process that is not handed back ends: after a failure nothing is reused.
    pub(crate) fn children(&mut self, one: &Contestant, count: usize) -> Outcome<Vec<Child>> {
        let mut children = self.idle.remove(one.name).unwrap_or_default();
        // The remaining processes end here.
        children.truncate(count);
        while children.len() < count {
            children.push(self.fresh_child(one)?);
        }
        Ok(children)
    }

    pub(crate) fn return_children(&mut self, one: &Contestant, children: Vec<Child>) {
        self.idle.insert(one.name, children);
    }

    pub(crate) fn fresh_child(&self, one: &Contestant) -> Outcome<Child> {
        let log = self.folder.join("logs").join(format!("{}.log", one.name));
        Child::start(&one.command(&self.folder)?, &log)
    }

    /// Waits until a contestant is connected and warm, or reports that it cannot do this.
    pub(crate) fn ready(&mut self, act: &Act, child: &mut Child) -> Outcome<Ready> {
        let answer = child.next_reply(LONGEST_WARMUP + self.patience())?;
        if let Some(why) = answer.cannot {
            return Ok(Ready::Cannot(why));
        }
        if let Some(version) = answer.version {
            self.versions.insert(act.contestant.name, version);
        }
        self.warm.insert(key(act));
        Ok(Ready::Yes)
    }

    /// Returns the time to warm up: longer for the first time in a cell.
    pub(crate) fn warmup(&self, act: &Act) -> Duration {
        let first = !self.warm.contains(&key(act));
        let slow = act.contestant.is_slow_to_warm();
        Duration::from_millis(match (self.pace, first, slow) {
            (Pace::Full, true, true) => LONGEST_WARMUP.as_millis().try_into().unwrap_or(6_000),
            (Pace::Full, false, true) => 2_000,
            (Pace::Full, true, false) => 1_500,
            (Pace::Full, false, false) => 700,
            (Pace::Quick, true, true) => 2_000,
            (Pace::Quick, ..) => 500,
            (Pace::Smoke, ..) => 200,
        })
    }

    pub(crate) const fn repetitions(&self) -> u32 {
        match self.pace {
            Pace::Full => 5,
            Pace::Quick => 2,
            Pace::Smoke => 1,
        }
    }

    /// Returns how long callers lock and unlock.
    pub(crate) const fn seconds(&self) -> Duration {
        Duration::from_millis(match self.pace {
            Pace::Full => 3_000,
            Pace::Quick => 800,
            Pace::Smoke => 300,
        })
    }

    pub(crate) const fn handoff_time(&self) -> Duration {
        Duration::from_millis(match self.pace {
            Pace::Full => 10_000,
            Pace::Quick => 2_000,
            Pace::Smoke => 300,
        })
    }

    /// Returns how long locks are held: with leases of thirty seconds, each is renewed every ten.
    pub(crate) const fn held_time(&self) -> Duration {
        Duration::from_secs(match self.pace {
            Pace::Full => 60,
            Pace::Quick => 12,
            Pace::Smoke => 1,
        })
    }

    /// Returns the time limit for a contestant's reply; only one that hangs exceeds it.
    pub(crate) const fn patience(&self) -> Duration {
        Duration::from_secs(match self.pace {
            Pace::Full => 300,
            Pace::Quick => 90,
            Pace::Smoke => 30,
        })
    }

    pub(crate) fn knows_what_is_sent(&self, act: &Act) -> bool {
        self.sent.contains_key(&key(act))
    }

    pub(crate) fn note_what_is_sent(&mut self, act: &Act, sent: CommandCounts) {
        self.sent.insert(key(act), sent);
    }

    /// Returns how many of these calls came from outside of scripts.
    pub(crate) fn sent(&self, act: &Act, calls: &BTreeMap<String, u64>) -> Option<f64> {
        let known = self.sent.get(&key(act));
        known.map(|sent| sent.of(calls))
    }
}

fn key(act: &Act) -> String {
    format!(
        "{} {} {}",
        act.scenario, act.cell.label, act.contestant.name
    )
}

const LONGEST_WARMUP: Duration = Duration::from_secs(6);
