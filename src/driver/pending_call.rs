//! One request to the store, on its way.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::call_timeouts::WithCallTimeout;
use crate::engine::{BoxFuture, StoreError};
use crate::protocol::Reply;

/// Resolves to the store's answer, or to the failure that none came in time. Written out, because an
/// `async fn` would keep room for the request as well, and every guard that is given back waits on one.
pub(crate) struct PendingCall<'a>(CallState<'a>);

enum CallState<'a> {
    Ready(Result<Reply, StoreError>),
    Sent(WithCallTimeout<'a, BoxFuture<Result<Reply, StoreError>>>),
    Done,
}

impl<'a> PendingCall<'a> {
    pub(super) const fn ready(answer: Result<Reply, StoreError>) -> Self {
        Self(CallState::Ready(answer))
    }

    pub(super) const fn sent(
        sent: WithCallTimeout<'a, BoxFuture<Result<Reply, StoreError>>>,
    ) -> Self {
        Self(CallState::Sent(sent))
    }

    /// Whether the answer is there already.
    pub(super) const fn is_ready(&self) -> bool {
        matches!(self.0, CallState::Ready(_))
    }
}

impl Future for PendingCall<'_> {
    type Output = Result<Reply, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let CallState::Sent(sent) = &mut self.0 {
            let answer = Pin::new(&mut *sent).poll(cx);
            return answer.map(|answer| answer.unwrap_or_else(|| Err(sent.failure())));
        }
        match std::mem::replace(&mut self.0, CallState::Done) {
            CallState::Ready(answer) => Poll::Ready(answer),
            CallState::Sent(_) | CallState::Done => Poll::Pending,
        }
    }
}
