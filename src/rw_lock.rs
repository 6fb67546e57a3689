//! The read/write lock: many readers, or one writer.

use std::sync::Arc;

use crate::driver::Core;
use crate::driver::acquire::{self, AcquireParams};
use crate::error::{Error, LostReason};
use crate::guard::Guard;
use crate::lock::Lock;
use crate::options::{Lease, Wait};
use crate::protocol::{Kind, PermitRequest, Subject};

/// A lock that many owners can hold to read, or one to write. Redisson's `RReadWriteLock`.
///
/// Each reader has a lease of its own: the lease of a crashed reader expires without an effect on the others. Readers
/// that come while a writer waits queue behind it, so that writers are not starved.
///
/// # Examples
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::connect("memory:").await?;
/// let prices = client.rw_lock("prices");
/// let one = prices.read().acquire().await?;
/// let other = prices.read().acquire().await?;
/// assert!(prices.write().try_acquire().await?.is_none(), "somebody reads");
/// # one.release().await?;
/// # other.release().await }
/// ```
#[derive(Clone, Debug)]
pub struct RwLock {
    core: Arc<Core>,
    name: Arc<str>,
    lease: Lease,
}

/// The reader's side of a [`RwLock`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Read;

/// The writer's side of a [`RwLock`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Write;

impl RwLock {
    pub(crate) const fn new(core: Arc<Core>, name: Arc<str>, lease: Lease) -> Self {
        Self { core, name, lease }
    }

    /// Returns the lock's reader side: held together with other readers, while no owner writes.
    ///
    /// An owner that [writes](Self::write) `with_owner` may also read.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = client.rw_lock("prices").read().acquire().await?;
    /// # guard.release().await }
    /// ```
    pub fn read(&self) -> Lock<Read> {
        self.side(Kind::Read)
    }

    /// Returns the lock's writer side: held by one owner alone.
    ///
    /// An owner that [reads](Self::read) `with_owner` and requests the write lock is granted it if there is no other
    /// reader. Otherwise it would wait for itself: `acquire` returns [`Error::WouldDeadlock`], and `try_acquire`
    /// returns `None`. See [`Guard::try_upgrade`].
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = client.rw_lock("prices").write().acquire().await?;
    /// # guard.release().await }
    /// ```
    pub fn write(&self) -> Lock<Write> {
        self.side(Kind::Write)
    }

    /// Returns the lock's name.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// assert_eq!(client.rw_lock("prices").name(), "prices");
    /// # Ok(()) }
    /// ```
    pub fn name(&self) -> &str {
        &self.name
    }

    fn side<K>(&self, kind: Kind) -> Lock<K> {
        Lock::new(self.core.clone(), self.name.clone(), kind, self.lease)
    }
}

impl Guard<Read> {
    /// Acquires the write lock in addition, if there is no other reader; returns `None` otherwise. Never waits: a
    /// reader that waits to write would wait for itself, and two of them for each other.
    ///
    /// This guard stays. When the writer's guard is released first, the lock is held to read again.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the read lock is no longer held; otherwise the errors of [`Lock::try_acquire`].
    ///
    /// # Cancel safety
    ///
    /// Same as [`Lock::acquire`]; this guard stays.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let read = client.rw_lock("prices").read().acquire().await?;
    /// let write = read.try_upgrade().await?.expect("nobody else reads");
    /// write.release().await?;
    /// assert!(read.is_held());
    /// # read.release().await }
    /// ```
    pub async fn try_upgrade(&self) -> Result<Option<Guard<Write>>, Error> {
        self.check()?;
        let params = self.other_side(Kind::Write);
        let hold_ref = acquire::acquire_other_side(&self.hold.core, &params).await;
        let hold_ref = hold_ref.map_err(|error| Error::of(&params.subject.name, error))?;
        Ok(hold_ref.map(Guard::new))
    }
}

impl Guard<Write> {
    /// Turns the write lock into a read lock, and lets others read at once. No other owner writes in between.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the write lock was no longer held. Any other error means that the store has not replied; the
    /// lock is then released in the background.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases the lock in the background.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let prices = client.rw_lock("prices");
    /// let write = prices.write().acquire().await?;
    /// let read = write.downgrade().await?;
    /// assert!(prices.read().try_acquire().await?.is_some(), "others may read");
    /// # read.release().await }
    /// ```
    pub async fn downgrade(self) -> Result<Guard<Read>, Error> {
        self.check()?;
        let params = self.other_side(Kind::Read);
        let hold_ref = acquire::acquire_other_side(&self.hold.core, &params).await;
        let hold_ref = hold_ref.map_err(|error| Error::of(&params.subject.name, error))?;
        let Some(hold_ref) = hold_ref else {
            // Another owner writes.
            let (name, reason) = (params.subject.name, LostReason::TakenOver);
            return Err(Error::lost(name, reason));
        };
        let read = Guard::new(hold_ref);
        match self.release().await {
            // A release without a reply goes on in the background; the reader's hold exists.
            Err(error) if error.is_transient() => Ok(read),
            released => released.map(|()| read),
        }
    }
}

impl<K> Guard<K> {
    /// Returns the parameters to acquire the lock's other side, on the same terms and for the same local owner.
    fn other_side(&self, kind: Kind) -> AcquireParams {
        let hold = &self.hold;
        AcquireParams {
            subject: Subject::new(kind, hold.subject.name.clone()),
            terms: hold.core.terms(kind, hold.terms),
            wait_mode: Wait::default().wait_mode(),
            local_owner: hold.local_owner,
            other_side: Some(hold.owner),
            permits: PermitRequest::ONE,
        }
    }
}
