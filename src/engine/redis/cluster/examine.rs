//! Looks whether a cluster is fit for locks: as a whole, and each of its servers.

use std::sync::Arc;

use super::Cluster;
use super::chart::View;
use crate::engine::redis::site::Site;
use crate::engine::redis::{Redis, examine};
use crate::engine::{Cause, Failure, Finding, Verdict};

/// Of a server that does not answer.
const GONE: &str = "server";

/// With fewer masters, one that is gone leaves no majority.
const ENOUGH: usize = 3;

#[expect(clippy::disallowed_methods, reason = "engines may wait")]
pub(super) async fn examine(cluster: Arc<Cluster>) -> Result<Vec<Finding>, Failure> {
    let nodes = &cluster.nodes;
    let missing = nodes.chart().await?.missing();
    let views = nodes.views().await?;
    let mut findings = vec![slots(missing, views.len()), followers(&views)];
    let mut each: Vec<Finding> = Vec::new();
    for (site, node) in nodes.all().await? {
        let limit = nodes.settings().command_timeout / 4;
        let found = tokio::time::timeout(limit, server(&node)).await;
        let silent = |_| Err(Failure::new(Cause::TimedOut, "it does not answer"));
        let findings = found.unwrap_or_else(silent).unwrap_or_else(|failure| {
            let advice = "see to it: the locks in its slots cannot be had";
            vec![Finding::fail(GONE, failure.detail, advice)]
        });
        for finding in findings {
            let finding = of_site(&site, finding);
            match each
                .iter_mut()
                .find(|known| known.subject == finding.subject)
            {
                // One that is worse says more.
                Some(known) if known.verdict < finding.verdict => *known = finding,
                Some(_) => {}
                None => each.push(finding),
            }
        }
    }
    let all_there = each.iter().all(|finding| finding.subject != GONE);
    findings.append(&mut each);
    // Where a server is gone, a lock may be in its slots, and then nobody says whether it could be had.
    if all_there {
        findings.extend(examine::permissions(&cluster).await);
    }
    Ok(findings)
}

async fn server(node: &Redis) -> Result<Vec<Finding>, Failure> {
    let mut findings = examine::server(node).await?;
    findings.push(examine::clock(node).await?);
    Ok(findings)
}

/// Where it is not as it should be, it matters at which server.
fn of_site(site: &Site, finding: Finding) -> Finding {
    if finding.verdict == Verdict::Ok {
        return finding;
    }
    Finding {
        found: format!("{site}: {}", finding.found),
        ..finding
    }
}

fn slots(missing: usize, masters: usize) -> Finding {
    let what = "slots";
    if missing > 0 {
        return Finding::fail(
            what,
            format!("nobody has {missing} of 16384: a lock in one of those cannot be had"),
            "see to the servers that are down, or give their slots to others",
        );
    }
    let found = format!("all are served, by {masters} masters");
    if masters < ENOUGH {
        let advice = "run three: when one of fewer is gone no majority puts a replica in its place";
        return Finding::warn(what, found, advice);
    }
    Finding::ok(what, found)
}

/// Of each master, by its own word.
fn followers(views: &[(Site, Result<View, Failure>)]) -> Finding {
    let what = "replicas";
    let without = views.iter().filter(|(site, view)| {
        let claims = view.iter().flat_map(|view| &view.claims);
        let mut own = claims.filter(|claim| claim.site == *site);
        own.any(|claim| claim.replicas == 0)
    });
    let without: Vec<String> = without.map(|(site, _)| site.to_string()).collect();
    if without.is_empty() {
        return Finding::ok(what, "every master has one");
    }
    Finding::warn(
        what,
        format!("none follows {}", without.join(", ")),
        "run one for each, on a machine of its own: nobody else can take its place",
    )
}
