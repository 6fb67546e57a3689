//! One request to the store, on its way.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::overdue::{InTime, Overdue};
use crate::engine::{Answer, Failure};
use crate::protocol::Reply;

/// Resolves to the store's answer, or to the failure that none came in time. Written out, because an
/// `async fn` would keep room for the request as well, and every guard that is given back waits on one.
pub(crate) struct Calling<'a> {
    answered: Option<Result<Reply, Failure>>,
    asked: Option<InTime<'a, Answer<Result<Reply, Failure>>>>,
    overdue: &'a Overdue,
}

impl<'a> Calling<'a> {
    pub(super) const fn answered(overdue: &'a Overdue, answer: Result<Reply, Failure>) -> Self {
        Self {
            answered: Some(answer),
            asked: None,
            overdue,
        }
    }

    pub(super) const fn asked(
        overdue: &'a Overdue,
        answer: Answer<Result<Reply, Failure>>,
    ) -> Self {
        Self {
            answered: None,
            asked: Some(overdue.in_time(answer)),
            overdue,
        }
    }
}

impl Future for Calling<'_> {
    type Output = Result<Reply, Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(answer) = self.answered.take() {
            return Poll::Ready(answer);
        }
        let overdue = self.overdue;
        match &mut self.asked {
            Some(asked) => {
                let answer = Pin::new(asked).poll(cx);
                answer.map(|answer| answer.unwrap_or_else(|| Err(overdue.failure())))
            }
            None => Poll::Pending,
        }
    }
}
