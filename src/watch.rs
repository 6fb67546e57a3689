//! Who takes and gives back which lock, as it happens.

use std::fmt;
use std::sync::Arc;

use crate::driver::Core;
use crate::driver::watch::LockWatch;
use crate::error::Error;
pub use crate::protocol::change::{Change, Event};

/// Follows the locks whose names match a pattern; see [`Admin::watch`](crate::Admin::watch).
///
/// In memory and in a file each grant and each end is told, however short the hold, in the order in which they happened
/// to a lock. On Redis and Valkey a hold that is shorter than the time between two looks, of which
/// there are ten a second, is not reported. A lease that has run out, or a
/// process that has ended, is seen at a look: within a second. What passes from task to task within one client
/// ([`handoff_limit`](crate::ClientBuilder::handoff_limit)) is one hold to the store, and to a watch.
///
/// Events are hints; to know who holds a lock now, ask [`Admin::inspect`](crate::Admin::inspect). If more happens than
/// can be told, or the connection is lost, a look shows what has changed since.
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
#[must_use = "a watch sees nothing until it is asked for the next event"]
pub struct Watch {
    watching: LockWatch,
}

impl Watch {
    pub(crate) fn new(core: Arc<Core>, pattern: String) -> Self {
        let watching = LockWatch::new(core, pattern);
        Self { watching }
    }

    /// The next event, however long it takes. First come the locks that are held already.
    ///
    /// # Errors
    ///
    /// If the store cannot say what is held. Asking again goes on from the last look that succeeded.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any await; no event is lost.
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
