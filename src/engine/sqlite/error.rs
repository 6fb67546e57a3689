//! Errors of SQLite and the file system, as store errors that say what became of the request.

use std::io;
use std::path::Path;
use std::time::Duration;

use rusqlite::ErrorCode;

use crate::engine::{StoreError, StoreErrorKind};

/// Converts an error of SQLite about this file.
pub(super) fn from_sqlite(path: &Path, error: &rusqlite::Error) -> StoreError {
    let path = path.display();
    if let rusqlite::Error::FromSqlConversionFailure(..) = error {
        let detail = format!(
            "`{path}`: a row cannot be read ({error}); the file is damaged; restore it, or choose another file with sqlite:PATH"
        );
        return StoreError::new(StoreErrorKind::Unusable, detail);
    }
    let (kind, hint) = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (
            StoreErrorKind::NotReady,
            "another process has locked the file; check whether that process is stopped",
        ),
        Some(ErrorCode::DiskFull) => (StoreErrorKind::OutOfMemory, "the disk is full"),
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => (
            StoreErrorKind::Unusable,
            "the file is not a lock file, or it is damaged; choose another file with sqlite:PATH",
        ),
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => (
            StoreErrorKind::Denied,
            "this user must be able to write to the file and to its folder",
        ),
        // It is not known whether the request was executed.
        _ => (StoreErrorKind::Unexpected, "check the disk"),
    };
    StoreError::new(kind, format!("`{path}`: {error}; {hint}"))
}

/// Converts an error of the file system about this file or directory.
pub(super) fn from_io(path: &Path, error: &io::Error) -> StoreError {
    let path = path.display();
    let (kind, hint) = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => (
            StoreErrorKind::Denied,
            "this user must be able to write there; choose another file with sqlite:PATH",
        ),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            (StoreErrorKind::OutOfMemory, "the disk is full")
        }
        _ => (
            StoreErrorKind::Unusable,
            "choose another file with sqlite:PATH",
        ),
    };
    StoreError::new(kind, format!("`{path}`: {error}; {hint}"))
}

/// Creates the error for a file that was not opened in time.
pub(super) fn open_timed_out(path: &Path, limit: Duration) -> StoreError {
    let path = path.display();
    let detail = format!(
        "`{path}`: the file was not opened within {limit:?}; check whether a process that uses it is stopped"
    );
    StoreError::new(StoreErrorKind::Unreachable, detail)
}

/// Creates the error for a file or directory that is not to be trusted, or cannot be used.
pub(super) fn unusable(path: &Path, why: &str) -> StoreError {
    StoreError::new(
        StoreErrorKind::Unusable,
        format!("`{}`: {why}", path.display()),
    )
}
