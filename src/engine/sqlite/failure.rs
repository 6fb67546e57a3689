//! What SQLite and the file system say, as what one may conclude from it.

use std::io;
use std::path::Path;
use std::time::Duration;

use rusqlite::ErrorCode;

use crate::engine::{Cause, Failure};

/// An answer of SQLite's about this file.
pub(super) fn of_sqlite(path: &Path, error: &rusqlite::Error) -> Failure {
    let path = path.display();
    if let rusqlite::Error::FromSqlConversionFailure(..) = error {
        let detail = format!(
            "`{path}`: a row of it cannot be read ({error}): the file is damaged; restore it, or choose another with sqlite:PATH"
        );
        return Failure::new(Cause::Unusable, detail);
    }
    let (cause, way_out) = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (
            Cause::Unready,
            "another process has it to itself; is one of them stopped?",
        ),
        Some(ErrorCode::DiskFull) => (Cause::OutOfMemory, "the disk is full"),
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => (
            Cause::Unusable,
            "it is not a lock file, or it is damaged; choose another file with sqlite:PATH",
        ),
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => (
            Cause::Denied,
            "this user must be able to write to it and to its folder",
        ),
        // Whether it was done is not known.
        _ => (Cause::Unexpected, "see to the disk"),
    };
    Failure::new(cause, format!("`{path}`: {error}; {way_out}"))
}

/// An answer of the file system's about this file or folder.
pub(super) fn of_io(path: &Path, error: &io::Error) -> Failure {
    let path = path.display();
    let (cause, way_out) = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => (
            Cause::Denied,
            "this user must be able to write there; choose another file with sqlite:PATH",
        ),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            (Cause::OutOfMemory, "the disk is full")
        }
        _ => (Cause::Unusable, "choose another file with sqlite:PATH"),
    };
    Failure::new(cause, format!("`{path}`: {error}; {way_out}"))
}

/// A file that was not opened in time.
pub(super) fn too_slow(path: &Path, limit: Duration) -> Failure {
    let path = path.display();
    let detail =
        format!("`{path}`: not opened within {limit:?}; is a process that uses it stopped?");
    Failure::new(Cause::Unreachable, detail)
}

/// A file or folder that is not to be trusted, or not to be worked with.
pub(super) fn unusable(path: &Path, why: &str) -> Failure {
    Failure::new(Cause::Unusable, format!("`{}`: {why}", path.display()))
}
