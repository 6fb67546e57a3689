//! The blocking version of the watch over locks.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use super::worker::Worker;
use crate::{Error, Event};

/// The blocking version of [`crate::Watch`]: an iterator that waits for the next event and never ends.
///
/// An error is an item like others; after it the iterator continues as [`crate::Watch::next`] does.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), distlock::Error> {
/// use std::time::Duration;
///
/// let client = distlock::blocking::Client::connect("memory:")?;
/// let mut watch = client.admin().watch("*");
/// assert_eq!(watch.next_timeout(Duration::from_millis(50))?, None);
/// let _guard = client.lock("stock").acquire()?;
/// let event = watch.next().expect("it never ends")?;
/// assert_eq!(event.name, "stock");
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a watch reports nothing until `next` is called"]
pub struct Watch {
    /// Never contended: `&mut self` allows one call at a time.
    watch: Arc<Mutex<crate::Watch>>,
    worker: Arc<Worker>,
}

impl Watch {
    pub(super) fn new(watch: crate::Watch, worker: Arc<Worker>) -> Self {
        let watch = Arc::new(Mutex::new(watch));
        Self { watch, worker }
    }

    /// Waits for the next event, for at most `limit`; returns `None` if there is none.
    ///
    /// # Errors
    ///
    /// The errors of [`crate::Watch::next`].
    pub fn next_timeout(&mut self, limit: Duration) -> Result<Option<Event>, Error> {
        let watch = self.watch.clone();
        let next = async move { watch.lock().await.next().await };
        self.worker.run_for(limit, next)?.transpose()
    }
}

impl Iterator for Watch {
    type Item = Result<Event, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let watch = self.watch.clone();
        let next = async move { watch.lock().await.next().await };
        Some(self.worker.run(next).unwrap_or_else(Err))
    }
}
