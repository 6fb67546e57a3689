//! The latch: a count that goes down, and those who wait until it has gone.

use std::sync::Arc;
use std::time::Duration;

use crate::driver::counter::{CounterUpdate, get, update};
use crate::driver::{Core, DriverError, latch_wait};
use crate::error::Error;
use crate::lock::check_name;
use crate::protocol::number::MAX_COUNTER;
use crate::protocol::{CounterOp, Kind, Subject};

/// Opens when it has been counted down to zero. Redisson's `RCountDownLatch`.
///
/// Somebody sets it, others count it down as they finish, and everybody who waits goes on when the last of them has. One that
/// nobody has set, or that has been counted down, is open; it can then be set anew.
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

    /// Closes the latch until it has been counted down so often, if it is open; says whether it was.
    ///
    /// # Errors
    ///
    /// As [`count_down`](Self::count_down); and if the count is zero, or greater than 2⁵³ − 1.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any await: it was done once, or it was not, or it will be once.
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
            let wrong = Error::invalid_option("count", format!("one to {MAX_COUNTER}"));
            return Err(wrong.about(self.name()));
        }
        let CounterUpdate { before, .. } = self.update(CounterOp::SetOnce(count)).await?;
        Ok(before.is_none())
    }

    /// Counts down by one; says how much is left. One that is open stays so.
    ///
    /// It counts once, however often it has to be asked for because an answer was lost.
    ///
    /// # Errors
    ///
    /// If the store refuses or cannot be reached. It is asked again for as long as a
    /// [command may take](crate::ClientBuilder::command_timeout), and once more if no answer came in that time.
    ///
    /// [`Error::Timeout`] means that the store was asked and has not answered: it counted once, or not at all, or it still
    /// will, once, before anything that this client asks of the latch from now on. To ask again then is to count again.
    /// [`Error::Unavailable`] means that nothing was done.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any await: it was done once, or it was not, or it will be once.
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

    /// What is left to count down; zero if it is open.
    ///
    /// # Errors
    ///
    /// If the store cannot say, or something else lives under that name.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any await: it only looks.
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
    /// A message tells when it is; it is looked at every two seconds all the same, so that a lost one costs no more than
    /// that. Everybody who waits goes on, in every process. Whoever waits while the latch is opened and set anew at once may
    /// see only the second.
    ///
    /// # Errors
    ///
    /// If the store refuses, or cannot be reached when it is first asked. An outage later on is waited out.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any await: nothing is left of it.
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

    /// The same for at most so long; says whether it is open.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait); [`Error::Timeout`] if the store could not be asked any more when time was over.
    ///
    /// # Cancel safety
    ///
    /// As [`wait`](Self::wait).
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

    /// Opens the latch whatever is left to count down, and says whether it was closed. Who waits goes on.
    ///
    /// # Errors
    ///
    /// As [`count_down`](Self::count_down), but doing it again is harmless.
    ///
    /// # Cancel safety
    ///
    /// As [`count_down`](Self::count_down).
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

    /// The latch's name.
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

/// Below zero, where others have written it, nothing is left.
fn left(count: Option<i64>) -> u64 {
    count.and_then(|count| count.try_into().ok()).unwrap_or(0)
}
