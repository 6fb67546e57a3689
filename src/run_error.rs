//! The error of work that was not done under its lock from beginning to end.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use crate::error::Error;

/// The error of [`Lock::run`](crate::Lock::run) and [`Guard::while_held`](crate::Guard::while_held): the lock could not
/// be acquired, or it was lost before the work ended.
///
/// `?` turns it into an [`Error`] in functions that return that, and into `Box<dyn Error>`, `anyhow::Error` and the
/// like. A function with an error type of its own that has `From<distlock::Error>` writes
/// `.map_err(distlock::Error::from)?`.
///
/// If the work ran to its end although the lock was lost, [`into_output`](Self::into_output) returns its output, for
/// example to undo it. Another client may then have worked at the same time.
///
/// # Examples
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::connect("memory:").await?;
/// let admin = client.admin();
/// let done = client.lock("invoice").run(async |_| {
///     let _ = admin.force_release("invoice").await; // an operator intervenes
///     "invoice 42 was sent"
/// }).await;
/// let error = done.unwrap_err();
/// assert!(error.error().is_lost());
/// assert_eq!(error.into_output(), Some("invoice 42 was sent"));
/// # Ok(()) }
/// ```
pub struct RunError<T> {
    error: Error,
    // Never locked: the mutex makes this type `Sync` for every output that is `Send`, as `anyhow::Error` demands. Boxed, so
    // that a large output does not make the error of every call large.
    output: Option<Box<Mutex<T>>>,
}

impl<T> RunError<T> {
    /// Returns `output` if the lock was held until the work ended, and otherwise the error with it.
    pub(crate) fn unless_held(held: Result<(), Error>, output: T) -> Result<T, Self> {
        match held {
            Ok(()) => Ok(output),
            Err(error) => Err(Self::with_output(error, output)),
        }
    }

    /// Returns the error of work that ran to its end, with the output of the work: for a `run` of your own.
    pub fn with_output(error: Error, output: T) -> Self {
        Self {
            error,
            output: Some(Box::new(Mutex::new(output))),
        }
    }

    /// Returns the error.
    pub const fn error(&self) -> &Error {
        &self.error
    }

    /// Returns the output of the work if it ran to its end; `None` if it was dropped, or never started.
    pub fn into_output(self) -> Option<T> {
        self.into_parts().1
    }

    /// Returns the error, and the output of the work if it ran to its end.
    pub fn into_parts(self) -> (Error, Option<T>) {
        let output = self.output.map(|output| *output);
        let output =
            output.map(|output| output.into_inner().unwrap_or_else(PoisonError::into_inner));
        (self.error, output)
    }
}

impl<T> From<Error> for RunError<T> {
    fn from(error: Error) -> Self {
        Self {
            error,
            output: None,
        }
    }
}

impl<T> From<RunError<T>> for Error {
    fn from(error: RunError<T>) -> Self {
        error.error
    }
}

// These impls need no bounds on the output, so `?` and `unwrap` work with any type.
impl<T> std::error::Error for RunError<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl<T> fmt::Display for RunError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)?;
        match self.output {
            Some(_) => f.write_str("; the work nevertheless ran to its end"),
            None => Ok(()),
        }
    }
}

impl<T> fmt::Debug for RunError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunError")
            .field("error", &self.error)
            .field("has_output", &self.output.is_some())
            .finish()
    }
}
