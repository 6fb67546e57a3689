//! Notices answers that do not come. One count for all calls of a client: a timer for each was a tenth of what a call
//! costs.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::no_answer;
use crate::engine::Failure;
use crate::engine::events::Events;
use crate::engine::process::Process;
use crate::engine::supervise::{Restarts, caught};
use crate::engine::wakeups::{Shield, Wakeups};

/// In how many parts the time is counted that an answer may take, if each is long enough: one that does not come is
/// given up a part later at most.
const PARTS: u32 = 16;
const SHORTEST_PART: Duration = Duration::from_millis(1);

/// The calls of one client that wait for as long as a call may take.
pub(crate) struct Overdue {
    limit: Duration,
    part: Duration,
    process: Process,
    wakeups: Wakeups,
    waiting: Mutex<Waiting>,
    /// The first call after a while without any.
    first: Notify,
}

#[derive(Default)]
struct Waiting {
    /// How many parts of time have passed, and how many a call may wait.
    tick: u32,
    most: u32,
    calls: Vec<Call>,
    free: Vec<usize>,
    /// Whether somebody counts, and whether a call has begun since it last did.
    counting: bool,
    begun: bool,
}

enum Call {
    /// Nobody's.
    Free,
    Waits {
        since: u32,
        waker: Waker,
    },
    /// Long enough.
    Over,
}

/// The answer, or `None` if it takes too long.
pub(super) struct InTime<'a, A> {
    answer: A,
    overdue: &'a Overdue,
    call: Option<usize>,
    shield: Shield,
}

impl Overdue {
    pub(super) fn new(limit: Duration, wakeups: Wakeups) -> Arc<Self> {
        let part = (limit / PARTS).max(SHORTEST_PART);
        let most = limit.as_nanos().div_ceil(part.as_nanos());
        let waiting = Waiting {
            most: u32::try_from(most).unwrap_or(PARTS),
            ..Waiting::default()
        };
        Arc::new(Self {
            limit,
            part,
            process: Process::current(),
            wakeups,
            waiting: Mutex::new(waiting),
            first: Notify::new(),
        })
    }

    pub(super) const fn in_time<A: Future + Unpin>(&self, answer: A) -> InTime<'_, A> {
        InTime {
            answer,
            overdue: self,
            call: None,
            shield: Shield::NONE,
        }
    }

    /// Counts for as long as it is driven.
    pub(super) async fn count(self: Arc<Self>, events: Events) {
        let mut restarts = Restarts::of("timeouts", &events);
        while let Err(panicked) = caught(self.count_on()).await {
            restarts.after(panicked).await;
            // Calls that wait already call no more.
            self.first.notify_one();
        }
    }

    /// Asleep while nobody waits.
    #[expect(clippy::disallowed_methods, reason = "the timer of all calls")]
    async fn count_on(&self) {
        loop {
            self.first.notified().await;
            let mut counted = Instant::now();
            loop {
                tokio::time::sleep(self.part).await;
                let passed = counted.elapsed().as_nanos() / self.part.as_nanos();
                // Whoever was stopped for a while first gets to read what has come meanwhile.
                let parts = u32::try_from(passed).unwrap_or(PARTS).clamp(1, PARTS / 2);
                counted = if passed > u128::from(parts) {
                    Instant::now()
                } else {
                    counted + self.part * parts
                };
                let (over, more) = self.lock().count(parts);
                over.into_iter().for_each(Waker::wake);
                if !more {
                    break;
                }
            }
        }
    }

    fn begin(&self, waker: &Waker) -> usize {
        let mut waiting = self.lock();
        waiting.begun = true;
        if !std::mem::replace(&mut waiting.counting, true) {
            self.first.notify_one();
        }
        waiting.begin(waker.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn begin(&mut self, waker: Waker) -> usize {
        let since = self.tick;
        let call = Call::Waits { since, waker };
        match self.free.pop() {
            Some(place) => {
                self.calls[place] = call;
                place
            }
            None => {
                self.calls.push(call);
                self.calls.len() - 1
            }
        }
    }

    /// Whether it has waited long enough; what is to be dropped without the lock comes along.
    fn look(&mut self, place: usize, now: &Waker) -> (bool, Option<Waker>) {
        match &mut self.calls[place] {
            Call::Over => (true, None),
            Call::Waits { waker, .. } if !waker.will_wake(now) => {
                (false, Some(std::mem::replace(waker, now.clone())))
            }
            Call::Waits { .. } | Call::Free => (false, None),
        }
    }

    fn end(&mut self, place: usize) -> Call {
        self.free.push(place);
        std::mem::replace(&mut self.calls[place], Call::Free)
    }

    /// So many parts have passed: who has waited long enough, and whether to go on counting.
    fn count(&mut self, parts: u32) -> (Vec<Waker>, bool) {
        self.tick = self.tick.wrapping_add(parts);
        let mut over = Vec::new();
        let mut waiting = false;
        for call in &mut self.calls {
            let Call::Waits { since, .. } = call else {
                continue;
            };
            // The part it began in does not count.
            if self.tick.wrapping_sub(*since) <= self.most {
                waiting = true;
            } else if let Call::Waits { waker, .. } = std::mem::replace(call, Call::Over) {
                over.push(waker);
            }
        }
        let begun = std::mem::take(&mut self.begun);
        self.counting = begun || waiting;
        if !self.counting && self.free.len() == self.calls.len() {
            // Room for as many as there ever were is not kept.
            self.calls = Vec::new();
            self.free = Vec::new();
        }
        (over, self.counting)
    }
}

impl<A> InTime<'_, A> {
    /// What is said of an answer that did not come.
    pub(super) fn failure(&self) -> Failure {
        no_answer(self.overdue.limit)
    }
}

impl<A: Future + Unpin> Future for InTime<'_, A> {
    type Output = Option<A::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let waker = this.shield.waker(&this.overdue.wakeups, cx.waker());
        if let Poll::Ready(answer) =
            Pin::new(&mut this.answer).poll(&mut Context::from_waker(waker))
        {
            return Poll::Ready(Some(answer));
        }
        // Nobody counts in a forked child, and its locks may be held by threads it does not have.
        if this.overdue.process.has_forked() {
            return Poll::Ready(None);
        }
        let Some(place) = this.call else {
            this.call = Some(this.overdue.begin(waker));
            return Poll::Pending;
        };
        let (over, before) = this.overdue.lock().look(place, waker);
        drop(before);
        if over {
            return Poll::Ready(None);
        }
        Poll::Pending
    }
}

impl<A> Drop for InTime<'_, A> {
    fn drop(&mut self) {
        if let Some(place) = self.call
            && !self.overdue.process.has_forked()
        {
            let ended = self.overdue.lock().end(place);
            drop(ended);
        }
    }
}

impl fmt::Debug for Overdue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.lock();
        f.debug_struct("Overdue")
            .field("waiting", &(waiting.calls.len() - waiting.free.len()))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn few_parts() -> Waiting {
        Waiting {
            most: 4,
            ..Waiting::default()
        }
    }

    #[test]
    fn short_limits_have_fewer_parts() {
        for (limit, part, most) in [(1, 1, 1), (5, 1, 5), (16, 1, 16), (1600, 100, 16)] {
            let overdue = Overdue::new(Duration::from_millis(limit), Wakeups::inline());
            let waiting = overdue.lock();
            assert_eq!(
                (overdue.part, waiting.most),
                (Duration::from_millis(part), most)
            );
        }
        let longest = Overdue::new(Duration::MAX, Wakeups::inline());
        assert!(longest.lock().most >= PARTS);
    }

    #[test]
    fn a_call_is_over_after_all_parts_and_not_before() {
        let mut waiting = few_parts();
        waiting.count(1);
        let place = waiting.begin(Waker::noop().clone());
        for parts in [1, 1, 2] {
            let (over, more) = waiting.count(parts);
            assert!(over.is_empty() && more);
            assert!(!waiting.look(place, Waker::noop()).0);
        }
        let (over, more) = waiting.count(1);
        assert!(over.len() == 1 && !more, "nobody is left to count for");
        assert!(waiting.look(place, Waker::noop()).0);
        waiting.end(place);
    }

    #[test]
    fn nobody_is_counted_for_and_nothing_is_kept() {
        let mut waiting = few_parts();
        let places: Vec<_> = (0..9)
            .map(|_| waiting.begin(Waker::noop().clone()))
            .collect();
        for place in places {
            waiting.end(place);
        }
        waiting.begun = true;
        assert!(waiting.count(1).1, "there was one a moment ago");
        assert!(!waiting.count(1).1);
        assert_eq!(waiting.calls.capacity(), 0);
        assert_eq!(waiting.begin(Waker::noop().clone()), 0);
    }
}
