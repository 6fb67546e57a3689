//! What is asked of a semaphore beside its permits.

use super::{Core, Trouble, unexpected};
use crate::protocol::{Action, Count, Permits, Reply, Subject};

/// Whether it was done, and how many permits there are then. Every question may be asked again.
pub(crate) async fn ask(
    core: &Core,
    subject: &Subject,
    count: Count,
) -> Result<(bool, Option<Permits>), Trouble> {
    core.usable()?;
    let reply = core.call(subject.request(Action::Count(count))).await;
    match reply.map_err(Trouble::Failure)? {
        Reply::Counted { done, permits } => Ok((done, permits)),
        other => Err(Trouble::Failure(unexpected(&other))),
    }
}
