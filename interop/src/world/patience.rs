//! Waiting for something that is about to be so.

use std::time::Duration;

use crate::clock::Stamp;
use crate::failure::{Outcome, ensure};

/// Waits until something holds, and fails with `what` if it does not in good time.
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool + Send) -> Outcome {
    until_within(PATIENCE, what, holds).await
}

/// The same in a time of its own.
pub(crate) async fn until_within(
    limit: Duration,
    what: &str,
    holds: impl Fn() -> bool + Send,
) -> Outcome {
    let give_up = Stamp::now() + limit;
    while !holds() {
        ensure!(Stamp::now() < give_up, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Far longer than anything takes on a busy machine; only a failure waits for it.
const PATIENCE: Duration = Duration::from_secs(120);
