//! The semaphore that only counts.

use std::sync::Arc;
use std::time::Duration;

use crate::driver::acquire::WaitLimit;
use crate::driver::counter::{CounterUpdate, get, take, update};
use crate::driver::{Core, DriverError};
use crate::error::Error;
use crate::lock::check_name;
use crate::protocol::number::MAX_COUNTER;
use crate::protocol::{CounterOp, Kind, Subject};

/// A number of permits that are taken and given back. Redisson's `RSemaphore`.
///
/// It only counts: who has permits is not known, and those of a process that dies are never given back by anybody else. Where
/// that matters, use [`Client::semaphore`](crate::Client::semaphore), whose permits have a guard and a lease. Permits may be
/// given back by somebody else than who took them, and more of them than were taken.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::connect("memory:").await?;
/// let slots = client.counting_semaphore("slots");
/// slots.try_set(3).await?;
/// slots.acquire(2).await?;
/// assert!(!slots.try_acquire(2).await?, "there is only one");
/// slots.release(2).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct CountingSemaphore {
    core: Arc<Core>,
    subject: Subject,
}

impl CountingSemaphore {
    pub(crate) fn new(core: Arc<Core>, name: Arc<str>) -> Self {
        let subject = Subject::new(Kind::Counting, name);
        Self { core, subject }
    }

    /// Says how many permits there are, if nobody has; says whether it was done. Until then there are none.
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release), but doing it again is harmless.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any await: it was done once, or it was not, or it will be once.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// assert!(client.counting_semaphore("slots").try_set(3).await?);
    /// assert!(!client.counting_semaphore("slots").try_set(5).await?);
    /// # Ok(()) }
    /// ```
    pub async fn try_set(&self, permits: u32) -> Result<bool, Error> {
        let set = CounterOp::SetOnce(i64::from(permits));
        Ok(self.update(set).await?.before.is_none())
    }

    /// Lets there be so many permits to be had from now on, however many there were and whoever has some.
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release).
    ///
    /// # Cancel safety
    ///
    /// As [`try_set`](Self::try_set).
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// client.counting_semaphore("slots").set_available(5).await?;
    /// assert_eq!(client.counting_semaphore("slots").available().await?, 5);
    /// # Ok(()) }
    /// ```
    pub async fn set_available(&self, permits: u32) -> Result<(), Error> {
        self.update(CounterOp::Set(i64::from(permits)))
            .await
            .map(drop)
    }

    /// How many permits can be had now; none, if nobody has said. Fewer than none, if some were
    /// [taken away](Self::add) that are out.
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
    /// assert_eq!(client.counting_semaphore("slots").available().await?, 0);
    /// # Ok(()) }
    /// ```
    pub async fn available(&self) -> Result<i64, Error> {
        check_name(self.name())?;
        let there = self.of(get(&self.core, &self.subject).await)?;
        Ok(there.unwrap_or(0))
    }

    /// Takes so many permits, all or none, and waits for them as long as it takes. They are yours to
    /// [give back](Self::release).
    ///
    /// Who waits for several is not starved by clients of this library that want fewer: they wait behind it. Redisson's do
    /// not know of it. A message tells of permits that were given back; they are asked for every two seconds all the same,
    /// so that a lost one costs no more than that.
    ///
    /// # Errors
    ///
    /// If the store refuses, or cannot be reached when it is first asked; an outage later on is waited out. No permits were
    /// taken then, or they are given back in the background.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any await: no permits were taken then, or they are given back in the background.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let slots = client.counting_semaphore("slots");
    /// slots.try_set(3).await?;
    /// slots.acquire(2).await?;
    /// // … at most three at a time …
    /// slots.release(2).await?;
    /// # Ok(()) }
    /// ```
    pub fn acquire(&self, permits: u32) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let semaphore = self.clone();
        async move {
            let taken = semaphore.take(permits, WaitLimit::Forever).await;
            taken.map(|_| ())
        }
    }

    /// The same without waiting; says whether there were enough.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// assert!(!client.counting_semaphore("nobody has set it").try_acquire(1).await?);
    /// # Ok(()) }
    /// ```
    pub fn try_acquire(
        &self,
        permits: u32,
    ) -> impl Future<Output = Result<bool, Error>> + Send + use<> {
        let semaphore = self.clone();
        async move { semaphore.take(permits, WaitLimit::TryOnce).await }
    }

    /// The same for at most so long, everything included; says whether there were enough.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire); [`Error::Timeout`] if the store could not be asked any more when time was over.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # use std::time::Duration;
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let slots = client.counting_semaphore("slots");
    /// assert!(!slots.acquire_timeout(1, Duration::from_millis(10)).await?);
    /// # Ok(()) }
    /// ```
    pub fn acquire_timeout(
        &self,
        permits: u32,
        wait: Duration,
    ) -> impl Future<Output = Result<bool, Error>> + Send + use<> {
        let semaphore = self.clone();
        async move { semaphore.take(permits, WaitLimit::timeout(wait)).await }
    }

    /// Gives so many permits back. Where nobody has said how many there are, there are so many then.
    ///
    /// They are given back once, however often that has to be asked for because an answer was lost.
    ///
    /// # Errors
    ///
    /// If the store refuses or cannot be reached, or there would be more than 2⁵³ − 1. It is asked again for as long as a
    /// [command may take](crate::ClientBuilder::command_timeout), and once more if no answer came in that time.
    ///
    /// [`Error::Timeout`] means that the store was asked and has not answered: they were given back once, or not at all, or
    /// still will be, once, before anything that this client asks of the semaphore from now on. To ask again then may give
    /// them back twice. [`Error::Unavailable`] means that nothing was done.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any await: it was done once, or it was not, or it will be once.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let slots = client.counting_semaphore("slots");
    /// slots.release(2).await?;
    /// assert_eq!(slots.available().await?, 2);
    /// # Ok(()) }
    /// ```
    pub async fn release(&self, permits: u32) -> Result<(), Error> {
        self.add(i64::from(permits)).await
    }

    /// Lets there be so many permits more, or fewer: perhaps fewer than none, until enough have been given back.
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release).
    ///
    /// # Cancel safety
    ///
    /// As [`release`](Self::release).
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let slots = client.counting_semaphore("slots");
    /// slots.try_set(2).await?;
    /// slots.acquire(2).await?;
    /// slots.add(-1).await?;
    /// assert_eq!(slots.available().await?, -1);
    /// # Ok(()) }
    /// ```
    pub async fn add(&self, permits: i64) -> Result<(), Error> {
        check_name(self.name())?;
        if permits == 0 {
            return self.of(self.core.ensure_usable());
        }
        let CounterUpdate { before, after } = self.update(CounterOp::Add(permits)).await?;
        if before == after {
            let reason = format!(
                "no more than {MAX_COUNTER}, and there are {}",
                before.unwrap_or(0)
            );
            return Err(Error::invalid_option("permits", reason).about(self.name()));
        }
        Ok(())
    }

    /// Takes all permits that are there; says how many. They are yours to [give back](Self::release).
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release): after an [`Error::Timeout`] they may have been taken.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any await, but they may have been taken then, and nobody gives them back.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let slots = client.counting_semaphore("slots");
    /// slots.try_set(3).await?;
    /// assert_eq!(slots.drain().await?, 3);
    /// assert_eq!(slots.drain().await?, 0);
    /// # Ok(()) }
    /// ```
    pub async fn drain(&self) -> Result<u64, Error> {
        let CounterUpdate { before, .. } = self.update(CounterOp::Drain).await?;
        Ok(before.and_then(|there| there.try_into().ok()).unwrap_or(0))
    }

    /// Forgets the semaphore; says whether there was one. Who waits goes on waiting until somebody sets it anew.
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release), but doing it again is harmless.
    ///
    /// # Cancel safety
    ///
    /// As [`release`](Self::release).
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// client.counting_semaphore("slots").try_set(3).await?;
    /// assert!(client.counting_semaphore("slots").delete().await?);
    /// # Ok(()) }
    /// ```
    pub async fn delete(&self) -> Result<bool, Error> {
        Ok(self.update(CounterOp::Delete).await?.before.is_some())
    }

    /// The semaphore's name.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// assert_eq!(client.counting_semaphore("slots").name(), "slots");
    /// # Ok(()) }
    /// ```
    pub fn name(&self) -> &str {
        &self.subject.name
    }

    async fn take(&self, permits: u32, wait_limit: WaitLimit) -> Result<bool, Error> {
        check_name(self.name())?;
        if permits == 0 {
            return self.of(self.core.ensure_usable().map(|()| true));
        }
        self.of(take(&self.core, &self.subject, permits, wait_limit).await)
    }

    async fn update(&self, change: CounterOp) -> Result<CounterUpdate, Error> {
        check_name(self.name())?;
        self.of(update(&self.core, &self.subject, change).await)
    }

    fn of<T>(&self, result: Result<T, DriverError>) -> Result<T, Error> {
        result.map_err(|error| Error::of(&self.subject.name, error))
    }
}
