//! The semaphore with leases, Redisson's `RPermitExpirableSemaphore`.
//!
//! A number of permits is available; the others are out, each with a lease of its own, and return
//! by themselves when it expires. A waiter for several permits is queued, and until it has had its
//! turn no client of this library goes past it: waiters for one permit would otherwise take each
//! permit that returns.

use std::collections::BTreeMap;
use std::time::Duration;

use super::change::Holders;
use super::fair;
use super::permit::{permit_count, permits_of};
use super::state::{ApplyContext, Outcome};
use super::store_queue::StoreQueue;
use super::tombstones::Tombstones;
use super::{
    Action, Entry, HolderSnapshot, LockSnapshot, Moment, OwnerId, PermitId, Reply, Request,
};

/// The permits under one name.
#[derive(Clone, Debug)]
#[cfg_attr(
    feature = "sqlite",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
pub struct SemaphoreState {
    /// The number of available permits; negative if the total was lowered while permits were out.
    #[cfg_attr(feature = "sqlite", serde(rename = "there"))]
    available: i64,
    #[cfg_attr(
        feature = "sqlite",
        serde(default, skip_serializing_if = "Vec::is_empty")
    )]
    out: Vec<IssuedPermit>,
}

/// A permit that is out.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlite", derive(serde::Serialize, serde::Deserialize))]
struct IssuedPermit {
    id: PermitId,
    owner: OwnerId,
    until: Moment,
}

/// The number of permits that an acquire asks for.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct PermitRequest {
    /// This many, all or none.
    pub count: u32,
    /// The total to set, if none was ever set.
    pub of: Option<u32>,
}

impl PermitRequest {
    /// One permit; a lock has no more.
    pub const ONE: Self = Self { count: 1, of: None };
}

/// The number of permits of a semaphore.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Permits {
    /// The number of available permits; negative if the total was lowered below the number that is
    /// out.
    pub available: i64,
    /// The number of permits that are out.
    pub out: u64,
}

/// An operation on the semaphore itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SemaphoreOp {
    /// Reports the number of permits.
    Get,
    /// Sets the total, if none was set yet.
    SetOnce(u32),
    /// Sets the total, which includes the permits that are out.
    Set(u32),
    /// Returns this permit, whichever owner has it.
    Return(PermitId),
    /// Removes the semaphore, with all permits that are out.
    Delete,
}

/// Decides one request to the semaphore.
pub fn apply(
    state: &mut Option<SemaphoreState>,
    tombstones: &mut Tombstones,
    queue: &mut dyn StoreQueue,
    request: &Request,
    ctx: &ApplyContext,
) -> Outcome {
    let mut semaphore = SemaphoreApply {
        state,
        tombstones,
        queue,
        now: ctx.now,
        notify: false,
    };
    // A read changes nothing: it counts expired permits as available.
    let reads = matches!(
        request.action,
        Action::Inspect | Action::SemaphoreOp(SemaphoreOp::Get)
    );
    let came_back = !reads && semaphore.reclaim() && semaphore.available() > 0;
    let mut reply = semaphore.decide(&request.action);
    // While no permit is available, no waiter is notified.
    let notify = semaphore.notify && semaphore.available() > 0;
    if let Reply::Released { subscribers } = &mut reply
        && notify
    {
        *subscribers = ctx.subscribers;
    }
    Outcome {
        reply: Ok(reply),
        notify: (notify || came_back).then(|| request.subject.channel()),
    }
}

/// Builds the snapshot from the permits that are out, each given with its owner and the rest of its
/// lease.
pub fn holding(
    available: i64,
    out: impl Iterator<Item = (String, Option<Duration>)>,
    waiting: Vec<String>,
) -> LockSnapshot {
    let mut owners: BTreeMap<String, HolderSnapshot> = BTreeMap::new();
    let (mut count, mut last) = (0, Some(Duration::ZERO));
    for (owner, ttl) in out {
        count += 1;
        last = last.zip(ttl).map(|(last, ttl)| last.max(ttl));
        let held = owners.entry(owner.clone()).or_insert(HolderSnapshot {
            owner,
            count: 0,
            ttl,
        });
        held.count += 1;
        // An owner loses permits as soon as the first of its leases expires.
        held.ttl = match (held.ttl, ttl) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }
    LockSnapshot {
        owners: owners.into_values().collect(),
        ttl: last,
        token: None,
        waiting,
        writes: false,
        permits: Some(Permits {
            available,
            out: count,
        }),
    }
}

struct SemaphoreApply<'a> {
    state: &'a mut Option<SemaphoreState>,
    tombstones: &'a mut Tombstones,
    queue: &'a mut dyn StoreQueue,
    now: Moment,
    /// Whether a retry may succeed now.
    notify: bool,
}

const RELEASED: Reply = Reply::Released { subscribers: 0 };
const GRANTED: Reply = Reply::Granted { token: None };

impl SemaphoreApply<'_> {
    fn decide(&mut self, action: &Action) -> Reply {
        match action {
            Action::Acquire { owner, entry, .. } if self.tombstones.contains(owner, *entry) => {
                Reply::Undone
            }
            Action::Acquire {
                owner,
                entry,
                lease,
                permits,
                waiter_ttl,
                ..
            } => self.acquire(*owner, *entry, *lease, *permits, *waiter_ttl),
            // Permits have owners.
            Action::CounterOp { .. } => Reply::NOT_A_COUNTER,
            Action::SemaphoreOp(count) => self.count(*count),
            Action::ForceRelease => {
                let out = self
                    .state
                    .as_mut()
                    .map_or(0, |state| state.take_back(|_| true));
                self.notify |= out > 0;
                Reply::Forced(out > 0)
            }
            Action::Inspect => Reply::Inspected(self.inspect()),
            // The first request gets the permits.
            Action::Transfer { from, .. } => self.release(from, 0),
            Action::Release { owner, left } => self.release(owner, *left),
            Action::Renew { owner, lease } => self.renew(owner, self.now + *lease),
            Action::Undo { owner, entry } => self.undo(owner, *entry),
        }
    }

    fn acquire(
        &mut self,
        owner: OwnerId,
        entry: Entry,
        lease: Duration,
        permits: PermitRequest,
        waiter_ttl: Option<Duration>,
    ) -> Reply {
        let until = self.now + lease;
        match (self.renew(&owner, until), self.has(&owner)) {
            (Reply::Renewed, _) => return GRANTED,
            // Some of the owner's permits have gone: a grant would create them anew.
            (_, true) => return Reply::Gone,
            (_, false) if entry != Entry::Fresh => return Reply::Gone,
            (_, false) => {}
        }
        if let (None, Some(of)) = (&self.state, permits.of) {
            *self.state = Some(SemaphoreState::new(of));
        }
        let permits = permits.count;
        // A head that asks for more permits than there are by now does not block the queue.
        let total = self.total();
        let first = self.queue.first_live(self.now);
        let first = first.filter(|first| i64::from(permit_count(*first)) <= total);
        if first.is_none_or(|first| first == owner)
            && let Some(state) = self.state.as_mut()
            && state.available >= i64::from(permits)
        {
            state.available -= i64::from(permits);
            let ids = permits_of(owner);
            state
                .out
                .extend(ids.map(|id| IssuedPermit { id, owner, until }));
            // The next waiter may find enough permits for itself.
            self.notify |= self.queue.remove(&owner);
            return GRANTED;
        }
        if let Some(waiter_ttl) = waiter_ttl {
            // A waiter for more permits than there are would block the queue for as long as it
            // likes.
            if i64::from(permits) <= self.total() {
                self.queue.enqueue(owner, self.now + waiter_ttl);
            } else {
                self.notify |= self.queue.remove(&owner);
            }
        }
        let out = self.state.as_ref().map_or(&[][..], |state| &state.out);
        let soonest = out.iter().map(|out| out.until).min();
        Reply::Busy {
            ttl: soonest.map(|until| until.since(self.now)),
        }
    }

    fn count(&mut self, count: SemaphoreOp) -> Reply {
        let done = match (count, self.state.as_mut()) {
            (SemaphoreOp::Get, _) => false,
            (SemaphoreOp::SetOnce(_), Some(_)) => false,
            (SemaphoreOp::SetOnce(to) | SemaphoreOp::Set(to), None) => {
                *self.state = Some(SemaphoreState::new(to));
                true
            }
            (SemaphoreOp::Delete, _) => self.state.take().is_some(),
            (SemaphoreOp::Set(to), Some(state)) => {
                state.available = i64::from(to) - state.out();
                true
            }
            (SemaphoreOp::Return(id), state) => {
                state.is_some_and(|state| state.take_back(|out| out.id == id) > 0)
            }
        };
        self.notify |= done;
        let state = self.state.as_ref();
        Reply::Counted {
            done,
            permits: state.map(|state| state.permits(self.now)),
        }
    }

    /// Returns all permits of an owner. Replies `Gone` if the owner had fewer than it was granted:
    /// others were returned by their ids, or have expired. The store does not count how often the
    /// owner holds them.
    fn release(&mut self, owner: &OwnerId, left: u32) -> Reply {
        let granted = u64::from(permit_count(*owner));
        if left > 0 {
            let all = self.count_of(owner) as u64 == granted;
            return if all { Reply::Kept } else { Reply::Gone };
        }
        if self.take_back(owner) == granted {
            RELEASED
        } else {
            Reply::Gone
        }
    }

    /// Takes back all permits of an owner and returns how many; an owner that has none is removed
    /// from the queue.
    fn take_back(&mut self, owner: &OwnerId) -> u64 {
        let state = self.state.as_mut();
        let had = state.map_or(0, |state| state.take_back(|out| out.owner == *owner));
        self.notify |= match had {
            0 => self.queue.remove(owner),
            _ => true,
        };
        had
    }

    /// Renews only an owner that has all its permits: one of them may have been returned by its id.
    fn renew(&mut self, owner: &OwnerId, until: Moment) -> Reply {
        if self.count_of(owner) != permit_count(*owner) as usize {
            return Reply::Gone;
        }
        let out = self.state.iter_mut().flat_map(|state| &mut state.out);
        for out in out.filter(|out| out.owner == *owner) {
            out.until = out.until.max(until);
        }
        Reply::Renewed
    }

    fn has(&self, owner: &OwnerId) -> bool {
        self.count_of(owner) > 0
    }

    fn count_of(&self, owner: &OwnerId) -> usize {
        let owners = self.state.iter().flat_map(SemaphoreState::owners);
        owners.filter(|has| has == owner).count()
    }

    fn undo(&mut self, owner: &OwnerId, entry: Entry) -> Reply {
        // The acquire was carried out and cannot arrive again: no tombstone is needed.
        if entry == Entry::Fresh && self.take_back(owner) > 0 {
            return RELEASED;
        }
        self.tombstones.insert(owner, entry, self.now);
        Reply::Tombstoned
    }

    fn inspect(&mut self) -> Option<LockSnapshot> {
        let state = self
            .state
            .as_ref()
            .filter(|state| state.is_held(self.now))?;
        let out = state.out.iter().filter(|out| out.until > self.now);
        let out = out.map(|out| (out.owner.to_string(), Some(out.until.since(self.now))));
        let waiting = self.queue.first_n(fair::SHOWN).into_iter();
        let waiting = waiting.map(|owner| owner.to_string()).collect();
        Some(holding(state.permits(self.now).available, out, waiting))
    }

    /// Takes back the expired permits; reports whether there were any.
    fn reclaim(&mut self) -> bool {
        let now = self.now;
        let state = self.state.as_mut();
        state.is_some_and(|state| state.take_back(|out| out.until <= now) > 0)
    }

    /// Returns the total number of permits.
    fn total(&self) -> i64 {
        let state = self.state.as_ref();
        state.map_or(0, |state| state.available.saturating_add(state.out()))
    }

    fn available(&self) -> i64 {
        self.state.as_ref().map_or(0, |state| state.available)
    }
}

impl SemaphoreState {
    fn new(available: u32) -> Self {
        Self {
            available: i64::from(available),
            out: Vec::new(),
        }
    }

    /// Takes back the permits for which `back` is true; returns how many.
    fn take_back(&mut self, back: impl FnMut(&mut IssuedPermit) -> bool) -> u64 {
        let back = self.out.extract_if(.., back).count();
        self.available += i64::try_from(back).unwrap_or(i64::MAX);
        back as u64
    }

    /// Returns how many permits are available and how many are out; expired ones count as
    /// available.
    fn permits(&self, now: Moment) -> Permits {
        let late = self.out.iter().filter(|out| out.until <= now).count();
        Permits {
            available: self.available + i64::try_from(late).unwrap_or(i64::MAX),
            out: (self.out.len() - late) as u64,
        }
    }

    fn out(&self) -> i64 {
        i64::try_from(self.out.len()).unwrap_or(i64::MAX)
    }

    /// Takes back the permits of every owner for which `keep` is false.
    pub(super) fn retain(&mut self, keep: impl Fn(OwnerId) -> bool) {
        self.take_back(|out| !keep(out.owner));
    }

    /// Returns the owners of permits, with the end of each one's lease.
    pub(super) fn holders(&self) -> Holders {
        let mut holders: Holders = Vec::new();
        for out in &self.out {
            // The permits of one owner are adjacent.
            match holders.last_mut().filter(|last| last.0 == out.owner) {
                Some((_, until)) => *until = out.until.min(*until),
                None => holders.push((out.owner, out.until)),
            }
        }
        holders
    }

    /// Reports whether a permit is out and not expired.
    pub(super) fn is_held(&self, now: Moment) -> bool {
        self.out.iter().any(|out| out.until > now)
    }

    /// Returns the owner of each permit that is out.
    pub(super) fn owners(&self) -> impl Iterator<Item = OwnerId> + '_ {
        self.out.iter().map(|out| out.owner)
    }
}
