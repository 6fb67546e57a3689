//! One acquisition before its grant: send the request, subscribe, sleep, retry, give up.
//!
//! The machine says what to do next; the driver does it and reports the result. Notifications are
//! hints: every sleep ends by itself, so that no waiter can hang because a message was lost.

use std::time::Duration;

use super::jitter::{fraction, spread};
use super::{Kind, Moment};

/// How a waiter learns when to retry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WaitMode {
    /// It subscribes to the store's notifications.
    Subscribe,
    /// It sends its request again: first after `first`, then twice as long each time, up to
    /// `longest`.
    Poll {
        /// The first pause.
        first: Duration,
        /// The longest pause.
        longest: Duration,
    },
}

/// The next step of an acquisition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AcquireStep {
    /// Send the request.
    Send,
    /// Give up: another owner holds the lock.
    Busy,
    /// Give up: the last failure is the result.
    Fail,
    /// Subscribe to releases, then report the subscription.
    Subscribe,
    /// Sleep until this moment or until a notification.
    Sleep(Moment),
    /// Give up: the deadline has passed and no reply said whether the lock is free.
    TimedOut,
}

/// The state machine of one acquisition.
#[derive(Debug)]
pub struct Acquire {
    wait_mode: WaitMode,
    /// A message may be lost: the waiter never sleeps longer than this without a retry.
    longest_sleep: Duration,
    /// In poll mode it never pauses longer than this, either.
    longest_poll: Duration,
    deadline: Option<Moment>,
    subscribed: bool,
    /// The store's last reply or failure, if there was any.
    last_reply: Option<LastReply>,
    pause: Duration,
    jitter: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum LastReply {
    Busy,
    Failure,
}

impl Acquire {
    /// Creates a machine that waits for a lock of this kind until `deadline`, or for ever. `seed`
    /// spreads waiters that would otherwise move in step.
    pub const fn new(kind: Kind, wait_mode: WaitMode, deadline: Option<Moment>, seed: u64) -> Self {
        Self {
            wait_mode,
            longest_sleep: kind.longest_sleep(),
            longest_poll: kind.longest_poll(),
            deadline,
            subscribed: false,
            last_reply: None,
            pause: Duration::ZERO,
            jitter: seed,
        }
    }

    /// Turns poll mode off: a poller that other waiters queue behind subscribes as they would.
    pub const fn subscribe_instead(&mut self) {
        self.wait_mode = WaitMode::Subscribe;
    }

    /// Returns when it has to give up, if ever.
    pub const fn deadline(&self) -> Option<Moment> {
        self.deadline
    }

    /// Records that the waiter has reached the head of its client's queue. Replies that other
    /// waiters of this client have seen count as its own, so that a failure from now on is not a
    /// failure of its first attempt.
    pub fn reached_head(&mut self, busy: bool) {
        let seen = if busy {
            LastReply::Busy
        } else {
            LastReply::Failure
        };
        self.last_reply.get_or_insert(seen);
    }

    /// Handles the reply that another owner holds the lock, for `ttl` more; `None` if that lease
    /// has no end.
    pub fn busy(&mut self, ttl: Option<Duration>, now: Moment) -> AcquireStep {
        self.last_reply = Some(LastReply::Busy);
        if self.is_over(now) {
            return AcquireStep::Busy;
        }
        match self.wait_mode {
            WaitMode::Subscribe if !self.subscribed => AcquireStep::Subscribe,
            WaitMode::Subscribe => {
                // A little after the end of the holder's lease, and not all waiters at the same
                // instant.
                let longest = self.longest_sleep;
                if planted!(NeverAsksByItself) {
                    return self.sleep(Duration::from_secs(86_400), now);
                }
                let lapse = ttl.map_or(longest, |ttl| ttl + self.spread(20));
                self.sleep(lapse.min(longest), now)
            }
            WaitMode::Poll { first, longest } => {
                let longest = longest.min(self.longest_poll);
                self.pause = (self.pause * 2).clamp(first.min(longest), longest);
                let pause = self.pause.mul_f64(0.5 + 0.5 * self.fraction());
                let lapse = ttl.map(|ttl| ttl + self.spread(20));
                self.sleep(lapse.map_or(pause, |lapse| pause.min(lapse)), now)
            }
        }
    }

    /// Handles a failure of the request. `transient` if a retry may succeed a little later.
    pub fn failed(&mut self, transient: bool, now: Moment) -> AcquireStep {
        let waited = self.last_reply.is_some();
        if self.is_over(now) {
            // The request may have been granted, so this is not the same as busy.
            return AcquireStep::TimedOut;
        }
        if !waited || !transient {
            return AcquireStep::Fail;
        }
        self.last_reply = Some(LastReply::Failure);
        let pause = self.pause.max(Duration::from_millis(10));
        self.pause = (pause * 2).min(Duration::from_millis(500));
        let pause = pause + self.spread(10);
        self.sleep(pause, now)
    }

    /// Handles an established subscription: the request is sent again, since a release may have
    /// come before it.
    pub fn subscribed(&mut self) -> AcquireStep {
        self.subscribed = true;
        AcquireStep::Send
    }

    /// Handles the loss of the subscription, which has to be made anew.
    pub const fn unsubscribed(&mut self) {
        self.subscribed = false;
    }

    /// Handles a failed subscription: the waiter polls for a while, then tries to subscribe again.
    pub fn subscribe_failed(&mut self, now: Moment) -> AcquireStep {
        self.subscribed = false;
        let pause = Duration::from_millis(50) + self.spread(50);
        self.sleep(pause, now)
    }

    /// Handles the end of a sleep, by its time or by a notification.
    pub fn woken(&mut self, now: Moment) -> AcquireStep {
        if !self.is_over(now) {
            return AcquireStep::Send;
        }
        match self.last_reply {
            Some(LastReply::Busy) => AcquireStep::Busy,
            Some(LastReply::Failure) | None => AcquireStep::TimedOut,
        }
    }

    fn is_over(&self, now: Moment) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    fn sleep(&self, pause: Duration, now: Moment) -> AcquireStep {
        let until = now + pause.max(Duration::from_millis(1));
        AcquireStep::Sleep(self.deadline.map_or(until, |deadline| deadline.min(until)))
    }

    fn spread(&mut self, millis: u64) -> Duration {
        Duration::from_millis(millis).mul_f64(self.fraction())
    }

    fn fraction(&mut self) -> f64 {
        self.jitter = self.jitter.wrapping_add(1);
        fraction(self.jitter)
    }
}

/// Returns how long a client that has had its turns yields, so that other clients that were
/// notified of the release get theirs. Without the pause a client kept a Java waiter out for twenty
/// seconds. Clients in poll mode get no notification and need longer to find the lock free.
pub fn yield_to_others(seed: u64, for_pollers: bool) -> Duration {
    let least = Duration::from_millis(if for_pollers { 10 } else { 2 });
    least + spread(Duration::from_millis(3), seed)
}

#[cfg(test)]
mod tests;
