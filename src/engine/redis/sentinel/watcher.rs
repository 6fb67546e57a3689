//! The task that listens to all sentinels, asks them, and says what follows.

#![expect(
    clippy::disallowed_methods,
    reason = "an engine's own task keeps its own time"
)]

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Level;

use super::client::{SentinelClient, SentinelReply};
use super::master_choice::{MasterChoice, NamedMaster, SentinelReport, choose_master};
use super::{SentinelTopology, SentinelWatcherCommand};
use crate::engine::redis::backoff::jittered;
use crate::engine::redis::node_addr::NodeAddr;
use crate::engine::supervise::{Restarts, catch_panic};
use crate::engine::{StoreError, StoreErrorKind};

/// How often they are asked though nobody has said anything: a message may be lost.
const REFRESH_INTERVAL: Duration = Duration::from_secs(3);
/// How long those wait who try again, while nobody says anything.
const RETRY_TICK: Duration = Duration::from_millis(100);
/// How often at most, where something is wrong with the master.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_millis(250);

pub(super) struct SentinelWatcher {
    client: Arc<SentinelClient>,
    configured: Arc<[NodeAddr]>,
    /// Those that the others have told of.
    learned: Vec<NodeAddr>,
    inbox: mpsc::UnboundedReceiver<SentinelWatcherCommand>,
    topology_tx: watch::Sender<SentinelTopology>,
    retry_tick_tx: watch::Sender<()>,
    /// When those are told who want to try again.
    next_retry_tick: Option<Instant>,
    current_master: Option<NamedMaster>,
    /// Where a replica was found.
    refused: Option<NodeAddr>,
    connections: HashMap<NodeAddr, MultiplexedConnection>,
    /// What each said last, or why it did not.
    replies: HashMap<NodeAddr, Result<SentinelReply, StoreError>>,
    /// Who has been asked and has not answered: those who have are not to wait for it.
    pending: HashSet<NodeAddr>,
    /// When what was heard has to do, though some were not heard: connecting may take far longer than an answer.
    decision_deadline: Option<Instant>,
    in_flight: JoinSet<SentinelAnswer>,
    /// When they were asked last, and when they are asked next.
    last: Instant,
    next: Instant,
}

type SentinelAnswer = (
    NodeAddr,
    Result<(SentinelReply, MultiplexedConnection), StoreError>,
);

impl SentinelWatcher {
    pub(super) fn new(
        client: Arc<SentinelClient>,
        configured: Arc<[NodeAddr]>,
        inbox: mpsc::UnboundedReceiver<SentinelWatcherCommand>,
        topology_tx: watch::Sender<SentinelTopology>,
        retry_tick_tx: watch::Sender<()>,
    ) -> Self {
        let now = Instant::now();
        Self {
            client,
            configured,
            learned: Vec::new(),
            inbox,
            topology_tx,
            retry_tick_tx,
            next_retry_tick: None,
            current_master: None,
            refused: None,
            connections: HashMap::new(),
            replies: HashMap::new(),
            pending: HashSet::new(),
            decision_deadline: None,
            in_flight: JoinSet::new(),
            last: now,
            next: now,
        }
    }

    pub(super) async fn run(mut self) {
        let events = self.client.settings.events.clone();
        let mut restarts = Restarts::new("sentinels", &events);
        while let Err(panicked) = catch_panic(self.work()).await {
            restarts.report_and_wait(panicked).await;
            self.in_flight = JoinSet::new();
            self.pending.clear();
            self.next = Instant::now() + jittered(MIN_REFRESH_INTERVAL);
        }
    }

    async fn work(&mut self) {
        loop {
            let next = tokio::time::sleep_until(self.next);
            let next_retry_tick =
                tokio::time::sleep_until(self.next_retry_tick.unwrap_or(self.next));
            let decision_deadline =
                tokio::time::sleep_until(self.decision_deadline.unwrap_or(self.next));
            tokio::select! {
                // Whoever was stopped for a while hears all who have answered meanwhile, before it makes do with some; and
                // however many complain, those who may help are asked.
                biased;
                Some(done) = self.in_flight.join_next() => {
                    if let Ok((addr, answer)) = done {
                        self.on_answer(addr, answer);
                    }
                }
                () = decision_deadline, if self.decision_deadline.is_some() => {
                    self.decision_deadline = None;
                    self.decide(true);
                }
                () = next_retry_tick, if self.next_retry_tick.is_some() => self.send_retry_tick(),
                () = next => self.query_all(),
                command = self.inbox.recv() => match command {
                    Some(command) => self.on_command(command),
                    None => return,
                },
            }
        }
    }

    fn on_command(&mut self, command: SentinelWatcherCommand) {
        match command {
            SentinelWatcherCommand::Accepted(addr) => {
                if self.refused == Some(addr) {
                    self.refused = None;
                }
            }
            SentinelWatcherCommand::Refresh => {
                self.refresh_soon();
                self.next_retry_tick
                    .get_or_insert_with(|| Instant::now() + jittered(RETRY_TICK));
            }
            SentinelWatcherCommand::Refused(addr) => {
                self.refused = Some(addr);
                self.refresh_soon();
            }
            // Who is being asked may have answered before it knew.
            SentinelWatcherCommand::Switched => {
                self.in_flight = JoinSet::new();
                self.pending.clear();
                self.query_all();
            }
        }
    }

    fn send_retry_tick(&mut self) {
        self.next_retry_tick = None;
        self.retry_tick_tx.send_replace(());
    }

    fn refresh_soon(&mut self) {
        self.next = self.next.min(self.last + jittered(MIN_REFRESH_INTERVAL));
    }

    fn query_all(&mut self) {
        self.last = Instant::now();
        self.next = self.last + jittered(REFRESH_INTERVAL);
        for addr in self.configured.iter().chain(&self.learned) {
            if !self.pending.insert(addr.clone()) {
                continue;
            }
            let (client, addr) = (self.client.clone(), addr.clone());
            let connection = self.connections.get(&addr).cloned();
            self.in_flight.spawn(async move {
                let answer = client.query(&addr, connection).await;
                (addr, answer)
            });
        }
    }

    fn on_answer(
        &mut self,
        addr: NodeAddr,
        answer: Result<(SentinelReply, MultiplexedConnection), StoreError>,
    ) {
        self.pending.remove(&addr);
        let reply = match answer {
            Ok((reply, connection)) => {
                self.connections.insert(addr.clone(), connection);
                Ok(reply)
            }
            Err(failure) => {
                let (sentinel, why) = (addr.clone(), failure.detail.clone());
                self.client.settings.events.emit(Level::DEBUG, move || {
                    tracing::debug!(%sentinel, why, "no answer");
                });
                self.connections.remove(&addr);
                Err(failure)
            }
        };
        let speaks = |reply: &_| matches!(reply, Ok(SentinelReply::Report { .. }));
        let is_new = speaks(&reply) && !self.replies.get(&addr).is_some_and(speaks);
        self.replies.insert(addr, reply);
        self.learn_sentinels();
        if !self.have_all_answered() {
            self.wait_for_others(is_new);
        }
        self.decide(false);
    }

    /// Whether nobody is left who may say something else.
    fn have_all_answered(&self) -> bool {
        let has_answered = |addr: &NodeAddr| match self.replies.get(addr) {
            Some(Ok(_)) => true,
            // What was in its way may be gone by now.
            Some(Err(_)) => self.current_master.is_some() || !self.pending.contains(addr),
            None => false,
        };
        self.configured.iter().all(has_answered)
    }

    /// For as long as an answer may take; and whoever speaks for the first time is not believed alone while the others are about to.
    fn wait_for_others(&mut self, is_new: bool) {
        let soon = Instant::now() + MIN_REFRESH_INTERVAL;
        let longest = soon.max(self.last + self.client.limit);
        let decision_deadline = self.decision_deadline.get_or_insert(longest);
        if is_new {
            *decision_deadline = soon.max(*decision_deadline);
        }
    }

    /// Takes note of the sentinels that the others tell of, and of those they tell of no more; while nobody tells
    /// anything, of nothing.
    fn learn_sentinels(&mut self) {
        let mut named = None;
        for reply in self.replies.values() {
            if let Ok(SentinelReply::Report { others, .. }) = reply {
                named.get_or_insert_with(BTreeSet::new).extend(others);
            }
        }
        let Some(named) = named else {
            return;
        };
        let new = named
            .into_iter()
            .filter(|addr| !self.configured.contains(addr));
        self.learned = new.take(MAX_LEARNED).cloned().collect();
        let (configured, learned) = (&self.configured, &self.learned);
        let is_known = |addr: &NodeAddr| configured.contains(addr) || learned.contains(addr);
        self.replies.retain(|addr, _| is_known(addr));
        self.connections.retain(|addr, _| is_known(addr));
    }

    /// Says what follows from what was heard, where all were, or that has to be `decision_deadline`.
    fn decide(&mut self, decision_deadline: bool) {
        let report: Vec<SentinelReport> = self
            .replies
            .values()
            .filter_map(|reply| match reply {
                Ok(SentinelReply::Report { report, .. }) => Some(report.clone()),
                Ok(SentinelReply::NoSuchMaster) | Err(_) => None,
            })
            .collect();
        let all = self.have_all_answered();
        let (current, refused) = (self.current_master.as_ref(), self.refused.as_ref());
        match choose_master(&report, self.configured.len(), current, refused) {
            MasterChoice::Confirmed(master) => self.publish_master(master),
            MasterChoice::Tentative(master) if all || decision_deadline => {
                self.publish_master(master)
            }
            MasterChoice::Tentative(_) | MasterChoice::Unchanged => {
                let is_settled = all || decision_deadline && self.is_rejected();
                if is_settled && self.current_master.is_none() {
                    self.publish_error();
                }
            }
        }
    }

    /// Whether half of them, or more, have said what will not pass by itself.
    fn is_rejected(&self) -> bool {
        let refuses = |addr: &&NodeAddr| match self.replies.get(*addr) {
            Some(Ok(SentinelReply::NoSuchMaster)) => true,
            Some(Err(failure)) => !failure.is_transient(),
            Some(Ok(SentinelReply::Report { .. })) | None => false,
        };
        let refusals = self.configured.iter().filter(refuses).count();
        refusals * 2 >= self.configured.len()
    }

    fn publish_master(&mut self, master: NamedMaster) {
        let addr = master.addr.clone();
        let again = self
            .current_master
            .as_ref()
            .is_some_and(|old| old.addr != addr);
        if again || self.current_master.is_none() {
            let (name, addr, epoch) = (self.client.name.clone(), addr.clone(), master.epoch);
            self.client.settings.events.emit(Level::INFO, move || {
                tracing::info!(name, master = %addr, epoch, again, "the sentinels name the master");
            });
        }
        // Also of one that is where it was: it was made master anew, after a time in which it was none.
        self.topology_tx.send_modify(|topology| {
            topology.master = Some(addr);
            topology.term += 1;
            topology.last_error = None;
        });
        self.current_master = Some(master);
        self.send_retry_tick();
    }

    /// Nobody who was asked could say where the master is.
    fn publish_error(&mut self) {
        let last_error = describe_failures(&self.client.name, &self.configured, &self.replies);
        self.topology_tx.send_modify(|topology| {
            topology.last_error = Some(last_error);
            topology.failed_refreshes += 1;
        });
    }
}

/// Sentinels come and go by other addresses; more than these nobody runs.
const MAX_LEARNED: usize = 16;

/// Why nobody could say where the master is: which were asked, and what each said.
fn describe_failures(
    name: &str,
    configured: &[NodeAddr],
    replies: &HashMap<NodeAddr, Result<SentinelReply, StoreError>>,
) -> StoreError {
    let mut causes = Vec::new();
    let mut each = Vec::new();
    for addr in configured {
        match replies.get(addr) {
            Some(Ok(_)) => {
                causes.push(StoreErrorKind::Unusable);
                each.push(format!("{addr}: no such master"));
            }
            Some(Err(failure)) => {
                causes.push(failure.kind);
                each.push(format!("{addr}: {}", failure.detail));
            }
            None => each.push(format!("{addr}: not heard yet")),
        }
    }
    // What does not pass by itself says most.
    let lasting = |cause: &&StoreErrorKind| !StoreError::new(**cause, "").is_transient();
    let cause = if causes.contains(&StoreErrorKind::Unusable) {
        StoreErrorKind::Unusable
    } else {
        let lasting = causes.iter().find(lasting);
        lasting.copied().unwrap_or(StoreErrorKind::Unreachable)
    };
    let each = each.join("; ");
    let why = match cause {
        StoreErrorKind::Unusable => {
            format!("no master named `{name}` is known to the sentinels ({each})")
        }
        _ => format!("no sentinel says where `{name}` is ({each})"),
    };
    StoreError::new(cause, why)
}
