//! How the command ends: its exit codes, and the failures that carry them.
//!
//! `run` passes on the exit code of the command it ran. Its own are those of `sysexits.h`, which no
//! ordinary program uses for something else.

use distlock::Error;

/// What was asked about is not so: a free lock to show, an owner that holds nothing, a bad finding.
pub(crate) const NO: u8 = 1;
/// The command line makes no sense.
pub(crate) const USAGE: u8 = 64;
/// The store cannot be reached, or refuses.
pub(crate) const UNAVAILABLE: u8 = 69;
/// The system gave us no runtime, or no signals.
pub(crate) const SYSTEM: u8 = 71;
/// The output cannot be written.
pub(crate) const OUTPUT: u8 = 74;
/// Somebody else holds the lock.
pub(crate) const BUSY: u8 = 75;
/// The lock was lost before the command had ended.
pub(crate) const LOST: u8 = 76;
/// The command is there but cannot be run, as shells say it.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// There is no such command, as shells say it.
pub(crate) const NOT_FOUND: u8 = 127;

/// As shells say that somebody was ended by a signal.
pub(crate) fn by_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// Why the command ends early.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    /// One line, with the way out if there is one; nothing if nobody needs to be told.
    pub(crate) message: Option<String>,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self {
            code,
            message: Some(message.into()),
        }
    }

    pub(crate) const fn silent(code: u8) -> Self {
        Self {
            code,
            message: None,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::InvalidName { .. } | Error::InvalidOption { .. } | Error::InvalidUrl { .. } => {
                Self::new(USAGE, message)
            }
            error if error.is_lost() => Self::new(LOST, message),
            Error::Unavailable { .. } => {
                let message = format!("{message}; `--url` or DISTLOCK_URL say which store to use");
                Self::new(UNAVAILABLE, message)
            }
            // Nothing that is held, most likely: a number stays when all have ended.
            Error::WrongKind { .. } => {
                let way_out = "if it is a number that nobody needs any more, \
                               `distlock permits delete` or `distlock latch delete` forgets it";
                Self::new(UNAVAILABLE, format!("{message}; {way_out}"))
            }
            _ => Self::new(UNAVAILABLE, message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_told_as_shells_do() {
        assert_eq!(by_signal(9), 137);
        assert_eq!(by_signal(15), 143);
        assert_eq!(by_signal(1000), 255);
    }
}
