//! How a scenario fails: with a sentence.

use std::fmt;

/// What came of a step.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// What was expected and did not happen.
pub(crate) struct Failure {
    what: String,
    is_late: bool,
}

impl Failure {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            is_late: false,
        }
    }

    /// It happened, but not in time: a fault of ours if it happens again, of a busy machine if not.
    pub(crate) fn late(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            is_late: true,
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
        Self {
            is_late: self.is_late || slow,
            ..self
        }
    }

    /// Whether a machine that stood still for a moment explains it.
    pub(crate) const fn is_late(&self) -> bool {
        self.is_late
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
