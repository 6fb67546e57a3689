//! The servers of a cluster, and what is believed of who has which slot.

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

/// What the task makes known.
#[derive(Clone, Debug, Default)]
pub(super) struct ClusterTopology {
    /// Once anybody has said it.
    pub(super) slot_map: Option<Arc<SlotMap>>,
    /// How often slots have changed hands.
    pub(super) move_count: u64,
    /// Why nothing is known.
    pub(super) last_error: Option<StoreError>,
    /// How often that was found.
    pub(super) failed_refreshes: u64,
}

/// What the task is told.
#[derive(Debug)]
pub(super) enum ClusterWatcherCommand {
    /// Somebody was sent elsewhere, or found nobody.
    Refresh,
}

/// All servers of one cluster that were ever called, for one client.
pub(super) struct Nodes {
    pub(super) keys: Keys,
    client: Arc<ClusterNodeClient>,
    fork_detector: ForkDetector,
    /// How messages are sent, where the address says it.
    pubsub_mode: Option<PubSubMode>,
    /// Where what nobody waits for runs.
    background: Handle,
    known: Mutex<HashMap<NodeAddr, Arc<Redis>>>,
    topology: watch::Receiver<ClusterTopology>,
    /// Goes on when something is new, and in the pace in which it is worth trying again.
    retry_ticks: watch::Receiver<()>,
    commands: mpsc::UnboundedSender<ClusterWatcherCommand>,
    /// Of how many moves of slots those have been told who hold something.
    reported_moves: AtomicU64,
}

impl Nodes {
    /// Starts the task on `background`. It ends with this.
    pub(super) fn watch(
        address: Address,
        seeds: &[(String, u16)],
        pubsub_mode: Option<PubSubMode>,
        settings: RedisSettings,
        background: &Handle,
    ) -> Arc<Self> {
        let (commands, inbox) = mpsc::unbounded_channel();
        let (topology_tx, topology) = watch::channel(ClusterTopology::default());
        let (retry_tick_tx, retry_ticks) = watch::channel(());
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
            retry_ticks,
            commands,
            reported_moves: AtomicU64::new(0),
        });
        let seeds = NodeAddr::from_hosts(seeds).into();
        let weak = Arc::downgrade(&nodes);
        #[expect(clippy::disallowed_methods, reason = "an engine's own task")]
        background.spawn(async move {
            let task = ClusterWatcher {
                client,
                seeds,
                nodes: weak,
                inbox,
                topology_tx,
                retry_tick_tx,
                state: WatcherState::new(),
            };
            task.run().await;
        });
        nodes
    }

    /// Who has which slot. Waits for somebody to say it, if nobody has.
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
        let gone = |_| StoreError::new(StoreErrorKind::Unreachable, "the client's thread has gone");
        let ClusterTopology {
            slot_map,
            last_error,
            ..
        } = known.map_err(gone)?;
        slot_map.ok_or_else(|| {
            last_error.unwrap_or_else(|| {
                let why = "no server has said who has which slot";
                StoreError::new(StoreErrorKind::Unreachable, why)
            })
        })
    }

    /// The same, if anybody has said it.
    pub(super) fn known_slot_map(&self) -> Option<Arc<SlotMap>> {
        self.topology.borrow().slot_map.clone()
    }

    /// Where the server is that has a slot.
    pub(super) async fn owner(&self, slot: Slot) -> Result<NodeAddr, StoreError> {
        let slot_map = self.slot_map().await?;
        let Some(addr) = slot_map.owner(slot) else {
            let why = format!("no server of the cluster has slot {}", slot.number());
            return Err(StoreError::new(StoreErrorKind::NotReady, why));
        };
        Ok(addr.clone())
    }

    /// All that have any.
    pub(super) async fn all(&self) -> Result<Vec<(NodeAddr, Arc<Redis>)>, StoreError> {
        let slot_map = self.slot_map().await?;
        let addrs = slot_map.addrs().iter();
        addrs
            .map(|addr| Ok((addr.clone(), self.at(addr)?)))
            .collect()
    }

    /// The server that is there.
    pub(super) fn at(&self, addr: &NodeAddr) -> Result<Arc<Redis>, StoreError> {
        let mut known = self.lock();
        if let Some(node) = known.get(addr) {
            return Ok(node.clone());
        }
        let ClusterNodeClient {
            address, settings, ..
        } = &*self.client;
        let settings = RedisSettings {
            shard: Some(self.pubsub_mode()),
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

    /// How messages are sent: as Redisson decides it, if nobody else has.
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

    /// Has them asked soon, because something was not where it should be.
    pub(super) fn refresh(&self) {
        // Nobody left to be told means that the client's thread has gone.
        let _ = self.commands.send(ClusterWatcherCommand::Refresh);
    }

    /// Has them asked soon, and resolves when they may have said something new; or after a moment. Says whether there is
    /// somebody to ask them.
    pub(super) async fn refreshed(&self) -> bool {
        // Before they are asked, so that what they say is not missed.
        let mut retry_ticks = self.retry_ticks.clone();
        retry_ticks.mark_unchanged();
        self.refresh();
        retry_ticks.changed().await.is_ok()
    }

    /// Resolves when slots have changed hands since somebody was told; they are told now.
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

    /// Resolves when the servers are others than these.
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

    /// A forked child may find locks taken by threads it does not have.
    pub(super) fn not_forked(&self) -> Result<(), StoreError> {
        if self.fork_detector.has_forked() {
            return Err(StoreError::new(
                StoreErrorKind::Unreachable,
                "this process was forked",
            ));
        }
        Ok(())
    }

    /// What one of them says of all, to an operator.
    pub(super) async fn view(&self, addr: &NodeAddr) -> Result<NodeView, StoreError> {
        let limit = self.settings().command_timeout / 4;
        let view = self.client.query(addr, None, limit).await;
        view.map(|(view, _)| view)
    }

    /// Whoever listens where nothing is said any more begins anew elsewhere; who has no slot is left.
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

/// Never the password.
impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slot_map = self.known_slot_map();
        f.debug_struct("Nodes")
            .field("sites", &slot_map.as_ref().map(|slot_map| slot_map.addrs()))
            .finish_non_exhaustive()
    }
}
