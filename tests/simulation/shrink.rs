//! The shortest list of faults with which a seed still fails.

use crate::faults::Schedule;

/// The most runs that shortening one list may take.
const RUNS: usize = 300;

/// Removes faults as long as the seed still fails: ever smaller parts of the list, one at a time in the end.
pub(crate) fn shrink(schedule: Schedule, fails: impl Fn(Schedule) -> bool) -> Schedule {
    let mut events = schedule.0;
    let mut runs = 0;
    let mut size = events.len();
    while size > 0 {
        let mut from = 0;
        let mut has_removed = false;
        while from < events.len() && runs < RUNS {
            let mut fewer = events.clone();
            fewer.drain(from..(from + size).min(events.len()));
            runs += 1;
            if fails(Schedule(fewer.clone())) {
                events = fewer;
                has_removed = true;
            } else {
                from += size;
            }
        }
        if runs >= RUNS {
            break;
        }
        // A fault that was needed together with a removed one may not be needed any more.
        if size > 1 || !has_removed {
            size /= 2;
        }
    }
    Schedule(events)
}
