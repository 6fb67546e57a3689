//! A file that was moved, removed or replaced while it was in use: others may use another by now.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::error::unusable;
use super::file_checks;
use crate::engine::StoreError;
use crate::protocol::{Action, Reply, Request};

/// Which files a file and those that SQLite keeps beside it are. Whoever removes one of them sends those who come later
/// elsewhere.
pub(super) type FileIdentity = [Option<(u64, u64)>; 3];

pub(super) fn file_identity(path: &Path) -> FileIdentity {
    ["", "-wal", "-shm"].map(|end| {
        let file = fs::metadata(file_checks::with_suffix(path, end)).ok()?;
        Some((file.dev(), file.ino()))
    })
}

/// What there is to say to a request then.
pub(super) fn reply(request: &Request, path: &Path) -> Result<Reply, StoreError> {
    match request.action {
        // Whoever holds a lock in it holds nothing any more, and is to know.
        Action::Transfer { .. } | Action::Release { .. } | Action::Renew { .. } => Ok(Reply::Gone),
        Action::ForceRelease => Ok(Reply::Forced(false)),
        Action::Inspect => Ok(Reply::Inspected(None)),
        // It cannot come any more.
        Action::Undo { .. } => Ok(Reply::Tombstoned),
        Action::Acquire { .. } | Action::CounterOp { .. } | Action::SemaphoreOp(_) => {
            Err(error(path))
        }
    }
}

pub(super) fn error(path: &Path) -> StoreError {
    let why = "it was removed or replaced while it was in use; make a new client";
    unusable(path, why)
}
