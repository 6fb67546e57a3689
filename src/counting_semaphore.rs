//! The counting semaphore: permits without owners and leases.

use std::sync::Arc;
use std::time::Duration;

use crate::driver::acquire::WaitLimit;
use crate::driver::counter::{CounterUpdate, get, take, update};
use crate::driver::{Core, DriverError};
use crate::error::Error;
use crate::lock::check_name;
use crate::protocol::number::MAX_COUNTER;
use crate::protocol::{CounterOp, Kind, Subject};

/// A number of permits that clients acquire and release. Redisson's `RSemaphore`.
///
/// It only counts: it does not know the holders of its permits, and the permits of a crashed process are never released
/// automatically. Where that matters, use [`Client::semaphore`](crate::Client::semaphore), whose permits have a guard
/// and a lease. Any client may release permits that another one acquired, and may release more than were acquired.
///
/// # Examples
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

    /// Sets the number of permits unless it has been set before, and reports whether it did. Until then there are none.
    ///
    /// # Errors
    ///
    /// The errors of [`release`](Self::release), but here a repetition is harmless.
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
    /// assert!(client.counting_semaphore("slots").try_set(3).await?);
    /// assert!(!client.counting_semaphore("slots").try_set(5).await?);
    /// # Ok(()) }
    /// ```
    pub async fn try_set(&self, permits: u32) -> Result<bool, Error> {
        let set = CounterOp::SetOnce(i64::from(permits));
        Ok(self.update(set).await?.before.is_none())
    }

    /// Sets the number of available permits, whatever it was and however many are in use.
    ///
    /// # Errors
    ///
    /// The errors of [`release`](Self::release).
    ///
    /// # Cancel safety
    ///
    /// Same as [`try_set`](Self::try_set).
    ///
    /// # Examples
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

    /// Returns the number of available permits: zero if it was never set, negative if permits in use were
    /// [removed](Self::add).
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
    /// assert_eq!(client.counting_semaphore("slots").available().await?, 0);
    /// # Ok(()) }
    /// ```
    pub async fn available(&self) -> Result<i64, Error> {
        check_name(self.name())?;
        let there = self.of(get(&self.core, &self.subject).await)?;
        Ok(there.unwrap_or(0))
    }

    /// Acquires N permits, all or none, waiting as long as it takes. The caller has to [release](Self::release) them.
    ///
    /// A waiter for several permits is not starved by clients of this library that want fewer: they wait behind it.
    /// Redisson's clients do not know of it. The store notifies waiters when permits are released; they also poll every
    /// two seconds, so that a lost notification costs no more than that.
    ///
    /// # Errors
    ///
    /// Any error of the store at the first request; a later outage is waited out. In case of an error no permits were
    /// acquired, or they are released in the background.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe at every await: no permits were acquired, or they are released in the background.
    ///
    /// # Examples
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

    /// Acquires N permits if they are available now, and reports whether it did.
    ///
    /// # Errors
    ///
    /// The errors of [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// Same as [`acquire`](Self::acquire).
    ///
    /// # Examples
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

    /// Acquires N permits, waiting for at most `wait`, everything included, and reports whether it did.
    ///
    /// # Errors
    ///
    /// The errors of [`acquire`](Self::acquire); [`Error::Timeout`] if the store could not be asked any more when the
    /// time had passed.
    ///
    /// # Cancel safety
    ///
    /// Same as [`acquire`](Self::acquire).
    ///
    /// # Examples
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

    /// Releases N permits. If the number of permits was never set, N are available afterwards.
    ///
    /// The permits are released once, however often the request has to be retried because a reply was lost.
    ///
    /// # Errors
    ///
    /// Any error of the store; [`Error::InvalidOption`] if there would be more than 2⁵³ − 1 permits. The request is
    /// retried for the [command timeout](crate::ClientBuilder::command_timeout), and once more if no reply came in that
    /// time.
    ///
    /// [`Error::Timeout`] means that the store has not replied: the permits were released once, or not at all, or will
    /// still be released once, before any later request of this client to the semaphore. Another call may then release
    /// them a second time. [`Error::Unavailable`] means that nothing was done.
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
    /// let slots = client.counting_semaphore("slots");
    /// slots.release(2).await?;
    /// assert_eq!(slots.available().await?, 2);
    /// # Ok(()) }
    /// ```
    pub async fn release(&self, permits: u32) -> Result<(), Error> {
        self.add(i64::from(permits)).await
    }

    /// Adds N permits, or removes them if N is negative: the number of available permits may become negative until
    /// enough have been released.
    ///
    /// # Errors
    ///
    /// The errors of [`release`](Self::release).
    ///
    /// # Cancel safety
    ///
    /// Same as [`release`](Self::release).
    ///
    /// # Examples
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
                "the count is limited to {MAX_COUNTER} in both directions; it is {}",
                before.unwrap_or(0)
            );
            return Err(Error::invalid_option("permits", reason).about(self.name()));
        }
        Ok(())
    }

    /// Acquires all available permits, and returns how many there were. The caller has to [release](Self::release)
    /// them.
    ///
    /// # Errors
    ///
    /// The errors of [`release`](Self::release). After [`Error::Timeout`] the permits may have been acquired.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the permits may have been acquired, and nothing releases them.
    ///
    /// # Examples
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

    /// Deletes the semaphore, and reports whether it existed. Waiters go on waiting until it is set anew.
    ///
    /// # Errors
    ///
    /// The errors of [`release`](Self::release), but here a repetition is harmless.
    ///
    /// # Cancel safety
    ///
    /// Same as [`release`](Self::release).
    ///
    /// # Examples
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

    /// Returns the semaphore's name.
    ///
    /// # Examples
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
