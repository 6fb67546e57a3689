//! Background calls, on a connection of their own: renewals are sent together, every other request on its own.

#![expect(
    clippy::disallowed_methods,
    reason = "the requests do not wait for each other"
)]

use std::collections::HashMap;
use std::sync::Arc;

use redis::Value;
use tokio::task::JoinSet;

use super::durability::{ScriptOutcome, ScriptReply};
use super::scripts::{self, ScriptCall};
use super::{Redis, single};
use crate::engine::{StoreError, StoreErrorKind};
use crate::protocol::{Kind, Reply, Request};

type BackgroundResult = Result<Reply, StoreError>;

/// Carries out the requests, and returns the replies in the same order. No call waits for the reply to another.
pub(super) async fn call(redis: Arc<Redis>, requests: Vec<Request>) -> Vec<BackgroundResult> {
    if let [request] = &*requests {
        // Most often this is the release of a dropped guard: there is nothing to keep apart.
        return vec![call_single(&redis, request).await];
    }
    let count = requests.len();
    let mut renewals: HashMap<Kind, (Vec<usize>, Vec<Request>)> = HashMap::new();
    let mut tasks = JoinSet::new();
    for (index, request) in requests.into_iter().enumerate() {
        match scripts::renewal(&request) {
            Some(kind) => {
                let (indexes, batch) = renewals.entry(kind).or_default();
                indexes.push(index);
                batch.push(request);
            }
            None => {
                let redis = redis.clone();
                tasks
                    .spawn(async move { (vec![index], vec![call_single(&redis, &request).await]) });
            }
        }
    }
    for (kind, (indexes, batch)) in renewals {
        let redis = redis.clone();
        tasks.spawn(async move { (indexes, renew(redis, kind, batch).await) });
    }
    collect_replies(count, tasks).await
}

/// Some of the replies, and their positions.
pub(super) type IndexedReplies = (Vec<usize>, Vec<BackgroundResult>);

/// Collects all of `count` replies, in their order.
pub(super) async fn collect_replies(
    count: usize,
    mut tasks: JoinSet<IndexedReplies>,
) -> Vec<BackgroundResult> {
    let mut replies = vec![None; count];
    while let Some(part) = tasks.join_next().await {
        // A task that did not finish leaves its positions empty.
        let (indexes, part) = part.unwrap_or_default();
        for (index, reply) in indexes.into_iter().zip(part) {
            replies[index] = Some(reply);
        }
    }
    let unknown = || {
        Err(StoreError::new(
            StoreErrorKind::Interrupted,
            "the call was interrupted",
        ))
    };
    let replies = replies.into_iter();
    replies.map(|reply| reply.unwrap_or_else(unknown)).collect()
}

async fn renew(redis: Arc<Redis>, kind: Kind, requests: Vec<Request>) -> Vec<BackgroundResult> {
    let call = ScriptCall::renew_all(kind, &requests, &redis.keys);
    let ran = redis.background_for_grants().run(&call).await;
    match ran.and_then(ScriptOutcome::executed) {
        Ok(ScriptReply {
            value: Value::Array(replies),
            durable,
        }) if replies.len() == requests.len() => {
            let replies = replies.into_iter();
            replies
                .map(|reply| durable.apply_to(scripts::renewed(reply)))
                .collect()
        }
        Ok(ScriptReply { value, .. }) => {
            let failure = StoreError::new(
                StoreErrorKind::Unexpected,
                format!("unexpected reply {value:?}"),
            );
            vec![Err(failure); requests.len()]
        }
        // One key that is forbidden or foreign may fail the whole call: find out which one, and spare the others.
        Err(failure)
            if matches!(
                failure.kind,
                StoreErrorKind::Denied | StoreErrorKind::WrongKind
            ) && requests.len() > 1 =>
        {
            let mut each = JoinSet::new();
            for (index, request) in requests.into_iter().enumerate() {
                let redis = redis.clone();
                each.spawn(async move { (index, call_single(&redis, &request).await) });
            }
            let mut replies = each.join_all().await;
            replies.sort_by_key(|(index, _)| *index);
            replies.into_iter().map(|(_, reply)| reply).collect()
        }
        Err(failure) => vec![Err(failure); requests.len()],
    }
}

async fn call_single(redis: &Redis, request: &Request) -> BackgroundResult {
    single::call(
        redis.background_connection_for(request),
        &redis.keys,
        request,
        false,
    )
    .await
}
