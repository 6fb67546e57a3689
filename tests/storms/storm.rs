//! A sequence of failovers, and its outcome.

use std::collections::BTreeMap;
use std::time::Duration;

use super::hold_interval::{HoldInterval, Overlap, now, overlaps};
use super::holder::Holder;
use super::load::{self, BELIEVED};
use super::probe::{ContendingTask, Probe, until};
use super::stage::{Failover, Stage, followed_by, until_promoted};
use super::support::process::Process;
use super::support::replication::is_master;
use super::terms::Settings;

/// The parameters of a storm.
pub(crate) struct Plan {
    pub(crate) terms: Settings,
    pub(crate) failovers: Vec<Failover>,
    /// The number of processes that acquire locks all the time.
    pub(crate) processes: usize,
}

/// The outcome of a storm.
pub(crate) struct Outcome {
    pub(crate) overlaps: Vec<Overlap>,
    /// The greatest delay of a grant after the time at which it was due.
    pub(crate) slowest: Duration,
    /// The locks in which a process believed although the next master had never heard of them, or was not to hear of them.
    pub(crate) contested: Vec<String>,
}

impl Outcome {
    /// Checks that no process believed in a lock that another believed in.
    pub(crate) fn no_two_believed(&self) {
        assert!(self.overlaps.is_empty(), "{:#?}", self.overlaps);
    }

    /// Checks that without that two processes did, each time that it was provoked.
    pub(crate) fn two_believed(&self) {
        assert!(!self.contested.is_empty(), "nothing was provoked");
        for name in &self.contested {
            let mut overlaps = self.overlaps.iter();
            let seen = overlaps.any(|overlap| overlap.first.name == *name);
            assert!(seen, "nobody has seen two who believed in `{name}`");
        }
    }
}

pub(crate) fn play(stage: &impl Stage, plan: &Plan) -> Outcome {
    let mut storm = Storm::begin(stage, plan);
    for (round, failover) in plan.failovers.iter().enumerate() {
        storm.until_busy();
        storm.round(round, *failover);
    }
    storm.until_busy();
    storm.end(plan)
}

struct Storm<'a, S> {
    stage: &'a S,
    terms: Settings,
    probe: Probe,
    workers: Vec<Process>,
    beliefs: Vec<HoldInterval>,
    contested: Vec<String>,
    slowest: Duration,
}

impl<'a, S: Stage> Storm<'a, S> {
    fn begin(stage: &'a S, plan: &Plan) -> Self {
        let Plan {
            terms, processes, ..
        } = plan;
        let names = stage.names();
        let started = (0..*processes).zip(0..).map(|(_, seed)| {
            let seed: u64 = 100 * seed;
            load::start(&stage.url(), terms, &names, seed)
        });
        let mut workers: Vec<Process> = started.collect();
        for worker in &mut workers {
            worker.expect_line("ready");
            worker.send_line("go");
        }
        Self {
            stage,
            terms: *terms,
            probe: Probe::connect(&stage.url(), terms),
            workers,
            beliefs: Vec::new(),
            contested: Vec::new(),
            slowest: Duration::ZERO,
        }
    }

    /// Waits until all servers have their roles, and every process has acquired a lock since.
    fn until_busy(&mut self) {
        self.stage.until_settled();
        for at in 0..self.workers.len() {
            let mut more = 0;
            until("it goes on", || {
                let heard = self.workers[at].new_lines();
                let said = heard.iter().filter_map(|line| line.strip_prefix(BELIEVED));
                let believed = said.map(|said| HoldInterval::parse(said).expect("it is one"));
                let before = self.beliefs.len();
                self.beliefs.extend(believed);
                more += self.beliefs.len() - before;
                more >= BUSY
            });
        }
    }

    fn round(&mut self, round: usize, failover: Failover) {
        let (stage, terms) = (self.stage, self.terms);
        let old = stage.master(round);
        let followers = stage.followers(old);
        let mut holder = failover.has_holder().then(|| {
            let name = stage.name_at(round, "contested");
            let lease = self.holders_lease(failover);
            Holder::start(&stage.side_door(old), &terms, lease, &name)
        });
        let begun = now();
        match failover {
            Failover::Killed => old.kill(),
            Failover::Ordered => stage.order(old),
            Failover::TakenOver => stage.take_over(old),
            Failover::LostWrite => {
                let holder = holder.as_mut().expect("there is one");
                for follower in &followers {
                    follower.stop_process();
                }
                // Otherwise the writes that were sent to the stopped replicas would arrive when they continue.
                old.cmd(&["CLIENT", "KILL", "TYPE", "replica"]);
                let granted = holder.asks();
                assert_eq!(granted, terms.acks == 0, "no replica has it");
                old.kill();
                for follower in &followers {
                    follower.continue_process();
                }
            }
            Failover::Split => {
                holder.as_mut().expect("there is one").holds();
                stage.cut_off(old);
            }
        }
        stage.set_quick_failover(true);
        let new = until_promoted(&followers);
        let promoted = now();
        let returns = self.probe.returns(stage.name_at(round, "fresh"));
        let rival = holder
            .as_ref()
            .map(|holder| self.probe.rival(holder.name()));
        stage.until_found(new);
        let found = now();
        stage.set_quick_failover(false);
        let mut due = found + terms.waits();
        if terms.acks > 0 {
            if failover == Failover::Split {
                self.is_notified_by_its_clock(holder.as_ref().expect("there is one"));
            }
            // Nothing is granted before all replicas are there again.
            stage.rejoin(old, new);
            let all = usize::try_from(terms.acks).expect("it is small");
            let mut servers = followers.clone();
            servers.push(old);
            let mut whole = None;
            until("the replicas follow", || {
                let mut servers = servers.iter();
                whole = servers.find(|one| is_master(one) && followed_by(one) >= all);
                whole.is_some()
            });
            // If the machine stands still for a second at this moment, the new master is replaced, too: the delay begins anew.
            due = match whole.is_some_and(|master| master.port() == new.port()) {
                true => due.max(now()),
                false => now() + terms.waits(),
            };
        }
        let late = self.probe.lateness(returns, due);
        self.slowest = self.slowest.max(late);
        eprintln!(
            "{:9.2?} {round} {}: promoted after {:.2?}, found after {:.2?}, due after {:.2?}, {:.2?} late",
            begun,
            failover.describe(),
            promoted - begun,
            found - begun,
            due - begun,
            late
        );
        if let Some((holder, rival)) = holder.as_mut().zip(rival) {
            self.contest(holder, rival);
        }
        drop(holder);
        if terms.acks == 0 {
            stage.rejoin(old, new);
        }
    }

    /// Returns a lease that is long enough for the holder to believe until another process has the lock, unless that is prevented.
    fn holders_lease(&self, failover: Failover) -> Duration {
        match failover {
            Failover::LostWrite if !self.terms.delay => Duration::from_secs(60),
            _ => self.terms.lease,
        }
    }

    /// Checks that the holder is told of the loss by its own clock: its server serves it all the time, and that server's replies do not
    /// count.
    fn is_notified_by_its_clock(&mut self, holder: &Holder) {
        let (belief, why) = holder.lost();
        assert_eq!(why, "Expired");
        self.beliefs.push(belief);
    }

    /// Records the belief of a rival, which has requested the holder's lock since there was a new master, and that of the holder.
    fn contest(&mut self, holder: &mut Holder, rival: ContendingTask) {
        self.beliefs.push(self.probe.until_done(rival));
        if self.terms.acks == 0 {
            self.beliefs.push(holder.believes());
        }
        self.contested.push(holder.name().to_owned());
    }

    fn end(mut self, plan: &Plan) -> Outcome {
        for worker in &mut self.workers {
            worker.send_line("over");
        }
        for worker in &mut self.workers {
            let said = worker.last_words();
            assert!(
                said.iter().any(|line| line == "done"),
                "it plays to the end"
            );
            let said = said.iter().filter_map(|line| line.strip_prefix(BELIEVED));
            let believed = said.map(|said| HoldInterval::parse(said).expect("it is one"));
            self.beliefs.extend(believed);
        }
        let grants = self.beliefs.len();
        let overlaps = overlaps(self.beliefs);
        let mut kinds: BTreeMap<Failover, usize> = BTreeMap::new();
        for failover in &plan.failovers {
            *kinds.entry(*failover).or_default() += 1;
        }
        let kinds = kinds
            .into_iter()
            .map(|(failover, count)| format!("{count} {}", failover.describe()));
        // `scripts/failover` makes its table from this line.
        eprintln!(
            "storm | {} | {} | {}: {} | {} | {grants} | {} | {:.2} s |",
            self.stage.describe(),
            plan.terms.describe(),
            plan.failovers.len(),
            kinds.collect::<Vec<_>>().join(", "),
            plan.processes,
            overlaps.len(),
            self.slowest.as_secs_f64(),
        );
        Outcome {
            overlaps,
            slowest: self.slowest,
            contested: self.contested,
        }
    }
}

/// The number of holds that each process has ended when it counts as working again.
const BUSY: usize = 3;
