//! What is asked of a semaphore beside its permits.

use super::{Core, DriverError, unexpected_reply};
use crate::protocol::{Action, Permits, Reply, SemaphoreOp, Subject};

/// Whether it was done, and how many permits there are then. Every question may be asked again.
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
