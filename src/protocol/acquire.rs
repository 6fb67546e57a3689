//! One acquisition before its grant: ask, listen, sleep, ask again, give up.
//!
//! The machine says what to do next; the driver does it and reports what came of it. Messages are
//! hints: every sleep ends by itself, so that no waiter can hang because a message was lost.

use std::time::Duration;

use super::jitter::{fraction, spread};
use super::{Kind, Moment};

/// How a waiter learns that it is worth asking again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Hearing {
    /// By the store's message.
    Notify,
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
pub enum Step {
    /// Send the request.
    Ask,
    /// Give up: somebody else holds it.
    Busy,
    /// Give up: the last failure is the answer.
    Fail,
    /// Listen for releases, then say so.
    Listen,
    /// Sleep until this moment or until woken.
    Sleep(Moment),
    /// Give up: time is over and nobody could say whether the lock is free.
    TimedOut,
}

/// One acquisition.
#[derive(Debug)]
pub struct Acquire {
    hearing: Hearing,
    /// A message may be lost; it never sleeps longer than this without asking again.
    longest_sleep: Duration,
    /// Nor, if it polls, than this.
    longest_poll: Duration,
    deadline: Option<Moment>,
    listening: bool,
    /// What the store last said, if it ever said anything.
    answered: Option<Answer>,
    pause: Duration,
    jitter: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Answer {
    Busy,
    Failure,
}

impl Acquire {
    /// Waits for a lock of this kind until `deadline`, or for ever. `seed` spreads waiters that would otherwise move in
    /// step.
    pub const fn new(kind: Kind, hearing: Hearing, deadline: Option<Moment>, seed: u64) -> Self {
        Self {
            hearing,
            longest_sleep: kind.longest_sleep(),
            longest_poll: kind.longest_poll(),
            deadline,
            listening: false,
            answered: None,
            pause: Duration::ZERO,
            jitter: seed,
        }
    }

    /// A poller that others have to wait for listens as they would.
    pub const fn listen_too(&mut self) {
        self.hearing = Hearing::Notify;
    }

    /// When it has to give up, if ever.
    pub const fn deadline(&self) -> Option<Moment> {
        self.deadline
    }

    /// It has stood in line and is now the first: what others of this client have seen of the lock, it
    /// has seen. An outage it meets is not its first attempt's.
    pub fn stood_in_line(&mut self, busy: bool) {
        let seen = if busy { Answer::Busy } else { Answer::Failure };
        self.answered.get_or_insert(seen);
    }

    /// Somebody else holds the lock, for `ttl` more; `None` if it has no end.
    pub fn busy(&mut self, ttl: Option<Duration>, now: Moment) -> Step {
        self.answered = Some(Answer::Busy);
        if self.is_over(now) {
            return Step::Busy;
        }
        match self.hearing {
            Hearing::Notify if !self.listening => Step::Listen,
            Hearing::Notify => {
                // A little after the holder's lease, and not all at the same instant.
                let longest = self.longest_sleep;
                if planted!(NeverAsksByItself) {
                    return self.sleep(Duration::from_secs(86_400), now);
                }
                let lapse = ttl.map_or(longest, |ttl| ttl + self.spread(20));
                self.sleep(lapse.min(longest), now)
            }
            Hearing::Poll { first, longest } => {
                let longest = longest.min(self.longest_poll);
                self.pause = (self.pause * 2).clamp(first.min(longest), longest);
                let pause = self.pause.mul_f64(0.5 + 0.5 * self.fraction());
                let lapse = ttl.map(|ttl| ttl + self.spread(20));
                self.sleep(lapse.map_or(pause, |lapse| pause.min(lapse)), now)
            }
        }
    }

    /// The request failed. `passing` if it may work a little later.
    pub fn failed(&mut self, passing: bool, now: Moment) -> Step {
        let waited = self.answered.is_some();
        if self.is_over(now) {
            // It may have been granted for all we know: not the same as busy.
            return Step::TimedOut;
        }
        if !waited || !passing {
            return Step::Fail;
        }
        self.answered = Some(Answer::Failure);
        let pause = self.pause.max(Duration::from_millis(10));
        self.pause = (pause * 2).min(Duration::from_millis(500));
        let pause = pause + self.spread(10);
        self.sleep(pause, now)
    }

    /// We hear of releases from now on: ask again, since one may have come before.
    pub fn listening(&mut self) -> Step {
        self.listening = true;
        Step::Ask
    }

    /// We do not hear of releases any more, and have to begin anew.
    pub const fn not_listening(&mut self) {
        self.listening = false;
    }

    /// We do not hear of releases; ask now and then instead, and try to listen again.
    pub fn deaf(&mut self, now: Moment) -> Step {
        self.listening = false;
        let pause = Duration::from_millis(50) + self.spread(50);
        self.sleep(pause, now)
    }

    /// The sleep is over, by its end or by a message.
    pub fn woken(&mut self, now: Moment) -> Step {
        if !self.is_over(now) {
            return Step::Ask;
        }
        match self.answered {
            Some(Answer::Busy) => Step::Busy,
            Some(Answer::Failure) | None => Step::TimedOut,
        }
    }

    fn is_over(&self, now: Moment) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    fn sleep(&self, pause: Duration, now: Moment) -> Step {
        let until = now + pause.max(Duration::from_millis(1));
        Step::Sleep(self.deadline.map_or(until, |deadline| deadline.min(until)))
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
pub fn stand_back(seed: u64, for_pollers: bool) -> Duration {
    let least = Duration::from_millis(if for_pollers { 10 } else { 2 });
    least + spread(Duration::from_millis(3), seed)
}

#[cfg(test)]
mod tests;
