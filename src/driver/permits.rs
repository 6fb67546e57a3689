//! Requests about a semaphore other than those for permits.

use super::{Core, DriverError, unexpected_reply};
use crate::protocol::{Action, Permits, Reply, SemaphoreOp, Subject};

/// Sends the request; returns whether it took effect, and how many permits there are afterwards. Every such request may
/// be repeated.
pub(crate) async fn request(
    core: &Core,
    subject: &Subject,
    count: SemaphoreOp,
) -> Result<(bool, Option<Permits>), DriverError> {
    core.ensure_usable()?;
    let reply = core.call(subject.request(Action::SemaphoreOp(count))).await;
    match reply.map_err(DriverError::StoreError)? {
        Reply::Counted { done, permits } => Ok((done, permits)),
        other => Err(DriverError::StoreError(unexpected_reply(&other))),
    }
}
