//! The held part of the state under one name, with a variant for each form of state.

use super::super::change::Holders;
use super::super::mutex::Mutex;
use super::super::rw::ReadWrite;
use super::super::semaphore::SemaphoreState;
use super::super::simple::SimpleState;
use super::super::{FencingToken, Kind, Moment, OwnerId, StateKind};

/// A primitive's own state. A name belongs to one form of state at a time.
#[derive(Clone, Debug)]
#[cfg_attr(
    feature = "sqlite",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum PrimitiveState {
    /// A plain, a fenced or a fair lock.
    Mutex(Mutex),
    /// A read/write lock.
    ReadWrite(ReadWrite),
    /// A simple lock.
    Simple(SimpleState),
    /// The permits of a semaphore with leases, held or not.
    Tally(SemaphoreState),
    /// The permits of a counting semaphore.
    Counter(i64),
    /// The remaining count of a latch.
    Countdown(i64),
}

impl PrimitiveState {
    /// Creates a hold of this form; `None` for a form that several owners can hold.
    pub const fn new(
        state_kind: StateKind,
        owner: OwnerId,
        count: u32,
        until: Moment,
        token: Option<FencingToken>,
    ) -> Option<Self> {
        match state_kind {
            StateKind::Mutex => Some(Self::Mutex(Mutex::new(owner, count, until, token))),
            StateKind::Simple => Some(Self::Simple(SimpleState { owner, until })),
            StateKind::ReadWrite
            | StateKind::Semaphore
            | StateKind::Counter
            | StateKind::Countdown => None,
        }
    }

    /// Returns how often its owner holds it, where that is counted.
    pub const fn count(&self) -> u32 {
        match self {
            Self::Mutex(mutex) => mutex.count(),
            Self::ReadWrite(_) | Self::Simple(_) | Self::Tally(_) => 1,
            Self::Counter(_) | Self::Countdown(_) => 1,
        }
    }

    /// Returns its kind, as far as the state shows it.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Mutex(mutex) if mutex.token().is_some() => Kind::Fenced,
            Self::Mutex(_) => Kind::Mutex,
            Self::ReadWrite(lock) if lock.writes() => Kind::Write,
            Self::ReadWrite(_) => Kind::Read,
            Self::Simple(_) => Kind::Simple,
            Self::Tally(_) => Kind::Semaphore,
            Self::Counter(_) => Kind::Counting,
            Self::Countdown(_) => Kind::Latch,
        }
    }

    pub(super) const fn state_kind(&self) -> StateKind {
        match self {
            Self::Mutex(_) => StateKind::Mutex,
            Self::ReadWrite(_) => StateKind::ReadWrite,
            Self::Simple(_) => StateKind::Simple,
            Self::Tally(_) => StateKind::Semaphore,
            Self::Counter(_) => StateKind::Counter,
            Self::Countdown(_) => StateKind::Countdown,
        }
    }

    pub(super) fn mutex(self) -> Option<Mutex> {
        match self {
            Self::Mutex(mutex) => Some(mutex),
            _ => None,
        }
    }

    pub(super) fn read_write(self) -> Option<ReadWrite> {
        match self {
            Self::ReadWrite(lock) => Some(lock),
            _ => None,
        }
    }

    pub(super) fn simple(self) -> Option<SimpleState> {
        match self {
            Self::Simple(simple) => Some(simple),
            _ => None,
        }
    }

    pub(super) fn semaphore(self) -> Option<SemaphoreState> {
        match self {
            Self::Tally(state) => Some(state),
            _ => None,
        }
    }

    pub(super) const fn permits(&self) -> Option<i64> {
        match self {
            Self::Counter(available) => Some(*available),
            _ => None,
        }
    }

    pub(super) const fn countdown(&self) -> Option<i64> {
        match self {
            Self::Countdown(left) => Some(*left),
            _ => None,
        }
    }

    /// Returns its owner and the end of its lease, if it can have only one owner.
    pub const fn holder(&self) -> Option<(OwnerId, Moment)> {
        match self {
            Self::Mutex(mutex) => Some((mutex.owner(), mutex.until())),
            Self::ReadWrite(_) | Self::Tally(_) => None,
            Self::Counter(_) | Self::Countdown(_) => None,
            Self::Simple(simple) => Some((simple.owner, simple.until)),
        }
    }

    /// Returns its owners and the end of each one's lease.
    pub fn holders(&self) -> Holders {
        match self {
            Self::Mutex(mutex) => vec![(mutex.owner(), mutex.until())],
            Self::ReadWrite(lock) => lock.holders(),
            Self::Simple(simple) => vec![(simple.owner, simple.until)],
            Self::Tally(state) => state.holders(),
            // Counters have no owner.
            Self::Counter(_) | Self::Countdown(_) => Vec::new(),
        }
    }

    /// Reports whether it has a holder: a semaphore exists without one, too.
    pub(super) fn is_held(&self, now: Moment) -> bool {
        match self {
            Self::Mutex(_) | Self::ReadWrite(_) | Self::Simple(_) => true,
            Self::Tally(state) => state.is_held(now),
            Self::Counter(_) | Self::Countdown(_) => false,
        }
    }

    /// Removes expired holders and reports whether anything is left.
    pub(super) fn expire(&mut self, now: Moment) -> bool {
        match self {
            Self::Mutex(mutex) => mutex.until() > now,
            Self::ReadWrite(lock) => lock.expire(now),
            Self::Simple(simple) => simple.until > now,
            // A request that changes the semaphore reclaims expired permits and notifies its
            // waiters.
            Self::Tally(_) => true,
            Self::Counter(_) | Self::Countdown(_) => true,
        }
    }

    /// Removes every holder for which `keep` is false and reports whether anything is left.
    pub(super) fn retain(&mut self, keep: impl Fn(OwnerId) -> bool) -> bool {
        match self {
            Self::Mutex(mutex) => keep(mutex.owner()),
            Self::ReadWrite(lock) => lock.retain(keep),
            Self::Simple(simple) => keep(simple.owner),
            Self::Tally(state) => {
                state.retain(keep);
                true
            }
            Self::Counter(_) | Self::Countdown(_) => true,
        }
    }
}
