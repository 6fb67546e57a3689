//! Stall detector: how long a connection with pending replies has been silent. The caller passes the time.

use std::time::Duration;

use tokio::time::Instant;

/// The replies that a connection owes, and since when it has been silent.
#[derive(Debug)]
pub(super) struct StallDetector {
    pending: u64,
    /// A call was abandoned since the last reply, so one reply is still owed.
    has_abandoned: bool,
    since: Instant,
}

impl StallDetector {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            pending: 0,
            has_abandoned: false,
            since: now,
        }
    }

    /// Records that a call was sent.
    pub(super) const fn on_request(&mut self, now: Instant) {
        if !self.has_pending() {
            self.since = now;
        }
        self.pending += 1;
    }

    /// Records a reply. Replies come in order: every reply that was owed before has come, too.
    pub(super) const fn on_reply(&mut self, now: Instant) {
        self.pending -= 1;
        self.has_abandoned = false;
        self.since = now;
    }

    /// Records that a call was abandoned by its caller.
    pub(super) const fn on_abandoned(&mut self) {
        self.pending -= 1;
        self.has_abandoned = true;
    }

    /// Returns whether the connection is no longer worth waiting for, for a caller that has `waited` in vain: it owes a
    /// reply, and has been silent for `stall_timeout` and for half of the caller's wait. A connection that replies,
    /// however slowly, is better than none.
    pub(super) fn is_stalled(
        &self,
        now: Instant,
        waited: Duration,
        stall_timeout: Duration,
    ) -> bool {
        let silent = now.saturating_duration_since(self.since);
        !planted!(SilentConnectionKept)
            && self.has_pending()
            && silent >= stall_timeout.max(waited / 2)
    }

    const fn has_pending(&self) -> bool {
        self.pending > 0 || self.has_abandoned
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a moment to count from")]
mod tests {
    use super::*;

    const STALL_TIMEOUT: Duration = Duration::from_secs(2);
    const SHORT: Duration = Duration::from_millis(300);

    fn later(seconds: u64) -> (StallDetector, Instant) {
        let now = Instant::now();
        (StallDetector::new(now), now + Duration::from_secs(seconds))
    }

    #[test]
    fn idle_connection_never_stalls() {
        let (stall_detector, later) = later(3600);
        assert!(!stall_detector.is_stalled(later, STALL_TIMEOUT, STALL_TIMEOUT));
    }

    #[test]
    fn short_waits_add_up_to_a_stall() {
        let (mut stall_detector, later) = later(3);
        stall_detector.on_request(later - Duration::from_secs(3));
        assert!(stall_detector.is_stalled(later, SHORT, STALL_TIMEOUT));
        stall_detector.on_abandoned();
        stall_detector.on_request(later);
        assert!(
            stall_detector.is_stalled(later, SHORT, STALL_TIMEOUT),
            "still owed"
        );
        stall_detector.on_reply(later);
        assert!(!stall_detector.is_stalled(later, SHORT, STALL_TIMEOUT));
    }

    #[test]
    fn slow_connection_that_answers_is_kept() {
        let (mut stall_detector, later) = later(9);
        stall_detector.on_request(later - Duration::from_secs(9));
        stall_detector.on_request(later - Duration::from_secs(9));
        stall_detector.on_reply(later - Duration::from_secs(3));
        let waited = Duration::from_secs(9);
        assert!(
            !stall_detector.is_stalled(later, waited, STALL_TIMEOUT),
            "half of nine"
        );
        let waited = Duration::from_secs(6);
        assert!(stall_detector.is_stalled(later, waited, STALL_TIMEOUT));
    }
}
