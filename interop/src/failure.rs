//! How a scenario fails: with a sentence.

use std::fmt;

/// What came of a step.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// What was expected and did not happen.
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }

    /// The same, and where.
    pub(crate) fn during(self, what: impl fmt::Display) -> Self {
        Self(format!("{what}: {}", self.0))
    }
}

/// Not an error itself, so that every error can become one with `?`.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(error.to_string())
    }
}

/// A wait of ours may end while the store is asked once more. It has nothing then, and says so by [`Timeout`].
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

/// Fails with a sentence unless something holds.
macro_rules! ensure {
    ($holds:expr, $($what:tt)+) => {
        if !$holds {
            return Err($crate::failure::Failure::new(format!($($what)+)));
        }
    };
}
pub(crate) use ensure;
