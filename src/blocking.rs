//! The blocking API: the same types and methods without `async`.
//!
//! It shares its implementation with the async API: calls run on a runtime with a worker thread of its own, so that
//! leases are renewed while the caller computes. It may be used anywhere, also inside an async runtime, where it blocks
//! the calling thread but does not panic.
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

use std::sync::Arc;
use std::time::Duration;

use tracing::dispatcher;
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

mod admin;
mod counting_semaphore;
mod guard;
mod latch;
mod member;
mod multi_lock;
mod owners;
mod quorum_lock;
mod rw_lock;
mod semaphore;
mod watch;
mod worker;

pub use self::admin::Admin;
pub use self::counting_semaphore::CountingSemaphore;
pub use self::guard::Guard;
pub use self::latch::Latch;
pub use self::member::Member;
pub use self::multi_lock::{MultiGuard, MultiLock};
pub use self::quorum_lock::{QuorumGuard, QuorumLock};
pub use self::rw_lock::RwLock;
pub use self::semaphore::Semaphore;
pub use self::watch::Watch;
use self::worker::Worker;
use crate::{Error, Fair, Fenced, Held, Lease, Owner, Plain, RunError, Simple, Wait};

/// The blocking version of [`crate::Client`].
///
/// # Examples
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
    /// Connects to a store. See [`crate::Client::connect`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::Client::connect`].
    pub fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_with(crate::Client::builder(url))
    }

    /// Connects with the options of a builder.
    ///
    /// # Errors
    ///
    /// The errors of [`crate::ClientBuilder::connect`].
    ///
    /// # Examples
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
        // The client's events go to the subscriber that is current for the caller, not for the worker thread that
        // connects.
        let subscriber = dispatcher::get_default(Clone::clone);
        let client = match subscriber.is::<NoSubscriber>() {
            true => worker.run(builder.connect())??,
            false => worker.run(builder.connect().with_subscriber(subscriber))??,
        };
        Ok(Self { client, worker })
    }

    /// Returns the plain lock of this name, reentrant by owner. See [`crate::Client::lock`].
    pub fn lock(&self, name: impl Into<Arc<str>>) -> Lock {
        Lock {
            lock: self.client.lock(name),
            worker: self.worker.clone(),
        }
    }

    /// Returns the fair lock of this name: first come, first served, across processes and languages. See
    /// [`crate::Client::fair_lock`].
    pub fn fair_lock(&self, name: impl Into<Arc<str>>) -> Lock<Fair> {
        Lock {
            lock: self.client.fair_lock(name),
            worker: self.worker.clone(),
        }
    }

    /// Returns the fenced lock of this name. See [`crate::Client::fenced_lock`].
    pub fn fenced_lock(&self, name: impl Into<Arc<str>>) -> Lock<Fenced> {
        Lock {
            lock: self.client.fenced_lock(name),
            worker: self.worker.clone(),
        }
    }

    /// Returns the read/write lock of this name: many readers, or one writer. See [`crate::Client::rw_lock`].
    pub fn rw_lock(&self, name: impl Into<Arc<str>>) -> RwLock {
        RwLock {
            lock: self.client.rw_lock(name),
            worker: self.worker.clone(),
        }
    }

    /// Returns the semaphore of this name: up to N holders at once, each with its own lease. See
    /// [`crate::Client::semaphore`].
    pub fn semaphore(&self, name: impl Into<Arc<str>>) -> Semaphore {
        Semaphore {
            semaphore: self.client.semaphore(name),
            worker: self.worker.clone(),
        }
    }

    /// Returns the simple lock of this name: one value with a time to live, the format of redsync, redis-py, node-redlock
    /// and rslock. See [`crate::Client::simple_lock`].
    pub fn simple_lock(&self, name: impl Into<Arc<str>>) -> Lock<Simple> {
        Lock {
            lock: self.client.simple_lock(name),
            worker: self.worker.clone(),
        }
    }

    /// Returns the counting semaphore of this name: its permits have no owner and no lease. See
    /// [`crate::Client::counting_semaphore`].
    pub fn counting_semaphore(&self, name: impl Into<Arc<str>>) -> CountingSemaphore {
        CountingSemaphore {
            semaphore: self.client.counting_semaphore(name),
            worker: self.worker.clone(),
        }
    }

    /// Returns the latch of this name, which opens when it has been counted down to zero. See [`crate::Client::latch`].
    pub fn latch(&self, name: impl Into<Arc<str>>) -> Latch {
        Latch {
            latch: self.client.latch(name),
            worker: self.worker.clone(),
        }
    }

    /// Returns a new [`Owner`], which can hold a lock more than once. See [`crate::Client::new_owner`].
    pub fn new_owner(&self) -> Owner {
        self.client.new_owner()
    }

    /// Returns the calling thread's own owner, the same at every call: with it a thread can acquire a lock again that
    /// it holds, as in Java.
    ///
    /// # Examples
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

    /// Changes this client's label. See [`crate::Client::set_label`].
    pub fn set_label(&self, label: impl Into<String>) {
        self.client.set_label(label);
    }

    /// Returns the operator's view of the store: all locks and their holders. See [`crate::Client::admin`].
    pub fn admin(&self) -> Admin {
        Admin::new(self.client.admin(), self.worker.clone())
    }

    /// Closes the client: releases its holds, fails its waiters and finishes requests in flight. See
    /// [`crate::Client::close`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::Client::close`].
    pub fn close(&self) -> Result<(), Error> {
        let client = self.client.clone();
        self.worker.run(async move { client.close().await })?
    }
}

/// The blocking version of [`crate::Lock`].
///
/// # Examples
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
    /// Sets how long the lock stays held if it is not released. See [`crate::Lock::with_lease`].
    #[must_use]
    pub fn with_lease(self, lease: Lease) -> Self {
        self.with(|lock| lock.with_lease(lease))
    }

    /// Acquires for this owner, which can hold the lock more than once. See [`crate::Lock::with_owner`].
    #[must_use]
    pub fn with_owner(self, owner: &Owner) -> Self {
        self.with(|lock| lock.with_owner(owner))
    }

    /// Sets how a waiter learns that the lock may be free. See [`crate::Lock::with_wait`].
    #[must_use]
    pub fn with_wait(self, wait: Wait) -> Self {
        self.with(|lock| lock.with_wait(wait))
    }

    /// Sets the longest time that the lock may be held: then it is released whatever its holder does, and the guard is lost
    /// with [`LostReason::MaxHold`](crate::LostReason::MaxHold). See [`crate::Lock::with_max_hold`].
    #[must_use]
    pub fn with_max_hold(self, longest: Duration) -> Self {
        self.with(|lock| lock.with_max_hold(longest))
    }

    /// Returns the lock's name. See [`crate::Lock::name`].
    pub fn name(&self) -> &str {
        self.lock.name()
    }

    /// Acquires the lock, waiting as long as it takes. See [`crate::Lock::acquire`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::Lock::acquire`].
    pub fn acquire(&self) -> Result<Guard<K>, Error> {
        let guard = self.worker.run(self.lock.acquire())??;
        Ok(self.guard(guard))
    }

    /// Acquires the lock if it is free now; returns `None` if another owner holds it. See [`crate::Lock::try_acquire`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::Lock::try_acquire`].
    pub fn try_acquire(&self) -> Result<Option<Guard<K>>, Error> {
        let guard = self.worker.run(self.lock.try_acquire())??;
        Ok(guard.map(|guard| self.guard(guard)))
    }

    /// Acquires the lock, waiting for at most `wait`, including the time to connect; returns `None` if another owner still
    /// holds it then. See [`crate::Lock::acquire_timeout`].
    ///
    /// # Errors
    ///
    /// The errors of [`crate::Lock::acquire_timeout`].
    pub fn acquire_timeout(&self, wait: Duration) -> Result<Option<Guard<K>>, Error> {
        let guard = self.worker.run(self.lock.acquire_timeout(wait))??;
        Ok(guard.map(|guard| self.guard(guard)))
    }

    /// Acquires the lock, does the work and releases the lock. `Ok` means that the lock was held from the beginning of
    /// the work to its end.
    ///
    /// A thread cannot be stopped from outside: the work should check its [`Held`] between its steps.
    ///
    /// # Errors
    ///
    /// The errors of [`Lock::acquire`], and [`Error::Lost`] if the lock was lost before the work ended;
    /// [`RunError::into_output`] then returns the output of the work.
    ///
    /// # Examples
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
    pub fn run<T>(&self, work: impl FnOnce(Held<K>) -> T) -> Result<T, RunError<T>> {
        let guard = self.acquire()?;
        let output = work(guard.held());
        match guard.release_after_run() {
            Ok(()) => Ok(output),
            Err(error) => Err(RunError::with_output(error, output)),
        }
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
