//! Looks whether a cluster is fit for locks: as a whole, each of its servers, and a lock at each of them.

#![expect(
    clippy::disallowed_methods,
    reason = "engines may wait, and what is asked ends with who asks"
)]

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::Cluster;
use super::chart::{Chart, View};
use super::nodes::Nodes;
use crate::engine::redis::site::Site;
use crate::engine::redis::slot::SLOTS;
use crate::engine::redis::{Redis, examine};
use crate::engine::trial::Trial;
use crate::engine::{Cause, Failure, Finding};

/// Of a server that does not answer.
const GONE: &str = "server";

pub(super) async fn examine(cluster: Arc<Cluster>, probe: bool) -> Result<Vec<Finding>, Failure> {
    let nodes = &cluster.nodes;
    let chart = nodes.chart().await?;
    let views = views(nodes, &chart).await;
    let mut findings = vec![
        examine::cluster::slots(chart.missing(), views.len()),
        examine::cluster::followers(&without_followers(&views)),
    ];
    let each = servers(nodes, &chart).await?;
    // Where a server is gone nobody says whether a lock in its slots could be had.
    let gone = |findings: &[Finding]| findings.iter().any(|finding| finding.subject == GONE);
    let there = each.iter().filter(|(_, findings)| !gone(findings));
    let there: Vec<Site> = there.map(|(site, _)| site.clone()).collect();
    findings.extend(together(each));
    let limit = nodes.settings().command_timeout;
    let looking = async {
        // Nor what is held there.
        match there == chart.sites() {
            true => examine::looking(&cluster, &examine::trial(), limit, probe).await,
            false => Vec::new(),
        }
    };
    let (taken, seen) = tokio::join!(locks(&cluster, &chart, &there, (limit, probe)), looking);
    findings.extend(together(taken));
    findings.extend(seen);
    Ok(findings)
}

fn together(each: Vec<(Site, Vec<Finding>)>) -> Vec<Finding> {
    let each = each.into_iter();
    let each = each.map(|(site, findings)| (site.to_string(), findings));
    examine::cluster::together(each.collect())
}

/// What each of them says of itself.
async fn servers(nodes: &Nodes, chart: &Chart) -> Result<Vec<(Site, Vec<Finding>)>, Failure> {
    let limit = nodes.settings().command_timeout / 4;
    let ask = |(site, node): (Site, Arc<Redis>)| async move {
        let found = tokio::time::timeout(limit, server(&node)).await;
        let silent = |_| Err(Failure::new(Cause::TimedOut, "it does not answer"));
        let findings = found.unwrap_or_else(silent).unwrap_or_else(|failure| {
            let advice = "see to it: the locks in its slots cannot be had";
            vec![Finding::fail(GONE, failure.detail, advice)]
        });
        (site, findings)
    };
    let sites = chart.sites().iter();
    let all: Result<Vec<_>, Failure> = sites
        .map(|site| Ok((site.clone(), nodes.at(site)?)))
        .collect();
    Ok(at_once(all?.into_iter().map(ask)).await)
}

async fn server(node: &Redis) -> Result<Vec<Finding>, Failure> {
    let mut findings = examine::server(node).await?;
    findings.push(examine::clock(node).await?);
    Ok(findings)
}

/// Subscribes to a lock's channel at each of them, and as a probe acquires the lock.
async fn locks(
    cluster: &Arc<Cluster>,
    chart: &Chart,
    sites: &[Site],
    (limit, probe): (Duration, bool),
) -> Vec<(Site, Vec<Finding>)> {
    let takes = sites.iter().filter_map(|site| {
        let trial = trial_at(cluster, chart, site)?;
        let (cluster, site) = (cluster.clone(), site.clone());
        Some(async move {
            let found = examine::locking(&cluster, &trial, limit, probe).await;
            (site, found)
        })
    });
    at_once(takes).await
}

/// A lock at this server. None if its name cannot be there: a prefix with braces puts all names into one slot.
fn trial_at(cluster: &Cluster, chart: &Chart, site: &Site) -> Option<Trial> {
    // Enough to find one even for a server that has a single slot. Where all names are in one slot, one name is enough.
    let most = if cluster.nodes.keys.has_one_slot() {
        1
    } else {
        SLOTS * 10
    };
    let mut trials = std::iter::repeat_with(examine::trial).take(most);
    trials.find(|trial| {
        let slot = cluster.slot(&trial.acquire).ok();
        slot.and_then(|slot| chart.owner(slot)) == Some(site)
    })
}

/// All of them at the same time, and what came of them, sorted.
async fn at_once<T, F>(questions: impl Iterator<Item = F>) -> Vec<(Site, T)>
where
    T: Send + 'static,
    F: Future<Output = (Site, T)> + Send + 'static,
{
    let mut asked = JoinSet::new();
    for question in questions {
        asked.spawn(question);
    }
    let mut answers = asked.join_all().await;
    answers.sort_by(|(one, _), (other, _)| one.cmp(other));
    answers
}

async fn views(nodes: &Arc<Nodes>, chart: &Chart) -> Vec<(Site, Result<View, Failure>)> {
    let ask = |site: &Site| {
        let (nodes, site) = (nodes.clone(), site.clone());
        async move {
            let view = nodes.view(&site).await;
            (site, view)
        }
    };
    at_once(chart.sites().iter().map(ask)).await
}

/// The masters that have nobody, each by its own word.
fn without_followers(views: &[(Site, Result<View, Failure>)]) -> Vec<String> {
    let without = views.iter().filter(|(site, view)| {
        let claims = view.iter().flat_map(|view| &view.claims);
        let mut own = claims.filter(|claim| claim.site == *site);
        own.any(|claim| claim.replicas == 0)
    });
    without.map(|(site, _)| site.to_string()).collect()
}
