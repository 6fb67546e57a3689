//! What becomes of a hold.

use std::time::Duration;

use crate::protocol::Moment;

/// Why a hold was lost.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum LostReason {
    /// The client was closed while the guard was alive.
    Closed,
    /// The lease ran out before a renewal got through.
    Expired,
    /// It was held for as long as `with_max_hold` allows.
    MaxHold,
    /// The store no longer knows of the hold, and nobody else has it: it was deleted, forced open, or
    /// the store lost its data.
    Removed,
    /// Somebody else holds the lock now.
    TakenOver,
}

/// Why a hold that is still valid may not stay so.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Risk {
    /// The store has restarted, or another has taken its place, and may have forgotten it; it is being asked.
    Failover,
    /// The last renewal failed; it is being tried again.
    RenewalFailed,
}

/// How a hold ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HoldEnd {
    /// It was taken away.
    Lost(LostReason),
    /// It was given back.
    Released,
}

/// What to do about a hold now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Tick {
    /// It has just been lost.
    Lost(LostReason),
    /// Nothing, ever again.
    Over,
    /// Ask the store for this lease, and look again at the given moment.
    Renew {
        /// The lease to ask for.
        lease: Duration,
        /// When the hold is over if no answer comes.
        check_again: Moment,
    },
    /// Nothing before this moment.
    Sleep(Moment),
}
