//! Fencing tokens: numbers that tell a late holder from the one after it.

use std::fmt;

/// A number that grows with every new grant of a [`fenced lock`](crate::Client::fenced_lock).
///
/// Send it along with every write, and let the resource reject a token that is smaller than one it
/// has seen: a holder that was paused and has lost the lock without knowing can then do no harm.
/// The token is a plain integer, which fits into an `i64` and into a database's `BIGINT`.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::connect("memory:").await?;
/// let lock = client.fenced_lock("stock");
/// let first = lock.acquire().await?;
/// let token = first.token();
/// first.release().await?;
/// let second = lock.acquire().await?;
/// assert!(second.token() > token);
/// println!("UPDATE stock SET …, token = {token} WHERE token <= {token}");
/// # second.release().await }
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[cfg_attr(
    feature = "sqlite",
    derive(serde::Serialize, serde::Deserialize),
    serde(transparent)
)]
pub struct FencingToken(u64);

impl FencingToken {
    /// No store grants a greater token: up to here the numbers of Lua, and of JSON parsers, are
    /// exact.
    pub(crate) const LAST: Self = Self((1 << 53) - 1);

    /// Creates a token from its number, such as one that was stored beside the data it protects.
    ///
    /// ```
    /// let kept = distlock::FencingToken::new(7);
    /// assert!(kept < distlock::FencingToken::new(8));
    /// ```
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the token's number.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = client.fenced_lock("stock").acquire().await?;
    /// assert!(guard.token().number() > 0);
    /// # guard.release().await }
    /// ```
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Returns the next token.
    pub(crate) const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.0
    }
}

/// No store grants a token beyond the range of `i64`.
impl From<FencingToken> for i64 {
    fn from(token: FencingToken) -> Self {
        Self::try_from(token.0).unwrap_or(Self::MAX)
    }
}
