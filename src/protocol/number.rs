//! Numbers that are nobody's, and how they may change.

use std::time::Duration;

use super::{LockSnapshot, OwnerId, Permits, Reply};

/// No number goes beyond this, nor below its negative: the greatest that every store counts to exactly.
pub const MAX_COUNTER: i64 = (1 << 53) - 1;

/// A change, which is carried out once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CounterOp {
    /// So many more, or fewer; a semaphore's. Not at all, if that would go beyond [`MAX_COUNTER`].
    Add(i64),
    /// One less, and none at zero; a latch's.
    CountDown,
    /// None is left of those that are there; a semaphore's.
    Drain,
    /// Forget it.
    Delete,
    /// Let there be so many; a semaphore's.
    Set(i64),
    /// Let there be so many, if nobody has said so.
    SetOnce(i64),
    /// So many fewer, if there are as many; a semaphore's. Answered as an acquire is.
    Take {
        /// Who stands in line for them meanwhile.
        place: OwnerId,
        /// How many.
        count: u32,
        /// How long it is believed to wait unless it asks again; none if it does not wait.
        waits: Option<Duration>,
    },
}

/// What a look at one shows.
pub(super) fn counted(number: Option<i64>) -> Reply {
    Reply::Counted {
        done: false,
        permits: number.map(|available| Permits { available, out: 0 }),
    }
}

/// Nobody holds it, whether it is there or not.
pub(super) fn inspected(number: Option<i64>) -> Reply {
    Reply::Inspected(number.map(|_| LockSnapshot::OWNERLESS))
}
