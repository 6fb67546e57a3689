//! One request to the store in flight.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::call_timeouts::WithCallTimeout;
use crate::engine::{BoxFuture, StoreError};
use crate::protocol::Reply;

/// Resolves to the store's reply, or to the error that none arrived in time. Not an `async fn`, which would keep room
/// for the request as well: every release waits for one of these.
pub(crate) struct PendingCall<'a>(CallState<'a>);

enum CallState<'a> {
    Ready(Result<Reply, StoreError>),
    Sent(WithCallTimeout<'a, BoxFuture<Result<Reply, StoreError>>>),
    Done,
}

impl<'a> PendingCall<'a> {
    pub(super) const fn ready(reply: Result<Reply, StoreError>) -> Self {
        Self(CallState::Ready(reply))
    }

    pub(super) const fn sent(
        sent: WithCallTimeout<'a, BoxFuture<Result<Reply, StoreError>>>,
    ) -> Self {
        Self(CallState::Sent(sent))
    }

    /// Returns whether the reply has arrived already.
    pub(super) const fn is_ready(&self) -> bool {
        matches!(self.0, CallState::Ready(_))
    }
}

impl Future for PendingCall<'_> {
    type Output = Result<Reply, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let CallState::Sent(sent) = &mut self.0 {
            let reply = Pin::new(&mut *sent).poll(cx);
            return reply.map(|reply| reply.unwrap_or_else(|| Err(sent.failure())));
        }
        match std::mem::replace(&mut self.0, CallState::Done) {
            CallState::Ready(reply) => Poll::Ready(reply),
            CallState::Sent(_) | CallState::Done => Poll::Pending,
        }
    }
}
