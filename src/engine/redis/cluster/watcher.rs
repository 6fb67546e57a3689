//! The task that refreshes the slot map: after a redirect, after a call without a server, and at intervals.

#![expect(
    clippy::disallowed_methods,
    reason = "the engine owns this task and its timers"
)]

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Level;

use super::node_client::ClusterNodeClient;
use super::nodes::{ClusterTopology, ClusterWatcherCommand, Nodes};
use super::slot_map::{NodeView, SlotMap};
use crate::engine::redis::backoff::jittered;
use crate::engine::redis::node_addr::NodeAddr;
use crate::engine::supervise::{Restarts, catch_panic};
use crate::engine::{StoreError, StoreErrorKind};

/// Limit for one reply once a slot map is known, so that a slow server does not delay the next refresh.
const MAX_QUERY_TIMEOUT: Duration = Duration::from_secs(1);
/// Limit for connecting and the reply when no connection is open, regardless of the configured limit: an attempt that hangs is
/// replaced by a new one.
const MAX_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of refreshes that no command has requested.
const REFRESH_INTERVAL: Duration = Duration::from_secs(3);
/// Interval of retry signals while nothing has changed.
const RETRY_SIGNAL: Duration = Duration::from_millis(100);
/// Minimum time between two refreshes after a `Refresh` command.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_millis(250);

pub(super) struct ClusterWatcher {
    pub(super) client: Arc<ClusterNodeClient>,
    /// Servers that the address names.
    pub(super) seeds: Arc<[NodeAddr]>,
    pub(super) nodes: Weak<Nodes>,
    pub(super) inbox: mpsc::UnboundedReceiver<ClusterWatcherCommand>,
    pub(super) topology_tx: watch::Sender<ClusterTopology>,
    pub(super) retry_signal_tx: watch::Sender<()>,
    pub(super) state: WatcherState,
}

/// State that only the task uses.
pub(super) struct WatcherState {
    /// When the next retry signal is sent, if a call waits for one.
    next_retry_signal: Option<Instant>,
    connections: HashMap<NodeAddr, MultiplexedConnection>,
    /// Replies of this refresh.
    views: HashMap<NodeAddr, Result<NodeView, StoreError>>,
    /// Queries of this refresh without a reply so far.
    in_flight: JoinSet<NodeResult>,
    /// Whether a slot map was known when this refresh started, and the time of the first reply in that case.
    was_known: bool,
    first_reply: Option<Instant>,
    /// Start of the last refresh, and of the next one.
    last: Instant,
    next: Instant,
}

type NodeResult = (
    NodeAddr,
    Result<(NodeView, MultiplexedConnection), StoreError>,
);

impl WatcherState {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self {
            next_retry_signal: None,
            connections: HashMap::new(),
            views: HashMap::new(),
            in_flight: JoinSet::new(),
            was_known: false,
            first_reply: None,
            last: now,
            next: now,
        }
    }
}

impl ClusterWatcher {
    pub(super) async fn run(mut self) {
        let events = self.client.settings.events.clone();
        let mut restarts = Restarts::new("cluster", &events);
        while let Err(panicked) = catch_panic(self.work()).await {
            restarts.report_and_wait(panicked).await;
            self.state.in_flight = JoinSet::new();
            self.state.next = Instant::now() + jittered(MIN_REFRESH_INTERVAL);
        }
    }

    async fn work(&mut self) {
        loop {
            let state = &mut self.state;
            let next = tokio::time::sleep_until(state.next);
            let next_retry_signal =
                tokio::time::sleep_until(state.next_retry_signal.unwrap_or(state.next));
            let deadline = tokio::time::sleep_until(
                state.first_reply.unwrap_or(state.next) + MAX_QUERY_TIMEOUT,
            );
            tokio::select! {
                command = self.inbox.recv() => match command {
                    Some(ClusterWatcherCommand::Refresh) => self.refresh_soon(),
                    None => return,
                },
                Some(done) = state.in_flight.join_next() => {
                    if let Ok((addr, result)) = done {
                        self.on_reply(addr, result);
                    }
                }
                () = next_retry_signal, if state.next_retry_signal.is_some() => self.send_retry_signal(),
                // Servers that are slow to connect must not delay the next refresh.
                () = deadline, if state.first_reply.is_some() => {
                    state.first_reply = None;
                    state.in_flight = JoinSet::new();
                }
                () = next, if state.in_flight.is_empty() => self.query_all(),
            }
        }
    }

    fn refresh_soon(&mut self) {
        let state = &mut self.state;
        state.next = state.next.min(state.last + jittered(MIN_REFRESH_INTERVAL));
        state
            .next_retry_signal
            .get_or_insert_with(|| Instant::now() + jittered(RETRY_SIGNAL));
    }

    fn send_retry_signal(&mut self) {
        self.state.next_retry_signal = None;
        self.retry_signal_tx.send_replace(());
    }

    /// Queries all known servers and those that the address names: a server that is partitioned off has the oldest view.
    fn query_all(&mut self) {
        let state = &mut self.state;
        state.last = Instant::now();
        state.next = state.last + jittered(REFRESH_INTERVAL);
        state.views.clear();
        state.first_reply = None;
        let known = self.topology_tx.borrow().slot_map.clone();
        state.was_known = known.is_some();
        let longest = self.client.settings.connect_timeout;
        // If no connection is open, connecting may take far longer than a reply.
        let limit = match known {
            Some(_) if !state.connections.is_empty() => longest.min(MAX_QUERY_TIMEOUT),
            Some(_) => longest.min(MAX_CONNECT_TIMEOUT),
            None => longest,
        };
        let known = known.iter().flat_map(|slot_map| slot_map.addrs());
        let all: BTreeSet<&NodeAddr> = self.seeds.iter().chain(known).collect();
        state.connections.retain(|addr, _| all.contains(addr));
        for addr in all {
            let (client, addr) = (self.client.clone(), addr.clone());
            let connection = state.connections.get(&addr).cloned();
            state.in_flight.spawn(async move {
                let result = client.query(&addr, connection, limit).await;
                (addr, result)
            });
        }
    }

    fn on_reply(
        &mut self,
        addr: NodeAddr,
        result: Result<(NodeView, MultiplexedConnection), StoreError>,
    ) {
        let state = &mut self.state;
        let view = match result {
            Ok((view, connection)) => {
                if state.was_known {
                    state.first_reply.get_or_insert_with(Instant::now);
                }
                state.connections.insert(addr.clone(), connection);
                Ok(view)
            }
            Err(failure) => {
                let (server, why) = (addr.clone(), failure.detail.clone());
                self.client.settings.events.emit(Level::DEBUG, move || {
                    tracing::debug!(target: "distlock::topology", %server, error = why, "no reply from a server of the cluster");
                });
                state.connections.remove(&addr);
                Err(failure)
            }
        };
        state.views.insert(addr, view);
        self.update_slot_map();
    }

    fn update_slot_map(&mut self) {
        let state = &self.state;
        let over = state.in_flight.is_empty();
        let views = state.views.values().filter_map(|view| view.as_ref().ok());
        let views: Vec<NodeView> = views.cloned().collect();
        if views.iter().all(|view| view.claims.is_empty()) {
            if over {
                self.publish_error();
            }
            return;
        }
        let all = over && views.len() == state.views.len();
        let before = self.topology_tx.borrow().slot_map.clone();
        let slot_map = SlotMap::of(&views, before.as_deref(), all);
        if before.as_deref() == Some(&slot_map) {
            return;
        }
        let servers = slot_map.addrs().len();
        let missing = slot_map.missing();
        self.client.settings.events.emit(Level::INFO, move || {
            tracing::info!(target: "distlock::topology", servers, missing, "the slots of the cluster changed");
        });
        let slot_map = Arc::new(slot_map);
        let moved = before.is_some_and(|before| slot_map.has_moved_from(&before));
        self.topology_tx.send_modify(|topology| {
            topology.slot_map = Some(slot_map.clone());
            topology.move_count += u64::from(moved);
            topology.last_error = None;
        });
        if let Some(nodes) = self.nodes.upgrade() {
            nodes.apply_slot_map(&slot_map);
        }
        self.send_retry_signal();
    }

    /// Publishes the error of a refresh in which no server had a slot map.
    fn publish_error(&mut self) {
        let failures = self.state.views.iter();
        let failures = failures.filter_map(|(addr, view)| Some((addr, view.as_ref().err()?)));
        let mut failures: Vec<(&NodeAddr, &StoreError)> = failures.collect();
        failures.sort_by_key(|(addr, _)| *addr);
        // An error that does not pass by itself is the most informative one.
        let lasting = failures.iter().find(|(_, failure)| !failure.is_transient());
        let cause = lasting.map_or(StoreErrorKind::Unreachable, |(_, failure)| failure.kind);
        let each = failures.iter();
        let each: Vec<String> = each
            .map(|(addr, failure)| format!("{addr}: {}", failure.detail))
            .collect();
        let why = match &*each {
            [] => "no server of the cluster owns slots yet".to_owned(),
            each => each.join("; "),
        };
        self.topology_tx.send_modify(|topology| {
            topology.last_error = Some(StoreError::new(cause, why));
            topology.failed_refreshes += 1;
        });
    }
}
