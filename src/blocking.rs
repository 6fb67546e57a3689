//! The same words without `async`.
//!
//! One core, not a second copy: calls are carried out by a runtime with a worker thread of its own, so
//! that leases are renewed while the caller computes. It may be used anywhere, also inside an async
//! runtime, where it blocks the thread it is called on but does not panic.
//!
//! ```
//! # fn main() -> Result<(), distlock::Error> {
//! use distlock::blocking::Client;
//!
//! let client = Client::connect("memory:")?;
//! let me = client.thread_owner();
//! let outer = client.lock("stock").with_owner(&me).acquire()?;
//! let inner = client.lock("stock").with_owner(&me).acquire()?; // the same thread, as in Java
//! inner.release()?;
//! outer.release()?;
//! client.close()
//! # }
//! ```

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

mod admin;
mod owners;
mod rw_lock;
mod watch;
mod worker;

pub use self::admin::Admin;
pub use self::rw_lock::RwLock;
pub use self::watch::Watch;
use self::worker::{Worker, closed};
use crate::{Error, Fair, Fenced, Held, Lease, Lost, Owner, Plain, Simple, Wait};

/// [`crate::Client`] without `async`.
///
/// ```
/// # fn main() -> Result<(), distlock::Error> {
/// let client = distlock::blocking::Client::connect("memory:")?;
/// client.lock("stock").acquire()?.release()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    client: crate::Client,
    worker: Arc<Worker>,
}

impl Client {
    /// As [`crate::Client::connect`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_with(crate::Client::builder(url))
    }

    /// Connects with the options of a builder.
    ///
    /// # Errors
    ///
    /// As [`crate::ClientBuilder::connect`].
    ///
    /// ```
    /// # fn main() -> Result<(), distlock::Error> {
    /// use distlock::blocking::Client;
    ///
    /// let builder = distlock::Client::builder("memory:").label("nightly");
    /// let client = Client::connect_with(builder)?;
    /// # drop(client); Ok(()) }
    /// ```
    pub fn connect_with(builder: crate::ClientBuilder) -> Result<Self, Error> {
        let worker = Arc::new(Worker::start()?);
        let client = worker.run(builder.connect())??;
        Ok(Self { client, worker })
    }

    /// As [`crate::Client::lock`].
    pub fn lock(&self, name: impl Into<Arc<str>>) -> Lock {
        Lock {
            lock: self.client.lock(name),
            worker: self.worker.clone(),
        }
    }

    /// As [`crate::Client::fair_lock`].
    pub fn fair_lock(&self, name: impl Into<Arc<str>>) -> Lock<Fair> {
        Lock {
            lock: self.client.fair_lock(name),
            worker: self.worker.clone(),
        }
    }

    /// As [`crate::Client::fenced_lock`].
    pub fn fenced_lock(&self, name: impl Into<Arc<str>>) -> Lock<Fenced> {
        Lock {
            lock: self.client.fenced_lock(name),
            worker: self.worker.clone(),
        }
    }

    /// As [`crate::Client::rw_lock`].
    pub fn rw_lock(&self, name: impl Into<Arc<str>>) -> RwLock {
        RwLock {
            lock: self.client.rw_lock(name),
            worker: self.worker.clone(),
        }
    }

    /// As [`crate::Client::simple_lock`].
    pub fn simple_lock(&self, name: impl Into<Arc<str>>) -> Lock<Simple> {
        Lock {
            lock: self.client.simple_lock(name),
            worker: self.worker.clone(),
        }
    }

    /// As [`crate::Client::new_owner`].
    pub fn new_owner(&self) -> Owner {
        self.client.new_owner()
    }

    /// The calling thread's own owner, the same at every call: with it a thread can lock again what it
    /// holds, as in Java.
    ///
    /// ```
    /// # fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::blocking::Client::connect("memory:")?;
    /// assert_eq!(client.thread_owner(), client.thread_owner());
    /// # Ok(()) }
    /// ```
    pub fn thread_owner(&self) -> Owner {
        owners::of_this_thread(&self.worker, || self.client.new_owner())
    }

    /// As [`crate::Client::relabel`].
    pub fn relabel(&self, label: impl Into<String>) {
        self.client.relabel(label);
    }

    /// As [`crate::Client::admin`].
    pub fn admin(&self) -> Admin {
        Admin::new(self.client.admin(), self.worker.clone())
    }

    /// As [`crate::Client::close`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn close(&self) -> Result<(), Error> {
        let client = self.client.clone();
        self.worker.run(async move { client.close().await })?
    }
}

/// [`crate::Lock`] without `async`.
///
/// ```
/// # fn main() -> Result<(), distlock::Error> {
/// # let client = distlock::blocking::Client::connect("memory:")?;
/// let lock = client.lock("nightly");
/// let Some(guard) = lock.try_acquire()? else { return Ok(()) };
/// # guard.release() }
/// ```
#[derive(Debug)]
pub struct Lock<K = Plain> {
    lock: crate::Lock<K>,
    worker: Arc<Worker>,
}

impl<K: 'static> Lock<K> {
    /// As [`crate::Lock::with_lease`].
    #[must_use]
    pub fn with_lease(self, lease: Lease) -> Self {
        self.with(|lock| lock.with_lease(lease))
    }

    /// As [`crate::Lock::with_owner`].
    #[must_use]
    pub fn with_owner(self, owner: &Owner) -> Self {
        self.with(|lock| lock.with_owner(owner))
    }

    /// As [`crate::Lock::with_wait`].
    #[must_use]
    pub fn with_wait(self, wait: Wait) -> Self {
        self.with(|lock| lock.with_wait(wait))
    }

    /// As [`crate::Lock::with_max_hold`].
    #[must_use]
    pub fn with_max_hold(self, longest: Duration) -> Self {
        self.with(|lock| lock.with_max_hold(longest))
    }

    /// As [`crate::Lock::name`].
    pub fn name(&self) -> &str {
        self.lock.name()
    }

    /// As [`crate::Lock::acquire`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn acquire(&self) -> Result<Guard<K>, Error> {
        let guard = self.worker.run(self.lock.acquire())??;
        Ok(self.guard(guard))
    }

    /// As [`crate::Lock::try_acquire`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn try_acquire(&self) -> Result<Option<Guard<K>>, Error> {
        let guard = self.worker.run(self.lock.try_acquire())??;
        Ok(guard.map(|guard| self.guard(guard)))
    }

    /// As [`crate::Lock::acquire_timeout`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn acquire_timeout(&self, wait: Duration) -> Result<Option<Guard<K>>, Error> {
        let guard = self.worker.run(self.lock.acquire_timeout(wait))??;
        Ok(guard.map(|guard| self.guard(guard)))
    }

    /// Acquires, works, releases. A thread cannot be stopped from outside: look at the [`Held`] that
    /// the work is given, between its steps.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`]; the work's own value comes back as it is, also if the lock was lost meanwhile
    /// and the work did not look.
    ///
    /// ```
    /// # fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::blocking::Client::connect("memory:")?;
    /// let sum = client.lock("report").run(|held| {
    ///     held.check()?;
    ///     Ok::<_, distlock::Error>(1 + 1)
    /// })??;
    /// assert_eq!(sum, 2);
    /// # Ok(()) }
    /// ```
    pub fn run<T>(&self, work: impl FnOnce(Held<K>) -> T) -> Result<T, Error> {
        let guard = self.acquire()?;
        let done = work(guard.held());
        if let Err(error) = guard.release() {
            tracing::warn!(%error, "the work is done, but its lock was not given back cleanly");
        }
        Ok(done)
    }

    fn with(self, choose: impl FnOnce(crate::Lock<K>) -> crate::Lock<K>) -> Self {
        Self {
            lock: choose(self.lock),
            worker: self.worker,
        }
    }

    fn guard(&self, guard: crate::Guard<K>) -> Guard<K> {
        Guard {
            guard: Arc::new(guard),
            worker: self.worker.clone(),
        }
    }
}

impl<K> Clone for Lock<K> {
    fn clone(&self) -> Self {
        Self {
            lock: self.lock.clone(),
            worker: self.worker.clone(),
        }
    }
}

/// [`crate::Guard`] without `async`; what only looks is in [`Held`].
///
/// ```
/// # fn main() -> Result<(), distlock::Error> {
/// # let client = distlock::blocking::Client::connect("memory:")?;
/// let guard = client.lock("stock").acquire()?;
/// assert!(guard.is_held());
/// # guard.release() }
/// ```
#[derive(Debug)]
#[must_use = "the lock is given back as soon as its guard is dropped"]
pub struct Guard<K = Plain> {
    guard: Arc<crate::Guard<K>>,
    worker: Arc<Worker>,
}

impl<K: 'static> Guard<K> {
    /// As [`crate::Guard::held`].
    pub fn held(&self) -> Held<K> {
        self.guard.held()
    }

    /// Waits until the lock is lost, for at most `timeout`; `None` if it is still held then.
    ///
    /// In place of [`crate::Guard::while_held`]: a thread cannot be stopped from outside, but another
    /// one can be told.
    ///
    /// ```
    /// # fn main() -> Result<(), distlock::Error> {
    /// # use std::time::Duration;
    /// # let client = distlock::blocking::Client::connect("memory:")?;
    /// let guard = client.lock("stock").acquire()?;
    /// assert_eq!(guard.wait_lost(Duration::from_millis(1)), None);
    /// # guard.release() }
    /// ```
    #[expect(
        clippy::disallowed_methods,
        reason = "the worker's runtime keeps this time"
    )]
    pub fn wait_lost(&self, timeout: Duration) -> Option<Lost> {
        let lost = self.guard.lost();
        let lost = async move { tokio::time::timeout(timeout, lost).await.ok().flatten() };
        self.worker.run(lost).ok().flatten()
    }

    /// As [`crate::Guard::extend`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn extend(&self, lease: Duration) -> Result<(), Error> {
        let guard = self.guard.clone();
        self.worker.run(async move { guard.extend(lease).await })?
    }

    /// As [`crate::Guard::release`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn release(self) -> Result<(), Error> {
        let Self { guard, worker } = self;
        match Arc::try_unwrap(guard) {
            Ok(guard) => worker.run(guard.release())?,
            Err(shared) => {
                // Only work that a forked child had to forget keeps it.
                std::mem::forget(shared);
                Err(closed(true))
            }
        }
    }

    /// As [`crate::Guard::forget`].
    pub fn forget(self) {
        match Arc::try_unwrap(self.guard) {
            Ok(guard) => guard.forget(),
            // Only work that a forked child had to forget keeps it.
            Err(shared) => std::mem::forget(shared),
        }
    }
}

impl<K> Deref for Guard<K> {
    type Target = Held<K>;

    fn deref(&self) -> &Held<K> {
        &self.guard
    }
}
