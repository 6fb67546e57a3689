//! One request in a call of its own.

use super::connection::Connection;
use super::durability::{ScriptReply, ScriptResult};
use super::keys::Keys;
use super::scripts::{self, ScriptCall};
use crate::engine::StoreError;
use crate::protocol::{Reply, Request};

/// Carries it out. `asking` if its keys are on their way to the server at the other end.
pub(super) async fn call(
    connection: &Connection,
    keys: &Keys,
    request: &Request,
    asking: bool,
) -> Result<Reply, StoreError> {
    let mut call = ScriptCall::new(request, keys);
    call.asking = asking;
    let mut ran = connection.run(&call).await?;
    if matches!(ran, ScriptReply::Delayed(_)) && scripts::is_upgrade(request) {
        // What is held stays held: who has one side of a lock may have the other.
        call.only_for_holder = true;
        ran = connection.run(&call).await?;
    }
    match ran {
        // Somebody may have it by the word of the server before this one.
        ScriptReply::Delayed(left) => Ok(Reply::Busy { ttl: Some(left) }),
        ScriptReply::Executed(ScriptResult { value, durable }) => {
            durable.apply_to(scripts::reply(request, value))
        }
    }
}
