//! Detects a file that was moved, removed or replaced while it was in use: other clients may use
//! another file by now.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::error::unusable;
use super::file_checks;
use crate::engine::StoreError;
use crate::protocol::{Action, Reply, Request};

/// The identities of the file and of the files that SQLite keeps beside it. If one of them is
/// removed, later clients open another one.
pub(super) type FileIdentity = [Option<(u64, u64)>; 3];

pub(super) fn file_identity(path: &Path) -> FileIdentity {
    ["", "-wal", "-shm"].map(|end| {
        let file = fs::metadata(file_checks::with_suffix(path, end)).ok()?;
        Some((file.dev(), file.ino()))
    })
}

/// Returns the reply to a request after the file was replaced.
pub(super) fn reply(request: &Request, path: &Path) -> Result<Reply, StoreError> {
    match request.action {
        // A holder of a lock in the old file holds nothing any more, and has to learn of it.
        Action::Transfer { .. } | Action::Release { .. } | Action::Renew { .. } => Ok(Reply::Gone),
        Action::ForceRelease => Ok(Reply::Forced(false)),
        Action::Inspect => Ok(Reply::Inspected(None)),
        // The request to undo cannot arrive any more.
        Action::Undo { .. } => Ok(Reply::Tombstoned),
        Action::Acquire { .. } | Action::CounterOp { .. } | Action::SemaphoreOp(_) => {
            Err(error(path))
        }
    }
}

pub(super) fn error(path: &Path) -> StoreError {
    let why = "the file was removed or replaced while it was in use; create a new client";
    unusable(path, why)
}
