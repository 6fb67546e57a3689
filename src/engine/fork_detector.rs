//! Which process this is: connections and leases are not a forked child's.

use std::process;

/// The process that made this.
#[derive(Debug)]
pub struct ForkDetector {
    guard: Option<forkguard::Guard>,
    id: u32,
}

impl ForkDetector {
    /// This one.
    pub fn current() -> Self {
        Self {
            // Without room for a handler of forks, the id is asked for each time.
            guard: forkguard::Guard::try_new().ok(),
            id: process::id(),
        }
    }

    /// Whether the caller is another, forked from it.
    pub fn has_forked(&self) -> bool {
        match &self.guard {
            // A copy: the guard itself would say so once only.
            Some(guard) => guard.clone().detected_fork(),
            None => process::id() != self.id,
        }
    }
}
