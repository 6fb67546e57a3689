//! The diagnostics of a store, for its operator.

/// One thing that was examined, and whether it is as locks need it.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// use distlock::Severity;
///
/// let client = distlock::Client::connect("memory:").await?;
/// for finding in client.admin().examine().await? {
///     if finding.severity != Severity::Ok {
///         println!("{}: {}", finding.subject, finding.found);
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Diagnostic {
    /// The thing that was examined, in a word or two.
    pub subject: String,
    /// Whether it is as locks need it.
    pub severity: Severity,
    /// The result.
    pub found: String,
    /// The advice to the operator, if there is any.
    pub advice: Option<String>,
}

/// Whether something is as locks need it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Severity {
    /// It is as it should be.
    Ok,
    /// Locks work, but may be forgotten or are harder to examine; or it cannot be found out.
    Warn,
    /// Locks do not work, or may be granted twice.
    Fail,
}

impl Diagnostic {
    /// Creates a diagnostic of something that is as it should be.
    pub(crate) fn ok(subject: &str, found: impl Into<String>) -> Self {
        Self {
            subject: subject.to_owned(),
            severity: Severity::Ok,
            found: found.into(),
            advice: None,
        }
    }

    /// Creates a diagnostic of something that the operator should know of.
    pub(crate) fn warn(subject: &str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warn,
            advice: Some(advice.into()),
            ..Self::ok(subject, found)
        }
    }

    /// Creates a diagnostic of something that has to be corrected.
    pub(crate) fn fail(subject: &str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            severity: Severity::Fail,
            ..Self::warn(subject, found, advice)
        }
    }
}
