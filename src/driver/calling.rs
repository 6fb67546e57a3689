//! One request to the store, on its way.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::clock::{Within, within};
use super::no_answer;
use crate::engine::{Answer, Failure};
use crate::protocol::Reply;

/// Resolves to the store's answer, or to the failure that none came in time. Written out, because an
/// `async fn` would keep room for the request as well, and every guard that is given back waits on one.
pub(crate) struct Calling {
    answered: Option<Result<Reply, Failure>>,
    asked: Option<Within<Answer<Result<Reply, Failure>>>>,
    limit: Duration,
}

impl Calling {
    pub(super) const fn answered(answer: Result<Reply, Failure>) -> Self {
        Self {
            answered: Some(answer),
            asked: None,
            limit: Duration::ZERO,
        }
    }

    pub(super) const fn asked(answer: Answer<Result<Reply, Failure>>, limit: Duration) -> Self {
        Self {
            answered: None,
            asked: Some(within(limit, answer)),
            limit,
        }
    }
}

impl Future for Calling {
    type Output = Result<Reply, Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(answer) = self.answered.take() {
            return Poll::Ready(answer);
        }
        let limit = self.limit;
        match &mut self.asked {
            Some(asked) => {
                let answer = Pin::new(asked).poll(cx);
                answer.map(|answer| answer.unwrap_or_else(|| Err(no_answer(limit))))
            }
            None => Poll::Pending,
        }
    }
}
