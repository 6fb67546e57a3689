//! The exit codes, and the failures that carry them.
//!
//! `run` passes on the exit code of the command it ran. Its own exit codes are those of `sysexits.h`, which ordinary
//! programs do not use for other purposes.

use distlock::Error;

use crate::out::shown;

/// The answer is no: there is no lock to show, the owner holds nothing, or a finding is a failure.
pub(crate) const NO: u8 = 1;
/// The command line is invalid.
pub(crate) const USAGE: u8 = 64;
/// The store cannot be reached, or refuses the request.
pub(crate) const UNAVAILABLE: u8 = 69;
/// The system refused to provide a runtime, or signals.
pub(crate) const SYSTEM: u8 = 71;
/// The output cannot be written.
pub(crate) const OUTPUT: u8 = 74;
/// Another owner holds the lock.
pub(crate) const BUSY: u8 = 75;
/// The lock was lost before the command had ended.
pub(crate) const LOST: u8 = 76;
/// The command exists but cannot be run; the code is the one of shells.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// There is no such command; the code is the one of shells.
pub(crate) const NOT_FOUND: u8 = 127;

/// Returns the exit code of shells for a process that was ended by a signal.
pub(crate) fn by_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// The reason for an early end, with the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    /// One line, with a solution if there is one; `None` to end silently.
    pub(crate) message: Option<String>,
    /// The data that has the name instead, if that is the reason.
    wrong_kind: Option<WrongKind>,
}

/// A name whose data is of another kind than expected.
#[derive(Debug)]
struct WrongKind {
    name: String,
    detail: String,
}

/// The expected kind of a name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ExpectedKind {
    Latch,
    /// A lock to inspect or release.
    Lock,
    /// A lock of some kind, to acquire.
    LockToTake,
    Semaphore,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self {
            code,
            message: Some(message.into()),
            wrong_kind: None,
        }
    }

    pub(crate) const fn silent(code: u8) -> Self {
        Self {
            code,
            message: None,
            wrong_kind: None,
        }
    }

    /// Rewords the message for the expected kind of the name.
    pub(crate) fn of(mut self, expected: ExpectedKind) -> Self {
        if let Some(wrong) = &self.wrong_kind {
            self.message = Some(wrong.message(expected));
        }
        self
    }
}

impl WrongKind {
    fn message(&self, expected: ExpectedKind) -> String {
        let (name, detail) = (shown(&self.name), &self.detail);
        match expected {
            ExpectedKind::Latch => format!(
                "`{name}` is not a latch ({detail}); it was left as it is; choose another name"
            ),
            ExpectedKind::Lock => format!("`{name}` is not a lock ({detail})"),
            // The library's message names a key prefix, an option that the command does not have.
            ExpectedKind::LockToTake => format!(
                "`{name}` is not a lock of this kind ({detail}); it was left as it is; choose another name, such as \
                 `lock:{name}`, or the option for its kind if it is a lock of another kind"
            ),
            ExpectedKind::Semaphore => format!(
                "`{name}` is not a semaphore ({detail}); it was left as it is; choose another name"
            ),
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
                let message = format!("{message}; `--url` or DISTLOCK_URL selects the store");
                Self::new(UNAVAILABLE, message)
            }
            Error::WrongKind { name, detail } => Self {
                code: UNAVAILABLE,
                message: None,
                wrong_kind: Some(WrongKind {
                    name: name.to_string(),
                    detail,
                }),
            }
            .of(ExpectedKind::Lock),
            _ => Self::new(UNAVAILABLE, message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_has_the_exit_code_of_shells() {
        assert_eq!(by_signal(9), 137);
        assert_eq!(by_signal(15), 143);
        assert_eq!(by_signal(1000), 255);
    }
}
