//! The blocking version of the read/write lock.

use std::sync::Arc;

use super::worker::{Worker, closed};
use super::{Guard, Lock};
use crate::{Error, Read, Write};

/// The blocking version of [`crate::RwLock`].
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), distlock::Error> {
/// # let client = distlock::blocking::Client::connect("memory:")?;
/// let prices = client.rw_lock("prices");
/// let guard = prices.read().acquire()?;
/// assert!(prices.write().try_acquire()?.is_none());
/// # guard.release() }
/// ```
#[derive(Clone, Debug)]
pub struct RwLock {
    pub(super) lock: crate::RwLock,
    pub(super) worker: Arc<Worker>,
}

impl RwLock {
    /// Returns the lock's reader side: held together with other readers, while no owner writes. See
    /// [`crate::RwLock::read`].
    pub fn read(&self) -> Lock<Read> {
        self.side(self.lock.read())
    }

    /// Returns the lock's writer side: held by one owner alone. See [`crate::RwLock::write`].
    pub fn write(&self) -> Lock<Write> {
        self.side(self.lock.write())
    }

    /// Returns the lock's name. See [`crate::RwLock::name`].
    pub fn name(&self) -> &str {
        self.lock.name()
    }

    fn side<K>(&self, lock: crate::Lock<K>) -> Lock<K> {
        Lock {
            lock,
            worker: self.worker.clone(),
        }
    }
}

impl Guard<Read> {
    /// Acquires the write lock in addition, if there is no other reader; returns `None` otherwise. See
    /// [`crate::Guard::try_upgrade`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::Guard::try_upgrade`].
    pub fn try_upgrade(&self) -> Result<Option<Guard<Write>>, Error> {
        let guard = self.guard.clone();
        let write = self
            .worker
            .run(async move { guard.try_upgrade().await })??;
        Ok(write.map(|guard| self.like(guard)))
    }
}

impl Guard<Write> {
    /// Turns the write lock into a read lock, and lets others read at once. See [`crate::Guard::downgrade`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::Guard::downgrade`].
    pub fn downgrade(self) -> Result<Guard<Read>, Error> {
        let Self { guard, worker } = self;
        match Arc::try_unwrap(guard) {
            Ok(guard) => {
                let read = worker.run(guard.downgrade())??;
                let guard = Arc::new(read);
                Ok(Guard { guard, worker })
            }
            Err(shared) => {
                // A second reference exists only in a forked child: leaked work keeps it.
                std::mem::forget(shared);
                Err(closed(true))
            }
        }
    }
}

impl<K> Guard<K> {
    /// Returns another guard of the same client.
    fn like<O>(&self, guard: crate::Guard<O>) -> Guard<O> {
        Guard {
            guard: Arc::new(guard),
            worker: self.worker.clone(),
        }
    }
}
