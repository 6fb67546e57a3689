//! A machine that is not ours alone, and what it does to what is played on it.

use std::fs;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::clock::Stamp;

/// Watches the machine until it is dropped.
pub(crate) struct Watch {
    /// What was last done to us.
    seen: Arc<Mutex<Option<String>>>,
    /// Ends when it is dropped.
    _end: Sender<()>,
}

impl Watch {
    /// On a thread of its own, so that a busy runtime does not make it late.
    pub(crate) fn start() -> Self {
        let (end, ended) = mpsc::channel();
        let seen = Arc::<Mutex<Option<String>>>::default();
        let notes = seen.clone();
        thread::spawn(move || {
            let mut look = Look::first(Stamp::now(), Time::now());
            while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                if let Some(note) = look.again(Stamp::now(), Time::now()) {
                    *notes.lock().unwrap_or_else(PoisonError::into_inner) = Some(note);
                }
            }
        });
        Self { seen, _end: end }
    }

    /// What was last done to us, if anything. It looks a second longer, since it has not yet judged the last one.
    pub(crate) async fn end(self) -> Option<String> {
        tokio::time::sleep(A_SECOND + EVERY * 2).await;
        let seen = self.seen.lock();
        seen.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Waits until the machine is ours again, for two minutes at most. Nobody takes it from those who do nothing, so that it is kept busy.
pub(crate) async fn calm() {
    for _ in 0..24 {
        let watch = Watch::start();
        let until = Stamp::now() + Duration::from_secs(5);
        let processors = thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..processors {
            thread::spawn(move || {
                while Stamp::now() < until {
                    std::hint::spin_loop();
                }
            });
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        if watch.end().await.is_none() {
            return;
        }
    }
}

/// When it was last looked at, and a second before.
struct Look {
    last: (Stamp, Option<Time>),
    second: (Stamp, Option<Time>),
}

impl Look {
    const fn first(now: Stamp, time: Option<Time>) -> Self {
        Self {
            last: (now, time),
            second: (now, time),
        }
    }

    /// What was done to us since, if anything.
    fn again(&mut self, now: Stamp, time: Option<Time>) -> Option<String> {
        let (then, before) = std::mem::replace(&mut self.last, (now, time));
        let late = now.since(then).saturating_sub(EVERY);
        let both = time.zip(before);
        let kept_from_us = both.is_none_or(|(time, before)| time.was_kept_from_us(before, late));
        if late > STILL && kept_from_us {
            return Some(format!("the machine stood still for {late:?}"));
        }
        if now.since(self.second.0) < A_SECOND {
            return None;
        }
        let (_, before) = std::mem::replace(&mut self.second, (now, time));
        let others = time?.others_since(before?)?;
        (others >= 50).then(|| format!("others had {others}% of the machine"))
    }
}

/// The processors' time until now, in hundredths of a second.
#[derive(Clone, Copy)]
struct Time {
    all: u64,
    /// What we had of it.
    ours: u64,
    /// What others had of it.
    others: u64,
    processors: u64,
}

impl Time {
    /// `None` on systems that do not tell.
    fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// From lines such as `cpu  100 0 50 800 0 0 0 50 0 0`: what it was spent on, the fourth and fifth on nothing, the eighth on
    /// others; first of all processors, then of each.
    fn parse(told: &str) -> Option<Self> {
        let mut lines = told.lines();
        let numbers = lines.next()?.strip_prefix("cpu ")?.split_whitespace();
        let numbers: Option<Vec<u64>> = numbers.take(8).map(|number| number.parse().ok()).collect();
        let &[user, nice, system, idle, waiting, hard, soft, others] = &*numbers? else {
            return None;
        };
        let ours = user + nice + system + hard + soft;
        let processors = lines.take_while(|line| line.starts_with("cpu")).count();
        Some(Self {
            all: ours + idle + waiting + others,
            ours,
            others,
            processors: u64::try_from(processors).ok()?,
        })
    }

    /// How much others had of what there was since, in percent.
    fn others_since(self, earlier: Self) -> Option<u64> {
        let others = self.others.saturating_sub(earlier.others);
        (others * 100).checked_div(self.all.saturating_sub(earlier.all))
    }

    /// Whether we had less than half of what there should have been in so long a time.
    fn was_kept_from_us(self, earlier: Self, time: Duration) -> bool {
        let ours = Duration::from_millis(self.ours.saturating_sub(earlier.ours) * 10);
        let due = time.as_millis() * u128::from(self.processors);
        ours.as_millis() * 2 < due
    }
}

/// How often it looks.
const EVERY: Duration = Duration::from_millis(50);
/// How late it is on a machine that is taken from us.
const STILL: Duration = Duration::from_millis(250);
const A_SECOND: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn two_processors(first: &str) -> Option<Time> {
        Time::parse(&format!("{first}\ncpu0 1 2\ncpu1 1 2\nintr 3"))
    }

    #[test]
    fn what_others_have_of_the_machine_is_told() {
        let before = two_processors("cpu  100 0 50 800 0 0 0 50 7 7").expect("a line");
        let after = two_processors("cpu  110 0 50 810 0 0 0 110 9 9").expect("a line");
        assert_eq!(after.others_since(before), Some(75));
        assert_eq!(after.others_since(after), None, "no time has passed");
        assert!(two_processors("cpu  1 2 3").is_none());
    }

    #[test]
    fn a_machine_that_stood_still_is_noticed_and_one_that_did_not_is_not() {
        let begun = Stamp::now();
        let at = |millis| begun + Duration::from_millis(millis);
        let mut look = Look::first(begun, None);
        assert_eq!(look.again(at(290), None), None);
        let note = look.again(at(600), None);
        assert_eq!(note.as_deref(), Some("the machine stood still for 260ms"));
        assert_eq!(look.again(at(650), None), None, "it goes on");
    }

    #[test]
    fn who_is_late_because_of_us_excuses_nobody() {
        let begun = Stamp::now();
        let late = |after: &str| {
            let mut look = Look::first(begun, two_processors("cpu  0 0 0 0 0 0 0 0"));
            look.again(begun + Duration::from_millis(450), two_processors(after))
        };
        assert_eq!(late("cpu  40 0 0 50 0 0 0 0"), None, "half of it was ours");
        assert!(late("cpu  39 0 0 0 0 0 0 51").is_some());
        assert!(late("cpu  0 0 0 0 0 0 0 0").is_some(), "nothing ran");
    }

    #[test]
    fn who_had_half_of_it_for_a_second_is_noticed() {
        let begun = Stamp::now();
        let notes = |others: u64| {
            let mut look = Look::first(begun, two_processors("cpu  0 0 0 0 0 0 0 0"));
            let then = two_processors(&format!("cpu  {} 0 0 0 0 0 0 {others}", 200 - others));
            for millis in (200..1000).step_by(200) {
                let note = look.again(begun + Duration::from_millis(millis), then);
                assert_eq!(note, None, "not before a second is over");
            }
            look.again(begun + A_SECOND, then)
        };
        assert_eq!(notes(99), None);
        assert_eq!(notes(100).as_deref(), Some("others had 50% of the machine"));
    }

    #[test]
    fn a_watch_is_over_when_it_is_dropped() {
        let watch = Watch::start();
        let seen = Arc::downgrade(&watch.seen);
        drop(watch);
        let give_up = Stamp::now() + Duration::from_secs(20);
        while seen.strong_count() > 0 {
            assert!(Stamp::now() < give_up, "it still looks");
            thread::sleep(EVERY);
        }
    }
}
