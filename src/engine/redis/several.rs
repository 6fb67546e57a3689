//! Several locks in one step: one script, one round trip.

use redis::Value;

use super::assurance::{Ran, Said};
use super::batch::Batches;
use super::failure;
use super::scripts::{self, Call};
use crate::engine::{Before, Cause, Failure};
use crate::protocol::{Reply, Request};

type Answer = Result<Reply, Failure>;

/// The answers end with the first that is no grant.
pub(super) async fn take(batches: &Batches, requests: &[Request], before: Before) -> Vec<Answer> {
    let call = Call::all(requests, before, batches.keys());
    let (answers, kept) = match batches.connection().run(&call).await {
        Ok(Ran::HeldBack(left)) => return vec![Ok(Reply::Busy { ttl: Some(left) })],
        Ok(Ran::Said(Said {
            value: Value::Array(answers),
            kept,
        })) if (1..=requests.len()).contains(&answers.len()) => (answers, kept),
        Ok(Ran::Said(Said { value, .. })) => {
            let failure = Failure::new(Cause::Unexpected, format!("unexpected {value:?}"));
            return vec![Err(failure)];
        }
        Err(failure) => return vec![Err(failure)],
    };
    let answers = answers.into_iter().zip(requests);
    answers
        .map(|(answer, request)| match answer {
            // A text is the lock's own error.
            Value::BulkString(error) => Err(failure::from_text(&String::from_utf8_lossy(&error))),
            answer => kept.counted(scripts::reply(request, answer)),
        })
        .collect()
}
