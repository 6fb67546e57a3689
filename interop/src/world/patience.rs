//! Waiting for a condition that is expected to hold soon.

use std::time::Duration;

use crate::clock::Stamp;
use crate::failure::{Outcome, ensure};

/// Waits until a condition holds, and fails with `what` if it does not in good time.
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool + Send) -> Outcome {
    until_within(PATIENCE, what, holds).await
}

/// Waits until a condition holds, with a time limit of its own.
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

/// Upper bound for a busy machine; only a failure waits this long.
const PATIENCE: Duration = Duration::from_secs(120);
