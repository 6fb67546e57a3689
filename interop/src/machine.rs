//! A machine that is not ours alone, and what it does to what is played on it. `scripts/lib/machine.sh` goes by the same.

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
    /// On a thread of its own, so that nothing that we do makes it late.
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

    /// What was last done to us, if anything.
    pub(crate) fn seen(&self) -> Option<String> {
        let seen = self.seen.lock();
        seen.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// When it was last looked at, and what it looked like a second ago or less.
struct Look {
    last: Stamp,
    second: Stamp,
    time: Option<Time>,
}

impl Look {
    fn first(now: Stamp, time: Option<Time>) -> Self {
        Self {
            last: now,
            second: now,
            time,
        }
    }

    /// What was done to us since, if anything.
    fn again(&mut self, now: Stamp, time: Option<Time>) -> Option<String> {
        let still = now.since(std::mem::replace(&mut self.last, now));
        if still > EVERY + STILL {
            return Some(format!("the machine stood still for {still:?}"));
        }
        if now.since(self.second) < Duration::from_secs(1) {
            return None;
        }
        let before = std::mem::replace(self, Self::first(now, time));
        let others = time?.others_since(before.time?)?;
        (others >= 50).then(|| format!("others had {others}% of the machine"))
    }
}

/// The processors' time until now, in whatever the system counts it.
#[derive(Clone, Copy)]
struct Time {
    all: u64,
    /// What others had of it.
    others: u64,
}

impl Time {
    /// `None` on systems that do not tell.
    fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// From a line such as `cpu  100 0 50 800 0 0 0 50 0 0`: what it was spent on, the eighth on others.
    fn parse(told: &str) -> Option<Self> {
        let numbers = told
            .lines()
            .next()?
            .strip_prefix("cpu ")?
            .split_whitespace();
        let numbers: Option<Vec<u64>> = numbers.take(8).map(|number| number.parse().ok()).collect();
        let numbers = numbers.filter(|numbers| numbers.len() == 8)?;
        Some(Self {
            all: numbers.iter().sum(),
            others: numbers[7],
        })
    }

    /// How much of it others had since, in percent.
    fn others_since(self, earlier: Self) -> Option<u64> {
        let others = self.others.saturating_sub(earlier.others);
        (others * 100).checked_div(self.all.saturating_sub(earlier.all))
    }
}

/// How often it looks.
const EVERY: Duration = Duration::from_millis(50);
/// For how long nothing runs on a machine that is taken from us, and not on one that we keep busy.
const STILL: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_have_of_the_machine_is_told() {
        let before = Time::parse("cpu  100 0 50 800 0 0 0 50 7 7\ncpu0 1 2").expect("a line");
        let after = Time::parse("cpu  110 0 50 810 0 0 0 110 9 9\n").expect("a line");
        assert_eq!(after.others_since(before), Some(75));
        assert_eq!(after.others_since(after), None, "no time has passed");
        assert!(Time::parse("cpu  1 2 3\n").is_none());
    }

    #[test]
    fn a_machine_that_stood_still_is_noticed_and_one_that_did_not_is_not() {
        let begun = Stamp::now();
        let at = |millis| begun + Duration::from_millis(millis);
        let mut look = Look::first(begun, None);
        assert_eq!(look.again(at(290), None), None);
        let note = look.again(at(600), None);
        assert_eq!(note.as_deref(), Some("the machine stood still for 310ms"));
        assert_eq!(look.again(at(650), None), None, "it goes on");
    }

    #[test]
    fn who_had_half_of_it_for_a_second_is_noticed() {
        let begun = Stamp::now();
        let time = |others| Some(Time { all: 200, others });
        let notes = |others| {
            let mut look = Look::first(begun, Some(Time { all: 0, others: 0 }));
            for millis in (200..1000).step_by(200) {
                let note = look.again(begun + Duration::from_millis(millis), time(others));
                assert_eq!(note, None, "not before a second is over");
            }
            look.again(begun + Duration::from_secs(1), time(others))
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
