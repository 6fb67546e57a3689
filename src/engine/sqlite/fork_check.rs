//! Refuses files to a forked child of a process that uses SQLite.

use std::path::Path;
use std::sync::OnceLock;

use super::error::unusable;
use crate::engine::StoreError;
use crate::engine::fork_detector::ForkDetector;

/// Refuses a file to a forked child: a fork copies SQLite's record of the locks in its process, and
/// the copy is wrong from then on.
pub(super) fn refuse_forked_child(path: &Path) -> Result<(), StoreError> {
    static FIRST: OnceLock<ForkDetector> = OnceLock::new();
    if FIRST.get_or_init(ForkDetector::current).has_forked() {
        let why = "this process was forked from one that uses a file of locks; a forked process must call exec before it uses one";
        return Err(unusable(path, why));
    }
    Ok(())
}
