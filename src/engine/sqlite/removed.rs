//! A file that was moved, removed or replaced while it was in use: others may use another by now.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::failure::unusable;
use super::trust;
use crate::engine::Failure;
use crate::protocol::{Action, Reply, Request};

/// Which files a file and those that SQLite keeps beside it are. Whoever removes one of them sends those who come later
/// elsewhere.
pub(super) type Identity = [Option<(u64, u64)>; 3];

pub(super) fn identity(path: &Path) -> Identity {
    ["", "-wal", "-shm"].map(|end| {
        let file = fs::metadata(trust::beside(path, end)).ok()?;
        Some((file.dev(), file.ino()))
    })
}

/// What there is to say to a request then.
pub(super) fn answer(request: &Request, path: &Path) -> Result<Reply, Failure> {
    match request.action {
        // Whoever holds a lock in it holds nothing any more, and is to know.
        Action::Pass { .. } | Action::Release { .. } | Action::Renew { .. } => Ok(Reply::Gone),
        Action::ForceRelease => Ok(Reply::Forced(false)),
        Action::Inspect => Ok(Reply::Inspected(None)),
        // It cannot come any more.
        Action::Undo { .. } => Ok(Reply::Marked),
        Action::Acquire { .. } | Action::Alter { .. } | Action::Count(_) => Err(failure(path)),
    }
}

pub(super) fn failure(path: &Path) -> Failure {
    let why = "it was removed or replaced while it was in use; make a new client";
    unusable(path, why)
}
