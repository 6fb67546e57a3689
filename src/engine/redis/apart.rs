//! What nobody waits for, on a connection of its own: renewals together, the rest each for itself.

#![expect(
    clippy::disallowed_methods,
    reason = "they are not to wait for each other"
)]

use std::collections::HashMap;
use std::sync::Arc;

use redis::Value;
use tokio::task::JoinSet;

use super::assurance::{Ran, Said};
use super::scripts::{self, Call};
use super::{Redis, alone};
use crate::engine::{Cause, Failure};
use crate::protocol::{Kind, Reply, Request};

type Answer = Result<Reply, Failure>;

/// Carries them out and returns the answers in the same order. None waits for another's answer.
pub(super) async fn call(redis: Arc<Redis>, requests: Vec<Request>) -> Vec<Answer> {
    if let [request] = &*requests {
        // A dropped guard, most often: there is nothing to keep apart.
        return vec![alone(&redis, request).await];
    }
    let count = requests.len();
    let mut renewals: HashMap<Kind, (Vec<usize>, Vec<Request>)> = HashMap::new();
    let mut parts = JoinSet::new();
    for (place, request) in requests.into_iter().enumerate() {
        match scripts::renewal(&request) {
            Some(kind) => {
                let (places, together) = renewals.entry(kind).or_default();
                places.push(place);
                together.push(request);
            }
            None => {
                let redis = redis.clone();
                parts.spawn(async move { (vec![place], vec![alone(&redis, &request).await]) });
            }
        }
    }
    for (kind, (places, together)) in renewals {
        let redis = redis.clone();
        parts.spawn(async move { (places, renew(redis, kind, together).await) });
    }
    gathered(count, parts).await
}

/// Some of the answers, and where they belong.
pub(super) type Part = (Vec<usize>, Vec<Answer>);

/// All of `count` answers, in their order.
pub(super) async fn gathered(count: usize, mut parts: JoinSet<Part>) -> Vec<Answer> {
    let mut answers = vec![None; count];
    while let Some(part) = parts.join_next().await {
        // One that did not come to its end leaves its places empty.
        let (places, part) = part.unwrap_or_default();
        for (place, answer) in places.into_iter().zip(part) {
            answers[place] = Some(answer);
        }
    }
    let unknown = || Err(Failure::new(Cause::Interrupted, "the call was given up"));
    let answers = answers.into_iter();
    answers
        .map(|answer| answer.unwrap_or_else(unknown))
        .collect()
}

async fn renew(redis: Arc<Redis>, kind: Kind, requests: Vec<Request>) -> Vec<Answer> {
    let call = Call::renew_all(kind, &requests, &redis.keys);
    let ran = redis.promises_apart().run(&call).await;
    match ran.and_then(Ran::said) {
        Ok(Said {
            value: Value::Array(answers),
            kept,
        }) if answers.len() == requests.len() => {
            let answers = answers.into_iter();
            answers
                .map(|answer| kept.counted(scripts::renewed(answer)))
                .collect()
        }
        Ok(Said { value, .. }) => {
            let failure = Failure::new(Cause::Unexpected, format!("unexpected {value:?}"));
            vec![Err(failure); requests.len()]
        }
        // One key that is forbidden or foreign may fail the whole call: find out which, and spare the others.
        Err(failure)
            if matches!(failure.cause, Cause::Denied | Cause::WrongKind) && requests.len() > 1 =>
        {
            let mut each = JoinSet::new();
            for (place, request) in requests.into_iter().enumerate() {
                let redis = redis.clone();
                each.spawn(async move { (place, alone(&redis, &request).await) });
            }
            let mut answers = each.join_all().await;
            answers.sort_by_key(|(place, _)| *place);
            answers.into_iter().map(|(_, answer)| answer).collect()
        }
        Err(failure) => vec![Err(failure); requests.len()],
    }
}

async fn alone(redis: &Redis, request: &Request) -> Answer {
    alone::call(redis.line_apart(request), &redis.keys, request, false).await
}
