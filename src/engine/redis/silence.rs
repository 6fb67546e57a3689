//! How long a connection that owes answers has given none: decided by the clock it is told.

use std::time::Duration;

use tokio::time::Instant;

/// What a connection owes, and since when it has said nothing.
#[derive(Debug)]
pub(super) struct Silence {
    waiting: u64,
    /// A call has given up since the last answer, so one is still owed.
    abandoned: bool,
    since: Instant,
}

impl Silence {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            waiting: 0,
            abandoned: false,
            since: now,
        }
    }

    /// A call goes out.
    pub(super) const fn asked(&mut self, now: Instant) {
        if !self.is_owing() {
            self.since = now;
        }
        self.waiting += 1;
    }

    /// Answers come in order: whatever was owed before has come, too.
    pub(super) const fn answered(&mut self, now: Instant) {
        self.waiting -= 1;
        self.abandoned = false;
        self.since = now;
    }

    /// A call's caller has gone.
    pub(super) const fn abandoned(&mut self) {
        self.waiting -= 1;
        self.abandoned = true;
    }

    /// Whether it is not worth waiting for, in the eyes of one who has `waited` in vain: it owes something
    /// and has not said a word for `patience`, and for half of that time. One that answers, however
    /// slowly, is better than none yet.
    pub(super) fn is_too_long(&self, now: Instant, waited: Duration, patience: Duration) -> bool {
        let silent = now.saturating_duration_since(self.since);
        !planted!(SilentConnectionKept) && self.is_owing() && silent >= patience.max(waited / 2)
    }

    const fn is_owing(&self) -> bool {
        self.waiting > 0 || self.abandoned
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a moment to count from")]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(2);
    const SHORT: Duration = Duration::from_millis(300);

    fn later(seconds: u64) -> (Silence, Instant) {
        let now = Instant::now();
        (Silence::new(now), now + Duration::from_secs(seconds))
    }

    #[test]
    fn one_that_owes_nothing_may_be_silent_for_ever() {
        let (silence, later) = later(3600);
        assert!(!silence.is_too_long(later, PATIENCE, PATIENCE));
    }

    #[test]
    fn many_short_waits_are_as_good_as_a_long_one() {
        let (mut silence, later) = later(3);
        silence.asked(later - Duration::from_secs(3));
        assert!(silence.is_too_long(later, SHORT, PATIENCE));
        silence.abandoned();
        silence.asked(later);
        assert!(silence.is_too_long(later, SHORT, PATIENCE), "still owed");
        silence.answered(later);
        assert!(!silence.is_too_long(later, SHORT, PATIENCE));
    }

    #[test]
    fn a_slow_one_that_answers_is_kept() {
        let (mut silence, later) = later(9);
        silence.asked(later - Duration::from_secs(9));
        silence.asked(later - Duration::from_secs(9));
        silence.answered(later - Duration::from_secs(3));
        let waited = Duration::from_secs(9);
        assert!(
            !silence.is_too_long(later, waited, PATIENCE),
            "half of nine"
        );
        let waited = Duration::from_secs(6);
        assert!(silence.is_too_long(later, waited, PATIENCE));
    }
}
