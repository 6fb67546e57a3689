//! The servers of a cluster and the current slot map.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use super::node_client::ClusterNodeClient;
use super::slot_map::{NodeView, SlotMap};
use super::watcher::{ClusterWatcher, WatcherState};
use crate::engine::fork_detector::ForkDetector;
use crate::engine::redis::Redis;
use crate::engine::redis::connector::Address;
use crate::engine::redis::keys::Keys;
use crate::engine::redis::node_addr::NodeAddr;
use crate::engine::redis::pubsub_mode::PubSubMode;
use crate::engine::redis::settings::RedisSettings;
use crate::engine::redis::slot::Slot;
use crate::engine::{StoreError, StoreErrorKind};

/// State that the watcher task publishes.
#[derive(Clone, Debug, Default)]
pub(super) struct ClusterTopology {
    /// `None` until the first server has replied.
    pub(super) slot_map: Option<Arc<SlotMap>>,
    /// Number of slot map changes in which a slot changed owners.
    pub(super) move_count: u64,
    /// Why there is no slot map.
    pub(super) last_error: Option<StoreError>,
    /// Number of refreshes that produced no slot map.
    pub(super) failed_refreshes: u64,
}

/// Command to the watcher task.
#[derive(Debug)]
pub(super) enum ClusterWatcherCommand {
    /// A call was redirected, or found no server for its slot.
    Refresh,
}

/// The servers of one cluster that one client has used, and the handle to the watcher task.
pub(super) struct Nodes {
    pub(super) keys: Keys,
    client: Arc<ClusterNodeClient>,
    fork_detector: ForkDetector,
    /// Publish command that the address selects, if it does.
    pubsub_mode: Option<PubSubMode>,
    /// Runtime of the requests that no caller waits for.
    background: Handle,
    known: Mutex<HashMap<NodeAddr, Arc<Redis>>>,
    topology: watch::Receiver<ClusterTopology>,
    /// Ticks when the slot map changes, and at the interval at which a retry is worthwhile.
    retry_signals: watch::Receiver<()>,
    commands: mpsc::UnboundedSender<ClusterWatcherCommand>,
    /// The `move_count` that was last reported by [`slots_moved`](Self::slots_moved), after which holders verify their locks.
    reported_moves: AtomicU64,
}

impl Nodes {
    /// Starts the watcher task on `background`. The task ends when the returned value is dropped.
    pub(super) fn watch(
        address: Address,
        seeds: &[(String, u16)],
        pubsub_mode: Option<PubSubMode>,
        settings: RedisSettings,
        background: &Handle,
    ) -> Arc<Self> {
        let (commands, inbox) = mpsc::unbounded_channel();
        let (topology_tx, topology) = watch::channel(ClusterTopology::default());
        let (retry_signal_tx, retry_signals) = watch::channel(());
        let client = Arc::new(ClusterNodeClient { address, settings });
        let keys = Keys::new(client.settings.prefix.clone(), PubSubMode::default());
        let nodes = Arc::new(Self {
            keys,
            fork_detector: ForkDetector::current(),
            client: client.clone(),
            pubsub_mode,
            background: background.clone(),
            known: Mutex::default(),
            topology,
            retry_signals,
            commands,
            reported_moves: AtomicU64::new(0),
        });
        let seeds = NodeAddr::from_hosts(seeds).into();
        let weak = Arc::downgrade(&nodes);
        #[expect(clippy::disallowed_methods, reason = "the engine owns this task")]
        background.spawn(async move {
            let task = ClusterWatcher {
                client,
                seeds,
                nodes: weak,
                inbox,
                topology_tx,
                retry_signal_tx,
                state: WatcherState::new(),
            };
            task.run().await;
        });
        nodes
    }

    /// Returns the slot map. If there is none yet, waits for the next refresh to succeed or fail.
    pub(super) async fn slot_map(&self) -> Result<Arc<SlotMap>, StoreError> {
        let mut topology = self.topology.clone();
        let failed_refreshes = topology.borrow().failed_refreshes;
        if topology.borrow().slot_map.is_none() {
            self.refresh();
        }
        let known = topology.wait_for(|topology| {
            topology.slot_map.is_some() || topology.failed_refreshes > failed_refreshes
        });
        let known = known.await.map(|known| known.clone());
        let task_ended = |_| {
            StoreError::new(
                StoreErrorKind::Unreachable,
                "the background thread of the client has ended",
            )
        };
        let ClusterTopology {
            slot_map,
            last_error,
            ..
        } = known.map_err(task_ended)?;
        slot_map.ok_or_else(|| {
            last_error.unwrap_or_else(|| {
                let why = "no server has reported the slots of the cluster";
                StoreError::new(StoreErrorKind::Unreachable, why)
            })
        })
    }

    /// Returns the slot map if there is one.
    pub(super) fn known_slot_map(&self) -> Option<Arc<SlotMap>> {
        self.topology.borrow().slot_map.clone()
    }

    /// Returns the address of the server that owns a slot.
    pub(super) async fn owner(&self, slot: Slot) -> Result<NodeAddr, StoreError> {
        let slot_map = self.slot_map().await?;
        let Some(addr) = slot_map.owner(slot) else {
            let why = format!("no server of the cluster owns slot {}", slot.number());
            return Err(StoreError::new(StoreErrorKind::NotReady, why));
        };
        Ok(addr.clone())
    }

    /// Returns all servers that own slots.
    pub(super) async fn all(&self) -> Result<Vec<(NodeAddr, Arc<Redis>)>, StoreError> {
        let slot_map = self.slot_map().await?;
        let addrs = slot_map.addrs().iter();
        addrs
            .map(|addr| Ok((addr.clone(), self.at(addr)?)))
            .collect()
    }

    /// Returns the client of the server at this address.
    pub(super) fn at(&self, addr: &NodeAddr) -> Result<Arc<Redis>, StoreError> {
        let mut known = self.lock();
        if let Some(node) = known.get(addr) {
            return Ok(node.clone());
        }
        let ClusterNodeClient {
            address, settings, ..
        } = &*self.client;
        let settings = RedisSettings {
            cluster_node: Some(self.pubsub_mode()),
            ..settings.clone()
        };
        let node = Redis::new(
            &address.at(&addr.host, addr.port),
            &settings,
            &self.background,
        )?;
        let node = Arc::new(node);
        known.insert(addr.clone(), node.clone());
        Ok(node)
    }

    /// Returns the publish command: the one that the address selects, otherwise the same as Redisson's choice.
    pub(super) fn pubsub_mode(&self) -> PubSubMode {
        let sharded = self
            .known_slot_map()
            .is_some_and(|slot_map| slot_map.sharded);
        self.pubsub_mode.unwrap_or(if sharded {
            PubSubMode::Sharded
        } else {
            PubSubMode::Plain
        })
    }

    /// Requests a refresh of the slot map soon, because a slot was not where it should be.
    pub(super) fn refresh(&self) {
        // Without a receiver, the client's thread has gone.
        let _ = self.commands.send(ClusterWatcherCommand::Refresh);
    }

    /// Requests a refresh and waits for the next retry signal: a new slot map, or a moment later. Returns whether the watcher
    /// task still runs.
    pub(super) async fn refreshed(&self) -> bool {
        // Marked before the request, so that a tick in between is not missed.
        let mut retry_signals = self.retry_signals.clone();
        retry_signals.mark_unchanged();
        self.refresh();
        retry_signals.changed().await.is_ok()
    }

    /// Resolves when slots have changed owners since the last report, and counts that as reported.
    pub(super) async fn slots_moved(&self) {
        let reported_moves = self.reported_moves.load(Ordering::Relaxed);
        let mut topology = self.topology.clone();
        let move_count = topology
            .wait_for(|now| now.move_count != reported_moves)
            .await;
        match move_count.map(|now| now.move_count) {
            Ok(move_count) => self.reported_moves.store(move_count, Ordering::Relaxed),
            Err(_) => std::future::pending().await,
        }
    }

    /// Resolves when the servers are no longer exactly these.
    pub(super) async fn addrs_changed(&self, addrs: &[NodeAddr]) {
        let mut topology = self.topology.clone();
        let others = |now: &ClusterTopology| {
            now.slot_map
                .as_ref()
                .is_some_and(|now| now.addrs() != addrs)
        };
        if topology.wait_for(others).await.is_err() {
            std::future::pending().await
        }
    }

    /// Returns an error in a forked child: a mutex may be locked there by a thread that the child does not have.
    pub(super) fn not_forked(&self) -> Result<(), StoreError> {
        if self.fork_detector.has_forked() {
            return Err(StoreError::new(
                StoreErrorKind::Unreachable,
                "this process was forked; create a new client",
            ));
        }
        Ok(())
    }

    /// Queries one server for its view of the cluster, for a diagnosis.
    pub(super) async fn view(&self, addr: &NodeAddr) -> Result<NodeView, StoreError> {
        let limit = self.settings().command_timeout / 4;
        let view = self.client.query(addr, None, limit).await;
        view.map(|(view, _)| view)
    }

    /// Ends the subscriptions whose slot is now on another server, so that their waiters subscribe there, and drops the servers
    /// without slots.
    pub(super) fn apply_slot_map(&self, slot_map: &Arc<SlotMap>) {
        let mut known = self.lock();
        for (addr, node) in &*known {
            let (addr, slot_map) = (addr.clone(), slot_map.clone());
            node.pubsub
                .retain_channels(move |channel| slot_map.owner(Slot::of(channel)) == Some(&addr));
        }
        known.retain(|addr, _| slot_map.addrs().binary_search(addr).is_ok());
    }

    pub(super) fn settings(&self) -> &RedisSettings {
        &self.client.settings
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<NodeAddr, Arc<Redis>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Prints no password.
impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slot_map = self.known_slot_map();
        f.debug_struct("Nodes")
            .field("addrs", &slot_map.as_ref().map(|slot_map| slot_map.addrs()))
            .finish_non_exhaustive()
    }
}
