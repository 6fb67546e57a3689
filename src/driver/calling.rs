//! One request to the store, on its way.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::overdue::InTime;
use crate::engine::{Answer, Failure};
use crate::protocol::Reply;

/// Resolves to the store's answer, or to the failure that none came in time. Written out, because an
/// `async fn` would keep room for the request as well, and every guard that is given back waits on one.
pub(crate) struct Calling<'a>(State<'a>);

enum State<'a> {
    Answered(Result<Reply, Failure>),
    Asked(InTime<'a, Answer<Result<Reply, Failure>>>),
    Over,
}

impl<'a> Calling<'a> {
    pub(super) const fn answered(answer: Result<Reply, Failure>) -> Self {
        Self(State::Answered(answer))
    }

    pub(super) const fn asked(asked: InTime<'a, Answer<Result<Reply, Failure>>>) -> Self {
        Self(State::Asked(asked))
    }

    /// Whether the answer is there already.
    pub(super) const fn is_answered(&self) -> bool {
        matches!(self.0, State::Answered(_))
    }
}

impl Future for Calling<'_> {
    type Output = Result<Reply, Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::Asked(asked) = &mut self.0 {
            let answer = Pin::new(&mut *asked).poll(cx);
            return answer.map(|answer| answer.unwrap_or_else(|| Err(asked.failure())));
        }
        match std::mem::replace(&mut self.0, State::Over) {
            State::Answered(answer) => Poll::Ready(answer),
            State::Asked(_) | State::Over => Poll::Pending,
        }
    }
}
