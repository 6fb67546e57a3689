//! Calls of several callers that travel in one: each is answered, undone and finished as if it had come alone, whatever
//! becomes of the call they share.
//!
//! The sweep ([`sweep`]) sends a batch of every sort of call over the broken networks of `lost_replies`, and checks every
//! lock in it.

mod answers;
mod company;
mod read_only;
mod sweep;
mod trouble;
mod woken;

use std::time::Duration;

/// Only a failure waits for it; far shorter than [`LEASE`].
const PATIENCE: Duration = Duration::from_secs(20);
/// A ghost would be seen for this long.
const LEASE: Duration = Duration::from_secs(60);
