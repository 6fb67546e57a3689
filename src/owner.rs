//! Owners, which make a lock reentrant.

use std::sync::Arc;

use crate::driver::owners::LocalOwner;

/// An identity that can hold a lock more than once.
///
/// Locks are not reentrant by themselves: two acquisitions are two owners, also in one task. Give both the same owner,
/// and the second succeeds at once. An owner belongs to the client that made it; clones are the same owner.
///
/// # Examples
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::connect("memory:").await?;
/// let me = client.new_owner();
/// let lock = client.lock("stock").with_owner(&me);
/// let outer = lock.acquire().await?;
/// let inner = lock.acquire().await?;
/// assert_eq!(inner.hold_count(), 2);
/// inner.release().await?;
/// assert!(outer.is_held());
/// # outer.release().await }
/// ```
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Owner {
    client: Arc<str>,
    local_owner: LocalOwner,
}

impl Owner {
    pub(crate) const fn new(client: Arc<str>, local_owner: LocalOwner) -> Self {
        Self {
            client,
            local_owner,
        }
    }

    pub(crate) const fn client(&self) -> &Arc<str> {
        &self.client
    }

    pub(crate) const fn local_owner(&self) -> LocalOwner {
        self.local_owner
    }
}
