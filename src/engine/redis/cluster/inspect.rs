//! Inspection of a lock on the server that owns its slot.

use std::sync::Arc;

use super::lock_slot;
use super::nodes::Nodes;
use super::router::{Hop, Router};
use crate::engine::StoreError;
use crate::engine::redis::inspect;
use crate::protocol::{Channel, Kind, LockSnapshot};

/// Reports the holders of a lock. The script reads keys of readers that it does not declare, so that it is not sent while the
/// slot is being migrated.
pub(super) async fn inspect(
    nodes: Arc<Nodes>,
    name: Arc<str>,
) -> Result<Option<(Kind, LockSnapshot)>, StoreError> {
    let slot = lock_slot::slot(&nodes.keys, &Channel::Lock(name.clone()))?;
    let mut router = Router::to(&nodes, slot)?;
    loop {
        let Hop { node, .. } = router.next_owner_hop().await?;
        match inspect::inspect(&node, name.clone()).await {
            Err(failure) => router.retry_after(failure).await?,
            found => return found,
        }
    }
}
