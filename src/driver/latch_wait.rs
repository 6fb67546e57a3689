//! Waits until a latch is open: each waiter by itself, because all are let through at once.

use std::sync::Arc;

use super::clock::with_timeout;
use super::counter::fetch;
use super::error::LastError;
use super::{Core, DriverError, no_reply, require_runtime};
use crate::engine::{StoreError, Subscription};
use crate::protocol::acquire::{Acquire, AcquireStep, WaitMode};
use crate::protocol::{Moment, Subject};

/// Waits for the latch to open; returns whether it opened before the deadline.
pub(crate) async fn wait(
    core: &Arc<Core>,
    subject: &Subject,
    deadline: Option<Moment>,
) -> Result<bool, DriverError> {
    tokio::task::coop::consume_budget().await;
    core.ensure_usable()?;
    let seed = core.fresh_seed();
    let mut waiter = LatchWaiter {
        core,
        subject,
        machine: Acquire::new(subject.kind, WaitMode::Subscribe, deadline, seed),
        subscription: None,
        failure: LastError::default(),
    };
    tokio::select! {
        biased;
        () = core.closed() => Err(DriverError::Closed),
        open = waiter.wait() => open,
    }
}

struct LatchWaiter<'a> {
    core: &'a Arc<Core>,
    subject: &'a Subject,
    machine: Acquire,
    subscription: Option<Subscription>,
    failure: LastError,
}

impl LatchWaiter<'_> {
    async fn wait(&mut self) -> Result<bool, DriverError> {
        let mut step = AcquireStep::Send;
        loop {
            step = match step {
                AcquireStep::Send => match self.count().await {
                    Ok(Some(1..)) => {
                        if self
                            .subscription
                            .as_ref()
                            .is_some_and(Subscription::is_closed)
                        {
                            self.subscription = None;
                            self.machine.unsubscribed();
                        }
                        self.machine.busy(None, self.now())
                    }
                    Ok(_) => return Ok(true),
                    Err(failure) => {
                        self.core.ensure_usable()?;
                        let transient = failure.is_transient();
                        let next = self.machine.failed(transient, self.now());
                        self.failure.note(failure, next);
                        next
                    }
                },
                AcquireStep::Subscribe => match self.subscribe().await {
                    Ok(subscription) => {
                        self.subscription = Some(subscription);
                        self.machine.subscribed()
                    }
                    Err(failure) if failure.is_transient() => {
                        self.machine.subscribe_failed(self.now())
                    }
                    Err(failure) => return Err(DriverError::StoreError(failure)),
                },
                AcquireStep::Sleep(until) => {
                    require_runtime().map_err(DriverError::StoreError)?;
                    let notified = async {
                        match &self.subscription {
                            Some(subscription) => subscription.notified().await,
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        () = self.core.waker_executor.with_waker_proxy(notified) => {}
                        () = self.core.clock.sleep_until(Some(until)) => {}
                    }
                    self.machine.woken(self.now())
                }
                AcquireStep::Busy => return Ok(false),
                AcquireStep::TimedOut => return Err(self.failure.timeout_error()),
                AcquireStep::Fail => return Err(self.failure.fatal()),
            }
        }
    }

    async fn count(&self) -> Result<Option<i64>, StoreError> {
        if self.machine.deadline().is_none() {
            return fetch(self.core, self.subject).await;
        }
        let limit = self.core.request_timeout(self.machine.deadline());
        let count = with_timeout(limit, std::pin::pin!(fetch(self.core, self.subject))).await;
        count.unwrap_or_else(|| Err(no_reply(limit)))
    }

    async fn subscribe(&self) -> Result<Subscription, StoreError> {
        require_runtime()?;
        let limit = self.core.request_timeout(self.machine.deadline());
        let call = self.core.engine.clone().subscribe(self.subject.channel());
        let result =
            with_timeout(limit, self.core.waker_executor.with_waker_proxy_unpin(call)).await;
        result.unwrap_or_else(|| Err(no_reply(limit)))
    }

    fn now(&self) -> Moment {
        self.core.clock.now()
    }
}
