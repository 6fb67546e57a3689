//! Background requests in a cluster: one call for all renewals in a slot, one call for each other request.

#![expect(
    clippy::disallowed_methods,
    reason = "the requests do not wait for each other"
)]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::lock_slot;
use super::nodes::Nodes;
use super::redirect::NextAttempt;
use super::router::send_request;
use crate::engine::StoreError;
use crate::engine::redis::call_priority::CallPriority;
use crate::engine::redis::slot::Slot;
use crate::engine::redis::{background, scripts};
use crate::protocol::lease::CHECK_LEASE;
use crate::protocol::{Action, Reply, Request};

type RenewResult = Result<Reply, StoreError>;

/// Sends the requests and returns the replies in the same order. No reply waits for another.
pub(super) async fn call(nodes: Arc<Nodes>, requests: Vec<Request>) -> Vec<RenewResult> {
    let count = requests.len();
    let limit = limit(&requests);
    let mut renewals: HashMap<Slot, (Vec<usize>, Vec<Request>)> = HashMap::new();
    let mut tasks = JoinSet::new();
    for (index, request) in requests.into_iter().enumerate() {
        if scripts::renewal(&request).is_some() {
            let slot = lock_slot::slot_of_key(&nodes.keys, &request.subject.name);
            let (indexes, batch) = renewals.entry(slot).or_default();
            indexes.push(index);
            batch.push(request);
        } else {
            let nodes = nodes.clone();
            tasks.spawn(async move {
                (
                    vec![index],
                    vec![call_single(&nodes, &request, limit).await],
                )
            });
        }
    }
    for (slot, (indexes, batch)) in renewals {
        let nodes = nodes.clone();
        tasks.spawn(async move { (indexes, renew(&nodes, slot, batch, limit).await) });
    }
    background::collect_replies(count, tasks).await
}

/// Renews holds in one slot by one call. Requests that were redirected are sent again one by one.
async fn renew(
    nodes: &Arc<Nodes>,
    slot: Slot,
    requests: Vec<Request>,
    limit: Duration,
) -> Vec<RenewResult> {
    if let [request] = &*requests {
        return vec![call_single(nodes, request, limit).await];
    }
    let target = async {
        let addr = nodes.owner(slot).await?;
        let node = nodes.at(&addr)?;
        Ok((addr, node))
    };
    let (addr, mut replies) = match target.await {
        Ok((addr, node)) => (addr, background::call(node, requests.clone()).await),
        Err(failure) => return vec![Err(failure); requests.len()],
    };
    let redirected = |reply: &RenewResult| {
        let failure = reply.as_ref().err();
        failure.is_some_and(|failure| NextAttempt::of(failure, &addr).is_some())
    };
    let mut again = JoinSet::new();
    for (index, request) in requests.into_iter().enumerate() {
        if redirected(&replies[index]) {
            let nodes = nodes.clone();
            again.spawn(async move { (index, call_single(&nodes, &request, limit).await) });
        }
    }
    while let Some(Ok((index, reply))) = again.join_next().await {
        replies[index] = reply;
    }
    replies
}

/// Returns the time limit for one request. The driver uses the replies of a batch together, and stops waiting after a third of
/// the shortest lease: a request that is retried for longer would cost the others their replies.
fn limit(requests: &[Request]) -> Duration {
    let leases = requests.iter().filter_map(|request| match request.action {
        Action::Renew { lease, .. } if lease != CHECK_LEASE => Some(lease / 3),
        _ => None,
    });
    leases.min().unwrap_or(Duration::MAX)
}

async fn call_single(nodes: &Nodes, request: &Request, limit: Duration) -> RenewResult {
    send_request(nodes, request, CallPriority::Background, Some(limit)).await
}
