//! The ends of a hold, and what precedes them.

use std::time::Duration;

use crate::protocol::Moment;

/// Why a hold was lost.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum LostReason {
    /// The client was closed while the guard was alive.
    Closed,
    /// The lease expired before a renewal succeeded.
    Expired,
    /// The hold lasted for as long as `with_max_hold` allows.
    MaxHold,
    /// The store no longer knows of the hold, and the lock has no other holder: the hold was
    /// deleted, released by force, or the store lost its data.
    Removed,
    /// Another owner holds the lock now.
    TakenOver,
}

/// Why a hold that is still valid may be lost soon.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Risk {
    /// The store has restarted or failed over, and may have forgotten the hold; the hold is being
    /// verified.
    Failover,
    /// The last renewal failed and is being retried.
    RenewalFailed,
}

/// How a hold ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HoldEnd {
    /// It was lost.
    Lost(LostReason),
    /// It was released.
    Released,
}

/// The next action for a hold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Tick {
    /// Report that the hold has just been lost.
    Lost(LostReason),
    /// Do nothing, ever again.
    Over,
    /// Ask the store for this lease, and call `tick` again at the given moment.
    Renew {
        /// The lease to ask for.
        lease: Duration,
        /// The end of the hold if no reply comes.
        check_again: Moment,
    },
    /// Do nothing before this moment.
    Sleep(Moment),
}
