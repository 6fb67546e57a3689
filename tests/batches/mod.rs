//! Calls of several callers that travel in one request: each is answered, undone and finished as if it had been sent alone, whatever
//! happens to the shared request.
//!
//! The sweep ([`sweep`]) sends a batch of every sort of call over the broken networks of `lost_replies`, and checks every lock in it.

mod answers;
mod fixture;
mod read_only;
mod sweep;
mod trouble;
mod woken;

use std::time::Duration;

/// Upper bound for any wait, reached only by a failure; far shorter than [`LEASE`].
const PATIENCE: Duration = Duration::from_secs(20);
/// The time for which an orphaned hold would be visible.
const LEASE: Duration = Duration::from_secs(60);
