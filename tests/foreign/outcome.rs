//! The outcome of an operation on a name that other data has.

use std::time::Duration;

use distlock::{Error, Guard, LockInfo, MultiGuard, PermitCount, QuorumGuard};

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Outcome {
    /// The name was refused: [`Error::WrongKind`].
    Refused,
    /// Nothing of this library was found under the name, or the lock was no longer held.
    Nothing,
    /// Something was acquired, found or changed, and released again.
    Done,
    /// The server has not replied in time.
    Late,
    /// This kind of lock needs scripts, which the client does without.
    NeedsScripts,
    /// The operation returned anything else.
    Failed(String),
}

impl From<Error> for Outcome {
    fn from(error: Error) -> Self {
        match error {
            Error::WrongKind { .. } => Self::Refused,
            Error::Lost { .. } => Self::Nothing,
            Error::Timeout { .. } => Self::Late,
            Error::PermissionDenied { detail, .. } if detail.contains("needs scripts") => {
                Self::NeedsScripts
            }
            Error::Several { errors } => {
                let mut each = errors.into_iter().map(Self::from);
                let first = each.next().unwrap_or(Self::Nothing);
                each.find(|each| matches!(each, Self::Failed(_)))
                    .unwrap_or(first)
            }
            error => Self::Failed(error.to_string()),
        }
    }
}

impl<T: Into<Self>> From<Result<T, Error>> for Outcome {
    fn from(result: Result<T, Error>) -> Self {
        result.map_or_else(Self::from, Into::into)
    }
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::Done
    }
}

impl From<bool> for Outcome {
    fn from(done: bool) -> Self {
        if done { Self::Done } else { Self::Nothing }
    }
}

impl From<i64> for Outcome {
    fn from(number: i64) -> Self {
        (number != 0).into()
    }
}

impl From<u64> for Outcome {
    fn from(number: u64) -> Self {
        (number != 0).into()
    }
}

impl From<PermitCount> for Outcome {
    fn from(permits: PermitCount) -> Self {
        (permits.available != 0 || permits.out != 0).into()
    }
}

impl From<Option<LockInfo>> for Outcome {
    fn from(info: Option<LockInfo>) -> Self {
        info.is_some().into()
    }
}

/// Returns the outcome of an acquire. A guard is released before anything is compared.
pub(crate) async fn of_acquire<G: Release>(got: Result<Option<G>, Error>) -> Outcome {
    match got {
        Ok(Some(guard)) => match guard.release_it().await {
            Ok(()) => Outcome::Done,
            Err(error) => Outcome::Failed(format!("granted, but not released: {error}")),
        },
        Ok(None) => Outcome::Nothing,
        Err(error) => error.into(),
    }
}

/// A guard of any type, which can be released.
pub(crate) trait Release {
    fn release_it(self) -> impl Future<Output = Result<(), Error>> + Send;
}

impl<K> Release for Guard<K> {
    fn release_it(self) -> impl Future<Output = Result<(), Error>> + Send {
        self.release()
    }
}

impl Release for MultiGuard {
    fn release_it(self) -> impl Future<Output = Result<(), Error>> + Send {
        self.release()
    }
}

impl Release for QuorumGuard {
    fn release_it(self) -> impl Future<Output = Result<(), Error>> + Send {
        self.release()
    }
}

/// Runs an operation, which has to return.
pub(crate) async fn returned(
    operation: impl Future<Output = Outcome>,
    within: Duration,
) -> Outcome {
    let outcome = tokio::time::timeout(within, operation).await;
    outcome.unwrap_or_else(|_| Outcome::Failed(format!("no answer within {within:?}")))
}
