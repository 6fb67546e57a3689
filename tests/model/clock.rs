//! The clock that a store's leases end by. Memory is told the same one's time, so that who sets the machine's clock in the
//! middle of a test moves both.

use std::time::{SystemTime, UNIX_EPOCH};

use distlock::internals::engine::boot;
use distlock::internals::protocol::Moment;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Clock {
    /// Redis': the machine's, which can be set.
    Wall,
    /// The file's: for how long the machine has been up.
    Boot,
}

impl Clock {
    pub(crate) fn now(self) -> Moment {
        match self {
            Self::Wall => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                Moment::at(now.expect("nobody sets it back that far"))
            }
            Self::Boot => boot::time(),
        }
    }
}
