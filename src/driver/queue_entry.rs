//! One waiter's place in a line.

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

/// A waiter's place in a line; dropping it leaves the line and lets the next one move up.
#[derive(Debug)]
pub(super) struct QueueEntry<'a> {
    core: &'a Arc<Core>,
    subject: &'a Subject,
    wanted: PermitRequest,
    waiter: Option<Arc<Waiter>>,
    /// It has left the line with the lock.
    finished: bool,
    /// Somebody had the lock when this waiter came.
    was_busy: bool,
}

impl<'a> QueueEntry<'a> {
    /// Joins the line. Says when to ask if it is this waiter's turn at once.
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
                // It sleeps as long as it likes; in company it has to listen.
                let _ = head.wake(WakeReason::SendRequest { not_before: None });
            }
            // Its own owner got the lock since it looked: it must not wait for itself.
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

    /// The store has granted the lock to this waiter, who asked for the line.
    pub(super) fn granted(mut self, hold: &Arc<Hold>, now: Moment) {
        self.finished = true;
        let source = GrantSource::Head(self.wanted, self.waiter.take());
        self.core.wait_queues.granted(hold, source, now);
    }

    /// The lock was passed to this waiter, who has its seat no longer.
    pub(super) const fn set_transferred(&mut self) {
        self.finished = true;
    }

    /// Takes a seat, so that a lock can be passed to this waiter while it sleeps.
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

    /// Waits to be called, until time is over.
    pub(super) fn wait_to_be_woken(&self, deadline: Option<Moment>) -> WaitToBeWoken<'_> {
        WaitToBeWoken {
            waiter: self.waiter.as_deref(),
            sleep: self.core.clock.sleep_until(deadline),
            waker_executor: &self.core.waker_executor,
            waker_proxy: WakerProxy::NONE,
        }
    }

    /// The next thing this waiter is told; without a seat, only that the client is closed.
    pub(super) async fn next_wake(&self) -> WakeReason {
        match &self.waiter {
            Some(waiter) => {
                let next = poll_fn(|cx| waiter.poll_wake(cx.waker()));
                self.core.waker_executor.with_proxy_unpin(next).await
            }
            None => {
                self.core.closed().await;
                WakeReason::Closed
            }
        }
    }

    /// Whether somebody held the lock when this waiter came, or is known to hold it now.
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

    /// Whether somebody in the line behind this waiter counts on messages.
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

    /// Whether it is this waiter who asks the store.
    pub(super) fn is_head(&self) -> bool {
        let map = self.core.wait_queues.lock();
        let queue = map.find(self.subject, self.wanted);
        queue.is_some_and(|queue| queue.is_head(self.waiter.as_ref()))
    }

    /// Notes what the store said to the head.
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
            queue.streak_since = None;
        }
    }

    /// The line's listener, if it has one.
    pub(super) fn listener(&self) -> Option<Arc<Subscription>> {
        let map = self.core.wait_queues.lock();
        map.find(self.subject, self.wanted)?.listener.clone()
    }

    /// Lets go of the line's listener.
    pub(super) fn drop_listener(&self) {
        let mut map = self.core.wait_queues.lock();
        let queue = map.find_mut(self.subject, self.wanted);
        let old_listener = queue.and_then(|queue| queue.listener.take());
        drop(map);
        drop(old_listener);
    }

    /// Keeps a listener for as long as there is a line.
    pub(super) fn share_listener(&self, listener: Subscription) -> Arc<Subscription> {
        let listener = Arc::new(listener);
        let mut map = self.core.wait_queues.lock();
        if let Some(queue) = map.find_mut(self.subject, self.wanted) {
            queue.listener = Some(listener.clone());
        }
        listener
    }
}

/// Sits until called; `None` when time is over. Written out, because ten thousand may sit here.
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
