//! Subscriptions in a cluster: a waiter subscribes on the server that owns the slot of its lock.

use std::sync::Arc;

use super::lock_slot;
use super::nodes::Nodes;
use crate::engine::redis::failure;
use crate::engine::{StoreError, Subscription};
use crate::protocol::Channel;

/// Subscribes on the server that owns the slot of the channel. If that fails, the error is returned at once, and the waiter
/// polls meanwhile.
pub(super) async fn subscribe(
    nodes: Arc<Nodes>,
    channel: Channel,
) -> Result<Subscription, StoreError> {
    nodes.not_forked()?;
    let slot = lock_slot::slot(&nodes.keys, &channel)?;
    let text = nodes.keys.channel_text(&channel);
    let node = nodes.at(&nodes.owner(slot).await?)?;
    let result = node.pubsub.subscribe(text.clone()).await;
    match result {
        Err(failure) if failure::is_redirection(&failure) && nodes.refreshed().await => {
            let node = nodes.at(&nodes.owner(slot).await?)?;
            node.pubsub.subscribe(text).await
        }
        result => result,
    }
}
