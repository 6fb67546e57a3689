//! Several locks of one slot in one step.

use super::nodes::Nodes;
use super::route::{Route, Stop};
use crate::engine::redis::several;
use crate::engine::redis::slot::Slot;
use crate::engine::{Before, Failure};
use crate::protocol::{Reply, Request};

type Answer = Result<Reply, Failure>;

/// The answers end with the first that is no grant.
pub(super) async fn take(
    nodes: &Nodes,
    slot: Slot,
    requests: &[Request],
    before: Before,
) -> Vec<Answer> {
    let taken = async {
        let mut route = Route::to(nodes, slot)?;
        loop {
            let Stop { node, .. } = route.stop_at_rest().await?;
            let mut answers = several::take(node.promises(), requests, before).await;
            match answers.pop() {
                // Of the call as a whole: with any other answer there are others before it.
                Some(Err(failure)) if answers.is_empty() => route.go_on(failure).await?,
                last => {
                    answers.extend(last);
                    return Ok(answers);
                }
            }
        }
    };
    taken.await.unwrap_or_else(|failure| vec![Err(failure)])
}
