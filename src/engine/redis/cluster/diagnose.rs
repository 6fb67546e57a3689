//! Diagnoses a cluster: the cluster as a whole, each of its servers, and a probe lock on each server.

#![expect(
    clippy::disallowed_methods,
    reason = "engines may wait, and the queries end with their caller"
)]

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::Cluster;
use super::nodes::Nodes;
use super::slot_map::{NodeView, SlotMap};
use crate::engine::probe::ProbeLock;
use crate::engine::redis::node_addr::NodeAddr;
use crate::engine::redis::slot::SLOTS;
use crate::engine::redis::{Redis, diagnose};
use crate::engine::{Diagnostic, StoreError, StoreErrorKind};

/// Subject of the finding for a server that does not reply.
const UNREACHABLE: &str = "server";

pub(super) async fn diagnose(
    cluster: Arc<Cluster>,
    probe: bool,
) -> Result<Vec<Diagnostic>, StoreError> {
    let nodes = &cluster.nodes;
    let slot_map = nodes.slot_map().await?;
    let views = views(nodes, &slot_map).await;
    let mut findings = vec![
        diagnose::cluster::slots(slot_map.missing(), views.len()),
        diagnose::cluster::replicas(&masters_without_replicas(&views)),
    ];
    let each = servers(nodes, &slot_map).await?;
    // No server replies for the slots of an unreachable server, so that no probe lock is tried there.
    let is_unreachable = |findings: &[Diagnostic]| {
        findings
            .iter()
            .any(|finding| finding.subject == UNREACHABLE)
    };
    let there = each
        .iter()
        .filter(|(_, findings)| !is_unreachable(findings));
    let there: Vec<NodeAddr> = there.map(|(addr, _)| addr.clone()).collect();
    findings.extend(merge(each));
    let limit = nodes.settings().command_timeout;
    let listing = async {
        // The locks in the slots of an unreachable server cannot be listed either.
        match there == slot_map.addrs() {
            true => diagnose::check_listing(&cluster, &diagnose::new_probe(), limit, probe).await,
            false => Vec::new(),
        }
    };
    let (taken, seen) = tokio::join!(locks(&cluster, &slot_map, &there, (limit, probe)), listing);
    findings.extend(merge(taken));
    findings.extend(seen);
    Ok(findings)
}

fn merge(each: Vec<(NodeAddr, Vec<Diagnostic>)>) -> Vec<Diagnostic> {
    let each = each.into_iter();
    let each = each.map(|(addr, findings)| (addr.to_string(), findings));
    diagnose::cluster::merge(each.collect())
}

/// Returns the findings of each server about itself.
async fn servers(
    nodes: &Nodes,
    slot_map: &SlotMap,
) -> Result<Vec<(NodeAddr, Vec<Diagnostic>)>, StoreError> {
    let limit = nodes.settings().command_timeout / 4;
    let query = |(addr, node): (NodeAddr, Arc<Redis>)| async move {
        let found = tokio::time::timeout(limit, server(&node)).await;
        let silent = |_| {
            Err(StoreError::new(
                StoreErrorKind::TimedOut,
                "the server does not reply",
            ))
        };
        let findings = found.unwrap_or_else(silent).unwrap_or_else(|failure| {
            let advice = "repair or replace this server: the locks in its slots cannot be acquired";
            vec![Diagnostic::fail(UNREACHABLE, failure.detail, advice)]
        });
        (addr, findings)
    };
    let addrs = slot_map.addrs().iter();
    let all: Result<Vec<_>, StoreError> = addrs
        .map(|addr| Ok((addr.clone(), nodes.at(addr)?)))
        .collect();
    Ok(join_all(all?.into_iter().map(query)).await)
}

async fn server(node: &Redis) -> Result<Vec<Diagnostic>, StoreError> {
    let mut findings = diagnose::server(node).await?;
    findings.push(diagnose::clock(node).await?);
    Ok(findings)
}

/// Checks locking on each of these servers: subscribes to the channel of a probe lock, and acquires it if `probe` is set.
async fn locks(
    cluster: &Arc<Cluster>,
    slot_map: &SlotMap,
    addrs: &[NodeAddr],
    (limit, probe): (Duration, bool),
) -> Vec<(NodeAddr, Vec<Diagnostic>)> {
    let takes = addrs.iter().filter_map(|addr| {
        let trial = probe_for_node(cluster, slot_map, addr)?;
        let (cluster, addr) = (cluster.clone(), addr.clone());
        Some(async move {
            let found = diagnose::check_locking(&cluster, &trial, limit, probe).await;
            (addr, found)
        })
    });
    join_all(takes).await
}

/// Returns a probe lock whose slot is on this server, or `None` if there is none: a prefix with a hash tag puts all names into
/// one slot.
fn probe_for_node(cluster: &Cluster, slot_map: &SlotMap, addr: &NodeAddr) -> Option<ProbeLock> {
    // Enough attempts to find a name even for a server with a single slot. If the prefix puts all names into one slot, one
    // attempt is enough.
    let most = if cluster.nodes.keys.has_one_slot() {
        1
    } else {
        SLOTS * 10
    };
    let mut trials = std::iter::repeat_with(diagnose::new_probe).take(most);
    trials.find(|trial| {
        let slot = cluster.slot(&trial.acquire).ok();
        slot.and_then(|slot| slot_map.owner(slot)) == Some(addr)
    })
}

/// Runs all futures concurrently and returns their results, sorted by address.
async fn join_all<T, F>(queries: impl Iterator<Item = F>) -> Vec<(NodeAddr, T)>
where
    T: Send + 'static,
    F: Future<Output = (NodeAddr, T)> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for query in queries {
        tasks.spawn(query);
    }
    let mut replies = tasks.join_all().await;
    replies.sort_by(|(one, _), (other, _)| one.cmp(other));
    replies
}

async fn views(
    nodes: &Arc<Nodes>,
    slot_map: &SlotMap,
) -> Vec<(NodeAddr, Result<NodeView, StoreError>)> {
    let query = |addr: &NodeAddr| {
        let (nodes, addr) = (nodes.clone(), addr.clone());
        async move {
            let view = nodes.view(&addr).await;
            (addr, view)
        }
    };
    join_all(slot_map.addrs().iter().map(query)).await
}

/// Returns the masters without a replica, each according to its own reply.
fn masters_without_replicas(views: &[(NodeAddr, Result<NodeView, StoreError>)]) -> Vec<String> {
    let without = views.iter().filter(|(addr, view)| {
        let claims = view.iter().flat_map(|view| &view.claims);
        let mut own = claims.filter(|claim| claim.addr == *addr);
        own.any(|claim| claim.replicas == 0)
    });
    without.map(|(addr, _)| addr.to_string()).collect()
}
