//! TERM, once for each process of a tree.
//!
//! A process that handles TERM may start programs to clean up. These programs must run undisturbed, so only processes that
//! existed when the signal was sent receive it. The process table is not read in an instant: a process that is forked
//! while it is read may be missing from it. Such a process is found by a later reading, and is told from one that a
//! handler has started by its start time, which the table has in ticks of 10 ms. Within the tick of the signal itself
//! the two look alike, and the process is left alone: it ends by itself or receives KILL after the grace. Only if
//! TERM ends every process of the tree, no handler starts anything, and all that is found in a second reading was forked
//! before.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::tree::Process;

/// The record of a TERM that was sent to a tree.
#[derive(Debug)]
pub(crate) struct TermSent {
    /// The time of sending, in ticks of the process table; `None` if the system has no such clock.
    at: Option<u64>,
    /// The same time on the monotonic clock, for its age.
    since: Instant,
    /// The processes that have received it.
    to: HashSet<Pid>,
}

impl TermSent {
    /// Sends TERM to these processes, which are all that `read` has found; reads again if that cannot hit a program
    /// that a handler has started.
    pub(crate) fn send(processes: &[Process], read: impl Fn() -> Option<Vec<Process>>) -> Self {
        let mut sent = Self {
            // Taken before the first signal: a process that started in an earlier tick was not started because of it.
            at: now(),
            since: Instant::now(),
            to: HashSet::new(),
        };
        // Read before the first signal as well: none of them has ended.
        let handled = processes.iter().any(|process| handles_term(process.pid));
        sent.deliver(processes, |_| true);
        if !handled && let Some(processes) = read() {
            sent.deliver(&processes, |_| true);
        }
        sent
    }

    /// Records a TERM that is about to be sent by other means to the processes that `read` finds.
    pub(crate) fn to_these(read: impl FnOnce() -> HashSet<Pid>) -> Self {
        Self {
            // Taken first: a process that is forked while the table is read was not missed.
            at: now(),
            since: Instant::now(),
            to: read(),
        }
    }

    /// Returns the time since the signal was sent.
    pub(crate) fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// Sends TERM to those of these processes that were missed: they started before it was sent.
    pub(crate) fn send_to_missed(&mut self, processes: &[Process]) {
        let at = self.at;
        self.deliver(processes, |process| started_before(process, at));
    }

    fn deliver(&mut self, processes: &[Process], due: impl Fn(&Process) -> bool) {
        for process in processes {
            if due(process) && self.to.insert(process.pid) {
                send_term(process.pid);
            }
        }
    }
}

/// Sends TERM. Errors are ignored: a process that has ended needs no signal, and a process of another user gets none.
fn send_term(pid: Pid) {
    let _ = kill_process(pid, Signal::TERM);
    // A stopped process acts on TERM only when it continues.
    let _ = kill_process(pid, Signal::CONT);
}

/// Returns whether the process started before that tick. Within the same tick the order is unknown, so the result is
/// false.
fn started_before(process: &Process, at: Option<u64>) -> bool {
    matches!((process.started, at), (Some(started), Some(at)) if started < at)
}

/// Returns the current time as the process table counts it.
fn now() -> Option<u64> {
    #[cfg(target_os = "linux")]
    {
        use rustix::time::{ClockId, clock_gettime};
        let now = clock_gettime(ClockId::Boottime);
        let per_second = rustix::param::clock_ticks_per_second();
        let ticks = u64::try_from(now.tv_nsec).ok()? * per_second / 1_000_000_000;
        Some(u64::try_from(now.tv_sec).ok()? * per_second + ticks)
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// Returns whether TERM does anything else to a process than to end it at once: it is caught, blocked or ignored.
/// Unknown counts as handled.
fn handles_term(pid: Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()));
    status.map_or(true, |status| mentions_term(&status))
}

fn mentions_term(status: &str) -> bool {
    let masks = ["SigBlk:", "SigIgn:", "SigCgt:"].map(|name| {
        let mask = status.lines().find_map(|line| line.strip_prefix(name));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
    });
    let bit = 1 << (Signal::TERM.as_raw() - 1);
    masks
        .iter()
        .any(|mask| mask.is_none_or(|mask| mask & bit != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disposition_of_term_is_read_from_the_masks() {
        let status = |blocked, ignored, caught| {
            format!("Name:\tx\nSigBlk:\t{blocked}\nSigIgn:\t{ignored}\nSigCgt:\t{caught}\n")
        };
        let (none, term) = ("0000000000000000", "0000000000004000");
        assert!(!mentions_term(&status(none, none, none)));
        assert!(!mentions_term(&status(none, none, "0000000000002000")));
        assert!(mentions_term(&status(term, none, none)));
        assert!(mentions_term(&status(none, term, none)));
        assert!(mentions_term(&status(none, none, term)));
        assert!(mentions_term("Name:\tx\n"), "unknown");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn process_start_and_signal_time_share_a_clock() {
        let before = now().expect("Linux has this clock");
        let us = rustix::process::getpid();
        let parent = rustix::process::getppid().expect("tests have a parent");
        let all = crate::tree::below(parent, |_| true).expect("there is a table");
        let us = all.into_iter().find(|process| process.pid == us);
        let us = us.expect("this process is in it");
        let started = us.started.expect("Linux has start times");
        assert!(started <= before, "{started} {before}");
        assert!(before - started < 100 * 3600, "the same clock");
        assert!(started_before(&us, Some(started + 1)));
        assert!(!started_before(&us, Some(started)));
        assert!(!started_before(&us, None));
    }
}
