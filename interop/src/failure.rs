//! The error type of a scenario: a failure is a sentence.

use std::fmt;

/// The result of a step.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// A description of what was expected and did not happen.
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }

    /// Adds to the failure where it happened.
    pub(crate) fn during(self, what: impl fmt::Display) -> Self {
        Self(format!("{what}: {}", self.0))
    }
}

/// `Failure` is not an `Error` itself, so that every error can become one with `?`.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(error.to_string())
    }
}

/// Maps a timeout to `None`. A wait of our client may end while the last request is under way; the client holds nothing then, and reports
/// [`Timeout`].
///
/// [`Timeout`]: distlock::Error::Timeout
pub(crate) fn granted<G>(waited: Result<Option<G>, distlock::Error>) -> Outcome<Option<G>> {
    match waited {
        Err(distlock::Error::Timeout { .. }) => Ok(None),
        waited => Ok(waited?),
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Fails with a sentence unless a condition holds.
macro_rules! ensure {
    ($holds:expr, $($what:tt)+) => {
        if !$holds {
            return Err($crate::failure::Failure::new(format!($($what)+)));
        }
    };
}
pub(crate) use ensure;
