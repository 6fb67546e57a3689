//! The read/write lock without `async`.

use std::sync::Arc;

use super::worker::{Worker, closed};
use super::{Guard, Lock};
use crate::{Error, Read, Write};

/// [`crate::RwLock`] without `async`.
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
    /// As [`crate::RwLock::read`].
    pub fn read(&self) -> Lock<Read> {
        self.side(self.lock.read())
    }

    /// As [`crate::RwLock::write`].
    pub fn write(&self) -> Lock<Write> {
        self.side(self.lock.write())
    }

    /// As [`crate::RwLock::name`].
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
    /// As [`crate::Guard::try_upgrade`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn try_upgrade(&self) -> Result<Option<Guard<Write>>, Error> {
        let guard = self.guard.clone();
        let write = self
            .worker
            .run(async move { guard.try_upgrade().await })??;
        Ok(write.map(|guard| self.like(guard)))
    }
}

impl Guard<Write> {
    /// As [`crate::Guard::downgrade`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn downgrade(self) -> Result<Guard<Read>, Error> {
        let Self { guard, worker } = self;
        match Arc::try_unwrap(guard) {
            Ok(guard) => {
                let read = worker.run(guard.downgrade())??;
                let guard = Arc::new(read);
                Ok(Guard { guard, worker })
            }
            Err(shared) => {
                // Only work that a forked child had to forget keeps it.
                std::mem::forget(shared);
                Err(closed(true))
            }
        }
    }
}

impl<K> Guard<K> {
    /// Another of the same client.
    fn like<O>(&self, guard: crate::Guard<O>) -> Guard<O> {
        Guard {
            guard: Arc::new(guard),
            worker: self.worker.clone(),
        }
    }
}
