//! Waits in the queue that the store itself keeps: each waiter in it sends its own requests, and has a channel of its
//! own.
//!
//! The waiter has one owner id from the first request to the last. A request whose reply was lost is repeated by the
//! same owner, which keeps its place: a repetition changes nothing. Since the lost request may still arrive, such an
//! owner is refused for good when its hold has ended.

use std::sync::Arc;
use std::time::Duration;

use super::acquire::AcquireParams;
use super::cleanup_job::CleanupJob;
use super::clock::SleepUntil;
use super::error::LastError;
use super::hold::Hold;
use super::hold_ref::HoldRef;
use super::reenter::reenter;
use super::undo_on_drop::UndoOnDrop;
use super::wait_queues::GrantSource;
use super::{Core, DriverError, no_reply, require_runtime, unexpected_reply};
use crate::engine::{StoreError, Subscription};
use crate::protocol::acquire::{Acquire, AcquireStep};
use crate::protocol::lease::LostReason;
use crate::protocol::{Action, Channel, Entry, Moment, OwnerId, PermitRequest, Reply};

/// How long the store takes a waiter for present without a request. The waiter sends several requests in that time.
const WAITER_TTL: Duration = Duration::from_secs(10);

/// Waits in the store's queue; `None` if the deadline has passed and another owner has the lock.
pub(super) async fn wait_in_server_queue(
    core: &Arc<Core>,
    params: &AcquireParams,
    deadline: Option<Moment>,
) -> Result<Option<HoldRef>, DriverError> {
    let mut waiter = ServerQueueWaiter {
        ticket: QueueTicket::new(core, params),
        machine: Acquire::new(
            params.subject.kind,
            params.wait_mode,
            deadline,
            core.fresh_seed(),
        ),
        subscription: None,
        failure: LastError::default(),
    };
    tokio::select! {
        biased;
        () = core.closed() => Err(DriverError::Closed),
        got = waiter.wait() => got,
    }
}

struct ServerQueueWaiter<'a> {
    ticket: QueueTicket<'a>,
    machine: Acquire,
    subscription: Option<Subscription>,
    failure: LastError,
}

impl ServerQueueWaiter<'_> {
    async fn wait(&mut self) -> Result<Option<HoldRef>, DriverError> {
        let (core, params) = (self.ticket.core, self.ticket.params);
        let mut step = AcquireStep::Send;
        loop {
            require_runtime().map_err(DriverError::StoreError)?;
            step = match step {
                AcquireStep::Send => {
                    let sent = core.clock.now();
                    let reply = self.ticket.request_acquire(self.machine.deadline()).await;
                    let now = core.clock.now();
                    match reply {
                        Ok(Reply::Granted { token }) => {
                            let owner = self.ticket.owner;
                            let hold_ref = Hold::granted(core, params, owner, token, sent, now);
                            let Some(hold_ref) = hold_ref else {
                                return Err(DriverError::Lost(LostReason::Expired));
                            };
                            self.ticket.on_granted(&hold_ref);
                            core.wait_queues
                                .granted(hold_ref.hold(), GrantSource::Bypass, now);
                            return Ok(Some(hold_ref));
                        }
                        Ok(Reply::Busy { ttl }) => {
                            // The same local owner may have acquired the lock meanwhile: for that owner it is not busy.
                            if let Some(hold_ref) =
                                reenter(core, params, self.machine.deadline()).await?
                            {
                                return Ok(Some(hold_ref));
                            }
                            if self
                                .subscription
                                .as_ref()
                                .is_some_and(Subscription::is_closed)
                            {
                                self.subscription = None;
                                self.machine.unsubscribed();
                            }
                            self.failure.forget();
                            self.machine.busy(ttl, now)
                        }
                        Ok(other) => return Err(DriverError::StoreError(unexpected_reply(&other))),
                        Err(failure) => {
                            core.ensure_usable()?;
                            let transient = failure.is_transient();
                            let next = self.machine.failed(transient, now);
                            self.failure.note(failure, next);
                            next
                        }
                    }
                }
                AcquireStep::Subscribe => match self.subscribe().await {
                    Ok(subscription) => {
                        self.subscription = Some(subscription);
                        self.machine.subscribed()
                    }
                    Err(failure) if failure.is_transient() => {
                        self.machine.subscribe_failed(core.clock.now())
                    }
                    Err(failure) => return Err(DriverError::StoreError(failure)),
                },
                AcquireStep::Sleep(until) => {
                    tokio::select! {
                        biased;
                        () = core.waker_executor.with_waker_proxy(next_notification(self.subscription.as_ref())) => {}
                        () = self.sleep(until) => {}
                    }
                    self.machine.woken(core.clock.now())
                }
                AcquireStep::Busy => return Ok(None),
                AcquireStep::TimedOut => return Err(self.failure.timeout_error()),
                AcquireStep::Fail => return Err(self.failure.fatal()),
            }
        }
    }

    async fn subscribe(&self) -> Result<Subscription, StoreError> {
        let QueueTicket {
            core,
            params,
            owner,
            ..
        } = &self.ticket;
        let limit = core.request_timeout(self.machine.deadline());
        let channel = Channel::Waiter(params.subject.name.clone(), *owner);
        let pending = core.engine.clone().subscribe(channel);
        tokio::select! {
            subscription = core.waker_executor.with_waker_proxy_unpin(pending) => subscription,
            () = self.sleep(core.clock.now() + limit) => Err(no_reply(limit)),
        }
    }

    fn sleep(&self, until: Moment) -> SleepUntil<'_> {
        self.ticket.core.clock.sleep_until(Some(until))
    }
}

/// One owner's ticket in the store's queue. Dropping it leaves the queue.
struct QueueTicket<'a> {
    core: &'a Arc<Core>,
    params: &'a AcquireParams,
    owner: OwnerId,
    /// The store may have queued the owner.
    may_be_queued: bool,
    /// A request of the owner got no reply, and may still arrive.
    has_orphan_request: bool,
}

impl<'a> QueueTicket<'a> {
    fn new(core: &'a Arc<Core>, params: &'a AcquireParams) -> Self {
        let owner = core.fresh_owner();
        let undo = CleanupJob::undo(core, &params.subject, owner, params.terms.lease);
        core.ticket_registry.insert(owner, undo);
        Self {
            core,
            params,
            owner,
            may_be_queued: false,
            has_orphan_request: false,
        }
    }

    async fn request_acquire(&mut self, deadline: Option<Moment>) -> Result<Reply, StoreError> {
        let AcquireParams { subject, terms, .. } = self.params;
        let request = subject.request(Action::Acquire {
            owner: self.owner,
            entry: Entry::Fresh,
            lease: terms.lease,
            min_token: self.core.tokens.seen(subject),
            waiter_ttl: Some(WAITER_TTL),
            other_side: None,
            bypass_writers: false,
            permits: PermitRequest::ONE,
        });
        let core = self.core;
        let undo = CleanupJob::undo(core, subject, self.owner, terms.lease);
        // If this future is dropped during the request, that request is undone; the ticket must not leave the queue as
        // well.
        let may_be_queued = std::mem::replace(&mut self.may_be_queued, false);
        let mut undo_on_drop = UndoOnDrop::new(core, || [undo]);
        let reply = undo_on_drop.send(request, deadline).await;
        undo_on_drop.disarm();
        let in_doubt = reply.as_ref().is_err_and(StoreError::is_indeterminate);
        self.has_orphan_request |= in_doubt;
        self.may_be_queued = may_be_queued || in_doubt || reply.is_ok();
        reply
    }

    /// Notes that the lock was granted.
    fn on_granted(&mut self, hold_ref: &HoldRef) {
        self.may_be_queued = false;
        if self.has_orphan_request {
            hold_ref.hold().note_orphan_request();
        }
    }
}

impl Drop for QueueTicket<'_> {
    fn drop(&mut self) {
        if self.core.is_forked() {
            return;
        }
        // A closed client has already taken care of it.
        if !self.core.ticket_registry.remove(&self.owner) || !self.may_be_queued {
            return;
        }
        let AcquireParams { subject, terms, .. } = self.params;
        let job = if self.has_orphan_request {
            CleanupJob::undo(self.core, subject, self.owner, terms.lease)
        } else {
            CleanupJob::leave_queue(self.core, subject, self.owner, terms.lease)
        };
        self.core.cleanup.push(job);
    }
}

async fn next_notification(subscription: Option<&Subscription>) {
    match subscription {
        Some(subscription) => subscription.notified().await,
        None => std::future::pending().await,
    }
}
