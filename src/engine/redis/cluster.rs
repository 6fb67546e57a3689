//! Locks on a Redis Cluster: each lock is in its slot, on the server that has this slot.
//!
//! Every server is a [`Redis`] with connections of its own, so that a slow or unreachable server delays no call to
//! another. The client library's own cluster connection is not used: it resends requests that may have been carried
//! out.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tracing::Level;

mod diagnose;
mod find;
mod inspect;
mod lock_slot;
mod node_client;
mod nodes;
mod redirect;
mod renew;
mod router;
mod slot_map;
mod subscribe;
mod watcher;

use self::nodes::Nodes;
use self::router::{Hop, Router, send_request};
use super::Redis;
use super::backoff::jittered;
use super::call_priority::CallPriority;
use super::connector::Address;
use super::node_addr::NodeAddr;
use super::pubsub_mode::PubSubMode;
use super::settings::RedisSettings;
use super::slot::Slot;
use crate::engine::{
    BoxFuture, ChangeFeed, Diagnostic, Engine, Page, StoreError, StoreErrorKind, Subscription,
    Uptime,
};
use crate::protocol::{Channel, Kind, LockSnapshot, Reply, Request};

/// The engine for one Redis Cluster.
#[derive(Debug)]
pub struct Cluster {
    namespace_id: String,
    nodes: Arc<Nodes>,
}

impl Cluster {
    /// Queries the slot map from the servers that the address names. Background calls run on `background`.
    ///
    /// # Errors
    ///
    /// If no server can be reached, none knows a cluster, or they refuse the user or password.
    #[expect(
        clippy::disallowed_methods,
        reason = "engines may wait, and query servers concurrently"
    )]
    pub async fn connect(
        seeds: &[(String, u16)],
        address: Address,
        pubsub_mode: Option<PubSubMode>,
        settings: RedisSettings,
        background: &Handle,
    ) -> Result<Arc<Self>, StoreError> {
        let (limit, lazy_connect) = (settings.connect_timeout, settings.lazy_connect);
        let events = settings.events.clone();
        let namespace_id = format!(
            "redis-cluster:{}/{}",
            NodeAddr::join_sorted(seeds),
            settings.prefix
        );
        let nodes = Nodes::watch(address, seeds, pubsub_mode, settings, background);
        let cluster = Arc::new(Self {
            namespace_id,
            nodes,
        });
        let connected = tokio::time::timeout(limit, cluster.nodes.all()).await;
        let connected = connected.unwrap_or_else(|_| {
            let why = format!("no server of the cluster replied within {limit:?}");
            Err(StoreError::new(StoreErrorKind::Unreachable, why))
        });
        if let Ok(all) = &connected {
            let mut checks = JoinSet::new();
            for (_, node) in all {
                let node = node.clone();
                checks.spawn(async move { node.warn_of_eviction().await });
            }
            // The checks run together, and not for long: a server that hangs must not delay a caller that needs the
            // others.
            let _ = tokio::time::timeout(limit.min(MAX_CHECK), checks.join_all()).await;
        }
        let sharded = pubsub_mode.is_some_and(PubSubMode::is_sharded);
        if sharded
            && cluster
                .nodes
                .known_slot_map()
                .is_some_and(|slot_map| !slot_map.sharded)
        {
            let why = "not all servers of the cluster support sharded channels (Redis 7.0 or newer); omit `pubsub`";
            return Err(StoreError::new(StoreErrorKind::Unusable, why));
        }
        match connected {
            Err(failure) if lazy_connect && failure.is_transient() => {
                events.emit(Level::WARN, move || {
                    tracing::warn!(target: "distlock::connection", error = failure.detail, "the cluster is not reachable yet");
                });
                Ok(cluster)
            }
            connected => connected.map(|_| cluster),
        }
    }

    fn slot(&self, request: &Request) -> Result<Slot, StoreError> {
        lock_slot::slot(&self.nodes.keys, &request.subject.channel())
    }
}

impl Engine for Cluster {
    fn call(&self, request: Request) -> BoxFuture<Result<Reply, StoreError>> {
        let nodes = self.nodes.clone();
        Box::pin(
            async move { send_request(&nodes, &request, CallPriority::Foreground, None).await },
        )
    }

    fn call_background(
        self: Arc<Self>,
        requests: Vec<Request>,
    ) -> BoxFuture<Vec<Result<Reply, StoreError>>> {
        Box::pin(renew::call(self.nodes.clone(), requests))
    }

    fn shard(&self, name: &str) -> usize {
        let slot = lock_slot::slot_of_key(&self.nodes.keys, name);
        let slot_map = self.nodes.known_slot_map();
        slot_map
            .and_then(|slot_map| slot_map.node_index(slot))
            .unwrap_or(0)
    }

    fn namespace_id(&self) -> String {
        self.namespace_id.clone()
    }

    fn uptime(self: Arc<Self>) -> BoxFuture<Result<Option<Uptime>, StoreError>> {
        let why = "a cluster has no vote in a quorum lock, because its servers can be replaced at any time";
        Box::pin(async move { Err(StoreError::new(StoreErrorKind::Unusable, why)) })
    }

    fn incarnation_changed(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(async move {
            tokio::select! {
                () = self.nodes.slots_moved() => {}
                () = incarnation_changed(&self.nodes) => {}
            }
        })
    }

    fn subscribe(self: Arc<Self>, channel: Channel) -> BoxFuture<Result<Subscription, StoreError>> {
        Box::pin(subscribe::subscribe(self.nodes.clone(), channel))
    }

    /// Fails: a watch has to poll. A sharded message reaches only the waiters of that very lock, and a message to all
    /// servers may arrive late, after later changes.
    fn monitor(self: Arc<Self>, _pattern: String) -> BoxFuture<Result<ChangeFeed, StoreError>> {
        let why = "a cluster does not publish the changes of all locks";
        Box::pin(async move { Err(StoreError::new(StoreErrorKind::Unusable, why)) })
    }

    fn scan(self: Arc<Self>, pattern: String, from: u64) -> BoxFuture<Result<Page, StoreError>> {
        Box::pin(async move { find::find(self.nodes.clone(), &pattern, from).await })
    }

    fn inspect(
        self: Arc<Self>,
        name: Arc<str>,
    ) -> BoxFuture<Result<Option<(Kind, LockSnapshot)>, StoreError>> {
        Box::pin(inspect::inspect(self.nodes.clone(), name))
    }

    fn set_label(
        self: Arc<Self>,
        client: Arc<str>,
        label: Option<Arc<str>>,
        ttl: Duration,
    ) -> BoxFuture<Result<(), StoreError>> {
        Box::pin(async move {
            let mut router = Router::to(&self.nodes, slot_of_label(&self.nodes, &client))?;
            loop {
                let Hop { node, .. } = router.next_owner_hop().await?;
                let outcome = node.set_label(client.clone(), label.clone(), ttl);
                match outcome.await {
                    Err(failure) => router.retry_after(failure).await?,
                    outcome => return outcome,
                }
            }
        })
    }

    fn labels(
        self: Arc<Self>,
        clients: Vec<String>,
    ) -> BoxFuture<Result<Vec<Option<String>>, StoreError>> {
        Box::pin(labels(self.nodes.clone(), clients))
    }

    fn diagnose(self: Arc<Self>, probe: bool) -> BoxFuture<Result<Vec<Diagnostic>, StoreError>> {
        Box::pin(diagnose::diagnose(self, probe))
    }
}

/// Resolves when a server has restarted. A server that is gone may have a successor, so the others are queried.
#[expect(clippy::disallowed_methods, reason = "the tasks end with this future")]
async fn incarnation_changed(nodes: &Arc<Nodes>) {
    loop {
        let Ok(all) = nodes.all().await else {
            if !nodes.refreshed().await {
                std::future::pending().await
            }
            continue;
        };
        let addrs: Vec<_> = all.iter().map(|(addr, _)| addr.clone()).collect();
        let mut restarts = JoinSet::new();
        for (_, node) in all {
            let nodes = nodes.clone();
            restarts.spawn(async move {
                tokio::select! {
                    () = node.clone().incarnation_changed() => {}
                    () = refresh_when_disconnected(&node, &nodes) => {}
                }
            });
        }
        tokio::select! {
            Some(_) = restarts.join_next() => return,
            () = nodes.addrs_changed(&addrs) => {}
        }
    }
}

/// Requests a refresh of the slot map while the server is disconnected, with increasing backoff.
#[expect(clippy::disallowed_methods, reason = "engines may wait")]
async fn refresh_when_disconnected(node: &Redis, nodes: &Nodes) {
    let mut backoff = INITIAL_BACKOFF;
    loop {
        if node.background.ready().await.is_ok() {
            backoff = INITIAL_BACKOFF;
            node.background.disconnected().await;
        }
        nodes.refresh();
        tokio::time::sleep(jittered(backoff)).await;
        backoff = (backoff * 2).min(MAX_BACKOFF);
    }
}

/// Upper bound for the wait of `connect` for servers that do not reply to the check.
const MAX_CHECK: Duration = Duration::from_millis(500);
const INITIAL_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(3);

/// Reads the label of each client, which is in a slot of its own.
#[expect(
    clippy::disallowed_methods,
    reason = "the labels are read concurrently"
)]
async fn labels(
    nodes: Arc<Nodes>,
    clients: Vec<String>,
) -> Result<Vec<Option<String>>, StoreError> {
    let mut labels = vec![None; clients.len()];
    let mut checks = JoinSet::new();
    for (place, client) in clients.into_iter().enumerate() {
        let nodes = nodes.clone();
        checks.spawn(async move { Ok((place, label(&nodes, client).await?)) });
    }
    while let Some(check) = checks.join_next().await {
        let interrupted = || {
            Err(StoreError::new(
                StoreErrorKind::Interrupted,
                "the query was interrupted",
            ))
        };
        let (place, label) = check.unwrap_or_else(|_| interrupted())?;
        labels[place] = label;
    }
    Ok(labels)
}

fn slot_of_label(nodes: &Nodes, client: &str) -> Slot {
    Slot::of(&nodes.keys.label(client))
}

async fn label(nodes: &Nodes, client: String) -> Result<Option<String>, StoreError> {
    let mut router = Router::to(nodes, slot_of_label(nodes, &client))?;
    loop {
        let Hop { node, .. } = router.next_owner_hop().await?;
        match node.labels(vec![client.clone()]).await {
            Err(failure) => router.retry_after(failure).await?,
            labels => return labels.map(|labels| labels.into_iter().next().flatten()),
        }
    }
}
