//! Who waits for a lock hears of it at the server that has it.

use std::sync::Arc;

use super::lock_slot;
use super::nodes::Nodes;
use crate::engine::redis::failure;
use crate::engine::{StoreError, Subscription};
use crate::protocol::Channel;

/// Listens where the lock is. Whoever cannot is told at once, and asks by itself meanwhile.
pub(super) async fn listen(
    nodes: Arc<Nodes>,
    channel: Channel,
) -> Result<Subscription, StoreError> {
    nodes.not_forked()?;
    let slot = lock_slot::slot(&nodes.keys, &channel)?;
    let text = nodes.keys.channel_text(&channel);
    let node = nodes.at(&nodes.owner(slot).await?)?;
    let listening = node.pubsub.listen(text.clone()).await;
    match listening {
        Err(failure) if failure::is_redirection(&failure) && nodes.refreshed().await => {
            let node = nodes.at(&nodes.owner(slot).await?)?;
            node.pubsub.listen(text).await
        }
        listening => listening,
    }
}
