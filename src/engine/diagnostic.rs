//! What an operator should know about a store.

/// One thing that was looked at, and whether it is as locks need it.
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
    /// What was looked at, in a word or two.
    pub subject: String,
    /// Whether it is as it should be.
    pub severity: Severity,
    /// What was found.
    pub found: String,
    /// What to do about it.
    pub advice: Option<String>,
}

/// Whether something is as locks need it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Locks work, but may be forgotten or harder to look at; or nobody can tell.
    Warn,
    /// Locks do not work, or may be granted twice.
    Fail,
}

impl Diagnostic {
    /// Something that is as it should be.
    pub(crate) fn ok(subject: &str, found: impl Into<String>) -> Self {
        Self {
            subject: subject.to_owned(),
            severity: Severity::Ok,
            found: found.into(),
            advice: None,
        }
    }

    /// Something one should know of.
    pub(crate) fn warn(subject: &str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warn,
            advice: Some(advice.into()),
            ..Self::ok(subject, found)
        }
    }

    /// Something that has to be put right.
    pub(crate) fn fail(subject: &str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            severity: Severity::Fail,
            ..Self::warn(subject, found, advice)
        }
    }
}
