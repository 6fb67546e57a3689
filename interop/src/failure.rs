//! How a scenario fails: with a sentence.

use std::fmt;

/// What came of a step.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// What was expected and did not happen.
pub(crate) struct Failure {
    what: String,
    fault: Fault,
}

/// Whose fault it may be.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Fault {
    /// Ours, unless something is known of the machine that explains it.
    Ours,
    /// Ours if it happens again, a busy machine's if not.
    Late,
    /// Ours, or a peer's, whatever the machine did.
    Certain,
}

impl Failure {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            fault: Fault::Ours,
        }
    }

    /// It happened, but not in time: a fault of ours if it happens again, of a busy machine if not.
    pub(crate) fn late(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            fault: Fault::Late,
        }
    }

    /// Nothing that a machine does explains it: somebody hangs for good, has died, or panicked.
    pub(crate) fn certain(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            fault: Fault::Certain,
        }
    }

    /// The same, and where.
    pub(crate) fn during(self, what: impl fmt::Display) -> Self {
        Self {
            what: format!("{what}: {}", self.what),
            ..self
        }
    }

    /// Late rather than wrong, where only a slow machine explains it.
    pub(crate) fn excused_if(self, slow: bool) -> Self {
        let fault = match self.fault {
            Fault::Ours if slow => Fault::Late,
            fault => fault,
        };
        Self { fault, ..self }
    }

    /// Whether a machine that stood still for a moment explains it.
    pub(crate) fn is_late(&self) -> bool {
        self.fault == Fault::Late
    }
}

/// Not an error itself, so that every error can become one with `?`.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(error.to_string())
    }
}

/// What an error of ours is to a scenario. One whose time was over while a question was under way had no answer to it, which
/// is a slow machine's fault; who never has one has failed every time.
pub(crate) fn unheard(error: distlock::Error) -> Failure {
    let slow = matches!(error, distlock::Error::Timeout { .. });
    Failure::from(error).excused_if(slow)
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// Fails with a sentence unless something holds.
macro_rules! ensure {
    ($holds:expr, $($what:tt)+) => {
        if !$holds {
            return Err($crate::failure::Failure::new(format!($($what)+)));
        }
    };
}
pub(crate) use ensure;

/// Fails as [`Failure::late`] unless something holds.
macro_rules! in_time {
    ($holds:expr, $($what:tt)+) => {
        if !$holds {
            return Err($crate::failure::Failure::late(format!($($what)+)));
        }
    };
}
pub(crate) use in_time;
