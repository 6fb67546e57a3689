//! One acquisition before its grant: ask, listen, sleep, ask again, give up.
//!
//! The machine says what to do next; the driver does it and reports what came of it. Messages are
//! hints: every sleep ends by itself, so that no waiter can hang because a message was lost.

use std::time::Duration;

use super::jitter::{fraction, spread};
use super::{Kind, Moment};

/// How a waiter learns that it is worth asking again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WaitMode {
    /// By the store's message.
    Subscribe,
    /// By asking: first after `first`, then twice as long each time, up to `longest`.
    Poll {
        /// The first pause.
        first: Duration,
        /// The longest pause.
        longest: Duration,
    },
}

/// What to do next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AcquireStep {
    /// Send the request.
    Send,
    /// Give up: somebody else holds it.
    Busy,
    /// Give up: the last failure is the answer.
    Fail,
    /// Listen for releases, then say so.
    Subscribe,
    /// Sleep until this moment or until woken.
    Sleep(Moment),
    /// Give up: time is over and nobody could say whether the lock is free.
    TimedOut,
}

/// One acquisition.
#[derive(Debug)]
pub struct Acquire {
    wait_mode: WaitMode,
    /// A message may be lost; it never sleeps longer than this without asking again.
    longest_sleep: Duration,
    /// Nor, if it polls, than this.
    longest_poll: Duration,
    deadline: Option<Moment>,
    subscribed: bool,
    /// What the store last said, if it ever said anything.
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
    /// Waits for a lock of this kind until `deadline`, or for ever. `seed` spreads waiters that would otherwise move in
    /// step.
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

    /// A poller that others have to wait for listens as they would.
    pub const fn subscribe_instead(&mut self) {
        self.wait_mode = WaitMode::Subscribe;
    }

    /// When it has to give up, if ever.
    pub const fn deadline(&self) -> Option<Moment> {
        self.deadline
    }

    /// It has stood in line and is now the first: what others of this client have seen of the lock, it
    /// has seen. An outage it meets is not its first attempt's.
    pub fn reached_head(&mut self, busy: bool) {
        let seen = if busy {
            LastReply::Busy
        } else {
            LastReply::Failure
        };
        self.last_reply.get_or_insert(seen);
    }

    /// Somebody else holds the lock, for `ttl` more; `None` if it has no end.
    pub fn busy(&mut self, ttl: Option<Duration>, now: Moment) -> AcquireStep {
        self.last_reply = Some(LastReply::Busy);
        if self.is_over(now) {
            return AcquireStep::Busy;
        }
        match self.wait_mode {
            WaitMode::Subscribe if !self.subscribed => AcquireStep::Subscribe,
            WaitMode::Subscribe => {
                // A little after the holder's lease, and not all at the same instant.
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

    /// The request failed. `passing` if it may work a little later.
    pub fn failed(&mut self, passing: bool, now: Moment) -> AcquireStep {
        let waited = self.last_reply.is_some();
        if self.is_over(now) {
            // It may have been granted for all we know: not the same as busy.
            return AcquireStep::TimedOut;
        }
        if !waited || !passing {
            return AcquireStep::Fail;
        }
        self.last_reply = Some(LastReply::Failure);
        let pause = self.pause.max(Duration::from_millis(10));
        self.pause = (pause * 2).min(Duration::from_millis(500));
        let pause = pause + self.spread(10);
        self.sleep(pause, now)
    }

    /// We hear of releases from now on: ask again, since one may have come before.
    pub fn subscribed(&mut self) -> AcquireStep {
        self.subscribed = true;
        AcquireStep::Send
    }

    /// We do not hear of releases any more, and have to begin anew.
    pub const fn unsubscribed(&mut self) {
        self.subscribed = false;
    }

    /// We do not hear of releases; ask now and then instead, and try to listen again.
    pub fn subscribe_failed(&mut self, now: Moment) -> AcquireStep {
        self.subscribed = false;
        let pause = Duration::from_millis(50) + self.spread(50);
        self.sleep(pause, now)
    }

    /// The sleep is over, by its end or by a message.
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

/// How long a client that has had its turns stands back so that others, who heard of the release, get
/// theirs. A client that asked again at once kept a Java waiter out for twenty seconds. Those who poll
/// hear of nothing, and need longer to find it free.
pub fn yield_to_others(seed: u64, for_pollers: bool) -> Duration {
    let least = Duration::from_millis(if for_pollers { 10 } else { 2 });
    least + spread(Duration::from_millis(3), seed)
}

#[cfg(test)]
mod tests;
