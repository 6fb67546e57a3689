//! One request in a call of its own.

use super::assurance::{Ran, Said};
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
    let mut ran = connection.run(&call).await?;
    if matches!(ran, Ran::HeldBack(_)) && scripts::is_of_a_holder(request) {
        // What is held stays held: who has one side of a lock may have the other.
        call.only_of_a_holder = true;
        ran = connection.run(&call).await?;
    }
    match ran {
        // Somebody may have it by the word of the server before this one.
        Ran::HeldBack(left) => Ok(Reply::Busy { ttl: Some(left) }),
        Ran::Said(Said { value, kept }) => kept.counted(scripts::reply(request, value)),
    }
}
