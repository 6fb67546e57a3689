//! Signals that are sent to this process, to be forwarded to the command.
//!
//! Signals that this process was started to ignore stay ignored (`nohup`, background jobs of a script), also by the
//! command, which inherits that. Signals that were only blocked are unblocked, as `timeout` does: without SIGCHLD a run
//! would never end. The command inherits that, too.

use std::fmt::Display;
use std::task::{Context, Poll, Waker};

use nix::sys::signal::SigSet;
use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{self, SignalKind};

use crate::exit::{self, Failure};

/// Signals that ask a process to end.
const ENDING: [Signal; 4] = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM];
/// Signals with a meaning for the command alone.
const PRIVATE: [Signal; 2] = [Signal::USR1, Signal::USR2];

/// The signals that this process handles.
pub(crate) struct Signals {
    child: unix::Signal,
    sent: Vec<(SignalEvent, unix::Signal)>,
}

/// A signal that was received.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SignalEvent {
    /// A child has ended, or stopped.
    Child,
    /// This process is asked to end.
    End(Signal),
    /// The signal is for the command.
    Private(Signal),
    /// The user at the terminal stops this process (Ctrl-Z).
    Stop,
}

impl Signals {
    /// Installs the handlers. To be called before there are other threads: they inherit the blocked signals.
    pub(crate) fn install() -> Result<Self, Failure> {
        let ignored = ignored();
        let ending = ENDING.map(|signal| (signal, SignalEvent::End(signal)));
        let private = PRIVATE.map(|signal| (signal, SignalEvent::Private(signal)));
        let mut sent = Vec::new();
        for (signal, event) in ending.into_iter().chain(private) {
            if !contains(ignored, signal) {
                sent.push((event, stream(signal)?));
            }
        }
        let child = stream(Signal::CHILD)?;
        // Unblock only after the handlers are installed: pending signals are delivered now.
        unblock([Signal::CHILD].into_iter().chain(ENDING).chain(PRIVATE))?;
        Ok(Self { child, sent })
    }

    /// Handles Ctrl-Z as well, which then no longer stops this process by itself.
    pub(crate) fn install_stop_handler(&mut self) -> Result<(), Failure> {
        if !contains(ignored(), Signal::TSTP) {
            self.sent.push((SignalEvent::Stop, stream(Signal::TSTP)?));
            unblock([Signal::TSTP])?;
        }
        Ok(())
    }

    /// Returns the exit code if a signal to end has arrived that was not yet handled.
    pub(crate) fn termination_requested(&mut self) -> Option<u8> {
        let mut context = Context::from_waker(Waker::noop());
        let mut ended = None;
        for (event, signal) in &mut self.sent {
            if let SignalEvent::End(end) = event
                && signal.poll_recv(&mut context).is_ready()
            {
                ended = Some(exit::by_signal(end.as_raw()));
            }
        }
        ended
    }

    /// Waits for a signal to end, and returns its exit code.
    pub(crate) async fn end(&mut self) -> u8 {
        loop {
            if let SignalEvent::End(signal) = self.next().await {
                return exit::by_signal(signal.as_raw());
            }
        }
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> SignalEvent {
        std::future::poll_fn(|cx| {
            for (event, signal) in &mut self.sent {
                if signal.poll_recv(cx).is_ready() {
                    return Poll::Ready(*event);
                }
            }
            self.child.poll_recv(cx).map(|_| SignalEvent::Child)
        })
        .await
    }
}

/// Stops this process until it is continued (`fg`).
pub(crate) fn stop_self() {
    // A process can always send a signal to itself.
    let _ = kill_process(getpid(), Signal::STOP);
}

fn stream(signal: Signal) -> Result<unix::Signal, Failure> {
    unix::signal(SignalKind::from_raw(signal.as_raw())).map_err(install_error)
}

fn unblock(signals: impl IntoIterator<Item = Signal>) -> Result<(), Failure> {
    let signals = signals.into_iter().map(Signal::as_raw);
    let signals: Result<SigSet, _> = signals.map(TryInto::try_into).collect();
    signals
        .and_then(|signals| signals.thread_unblock())
        .map_err(install_error)
}

fn install_error(error: impl Display) -> Failure {
    let message = format!("cannot handle signals: {error}");
    Failure::new(exit::SYSTEM, message)
}

/// Returns the signals that this process ignores, one bit each; none if the system does not report them.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status");
    status.map_or(0, |status| parse(&status))
}

fn parse(status: &str) -> u64 {
    let mut lines = status.lines();
    let mask = lines.find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

const fn contains(mask: u64, signal: Signal) -> bool {
    mask >> (signal.as_raw() - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        let mask = parse("Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n");
        assert!(contains(mask, Signal::HUP) && contains(mask, Signal::PIPE));
        assert!(!contains(mask, Signal::INT) && !contains(mask, Signal::TERM));
        assert_eq!(parse("Name:\tx\n"), 0);
    }
}
