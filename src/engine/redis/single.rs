//! One request in a script call of its own.

use super::connection::Connection;
use super::durability::{ScriptOutcome, ScriptReply};
use super::keys::Keys;
use super::scripts::{self, ScriptCall};
use crate::engine::StoreError;
use crate::protocol::{Reply, Request};

/// Carries out the request. With `asking`, sends `ASKING` first: the keys are being migrated to the server.
pub(super) async fn call(
    connection: &Connection,
    keys: &Keys,
    request: &Request,
    asking: bool,
) -> Result<Reply, StoreError> {
    let mut call = ScriptCall::new(request, keys);
    call.asking = asking;
    let mut ran = connection.run(&call).await?;
    if matches!(ran, ScriptOutcome::Delayed(_)) && scripts::has_other_side(request) {
        // A hold stays valid during the delay: a holder of one side of a lock may acquire the other.
        call.only_for_holder = true;
        ran = connection.run(&call).await?;
    }
    match ran {
        // Another client may still hold the lock, granted by the previous server.
        ScriptOutcome::Delayed(left) => Ok(Reply::Busy { ttl: Some(left) }),
        ScriptOutcome::Executed(ScriptReply { value, durable }) => {
            durable.apply_to(scripts::reply(request, value))
        }
    }
}
