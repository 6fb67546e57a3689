//! The task that subscribes to all sentinels, queries them and publishes the master.

#![expect(
    clippy::disallowed_methods,
    reason = "the engine owns this task and its timers"
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

/// Interval of queries that no message has caused: a message may be lost.
const REFRESH_INTERVAL: Duration = Duration::from_secs(3);
/// Interval of retry signals while no new master is known.
const RETRY_SIGNAL_INTERVAL: Duration = Duration::from_millis(100);
/// Minimum time between two refreshes, if something is wrong with the master.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_millis(250);

pub(super) struct SentinelWatcher {
    client: Arc<SentinelClient>,
    configured: Arc<[NodeAddr]>,
    /// Sentinels that other sentinels have reported.
    learned: Vec<NodeAddr>,
    inbox: mpsc::UnboundedReceiver<SentinelWatcherCommand>,
    topology_tx: watch::Sender<SentinelTopology>,
    retry_signal_tx: watch::Sender<()>,
    /// When the next retry signal is sent, if a call waits for one.
    next_retry_signal: Option<Instant>,
    current_master: Option<NamedMaster>,
    /// Address where a replica was found instead of the master.
    found_replica: Option<NodeAddr>,
    connections: HashMap<NodeAddr, MultiplexedConnection>,
    /// The last reply of each sentinel, or the error instead of it.
    replies: HashMap<NodeAddr, Result<SentinelReply, StoreError>>,
    /// Sentinels that were queried and have not replied. The others can be queried again meanwhile.
    pending: HashSet<NodeAddr>,
    /// When the replies so far have to suffice, even if some are missing: connecting may take far longer than a reply.
    decision_deadline: Option<Instant>,
    in_flight: JoinSet<SentinelResult>,
    /// Start of the last query, and of the next one.
    last: Instant,
    next: Instant,
}

type SentinelResult = (
    NodeAddr,
    Result<(SentinelReply, MultiplexedConnection), StoreError>,
);

impl SentinelWatcher {
    pub(super) fn new(
        client: Arc<SentinelClient>,
        configured: Arc<[NodeAddr]>,
        inbox: mpsc::UnboundedReceiver<SentinelWatcherCommand>,
        topology_tx: watch::Sender<SentinelTopology>,
        retry_signal_tx: watch::Sender<()>,
    ) -> Self {
        let now = Instant::now();
        Self {
            client,
            configured,
            learned: Vec::new(),
            inbox,
            topology_tx,
            retry_signal_tx,
            next_retry_signal: None,
            current_master: None,
            found_replica: None,
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
            let next_retry_signal =
                tokio::time::sleep_until(self.next_retry_signal.unwrap_or(self.next));
            let decision_deadline =
                tokio::time::sleep_until(self.decision_deadline.unwrap_or(self.next));
            tokio::select! {
                // Replies come first: a process that was stopped for a while reads all replies that have arrived meanwhile,
                // before the deadline makes it decide with fewer. Commands come last: no number of `Refresh` commands delays a
                // query that may help.
                biased;
                Some(done) = self.in_flight.join_next() => {
                    if let Ok((addr, result)) = done {
                        self.on_reply(addr, result);
                    }
                }
                () = decision_deadline, if self.decision_deadline.is_some() => {
                    self.decision_deadline = None;
                    self.decide(true);
                }
                () = next_retry_signal, if self.next_retry_signal.is_some() => self.send_retry_signal(),
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
                if self.found_replica == Some(addr) {
                    self.found_replica = None;
                }
            }
            SentinelWatcherCommand::Refresh => {
                self.refresh_soon();
                self.next_retry_signal
                    .get_or_insert_with(|| Instant::now() + jittered(RETRY_SIGNAL_INTERVAL));
            }
            SentinelWatcherCommand::FoundReplica(addr) => {
                self.found_replica = Some(addr);
                self.refresh_soon();
            }
            // A pending query may have been answered before the sentinel knew of the failover.
            SentinelWatcherCommand::Switched => {
                self.in_flight = JoinSet::new();
                self.pending.clear();
                self.query_all();
            }
        }
    }

    fn send_retry_signal(&mut self) {
        self.next_retry_signal = None;
        self.retry_signal_tx.send_replace(());
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
                let result = client.query(&addr, connection).await;
                (addr, result)
            });
        }
    }

    fn on_reply(
        &mut self,
        addr: NodeAddr,
        result: Result<(SentinelReply, MultiplexedConnection), StoreError>,
    ) {
        self.pending.remove(&addr);
        let reply = match result {
            Ok((reply, connection)) => {
                self.connections.insert(addr.clone(), connection);
                Ok(reply)
            }
            Err(failure) => {
                let (sentinel, why) = (addr.clone(), failure.detail.clone());
                self.client.settings.events.emit(Level::DEBUG, move || {
                    tracing::debug!(target: "distlock::topology", %sentinel, error = why, "no reply from a sentinel");
                });
                self.connections.remove(&addr);
                Err(failure)
            }
        };
        let speaks = |reply: &_| matches!(reply, Ok(SentinelReply::Report { .. }));
        let is_new = speaks(&reply) && !self.replies.get(&addr).is_some_and(speaks);
        self.replies.insert(addr, reply);
        self.learn_sentinels();
        if !self.have_all_replied() {
            self.wait_for_others(is_new);
        }
        self.decide(false);
    }

    /// Returns whether no configured sentinel is left that may report something else.
    fn have_all_replied(&self) -> bool {
        let has_replied = |addr: &NodeAddr| match self.replies.get(addr) {
            Some(Ok(_)) => true,
            // The cause of the failure may be gone by now, so that the pending query counts.
            Some(Err(_)) => self.current_master.is_some() || !self.pending.contains(addr),
            None => false,
        };
        self.configured.iter().all(has_replied)
    }

    /// Sets the deadline: the time that a reply may take. After the first report of a sentinel the deadline is extended, so
    /// that it does not decide alone while the others are about to reply.
    fn wait_for_others(&mut self, is_new: bool) {
        let soon = Instant::now() + MIN_REFRESH_INTERVAL;
        let longest = soon.max(self.last + self.client.limit);
        let decision_deadline = self.decision_deadline.get_or_insert(longest);
        if is_new {
            *decision_deadline = soon.max(*decision_deadline);
        }
    }

    /// Updates the list of learned sentinels from the latest reports, and forgets those that are no longer reported. Without
    /// any report nothing changes.
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

    /// Publishes the conclusion from the replies, if all sentinels have replied or the deadline has passed.
    fn decide(&mut self, deadline_passed: bool) {
        let report: Vec<SentinelReport> = self
            .replies
            .values()
            .filter_map(|reply| match reply {
                Ok(SentinelReply::Report { report, .. }) => Some(report.clone()),
                Ok(SentinelReply::NoSuchMaster) | Err(_) => None,
            })
            .collect();
        let all = self.have_all_replied();
        let (current, found_replica) = (self.current_master.as_ref(), self.found_replica.as_ref());
        match choose_master(&report, self.configured.len(), current, found_replica) {
            MasterChoice::Confirmed(master) => self.publish_master(master),
            MasterChoice::Tentative(master) if all || deadline_passed => {
                self.publish_master(master)
            }
            MasterChoice::Tentative(_) | MasterChoice::Unchanged => {
                let is_settled = all || deadline_passed && self.is_rejected();
                if is_settled && self.current_master.is_none() {
                    self.publish_error();
                }
            }
        }
    }

    /// Returns whether at least half of the configured sentinels have replied with an error that does not pass by itself.
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
        let is_change = self
            .current_master
            .as_ref()
            .is_some_and(|old| old.addr != addr);
        if is_change || self.current_master.is_none() {
            let (name, addr, epoch) = (self.client.name.clone(), addr.clone(), master.config_epoch);
            self.client.settings.events.emit(Level::INFO, move || {
                tracing::info!(target: "distlock::topology", name, master = %addr, epoch, again = is_change, "the sentinels name the master");
            });
        }
        // Published even if the address is unchanged: the server was promoted anew, after a time in which it was not the
        // master.
        self.topology_tx.send_modify(|topology| {
            topology.master = Some(addr);
            topology.term += 1;
            topology.last_error = None;
        });
        self.current_master = Some(master);
        self.send_retry_signal();
    }

    /// Publishes the error of a refresh in which no sentinel could name the master.
    fn publish_error(&mut self) {
        let last_error = describe_failures(&self.client.name, &self.configured, &self.replies);
        self.topology_tx.send_modify(|topology| {
            topology.last_error = Some(last_error);
            topology.failed_refreshes += 1;
        });
    }
}

/// Limit of learned sentinels. Sentinels come and go with changing addresses, but no deployment runs more than this.
const MAX_LEARNED: usize = 16;

/// Returns why no sentinel could name the master: each configured sentinel with its reply.
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
            None => each.push(format!("{addr}: no reply yet")),
        }
    }
    // An error that does not pass by itself is the most informative one.
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
            format!("the sentinels know no master named `{name}` ({each})")
        }
        _ => format!("no sentinel reports the address of the master `{name}` ({each})"),
    };
    StoreError::new(cause, why)
}
