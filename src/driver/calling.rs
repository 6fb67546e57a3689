//! One request to the store, on its way.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::overdue::InTime;
use crate::engine::{Answer, Failure};
use crate::protocol::Reply;

/// Resolves to the store's answer, or to the failure that none came in time. Written out, because an
/// `async fn` would keep room for the request as well, and every guard that is given back waits on one.
pub(crate) struct Calling<'a> {
    answered: Option<Result<Reply, Failure>>,
    asked: Option<InTime<'a, Answer<Result<Reply, Failure>>>>,
}

impl<'a> Calling<'a> {
    pub(super) const fn answered(answer: Result<Reply, Failure>) -> Self {
        Self {
            answered: Some(answer),
            asked: None,
        }
    }

    pub(super) const fn asked(asked: InTime<'a, Answer<Result<Reply, Failure>>>) -> Self {
        Self {
            answered: None,
            asked: Some(asked),
        }
    }

    /// Whether the answer is there already.
    pub(super) const fn is_answered(&self) -> bool {
        self.answered.is_some()
    }
}

impl Future for Calling<'_> {
    type Output = Result<Reply, Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(answer) = self.answered.take() {
            return Poll::Ready(answer);
        }
        match &mut self.asked {
            Some(asked) => {
                let answer = Pin::new(&mut *asked).poll(cx);
                answer.map(|answer| answer.unwrap_or_else(|| Err(asked.failure())))
            }
            None => Poll::Pending,
        }
    }
}
