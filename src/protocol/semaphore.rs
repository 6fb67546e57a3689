//! The semaphore whose permits are leased, Redisson's `RPermitExpirableSemaphore`.
//!
//! So many permits are there, the others are out, each with a lease of its own: those that nobody gives back come back by
//! themselves. Who wants several at once and has to wait stands in a line, and until it has had its turn nobody of ours goes
//! past it: those who want one would otherwise take each that comes.

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

/// What is counted under a name.
#[derive(Clone, Debug)]
#[cfg_attr(
    feature = "sqlite",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
pub struct SemaphoreState {
    /// How many permits are there. Fewer than none, if some were taken away while they were out.
    there: i64,
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

/// How many permits somebody wants.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct PermitRequest {
    /// So many, all or none.
    pub count: u32,
    /// Of so many, if nobody has said how many there are.
    pub of: Option<u32>,
}

impl PermitRequest {
    /// One, and of a lock there is no more.
    pub const ONE: Self = Self { count: 1, of: None };
}

/// How many permits there are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Permits {
    /// How many can be had now; fewer than none if some are out that were taken away.
    pub available: i64,
    /// How many are out.
    pub out: u64,
}

/// What is asked about the permits themselves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SemaphoreOp {
    /// How many there are.
    Get,
    /// Let there be so many, if nobody has said yet how many there are.
    SetOnce(u32),
    /// Let there be so many in all, those that are out included.
    Set(u32),
    /// This one is given back, whoever has it.
    Return(PermitId),
    /// Forget it, and all that are out.
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
    // A read changes nothing: it counts late permits as available.
    let reads = matches!(
        request.action,
        Action::Inspect | Action::SemaphoreOp(SemaphoreOp::Get)
    );
    let came_back = !reads && semaphore.reclaim() && semaphore.there() > 0;
    let mut reply = semaphore.decide(&request.action);
    // Where there is nothing to have nobody is told.
    let notify = semaphore.notify && semaphore.there() > 0;
    if let Reply::Released { listeners } = &mut reply
        && notify
    {
        *listeners = ctx.listeners;
    }
    Outcome {
        reply: Ok(reply),
        notify: (notify || came_back).then(|| request.subject.channel()),
    }
}

/// Who has how many of the permits that are out: each is told with its owner and what is left of its lease.
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
        // The first of its permits that comes back by itself is lost to it.
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
    /// Whether it may be worth asking again.
    notify: bool,
}

const RELEASED: Reply = Reply::Released { listeners: 0 };
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
                waits,
                ..
            } => self.acquire(*owner, *entry, *lease, *permits, *waits),
            // It is somebody's.
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
            // Whoever asks first gets them.
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
        waits: Option<Duration>,
    ) -> Reply {
        let until = self.now + lease;
        match (self.renew(&owner, until), self.has(&owner)) {
            (Reply::Renewed, _) => return GRANTED,
            // With permits that have gone: granting it would make them up.
            (_, true) => return Reply::Gone,
            (_, false) if entry != Entry::Fresh => return Reply::Gone,
            (_, false) => {}
        }
        if let (None, Some(of)) = (&self.state, permits.of) {
            *self.state = Some(SemaphoreState::new(of));
        }
        let permits = permits.count;
        // One who wants more than there are by now is not obeyed.
        let total = self.total();
        let first = self.queue.first_live(self.now);
        let first = first.filter(|first| i64::from(permit_count(*first)) <= total);
        if first.is_none_or(|first| first == owner)
            && let Some(state) = self.state.as_mut()
            && state.there >= i64::from(permits)
        {
            state.there -= i64::from(permits);
            let ids = permits_of(owner);
            state
                .out
                .extend(ids.map(|id| IssuedPermit { id, owner, until }));
            // Who stands behind it may find enough for itself.
            self.notify |= self.queue.remove(&owner);
            return GRANTED;
        }
        if let Some(waits) = waits {
            // Who wants more than there are would keep everybody out for as long as it likes.
            if i64::from(permits) <= self.total() {
                self.queue.enqueue(owner, self.now + waits);
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
                state.there = i64::from(to) - state.out();
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

    /// Gives back all that an owner has. `Gone` if those were not all that it was granted: others were returned by their ids,
    /// or have expired. It is not counted here how often it has them.
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

    /// Takes back all that an owner has, and returns how many; an owner that has none waits no longer.
    fn take_back(&mut self, owner: &OwnerId) -> u64 {
        let state = self.state.as_mut();
        let had = state.map_or(0, |state| state.take_back(|out| out.owner == *owner));
        self.notify |= match had {
            0 => self.queue.remove(owner),
            _ => true,
        };
        had
    }

    /// Only if it has all it was granted: somebody may have given back one of them.
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
        // Carried out, it cannot come again: no mark is needed.
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

    /// Takes back what nobody has given back in time; says whether there was any.
    fn reclaim(&mut self) -> bool {
        let now = self.now;
        let state = self.state.as_mut();
        state.is_some_and(|state| state.take_back(|out| out.until <= now) > 0)
    }

    /// How many there are in all.
    fn total(&self) -> i64 {
        let state = self.state.as_ref();
        state.map_or(0, |state| state.there.saturating_add(state.out()))
    }

    fn there(&self) -> i64 {
        self.state.as_ref().map_or(0, |state| state.there)
    }
}

impl SemaphoreState {
    fn new(there: u32) -> Self {
        Self {
            there: i64::from(there),
            out: Vec::new(),
        }
    }

    /// Takes back permits that are out; says how many.
    fn take_back(&mut self, back: impl FnMut(&mut IssuedPermit) -> bool) -> u64 {
        let back = self.out.extract_if(.., back).count();
        self.there += i64::try_from(back).unwrap_or(i64::MAX);
        back as u64
    }

    /// How many are available and how many are out, where late ones are available.
    fn permits(&self, now: Moment) -> Permits {
        let late = self.out.iter().filter(|out| out.until <= now).count();
        Permits {
            available: self.there + i64::try_from(late).unwrap_or(i64::MAX),
            out: (self.out.len() - late) as u64,
        }
    }

    fn out(&self) -> i64 {
        i64::try_from(self.out.len()).unwrap_or(i64::MAX)
    }

    /// Takes back what others have than those who are to keep theirs.
    pub(super) fn retain(&mut self, keep: impl Fn(OwnerId) -> bool) {
        self.take_back(|out| !keep(out.owner));
    }

    /// Who has permits, and until when.
    pub(super) fn holders(&self) -> Holders {
        let mut holders: Holders = Vec::new();
        for out in &self.out {
            // An owner's come together.
            match holders.last_mut().filter(|last| last.0 == out.owner) {
                Some((_, until)) => *until = out.until.min(*until),
                None => holders.push((out.owner, out.until)),
            }
        }
        holders
    }

    /// Whether any is out.
    pub(super) fn is_held(&self, now: Moment) -> bool {
        self.out.iter().any(|out| out.until > now)
    }

    /// Who has permits.
    pub(super) fn owners(&self) -> impl Iterator<Item = OwnerId> + '_ {
        self.out.iter().map(|out| out.owner)
    }
}
