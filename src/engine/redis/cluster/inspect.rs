//! What is held under a name, at whichever server has it.

use std::sync::Arc;

use super::names;
use super::nodes::Nodes;
use super::route::{Route, Stop};
use crate::engine::Failure;
use crate::engine::redis::inspect;
use crate::protocol::{Channel, Holding, Kind};

/// Reports who holds it. The keys of readers are not named in advance, so a slot that moves is waited for.
pub(super) async fn inspect(
    nodes: Arc<Nodes>,
    name: Arc<str>,
) -> Result<Option<(Kind, Holding)>, Failure> {
    let slot = names::slot(&nodes.keys, &Channel::Lock(name.clone()))?;
    let mut route = Route::to(&nodes, slot)?;
    loop {
        let Stop { node, .. } = route.stop_at_rest().await?;
        match inspect::inspect(&node, name.clone()).await {
            Err(failure) => route.go_on(failure).await?,
            found => return found,
        }
    }
}
