//! The semaphore whose permits have leases.

use std::sync::Arc;

use crate::driver::{Core, permits};
use crate::error::Error;
use crate::held::Held;
use crate::lock::{Lock, check_name};
use crate::options::Lease;
use crate::protocol::permit::permits_of;
use crate::protocol::{Kind, PermitId, PermitRequest, Permits, SemaphoreOp, Subject};

/// A semaphore with up to N holders at once. Redisson's `RPermitExpirableSemaphore`.
///
/// Each permit has a lease: it is kept alive while its guard lives, and becomes available again when its holder has
/// crashed. The number of permits has to be set ([`set_total`](Self::set_total)); until then there are none.
///
/// # Examples
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::connect("memory:").await?;
/// let exports = client.semaphore("exports");
/// exports.set_total(2).await?;
/// let one = exports.permit().acquire().await?;
/// let other = exports.permit().acquire().await?;
/// assert!(exports.permit().try_acquire().await?.is_none(), "both are out");
/// # one.release().await?;
/// # other.release().await }
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore {
    core: Arc<Core>,
    subject: Subject,
    lease: Lease,
    of: Option<u32>,
}

/// The kind of permits of a [`Semaphore`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Permit;

/// The number of permits of a [`Semaphore`].
///
/// # Examples
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// # let client = distlock::Client::connect("memory:").await?;
/// let exports = client.semaphore("exports");
/// exports.set_total(2).await?;
/// let permit = exports.permit().acquire().await?;
/// let permits = exports.count().await?;
/// assert_eq!((permits.available, permits.out), (1, 1));
/// # permit.release().await }
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct PermitCount {
    /// The number of available permits. Negative if the total was lowered below the number in use.
    pub available: i64,
    /// The number of permits in use.
    pub out: u64,
}

impl Semaphore {
    pub(crate) fn new(core: Arc<Core>, name: Arc<str>, lease: Lease) -> Self {
        let subject = Subject::new(Kind::Semaphore, name);
        Self {
            core,
            subject,
            lease,
            of: None,
        }
    }

    /// Sets the total that the semaphore is created with, if it was never set: the first request for a permit creates
    /// it. An existing total stays as it is; [`set_total`](Self::set_total) changes it.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let permit = client.semaphore("exports").with_permits(3).permit().acquire().await?;
    /// assert_eq!(client.semaphore("exports").count().await?.available, 2);
    /// # permit.release().await }
    /// ```
    #[must_use]
    pub const fn with_permits(mut self, total: u32) -> Self {
        self.of = Some(total);
        self
    }

    /// Returns a lock that acquires one permit.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// # client.semaphore("exports").set_total(1).await?;
    /// let permit = client.semaphore("exports").permit().acquire().await?;
    /// permit.while_held(async { /* export */ }).await?;
    /// # permit.release().await }
    /// ```
    pub fn permit(&self) -> Lock<Permit> {
        self.permits(1)
    }

    /// Returns a lock that acquires `count` permits together, at most 4,096. A request for more than exist waits until
    /// there are that many.
    ///
    /// A waiter for several permits is not starved by clients of this library that want fewer: they wait behind it.
    /// Redisson's clients do not know of it.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// # client.semaphore("exports").set_total(3).await?;
    /// let permits = client.semaphore("exports").permits(3).acquire().await?;
    /// assert_eq!(permits.permit_ids().len(), 3);
    /// # permits.release().await }
    /// ```
    pub fn permits(&self, count: u32) -> Lock<Permit> {
        let name = self.subject.name.clone();
        let wanted = PermitRequest { count, of: self.of };
        Lock::many(self.core.clone(), name, self.lease, wanted)
    }

    /// Sets the total number of permits, including those in use. If more than that are in use, no permit is granted
    /// until enough have been released.
    ///
    /// # Errors
    ///
    /// Any error of the store. The change may have been made, and can be repeated.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the change may or may not have been made.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// client.semaphore("exports").set_total(4).await?;
    /// # Ok(()) }
    /// ```
    pub async fn set_total(&self, total: u32) -> Result<(), Error> {
        self.request(SemaphoreOp::Set(total)).await.map(|_| ())
    }

    /// Sets the total number of permits unless it has been set before, and reports whether it did.
    ///
    /// # Errors
    ///
    /// The errors of [`set_total`](Self::set_total).
    ///
    /// # Cancel safety
    ///
    /// Same as [`set_total`](Self::set_total).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// assert!(client.semaphore("exports").try_set(4).await?);
    /// assert!(!client.semaphore("exports").try_set(5).await?);
    /// # Ok(()) }
    /// ```
    pub async fn try_set(&self, total: u32) -> Result<bool, Error> {
        Ok(self.request(SemaphoreOp::SetOnce(total)).await?.0)
    }

    /// Returns the number of permits; none, if it was never set.
    ///
    /// # Errors
    ///
    /// Any error of the store.
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
    /// assert_eq!(client.semaphore("exports").count().await?.available, 0);
    /// # Ok(()) }
    /// ```
    pub async fn count(&self) -> Result<PermitCount, Error> {
        Ok(self.request(SemaphoreOp::Get).await?.1)
    }

    /// Releases one permit by its id, whoever holds it, and reports whether it was in use. Its guard, if there is one,
    /// is notified at its next renewal.
    ///
    /// # Errors
    ///
    /// The errors of [`set_total`](Self::set_total). A repetition is harmless.
    ///
    /// # Cancel safety
    ///
    /// Same as [`set_total`](Self::set_total).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// # let exports = client.semaphore("exports");
    /// # exports.set_total(1).await?;
    /// let permit = exports.permit().acquire().await?;
    /// let id = permit.permit_ids()[0];
    /// permit.forget(); // held until its lease expires, or until it is released by id
    /// assert!(exports.release(id).await?);
    /// assert!(!exports.release(id).await?, "once");
    /// # Ok(()) }
    /// ```
    pub async fn release(&self, permit: PermitId) -> Result<bool, Error> {
        Ok(self.request(SemaphoreOp::Return(permit)).await?.0)
    }

    /// Deletes the semaphore with the permits in use, and reports whether it existed. Holders are notified at their
    /// next renewal.
    ///
    /// # Errors
    ///
    /// The errors of [`set_total`](Self::set_total).
    ///
    /// # Cancel safety
    ///
    /// Same as [`set_total`](Self::set_total).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// client.semaphore("exports").set_total(2).await?;
    /// assert!(client.semaphore("exports").delete().await?);
    /// # Ok(()) }
    /// ```
    pub async fn delete(&self) -> Result<bool, Error> {
        Ok(self.request(SemaphoreOp::Delete).await?.0)
    }

    /// Returns the semaphore's name.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// assert_eq!(client.semaphore("exports").name(), "exports");
    /// # Ok(()) }
    /// ```
    pub fn name(&self) -> &str {
        &self.subject.name
    }

    async fn request(&self, count: SemaphoreOp) -> Result<(bool, PermitCount), Error> {
        check_name(self.name())?;
        let (done, permits) = permits::request(&self.core, &self.subject, count)
            .await
            .map_err(|error| Error::of(&self.subject.name, error))?;
        Ok((done, permits.map(PermitCount::from).unwrap_or_default()))
    }
}

impl From<Permits> for PermitCount {
    fn from(permits: Permits) -> Self {
        Self {
            available: permits.available,
            out: permits.out,
        }
    }
}

impl Held<Permit> {
    /// Returns the ids of the held permits.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// # client.semaphore("exports").set_total(2).await?;
    /// let permits = client.semaphore("exports").permits(2).acquire().await?;
    /// println!("{} and {}", permits.permit_ids()[0], permits.permit_ids()[1]);
    /// # permits.release().await }
    /// ```
    pub fn permit_ids(&self) -> Vec<PermitId> {
        permits_of(self.hold.owner).collect()
    }
}
