//! One waiter's entry in a wait queue.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::Core;
use super::acquire::AcquireParams;
use super::clock::SleepUntil;
use super::hold::Hold;
use super::wait_queue::{QueueHead, StoreStatus};
use super::wait_queues::GrantSource;
use super::waiter::{Waiter, WakeReason};
use crate::engine::Subscription;
use crate::engine::waker_executor::{WakerExecutor, WakerProxy};
use crate::protocol::{Moment, PermitRequest, Subject};

/// A waiter's entry in a wait queue; dropping it leaves the queue and lets the next waiter advance.
#[derive(Debug)]
pub(super) struct QueueEntry<'a> {
    core: &'a Arc<Core>,
    subject: &'a Subject,
    wanted: PermitRequest,
    waiter: Option<Arc<Waiter>>,
    /// The waiter has left the queue with the lock.
    finished: bool,
    /// The lock was held when this waiter came.
    was_busy: bool,
}

impl<'a> QueueEntry<'a> {
    /// Joins the queue. Returns a reason to wake if the waiter does not have to wait at first.
    pub(super) fn enter(
        core: &'a Arc<Core>,
        params: &'a AcquireParams,
        now: Moment,
    ) -> (Self, Option<WakeReason>) {
        let AcquireParams {
            subject,
            local_owner,
            permits: wanted,
            ..
        } = params;
        let mut map = core.wait_queues.lock();
        map.remove_expired(now);
        let closed = map.closed;
        let queue = map.get_or_create(subject, *wanted);
        let free = queue.holder.is_none() && matches!(queue.head, QueueHead::Vacant);
        let was_busy = queue.status == StoreStatus::Busy;
        let (waiter, reason) = if closed {
            (None, Some(WakeReason::Closed))
        } else if free {
            queue.head = QueueHead::FirstRequest;
            let not_before = queue.yield_until.filter(|until| *until > now);
            (None, Some(WakeReason::SendRequest { not_before }))
        } else {
            let waiter = Arc::new(new_waiter(params));
            waiter.set_queued(true);
            queue.waiters.push_back(waiter.clone());
            if let QueueHead::Waiting(head) = &queue.head
                && head.polls
                && !waiter.polls
            {
                // A polling head may sleep for as long as its settings say; with subscribed waiters behind it, it has
                // to subscribe.
                let _ = head.wake(WakeReason::SendRequest { not_before: None });
            }
            // The waiter's own local owner has acquired the lock since it was last checked: it must not wait for
            // itself.
            let holder = queue.holder.as_ref().and_then(|holder| holder.local_owner);
            let own = local_owner.is_some() && holder == *local_owner;
            (Some(waiter), own.then_some(WakeReason::Reenter))
        };
        let entry = Self {
            core,
            subject,
            wanted: *wanted,
            waiter,
            finished: false,
            was_busy,
        };
        (entry, reason)
    }

    /// Notes that the store has granted the lock to this waiter, which sent the request as the head.
    pub(super) fn granted(mut self, hold: &Arc<Hold>, now: Moment) {
        self.finished = true;
        let source = GrantSource::Head(self.wanted, self.waiter.take());
        self.core.wait_queues.granted(hold, source, now);
    }

    /// Notes that the lock was handed off to this waiter, which is no longer in the queue.
    pub(super) const fn set_handed_off(&mut self) {
        self.finished = true;
    }

    /// Registers the head as a waiter, so that a lock can be handed off to it while it sleeps.
    pub(super) fn register(&mut self, params: &AcquireParams) {
        if self.waiter.is_some() {
            return;
        }
        let waiter = Arc::new(new_waiter(params));
        let mut map = self.core.wait_queues.lock();
        if map.closed {
            let _ = waiter.wake(WakeReason::Closed);
        }
        if let Some(queue) = map.find_mut(self.subject, self.wanted) {
            queue.head = QueueHead::Waiting(waiter.clone());
        }
        self.waiter = Some(waiter);
    }

    pub(super) const fn is_registered(&self) -> bool {
        self.waiter.is_some()
    }

    /// Waits until the waiter is woken, or the deadline has passed.
    pub(super) fn wait_to_be_woken(&self, deadline: Option<Moment>) -> WaitToBeWoken<'_> {
        WaitToBeWoken {
            waiter: self.waiter.as_deref(),
            sleep: self.core.clock.sleep_until(deadline),
            waker_executor: &self.core.waker_executor,
            waker_proxy: WakerProxy::NONE,
        }
    }

    /// Returns the next reason to wake; without a registered waiter, only `Closed`.
    pub(super) async fn next_wake(&self) -> WakeReason {
        match &self.waiter {
            Some(waiter) => {
                let next = poll_fn(|cx| waiter.poll_wake(cx.waker()));
                self.core.waker_executor.with_waker_proxy_unpin(next).await
            }
            None => {
                self.core.closed().await;
                WakeReason::Closed
            }
        }
    }

    /// Returns whether the lock was held when this waiter came, or is known to be held now.
    pub(super) fn is_busy(&self) -> bool {
        let map = self.core.wait_queues.lock();
        match map
            .find(self.subject, self.wanted)
            .map(|queue| queue.status)
        {
            Some(StoreStatus::Busy) => true,
            Some(StoreStatus::Failed) => false,
            Some(StoreStatus::Unknown) | None => self.was_busy,
        }
    }

    /// Returns whether a waiter behind this one relies on notifications.
    pub(super) fn has_subscribed_waiters(&self) -> bool {
        let map = self.core.wait_queues.lock();
        let queue = map.find(self.subject, self.wanted);
        queue.is_some_and(|queue| {
            queue
                .waiters
                .iter()
                .any(|waiter| !waiter.polls && !waiter.has_left())
        })
    }

    /// Returns whether this waiter is the head, which sends the requests.
    pub(super) fn is_head(&self) -> bool {
        let map = self.core.wait_queues.lock();
        let queue = map.find(self.subject, self.wanted);
        queue.is_some_and(|queue| queue.is_head(self.waiter.as_ref()))
    }

    /// Notes what the store has replied to the head.
    pub(super) fn note_status(&self, busy: bool) {
        if let Some(queue) = self
            .core
            .wait_queues
            .lock()
            .find_mut(self.subject, self.wanted)
        {
            queue.status = if busy {
                StoreStatus::Busy
            } else {
                StoreStatus::Failed
            };
            queue.held_since = None;
        }
    }

    /// Returns the queue's subscription, if it has one.
    pub(super) fn subscription(&self) -> Option<Arc<Subscription>> {
        let map = self.core.wait_queues.lock();
        map.find(self.subject, self.wanted)?.subscription.clone()
    }

    /// Drops the queue's subscription.
    pub(super) fn drop_subscription(&self) {
        let mut map = self.core.wait_queues.lock();
        let queue = map.find_mut(self.subject, self.wanted);
        let old_subscription = queue.and_then(|queue| queue.subscription.take());
        drop(map);
        drop(old_subscription);
    }

    /// Keeps a subscription for as long as the queue exists.
    pub(super) fn share_subscription(&self, subscription: Subscription) -> Arc<Subscription> {
        let subscription = Arc::new(subscription);
        let mut map = self.core.wait_queues.lock();
        if let Some(queue) = map.find_mut(self.subject, self.wanted) {
            queue.subscription = Some(subscription.clone());
        }
        subscription
    }
}

/// Waits until woken; `None` when the deadline has passed. Not an `async fn`, because ten thousand of these may exist.
pub(super) struct WaitToBeWoken<'a> {
    waiter: Option<&'a Waiter>,
    sleep: SleepUntil<'a>,
    waker_executor: &'a WakerExecutor,
    waker_proxy: WakerProxy,
}

impl Future for WaitToBeWoken<'_> {
    type Output = Option<WakeReason>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<WakeReason>> {
        let this = &mut *self;
        let waker = this.waker_proxy.waker(this.waker_executor, cx.waker());
        let woken = this.waiter.map(|waiter| waiter.poll_wake(waker));
        match woken {
            Some(Poll::Ready(reason)) => Poll::Ready(Some(reason)),
            Some(Poll::Pending) | None => Pin::new(&mut this.sleep).poll(cx).map(|()| None),
        }
    }
}

fn new_waiter(params: &AcquireParams) -> Waiter {
    Waiter::new(params.terms, params.local_owner, params.polls())
}

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        if !self.finished && !self.core.is_forked() {
            let now = self.core.clock.now();
            let waiter = self.waiter.take();
            self.core
                .wait_queues
                .leave(self.subject, self.wanted, waiter, now);
        }
    }
}
