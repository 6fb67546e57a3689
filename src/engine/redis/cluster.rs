//! Locks on a cluster: each in its slot, at whichever server has that.
//!
//! Every server is a [`Redis`] of its own, with connections of its own: a slow or dead one holds up nothing elsewhere. The
//! client library's own cluster connection is not used: it sends again what may have been carried out.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tracing::Level;

mod ask;
mod chart;
mod examine;
mod find;
mod hear;
mod inspect;
mod names;
mod nodes;
mod renew;
mod route;
mod task;
mod turn;

use self::nodes::Nodes;
use self::route::{Route, Stop, Track, carry};
use super::Redis;
use super::door::Address;
use super::manner::Manner;
use super::pace::at_random;
use super::settings::Settings;
use super::site::Site;
use super::slot::Slot;
use crate::engine::{Answer, Cause, Engine, Failure, Feed, Finding, Listener, Page, Uptime};
use crate::protocol::{Channel, Holding, Kind, Reply, Request};

/// A cluster.
#[derive(Debug)]
pub struct Cluster {
    place: String,
    nodes: Arc<Nodes>,
}

impl Cluster {
    /// Finds out who has which slot, from those of the servers that the address names. What nobody waits for runs on `apart`.
    ///
    /// # Errors
    ///
    /// If none of them can be reached, none knows a cluster, or they refuse the user or password.
    #[expect(
        clippy::disallowed_methods,
        reason = "engines may wait, and ask several at once"
    )]
    pub async fn connect(
        seeds: &[(String, u16)],
        address: Address,
        manner: Option<Manner>,
        settings: Settings,
        apart: &Handle,
    ) -> Result<Arc<Self>, Failure> {
        let (limit, may_be_down) = (settings.connect_timeout, settings.may_be_down);
        let events = settings.events.clone();
        let place = format!(
            "redis-cluster:{}/{}",
            Site::together(seeds),
            settings.prefix
        );
        let nodes = Nodes::watch(address, seeds, manner, settings, apart);
        let cluster = Arc::new(Self { place, nodes });
        let met = tokio::time::timeout(limit, cluster.nodes.all()).await;
        let met = met.unwrap_or_else(|_| {
            let why = format!("no server of the cluster has answered within {limit:?}");
            Err(Failure::new(Cause::Unreachable, why))
        });
        if let Ok(all) = &met {
            let mut looks = JoinSet::new();
            for (_, node) in all {
                let node = node.clone();
                looks.spawn(async move { node.warn_of_eviction().await });
            }
            // Together, and not for long: one that hangs is not to hold up whoever needs the others.
            let _ = tokio::time::timeout(limit.min(LONGEST_LOOK), looks.join_all()).await;
        }
        let sharded = manner.is_some_and(Manner::is_sharded);
        if sharded
            && cluster
                .nodes
                .known_chart()
                .is_some_and(|chart| !chart.sharded)
        {
            let why = "not all of its servers know sharded channels, as Redis does from 7.0 on; leave `pubsub` out";
            return Err(Failure::new(Cause::Unusable, why));
        }
        match met {
            Err(failure) if may_be_down && failure.is_passing() => {
                events.emit(Level::WARN, move || {
                    tracing::warn!(why = failure.detail, "not reachable yet");
                });
                Ok(cluster)
            }
            met => met.map(|_| cluster),
        }
    }

    fn slot(&self, request: &Request) -> Result<Slot, Failure> {
        names::slot(&self.nodes.keys, &request.subject.channel())
    }
}

impl Engine for Cluster {
    fn call(&self, request: Request) -> Answer<Result<Reply, Failure>> {
        let nodes = self.nodes.clone();
        Box::pin(async move { carry(&nodes, &request, Track::OfCallers).await })
    }

    fn call_apart(self: Arc<Self>, requests: Vec<Request>) -> Answer<Vec<Result<Reply, Failure>>> {
        Box::pin(renew::call(self.nodes.clone(), requests))
    }

    fn part(&self, name: &str) -> usize {
        let slot = names::slot_of_key(&self.nodes.keys, name);
        let chart = self.nodes.known_chart();
        chart.and_then(|chart| chart.place(slot)).unwrap_or(0)
    }

    fn place(&self) -> String {
        self.place.clone()
    }

    fn uptime(self: Arc<Self>) -> Answer<Result<Option<Uptime>, Failure>> {
        let why = "a cluster has no vote in a quorum lock: its servers come and go by themselves";
        Box::pin(async move { Err(Failure::new(Cause::Unusable, why)) })
    }

    fn unrest(self: Arc<Self>) -> Answer<()> {
        Box::pin(async move {
            tokio::select! {
                () = self.nodes.moved() => {}
                () = unrest(&self.nodes) => {}
            }
        })
    }

    fn listen(self: Arc<Self>, channel: Channel) -> Answer<Result<Listener, Failure>> {
        Box::pin(hear::listen(self.nodes.clone(), channel))
    }

    /// A message in a slot reaches nobody but those who wait for that very lock, and one to all servers comes when it comes,
    /// behind what has happened since: whoever watches has to look.
    fn overhear(self: Arc<Self>, _pattern: String) -> Answer<Result<Feed, Failure>> {
        let why = "in a cluster nobody is told of all locks";
        Box::pin(async move { Err(Failure::new(Cause::Unusable, why)) })
    }

    fn find(self: Arc<Self>, pattern: String, from: u64) -> Answer<Result<Page, Failure>> {
        Box::pin(async move { find::find(self.nodes.clone(), &pattern, from).await })
    }

    fn inspect(
        self: Arc<Self>,
        name: Arc<str>,
    ) -> Answer<Result<Option<(Kind, Holding)>, Failure>> {
        Box::pin(inspect::inspect(self.nodes.clone(), name))
    }

    fn announce(
        self: Arc<Self>,
        client: Arc<str>,
        label: Option<Arc<str>>,
        ttl: Duration,
    ) -> Answer<Result<(), Failure>> {
        Box::pin(async move {
            let mut route = Route::to(&self.nodes, slot_of_label(&self.nodes, &client))?;
            loop {
                let Stop { node, .. } = route.stop_at_rest().await?;
                let told = node.announce(client.clone(), label.clone(), ttl);
                match told.await {
                    Err(failure) => route.go_on(failure).await?,
                    told => return told,
                }
            }
        })
    }

    fn labels(
        self: Arc<Self>,
        clients: Vec<String>,
    ) -> Answer<Result<Vec<Option<String>>, Failure>> {
        Box::pin(labels(self.nodes.clone(), clients))
    }

    fn examine(self: Arc<Self>, probe: bool) -> Answer<Result<Vec<Finding>, Failure>> {
        Box::pin(examine::examine(self, probe))
    }
}

/// Resolves when a server has restarted. Whoever has gone may have a successor: the others are asked.
#[expect(clippy::disallowed_methods, reason = "they end with this")]
async fn unrest(nodes: &Arc<Nodes>) {
    loop {
        let Ok(all) = nodes.all().await else {
            if !nodes.looked().await {
                std::future::pending().await
            }
            continue;
        };
        let sites: Vec<_> = all.iter().map(|(site, _)| site.clone()).collect();
        let mut restarts = JoinSet::new();
        for (_, node) in all {
            let nodes = nodes.clone();
            restarts.spawn(async move {
                tokio::select! {
                    () = node.clone().unrest() => {}
                    () = look_when_gone(&node, &nodes) => {}
                }
            });
        }
        tokio::select! {
            Some(_) = restarts.join_next() => return,
            () = nodes.others_than(&sites) => {}
        }
    }
}

/// The longer it is gone, the less often.
#[expect(clippy::disallowed_methods, reason = "engines may wait")]
async fn look_when_gone(node: &Redis, nodes: &Nodes) {
    let mut pause = PAUSE;
    loop {
        if node.apart.ready().await.is_ok() {
            pause = PAUSE;
            node.apart.gone().await;
        }
        nodes.look();
        tokio::time::sleep(at_random(pause)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// How long those who connect wait for servers that say nothing of themselves.
const LONGEST_LOOK: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// Each is in a slot of its own.
#[expect(
    clippy::disallowed_methods,
    reason = "many small looks go out together"
)]
async fn labels(nodes: Arc<Nodes>, clients: Vec<String>) -> Result<Vec<Option<String>>, Failure> {
    let mut labels = vec![None; clients.len()];
    let mut looks = JoinSet::new();
    for (place, client) in clients.into_iter().enumerate() {
        let nodes = nodes.clone();
        looks.spawn(async move { Ok((place, label(&nodes, client).await?)) });
    }
    while let Some(look) = looks.join_next().await {
        let gone = || Err(Failure::new(Cause::Interrupted, "the look was given up"));
        let (place, label) = look.unwrap_or_else(|_| gone())?;
        labels[place] = label;
    }
    Ok(labels)
}

fn slot_of_label(nodes: &Nodes, client: &str) -> Slot {
    Slot::of(&nodes.keys.label(client))
}

async fn label(nodes: &Nodes, client: String) -> Result<Option<String>, Failure> {
    let mut route = Route::to(nodes, slot_of_label(nodes, &client))?;
    loop {
        let Stop { node, .. } = route.stop_at_rest().await?;
        match node.labels(vec![client.clone()]).await {
            Err(failure) => route.go_on(failure).await?,
            labels => return labels.map(|labels| labels.into_iter().next().flatten()),
        }
    }
}
