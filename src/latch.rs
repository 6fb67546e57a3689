//! The latch: a count that goes down to zero, and clients that wait for zero.

use std::sync::Arc;
use std::time::Duration;

use crate::driver::counter::{CounterUpdate, get, update};
use crate::driver::{Core, DriverError, latch_wait};
use crate::error::Error;
use crate::lock::check_name;
use crate::protocol::number::MAX_COUNTER;
use crate::protocol::{CounterOp, Kind, Subject};

/// A latch that opens when it has been counted down to zero. Redisson's `RCountDownLatch`.
///
/// One client sets the count, others count down as they finish, and all waiters continue when the count is zero. A
/// latch that was never set, or that has been counted down, is open; it can then be set anew.
///
/// # Examples
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::connect("memory:").await?;
/// let loaded = client.latch("shards loaded");
/// loaded.try_set(2).await?;
/// let other = loaded.clone();
/// let waits = tokio::spawn(async move { other.wait().await });
/// loaded.count_down().await?;
/// loaded.count_down().await?;
/// waits.await.expect("it does not panic")?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Latch {
    core: Arc<Core>,
    subject: Subject,
}

impl Latch {
    pub(crate) fn new(core: Arc<Core>, name: Arc<str>) -> Self {
        let subject = Subject::new(Kind::Latch, name);
        Self { core, subject }
    }

    /// Closes an open latch by setting its count, and reports whether it was open.
    ///
    /// # Errors
    ///
    /// The errors of [`count_down`](Self::count_down), and [`Error::InvalidOption`] if the count is zero, or greater
    /// than 2⁵³ − 1.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the change has been made once, has not been made, or will still be made once.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// assert!(client.latch("loaded").try_set(3).await?);
    /// assert!(!client.latch("loaded").try_set(5).await?, "it is closed already");
    /// # Ok(()) }
    /// ```
    pub async fn try_set(&self, count: u64) -> Result<bool, Error> {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        if !(1..=MAX_COUNTER).contains(&count) {
            let wrong =
                Error::invalid_option("count", format!("must be between 1 and {MAX_COUNTER}"));
            return Err(wrong.about(self.name()));
        }
        let CounterUpdate { before, .. } = self.update(CounterOp::SetOnce(count)).await?;
        Ok(before.is_none())
    }

    /// Counts down by one, and returns the remaining count. An open latch stays open.
    ///
    /// The latch is counted down once, however often the request has to be retried because a reply was lost.
    ///
    /// # Errors
    ///
    /// Any error of the store. The request is retried for the [command timeout](crate::ClientBuilder::command_timeout),
    /// and once more if no reply came in that time.
    ///
    /// [`Error::Timeout`] means that the store has not replied: the latch was counted down once, or not at all, or will
    /// still be counted down once, before any later request of this client to the latch. Another call would then be
    /// another count. [`Error::Unavailable`] means that nothing was done.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the change has been made once, has not been made, or will still be made once.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let loaded = client.latch("loaded");
    /// loaded.try_set(2).await?;
    /// assert_eq!(loaded.count_down().await?, 1);
    /// assert_eq!(loaded.count_down().await?, 0);
    /// # Ok(()) }
    /// ```
    pub async fn count_down(&self) -> Result<u64, Error> {
        let CounterUpdate { after, .. } = self.update(CounterOp::CountDown).await?;
        Ok(left(after))
    }

    /// Returns the remaining count; zero if the latch is open.
    ///
    /// # Errors
    ///
    /// Any error of the store; [`Error::WrongKind`] if the key holds other data.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call only reads.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// assert_eq!(client.latch("loaded").count().await?, 0);
    /// # Ok(()) }
    /// ```
    pub async fn count(&self) -> Result<u64, Error> {
        check_name(self.name())?;
        let count = self.of(get(&self.core, &self.subject).await)?;
        Ok(left(count))
    }

    /// Waits until the latch is open, as long as it takes.
    ///
    /// The store notifies waiters when the latch opens; they also poll every two seconds, so that a lost notification
    /// costs no more than that. All waiters continue, in every process. If the latch is opened and set anew at once, a
    /// waiter may miss the first opening and wait for the second.
    ///
    /// # Errors
    ///
    /// Any error of the store at the first request. A later outage is waited out.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped wait leaves nothing behind.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// client.latch("nobody has set it").wait().await?;
    /// # Ok(()) }
    /// ```
    pub fn wait(&self) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let latch = self.clone();
        async move { latch.wait_until(None).await.map(|_| ()) }
    }

    /// Waits until the latch is open, for at most `wait`, and reports whether it is.
    ///
    /// # Errors
    ///
    /// The errors of [`wait`](Self::wait); [`Error::Timeout`] if the store could not be asked any more when the time
    /// had passed.
    ///
    /// # Cancel safety
    ///
    /// Same as [`wait`](Self::wait).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # use std::time::Duration;
    /// # let client = distlock::Client::connect("memory:").await?;
    /// client.latch("loaded").try_set(1).await?;
    /// assert!(!client.latch("loaded").wait_timeout(Duration::from_millis(10)).await?);
    /// # Ok(()) }
    /// ```
    pub fn wait_timeout(
        &self,
        wait: Duration,
    ) -> impl Future<Output = Result<bool, Error>> + Send + use<> {
        let latch = self.clone();
        async move { latch.wait_until(Some(wait)).await }
    }

    /// Opens the latch whatever its count, and reports whether it was closed. Waiters continue.
    ///
    /// # Errors
    ///
    /// The errors of [`count_down`](Self::count_down), but here a repetition is harmless.
    ///
    /// # Cancel safety
    ///
    /// Same as [`count_down`](Self::count_down).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// client.latch("loaded").try_set(1).await?;
    /// assert!(client.latch("loaded").delete().await?);
    /// client.latch("loaded").wait().await?;
    /// # Ok(()) }
    /// ```
    pub async fn delete(&self) -> Result<bool, Error> {
        let CounterUpdate { before, .. } = self.update(CounterOp::Delete).await?;
        Ok(before.is_some())
    }

    /// Returns the latch's name.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// assert_eq!(client.latch("loaded").name(), "loaded");
    /// # Ok(()) }
    /// ```
    pub fn name(&self) -> &str {
        &self.subject.name
    }

    async fn wait_until(&self, wait: Option<Duration>) -> Result<bool, Error> {
        check_name(self.name())?;
        let deadline = wait.map(|wait| self.core.clock.now() + wait);
        self.of(latch_wait::wait(&self.core, &self.subject, deadline).await)
    }

    async fn update(&self, change: CounterOp) -> Result<CounterUpdate, Error> {
        check_name(self.name())?;
        self.of(update(&self.core, &self.subject, change).await)
    }

    fn of<T>(&self, result: Result<T, DriverError>) -> Result<T, Error> {
        result.map_err(|error| Error::of(&self.subject.name, error))
    }
}

/// Returns the remaining count. A count below zero, which another program may have written, means an open latch.
fn left(count: Option<i64>) -> u64 {
    count.and_then(|count| count.try_into().ok()).unwrap_or(0)
}
