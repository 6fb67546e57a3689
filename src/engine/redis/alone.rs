//! One request in a call of its own.

use super::assurance::Said;
use super::connection::Connection;
use super::keys::Keys;
use super::scripts::{self, Call};
use crate::engine::Failure;
use crate::protocol::{Reply, Request};

/// Carries it out. `asking` if its keys are on their way to the server at the other end.
pub(super) async fn call(
    connection: &Connection,
    keys: &Keys,
    request: &Request,
    asking: bool,
) -> Result<Reply, Failure> {
    let mut call = Call::new(request, keys);
    call.asking = asking;
    if call.takes()
        && let Some(left) = connection.held_back().await?
    {
        // Somebody may have it by the word of the server before this one.
        return Ok(Reply::Busy { ttl: Some(left) });
    }
    let Said { value, kept } = connection.run(&call).await?;
    kept.counted(scripts::reply(request, value))
}
