//! What nobody waits for: renewals of one slot together, the rest each for itself.

#![expect(
    clippy::disallowed_methods,
    reason = "they are not to wait for each other"
)]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::names;
use super::nodes::Nodes;
use super::route::{Track, carry};
use super::turn::Turn;
use crate::engine::Failure;
use crate::engine::redis::slot::Slot;
use crate::engine::redis::{apart, scripts};
use crate::protocol::lease::LOOK;
use crate::protocol::{Action, Reply, Request};

type Answer = Result<Reply, Failure>;

/// Carries them out and returns the answers in the same order. None waits for another's answer.
pub(super) async fn call(nodes: Arc<Nodes>, requests: Vec<Request>) -> Vec<Answer> {
    let count = requests.len();
    let limit = limit(&requests);
    let mut renewals: HashMap<Slot, (Vec<usize>, Vec<Request>)> = HashMap::new();
    let mut parts = JoinSet::new();
    for (place, request) in requests.into_iter().enumerate() {
        if scripts::renewal(&request).is_some() {
            let slot = names::slot_of_key(&nodes.keys, &request.subject.name);
            let (places, together) = renewals.entry(slot).or_default();
            places.push(place);
            together.push(request);
        } else {
            let nodes = nodes.clone();
            parts.spawn(async move { (vec![place], vec![alone(&nodes, &request, limit).await]) });
        }
    }
    for (slot, (places, together)) in renewals {
        let nodes = nodes.clone();
        parts.spawn(async move { (places, renew(&nodes, slot, together, limit).await) });
    }
    apart::gathered(count, parts).await
}

/// In one call; those that are not where they were, or on their way, each by itself.
async fn renew(
    nodes: &Arc<Nodes>,
    slot: Slot,
    requests: Vec<Request>,
    limit: Duration,
) -> Vec<Answer> {
    if let [request] = &*requests {
        return vec![alone(nodes, request, limit).await];
    }
    let there = async {
        let site = nodes.owner(slot).await?;
        let node = nodes.at(&site)?;
        Ok((site, node))
    };
    let (site, mut answers) = match there.await {
        Ok((site, node)) => (site, apart::call(node, requests.clone()).await),
        Err(failure) => return vec![Err(failure); requests.len()],
    };
    let sent_away = |answer: &Answer| {
        let failure = answer.as_ref().err();
        failure.is_some_and(|failure| Turn::of(failure, &site).is_some())
    };
    let mut again = JoinSet::new();
    for (place, request) in requests.into_iter().enumerate() {
        if sent_away(&answers[place]) {
            let nodes = nodes.clone();
            again.spawn(async move { (place, alone(&nodes, &request, limit).await) });
        }
    }
    while let Some(Ok((place, answer))) = again.join_next().await {
        answers[place] = answer;
    }
    answers
}

/// One that is tried for longer than the others can wait costs them their answers: the driver counts all of them or none, and
/// lets go after a third of the shortest lease.
fn limit(requests: &[Request]) -> Duration {
    let leases = requests.iter().filter_map(|request| match request.action {
        Action::Renew { lease, .. } if lease != LOOK => Some(lease / 3),
        _ => None,
    });
    leases.min().unwrap_or(Duration::MAX)
}

async fn alone(nodes: &Nodes, request: &Request, limit: Duration) -> Answer {
    carry(nodes, request, Track::Apart(limit)).await
}
