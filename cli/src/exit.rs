//! How the command ends: its exit codes, and the failures that carry them.
//!
//! `run` passes on the exit code of the command it ran. Its own are those of `sysexits.h`, which no
//! ordinary program uses for something else.

use distlock::Error;

use crate::out::shown;

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
    /// What else lives under the name, if that is why.
    wrong_kind: Option<WrongKind>,
}

/// Something that is not what the name was to be.
#[derive(Debug)]
struct WrongKind {
    name: String,
    detail: String,
}

/// What a name was to be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ExpectedKind {
    Latch,
    /// A lock that is looked at or released.
    Lock,
    /// A lock of some kind, to be taken.
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

    /// The same in words that fit what the name was to be.
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
            // The library's message names a key prefix, which the command has not.
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
                let message = format!("{message}; `--url` or DISTLOCK_URL say which store to use");
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
    fn a_signal_is_told_as_shells_do() {
        assert_eq!(by_signal(9), 137);
        assert_eq!(by_signal(15), 143);
        assert_eq!(by_signal(1000), 255);
    }
}
