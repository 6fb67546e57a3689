//! The watch over locks: reports acquires and releases as they happen.

use std::fmt;
use std::sync::Arc;

use crate::driver::Core;
use crate::driver::watch::LockWatch;
use crate::error::Error;
pub use crate::protocol::change::{Change, Event};

/// A stream of events about the locks whose names match a pattern; see [`Admin::watch`](crate::Admin::watch).
///
/// In memory and in a file each grant and each end of a hold is reported, however short the hold, in the order in which
/// they happened to a lock. On Redis and Valkey a hold that is shorter than the time between two scans, at ten scans a
/// second, is not reported. The expiry of a lease, or the end of a process, is found by a scan: within a second. A lock
/// that is handed off between tasks of one client ([`handoff_limit`](crate::ClientBuilder::handoff_limit)) is one hold
/// for the store, and for a watch.
///
/// Events are hints; to know the current holder of a lock, call [`Admin::inspect`](crate::Admin::inspect). If there are
/// more events than can be delivered, or the connection is lost, a scan reports what has changed since.
///
/// # Examples
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// use distlock::Change;
///
/// let client = distlock::Client::connect("memory:").await?;
/// let guard = client.lock("stock").acquire().await?;
/// let mut watch = client.admin().watch("*");
/// let event = watch.next().await?;
/// assert_eq!((&*event.name, event.change), ("stock", Change::Held));
/// guard.release().await?;
/// assert_eq!(watch.next().await?.change, Change::Released);
/// # Ok(()) }
/// ```
#[must_use = "a watch reports nothing until `next` is called"]
pub struct Watch {
    watching: LockWatch,
}

impl Watch {
    pub(crate) fn new(core: Arc<Core>, pattern: String) -> Self {
        let watching = LockWatch::new(core, pattern);
        Self { watching }
    }

    /// Waits for the next event. The first events report the locks that are already held.
    ///
    /// # Errors
    ///
    /// An error if the store cannot say which locks are held. Another call continues from the last scan that succeeded.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no event is lost.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// # let _guard = client.lock("order:7").acquire().await?;
    /// let mut watch = client.admin().watch("order:*");
    /// let event = watch.next().await?;
    /// println!("{}: {:?}", event.name, event.change);
    /// # Ok(()) }
    /// ```
    pub async fn next(&mut self) -> Result<Event, Error> {
        self.watching.next().await.map_err(Error::from)
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("pattern", &self.watching.pattern())
            .finish_non_exhaustive()
    }
}
