//! Ownerless counters, and the operations on them.

use std::time::Duration;

use super::{LockSnapshot, OwnerId, Permits, Reply};

/// No counter goes beyond this, nor below its negative: the greatest number up to which every store
/// counts exactly.
pub const MAX_COUNTER: i64 = (1 << 53) - 1;

/// A change to a counter, which is applied once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CounterOp {
    /// Adds this many, or subtracts them if negative; a semaphore's. Changes nothing if the sum is
    /// beyond [`MAX_COUNTER`].
    Add(i64),
    /// Subtracts one, and removes the counter at zero; a latch's.
    CountDown,
    /// Takes all that are available; a semaphore's.
    Drain,
    /// Removes the counter.
    Delete,
    /// Sets the counter; a semaphore's.
    Set(i64),
    /// Sets the counter if there is none yet.
    SetOnce(i64),
    /// Subtracts this many, if as many are there; a semaphore's. The replies are those of an
    /// acquire.
    Take {
        /// The owner under which the request waits in the queue.
        queue_owner: OwnerId,
        /// The number of permits.
        count: u32,
        /// How long the queue keeps the waiter unless it sends another request; `None` if it does
        /// not wait.
        waiter_ttl: Option<Duration>,
    },
}

/// Returns the reply that reports a counter's value.
pub(super) fn counted(number: Option<i64>) -> Reply {
    Reply::Counted {
        done: false,
        permits: number.map(|available| Permits { available, out: 0 }),
    }
}

/// Returns the snapshot of a counter, which has no holder whether it exists or not.
pub(super) fn inspected(number: Option<i64>) -> Reply {
    Reply::Inspected(number.map(|_| LockSnapshot::OWNERLESS))
}
