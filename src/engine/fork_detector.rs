//! Detects a fork: connections and leases do not belong to a forked child.

use std::process;

/// The process that created this value.
#[derive(Debug)]
pub struct ForkDetector {
    guard: Option<forkguard::Guard>,
    id: u32,
}

impl ForkDetector {
    /// Creates a detector for the current process.
    pub fn current() -> Self {
        Self {
            // If no handler of forks can be registered, the process id is read each time.
            guard: forkguard::Guard::try_new().ok(),
            id: process::id(),
        }
    }

    /// Reports whether the caller is another process, forked from this one.
    pub fn has_forked(&self) -> bool {
        match &self.guard {
            // A clone, because a guard reports a fork only once.
            Some(guard) => guard.clone().detected_fork(),
            None => process::id() != self.id,
        }
    }
}
