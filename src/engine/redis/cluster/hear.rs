//! What is heard of locks: of one at the server that has it, of all of them where that can be.

use std::sync::Arc;

use super::names;
use super::nodes::Nodes;
use crate::engine::redis::failure;
use crate::engine::redis::pubsub::Manner;
use crate::engine::{Cause, Engine as _, Failure, Feed, Listener};
use crate::protocol::Channel;

/// Listens where the lock is. Whoever cannot is told at once, and asks by itself meanwhile.
pub(super) async fn listen(nodes: Arc<Nodes>, channel: Channel) -> Result<Listener, Failure> {
    nodes.not_forked()?;
    let slot = names::slot(&nodes.keys, channel.name(), &channel)?;
    let text = nodes.keys.channel_text(&channel);
    let node = nodes.at(&nodes.owner(slot).await?)?;
    let listening = node.pubsub.listen(text.clone()).await;
    match listening {
        Err(failure) if failure::is_redirection(&failure) && nodes.looked().await => {
            let node = nodes.at(&nodes.owner(slot).await?)?;
            node.pubsub.listen(text).await
        }
        listening => listening,
    }
}

/// Hears of every release, where that can be.
pub(super) async fn overhear(nodes: Arc<Nodes>, pattern: String) -> Result<Feed, Failure> {
    nodes.not_forked()?;
    let all = nodes.all().await?;
    if nodes.manner() == Manner::Sharded {
        let why = "a message in a slot reaches nobody but those who wait for that very lock";
        return Err(Failure::new(Cause::Unusable, why));
    }
    let mut begun = Err(Failure::new(Cause::Unreachable, "there is no server"));
    for (_, node) in all {
        begun = node.overhear(pattern.clone()).await;
        if !matches!(&begun, Err(failure) if failure.is_passing()) {
            break;
        }
    }
    begun
}
