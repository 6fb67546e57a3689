//! The semaphore whose permits are leased.

use std::sync::Arc;

use crate::driver::{Core, permits};
use crate::error::Error;
use crate::held::Held;
use crate::lock::{Lock, check_name};
use crate::options::Lease;
use crate::protocol::permit::permits_of;
use crate::protocol::{Kind, PermitId, PermitRequest, Permits, SemaphoreOp, Subject};

/// So many may hold it at once. Redisson's `RPermitExpirableSemaphore`.
///
/// Each permit is leased: it is kept alive while its guard lives, and comes back by itself when its holder has died. Somebody
/// has to say how many there are ([`set`](Self::set)); until then there are none.
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

/// Permits of a [`Semaphore`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Permit;

/// How many permits a [`Semaphore`] has.
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
    /// How many can be had now. Fewer than none if there were fewer of them while they were out.
    pub available: i64,
    /// How many are out.
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

    /// How many permits there are, unless somebody has said so: whoever asks first for one sets it up with the same
    /// question. A number that is there stays as it is; [`set`](Self::set) changes it.
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

    /// One permit, to be had as a lock is.
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

    /// Acquires `count` permits together, at most 4,096. A request for more than exist waits until there are that many.
    ///
    /// A waiter for several permits is not starved by clients of this library that want fewer: they wait behind it. Redisson's
    /// clients do not know of it.
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

    /// Says how many permits there are in all, those that are out included. If more are out than that, nobody gets
    /// one until enough have come back.
    ///
    /// # Errors
    ///
    /// If the store refuses or cannot be reached; it may then have been done, and may be done again.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any await: it was done or it was not.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// client.semaphore("exports").set_total(4).await?;
    /// # Ok(()) }
    /// ```
    pub async fn set_total(&self, total: u32) -> Result<(), Error> {
        self.ask(SemaphoreOp::Set(total)).await.map(|_| ())
    }

    /// The same, unless somebody has said so before; says whether it was done.
    ///
    /// # Errors
    ///
    /// As [`set`](Self::set).
    ///
    /// # Cancel safety
    ///
    /// As [`set`](Self::set).
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// assert!(client.semaphore("exports").try_set(4).await?);
    /// assert!(!client.semaphore("exports").try_set(5).await?);
    /// # Ok(()) }
    /// ```
    pub async fn try_set(&self, total: u32) -> Result<bool, Error> {
        Ok(self.ask(SemaphoreOp::SetOnce(total)).await?.0)
    }

    /// How many permits there are now; none, if nobody has said.
    ///
    /// # Errors
    ///
    /// If the store cannot say.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any await: it only looks.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// assert_eq!(client.semaphore("exports").count().await?.available, 0);
    /// # Ok(()) }
    /// ```
    pub async fn count(&self) -> Result<PermitCount, Error> {
        Ok(self.ask(SemaphoreOp::Get).await?.1)
    }

    /// Gives back one permit by its id, whoever has it; says whether it was out. Its guard, if there is one, learns of that
    /// with its next renewal.
    ///
    /// # Errors
    ///
    /// As [`set`](Self::set): doing it again is harmless.
    ///
    /// # Cancel safety
    ///
    /// As [`set`](Self::set).
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// # let exports = client.semaphore("exports");
    /// # exports.set_total(1).await?;
    /// let permit = exports.permit().acquire().await?;
    /// let id = permit.permit_ids()[0];
    /// permit.forget(); // it is left to its lease, or to whoever knows the id
    /// assert!(exports.release(id).await?);
    /// assert!(!exports.release(id).await?, "once");
    /// # Ok(()) }
    /// ```
    pub async fn release(&self, permit: PermitId) -> Result<bool, Error> {
        Ok(self.ask(SemaphoreOp::Return(permit)).await?.0)
    }

    /// Forgets the semaphore, and the permits that are out; says whether there was one. Who has permits learns of that with
    /// their next renewal.
    ///
    /// # Errors
    ///
    /// As [`set`](Self::set).
    ///
    /// # Cancel safety
    ///
    /// As [`set`](Self::set).
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// client.semaphore("exports").set_total(2).await?;
    /// assert!(client.semaphore("exports").delete().await?);
    /// # Ok(()) }
    /// ```
    pub async fn delete(&self) -> Result<bool, Error> {
        Ok(self.ask(SemaphoreOp::Delete).await?.0)
    }

    /// The semaphore's name.
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

    async fn ask(&self, count: SemaphoreOp) -> Result<(bool, PermitCount), Error> {
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
    /// Which permits these are.
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
