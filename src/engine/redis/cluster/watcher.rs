//! The task that asks who has which slot: when somebody was sent elsewhere or found nobody, and now and then.

#![expect(
    clippy::disallowed_methods,
    reason = "an engine's own task keeps its own time"
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

/// How long one server may take to say who has what, once that is known: the next time is not to wait for it.
const MAX_QUERY_TIMEOUT: Duration = Duration::from_secs(1);
/// The same where connecting is a part of it, however long that may take: who hangs is tried anew.
const MAX_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often they are asked though nobody has complained.
const REFRESH_INTERVAL: Duration = Duration::from_secs(3);
/// How long those wait who try again, while nothing is new.
const RETRY_TICK: Duration = Duration::from_millis(100);
/// How often at most, where somebody has complained.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_millis(250);

pub(super) struct ClusterWatcher {
    pub(super) client: Arc<ClusterNodeClient>,
    /// Those that the address names.
    pub(super) seeds: Arc<[NodeAddr]>,
    pub(super) nodes: Weak<Nodes>,
    pub(super) inbox: mpsc::UnboundedReceiver<ClusterWatcherCommand>,
    pub(super) topology_tx: watch::Sender<ClusterTopology>,
    pub(super) retry_tick_tx: watch::Sender<()>,
    pub(super) state: WatcherState,
}

/// What the task keeps to itself.
pub(super) struct WatcherState {
    /// When those are told who want to try again.
    next_retry_tick: Option<Instant>,
    connections: HashMap<NodeAddr, MultiplexedConnection>,
    /// This round's answers.
    views: HashMap<NodeAddr, Result<NodeView, StoreError>>,
    /// Who has been asked, in this round, and has not answered.
    in_flight: JoinSet<NodeAnswer>,
    /// Whether it was known who has what when they were asked, and when the first has answered then.
    was_known: bool,
    first_answer: Option<Instant>,
    /// When they were asked last, and when they are asked next.
    last: Instant,
    next: Instant,
}

type NodeAnswer = (
    NodeAddr,
    Result<(NodeView, MultiplexedConnection), StoreError>,
);

impl WatcherState {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self {
            next_retry_tick: None,
            connections: HashMap::new(),
            views: HashMap::new(),
            in_flight: JoinSet::new(),
            was_known: false,
            first_answer: None,
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
            let next_retry_tick =
                tokio::time::sleep_until(state.next_retry_tick.unwrap_or(state.next));
            let deadline = tokio::time::sleep_until(
                state.first_answer.unwrap_or(state.next) + MAX_QUERY_TIMEOUT,
            );
            tokio::select! {
                command = self.inbox.recv() => match command {
                    Some(ClusterWatcherCommand::Refresh) => self.refresh_soon(),
                    None => return,
                },
                Some(done) = state.in_flight.join_next() => {
                    if let Ok((addr, answer)) = done {
                        self.on_answer(addr, answer);
                    }
                }
                () = next_retry_tick, if state.next_retry_tick.is_some() => self.send_retry_tick(),
                // The next round is not to wait for those to whom connecting takes long.
                () = deadline, if state.first_answer.is_some() => {
                    state.first_answer = None;
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
            .next_retry_tick
            .get_or_insert_with(|| Instant::now() + jittered(RETRY_TICK));
    }

    fn send_retry_tick(&mut self) {
        self.state.next_retry_tick = None;
        self.retry_tick_tx.send_replace(());
    }

    /// All that are known, and those that the address names: whoever is cut off knows least.
    fn query_all(&mut self) {
        let state = &mut self.state;
        state.last = Instant::now();
        state.next = state.last + jittered(REFRESH_INTERVAL);
        state.views.clear();
        state.first_answer = None;
        let known = self.topology_tx.borrow().slot_map.clone();
        state.was_known = known.is_some();
        let longest = self.client.settings.connect_timeout;
        // Where nobody is connected to, connecting may take far longer than an answer.
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
                let answer = client.query(&addr, connection, limit).await;
                (addr, answer)
            });
        }
    }

    fn on_answer(
        &mut self,
        addr: NodeAddr,
        answer: Result<(NodeView, MultiplexedConnection), StoreError>,
    ) {
        let state = &mut self.state;
        let view = match answer {
            Ok((view, connection)) => {
                if state.was_known {
                    state.first_answer.get_or_insert_with(Instant::now);
                }
                state.connections.insert(addr.clone(), connection);
                Ok(view)
            }
            Err(failure) => {
                let (server, why) = (addr.clone(), failure.detail.clone());
                self.client.settings.events.emit(Level::DEBUG, move || {
                    tracing::debug!(%server, why, "no answer");
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
            tracing::info!(servers, missing, "the slots of the cluster");
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
        self.send_retry_tick();
    }

    /// Nobody who was asked could say anything.
    fn publish_error(&mut self) {
        let failures = self.state.views.iter();
        let failures = failures.filter_map(|(addr, view)| Some((addr, view.as_ref().err()?)));
        let mut failures: Vec<(&NodeAddr, &StoreError)> = failures.collect();
        failures.sort_by_key(|(addr, _)| *addr);
        // What does not pass by itself says most.
        let lasting = failures.iter().find(|(_, failure)| !failure.is_transient());
        let cause = lasting.map_or(StoreErrorKind::Unreachable, |(_, failure)| failure.kind);
        let each = failures.iter();
        let each: Vec<String> = each
            .map(|(addr, failure)| format!("{addr}: {}", failure.detail))
            .collect();
        let why = match &*each {
            [] => "no server of the cluster has any slots yet".to_owned(),
            each => each.join("; "),
        };
        self.topology_tx.send_modify(|topology| {
            topology.last_error = Some(StoreError::new(cause, why));
            topology.failed_refreshes += 1;
        });
    }
}
