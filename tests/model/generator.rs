//! Generates the next request for one lock.

use std::time::Duration;

use distlock::internals::protocol::{
    Action, Channel, ClientId, Entry, HolderSnapshot, Kind, LockSnapshot, OwnerId, PermitRequest,
    SemaphoreOp, Subject,
};

use distlock::internals::protocol::permit::{permit_count, permit_owner, permits_of};

use super::dice::{index_below, number_below, seen, time};
use super::kinds::Kinds;
use super::numbers::Numbers;
use super::support::SeededRng;

/// All owners of one name, and what they have requested.
pub(crate) struct NameOwners {
    pub(crate) kinds: Kinds,
    owners: Vec<OwnerId>,
    /// How many acquires each owner has numbered.
    numbered: Vec<u32>,
    /// Acquires that were undone before they were sent: owner, attempt and count.
    late: Vec<(usize, u32, u32)>,
    /// Owners whose first acquire was undone.
    undone: Vec<usize>,
    /// The last known holder.
    last: usize,
    numbers: Numbers,
}

/// One action and the way in which it is sent.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) kind: Kind,
    pub(crate) action: Action,
    pub(crate) road: CallPath,
}

/// The engine's two methods, each of them used in two ways.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum CallPath {
    /// `call_background`, with all sorts of requests.
    ApartMixed,
    /// `call_background`, with renewals only.
    ApartRenewals,
    /// `call`, and nothing else at the same time.
    Call,
    /// `call`, for many requests at the same time: most travel in batches.
    Together,
}

impl NameOwners {
    /// Makes two clients of this library and one of Redisson, whose thread numbers may be negative.
    pub(crate) fn new(kinds: Kinds, rng: &mut SeededRng) -> Self {
        let [ours, other, java] = [1_u8, 2, 3].map(|number| ClientId::new([number; 16]));
        let thread = -i64::try_from(rng.below(100)).expect("below a hundred");
        let mut owner = |client, number| match kinds {
            Kinds::Only(Kind::Semaphore) => {
                permit_owner(client, number, 1 + number_below(MOST_PERMITS, rng))
            }
            _ => OwnerId::new(client, number),
        };
        let owners = vec![
            owner(ours, 1),
            owner(ours, 2),
            owner(other, 1),
            owner(java, thread),
        ];
        Self {
            kinds,
            numbered: vec![0; owners.len()],
            late: Vec::new(),
            undone: Vec::new(),
            last: 0,
            numbers: Numbers::new([ours, other]),
            owners,
        }
    }

    /// Returns the channels of the listeners: none, one or two at the lock's own channel, and that of every owner that may
    /// be queued.
    pub(crate) fn channels(&self, name: &str, rng: &mut SeededRng) -> Vec<Channel> {
        let main = Subject::new(self.kinds.main(), name);
        let mut channels = vec![main.channel(); index_below(3, rng)];
        if main.kind.has_server_queue() {
            let waiter = |owner: &OwnerId| Channel::Waiter(main.name.clone(), *owner);
            channels.extend(self.owners.iter().map(waiter));
        }
        channels
    }

    /// Returns the next action for a lock in this state; `None` if only time passes. Leases end halfway between two ticks,
    /// as long as ticks are this long.
    pub(crate) fn next(
        &mut self,
        held: Option<&LockSnapshot>,
        tick: Duration,
        rng: &mut SeededRng,
    ) -> Option<Step> {
        if let Kinds::Only(kind) = self.kinds
            && kind.is_ownerless()
        {
            return self.numbers.next(kind, tick, rng);
        }
        let lease = time(tick, rng);
        let held = held.and_then(|holding| holding.owners.first());
        let held = held.map(|HolderSnapshot { owner, count, .. }| {
            let known = |id: &OwnerId| {
                let mut permits = permits_of(*id);
                id.to_string() == *owner || permits.any(|permit| permit.to_string() == *owner)
            };
            self.last = self.owners.iter().position(known).expect("one of ours");
            u32::try_from(*count).expect("a small count")
        });
        // For a free lock the only useful request is an acquire, with few exceptions.
        let dice = if held.is_some() { 0..100 } else { 60..160 };
        let action = match dice.start + rng.below(100) {
            0..14 => self.renew(lease, rng),
            14..28 => self.release(held, rng),
            28..40 => self.undo(held, rng),
            40..50 if self.kinds == Kinds::Only(Kind::Semaphore) => self.count(rng),
            40..50 => self.pass(lease, rng),
            50..53 => Action::ForceRelease,
            53..66 => Action::Inspect,
            66..73 => return None,
            73..145 => self.acquire(held, tick, rng),
            145..150 => self.undo(held, rng),
            150..159 if self.kinds == Kinds::Only(Kind::Semaphore) && rng.chance(60) => {
                self.count(rng)
            }
            150..154 => self.release(held, rng),
            154..157 => self.renew(lease, rng),
            157..159 if self.kinds != Kinds::Only(Kind::Semaphore) => self.pass(lease, rng),
            _ => Action::ForceRelease,
        };
        let apart = rng.chance(match action {
            Action::Renew { .. } => 60,
            Action::Release { .. } | Action::Undo { .. } => 25,
            Action::Acquire { .. }
            | Action::CounterOp { .. }
            | Action::SemaphoreOp(_)
            | Action::ForceRelease
            | Action::Inspect
            | Action::Transfer { .. } => 0,
        });
        let road = match action {
            Action::Renew { .. } if apart && rng.chance(85) => CallPath::ApartRenewals,
            _ if apart => CallPath::ApartMixed,
            _ if rng.chance(60) => CallPath::Together,
            _ => CallPath::Call,
        };
        let kind = match asker(&action) {
            Some(owner) => {
                let who = self.owners.iter().position(|known| *known == owner);
                self.kinds.of(who.expect("one of ours"))
            }
            None => self.kinds.pick(rng),
        };
        Some(Step { kind, action, road })
    }

    fn acquire(&mut self, held: Option<u32>, tick: Duration, rng: &mut SeededRng) -> Action {
        // Send the acquires that were undone before they were sent, sooner or later, some of them twice.
        if !self.late.is_empty() && rng.chance(40) {
            let index = index_below(self.late.len(), rng);
            let (who, attempt, count) = self.late[index];
            if rng.chance(70) {
                self.late.swap_remove(index);
            }
            return self.acquire_as(who, attempt, count, tick, rng);
        }
        let who = self.last_holder_or_any(65, rng);
        let attempt = if self.numbered[who] > 0 && rng.chance(20) {
            // The network may deliver the same request again.
            1 + number_below(self.numbered[who], rng)
        } else if rng.chance(30) {
            // Start from zero again, as a waiter does until the lock is free.
            self.numbered[who] = self.numbered[who].max(1);
            1
        } else {
            self.numbered[who] += 1;
            self.numbered[who]
        };
        let count = match held {
            // The count is mostly one more; also the same again, a stale lower one, and a leap.
            Some(held) if who == self.last => {
                *rng.pick(&[held + 1, held + 1, held + 1, held, 1, 3])
            }
            _ if rng.chance(85) => 1,
            _ => 2 + number_below(2, rng),
        };
        self.acquire_as(who, attempt, count, tick, rng)
    }

    fn acquire_as(
        &self,
        who: usize,
        attempt: u32,
        count: u32,
        tick: Duration,
        rng: &mut SeededRng,
    ) -> Action {
        let lease = time(tick, rng);
        let permits = PermitRequest {
            count: permit_count(self.owners[who]),
            of: rng.chance(50).then(|| 1 + number_below(4, rng)),
        };
        Action::Acquire {
            owner: self.owners[who],
            entry: entry(attempt, count),
            lease,
            min_token: seen(rng),
            waiter_ttl: (self.kinds.of(who).registers_waiters(permits.count) && rng.chance(75))
                .then(|| time(tick, rng)),
            other_side: rng.chance(30).then(|| self.beside(who)).flatten(),
            bypass_writers: rng.chance(20),
            permits,
        }
    }

    /// Returns an owner on the other side of a read/write lock, the holder if it is one of them.
    fn beside(&self, who: usize) -> Option<OwnerId> {
        let other = self.kinds.of(who).other_side()?;
        let there = |who: &usize| self.kinds.of(*who) == other;
        let all = std::iter::once(self.last).chain(0..self.owners.len());
        all.into_iter().find(there).map(|who| self.owners[who])
    }

    fn release(&self, held: Option<u32>, rng: &mut SeededRng) -> Action {
        let most = held.unwrap_or(1);
        let left = *rng.pick(&[0, 0, 1, 1, 2, most.saturating_sub(1)]);
        Action::Release {
            owner: self.owners[self.last_holder_or_any(70, rng)],
            left,
        }
    }

    fn count(&self, rng: &mut SeededRng) -> Action {
        let many = number_below(5, rng);
        let owner = self.owners[self.last_holder_or_any(70, rng)];
        let permits: Vec<_> = permits_of(owner).collect();
        let permit = *rng.pick(&permits);
        Action::SemaphoreOp(match rng.below(10) {
            0..3 => SemaphoreOp::Get,
            3..5 => SemaphoreOp::SetOnce(many),
            5..7 => SemaphoreOp::Set(many),
            7 => SemaphoreOp::Delete,
            _ => SemaphoreOp::Return(permit),
        })
    }

    fn renew(&self, lease: Duration, rng: &mut SeededRng) -> Action {
        Action::Renew {
            owner: self.owners[self.last_holder_or_any(75, rng)],
            lease,
        }
    }

    fn undo(&mut self, held: Option<u32>, rng: &mut SeededRng) -> Action {
        let who = self.last_holder_or_any(65, rng);
        let most = held.unwrap_or(1);
        let left = *rng.pick(&[0, 1, most.saturating_sub(1), most.saturating_sub(1), most]);
        let attempt = if self.numbered[who] > 0 && rng.chance(50) {
            // The latest acquire may have been executed, refused or overtaken by the end of its hold.
            self.numbered[who]
        } else {
            self.numbered[who] += 1;
            self.late.push((who, self.numbered[who], left + 1));
            self.numbered[who]
        };
        if attempt == 1 {
            self.undone.push(who);
        }
        Action::Undo {
            owner: self.owners[who],
            entry: entry(attempt, left),
        }
    }

    fn pass(&mut self, lease: Duration, rng: &mut SeededRng) -> Action {
        let from = self.last_holder_or_any(80, rng);
        // A taker whose first acquire was undone must not get the lock.
        let to = if !self.undone.is_empty() && rng.chance(40) {
            *rng.pick(&self.undone)
        } else {
            self.last_holder_or_any(10, rng)
        };
        let alike = self.kinds.of(from) == self.kinds.of(to);
        let to = if alike { to } else { from };
        self.numbered[to] = self.numbered[to].max(1);
        Action::Transfer {
            from: self.owners[from],
            to: self.owners[to],
            lease,
            own_subscribers: number_below(3, rng),
            min_token: seen(rng),
        }
    }

    /// Returns the last holder in `percent` of a hundred cases; any owner in the others.
    fn last_holder_or_any(&self, percent: u64, rng: &mut SeededRng) -> usize {
        if rng.chance(percent) {
            return self.last;
        }
        index_below(self.owners.len(), rng)
    }
}

/// Returns the owner that sends the request.
const fn asker(action: &Action) -> Option<OwnerId> {
    match action {
        Action::Acquire { owner, .. }
        | Action::Release { owner, .. }
        | Action::Renew { owner, .. }
        | Action::Undo { owner, .. } => Some(*owner),
        Action::Transfer { from, .. } => Some(*from),
        Action::CounterOp { .. } => None,
        Action::SemaphoreOp(_) | Action::ForceRelease | Action::Inspect => None,
    }
}

/// The most permits of one request.
pub(crate) const MOST_PERMITS: u32 = 3;
/// The largest hold count: more holds show nothing new.
const MOST: u32 = 4;

/// Returns the acquire with this number, for this hold count.
const fn entry(attempt: u32, count: u32) -> Entry {
    match (attempt, count) {
        (1, _) => Entry::Fresh,
        (attempt, 0) => Entry::Reentry { attempt, count: 1 },
        (attempt, MOST..) => Entry::Reentry {
            attempt,
            count: MOST,
        },
        (attempt, count) => Entry::Reentry { attempt, count },
    }
}
