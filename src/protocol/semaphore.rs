//! The semaphore whose permits are leased, Redisson's `RPermitExpirableSemaphore`.
//!
//! So many permits are there, the others are out, each with a lease of its own: those that nobody gives back come back by
//! themselves. Who wants several at once and has to wait stands in a line, and until it has had its turn nobody of ours goes
//! past it: those who want one would otherwise take each that comes.

use std::collections::BTreeMap;
use std::time::Duration;

use super::change::Holders;
use super::fair;
use super::line::Line;
use super::marks::Marks;
use super::permit::{permits_of, wanted_by};
use super::state::{Outcome, Surroundings};
use super::{Action, Entry, HeldBy, Holding, Moment, OwnerId, PermitId, Reply, Request};

/// What is counted under a name.
#[derive(Clone, Debug)]
#[cfg_attr(
    feature = "sqlite",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
pub struct Tally {
    /// How many permits are there. Fewer than none, if some were taken away while they were out.
    there: i64,
    #[cfg_attr(
        feature = "sqlite",
        serde(default, skip_serializing_if = "Vec::is_empty")
    )]
    out: Vec<Out>,
}

/// A permit that is out.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlite", derive(serde::Serialize, serde::Deserialize))]
struct Out {
    id: PermitId,
    owner: OwnerId,
    until: Moment,
}

/// How many permits somebody wants.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Wanted {
    /// So many, all or none.
    pub count: u32,
    /// Of so many, if nobody has said how many there are.
    pub of: Option<u32>,
}

impl Wanted {
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
pub enum Count {
    /// How many there are.
    Look,
    /// Let there be so many, if nobody has said yet how many there are.
    SetOnce(u32),
    /// Let there be so many in all, those that are out included.
    Set(u32),
    /// This one is given back, whoever has it.
    Return(PermitId),
    /// Forget it, and all that are out.
    Forget,
}

/// Decides one request to the semaphore.
pub fn apply(
    tally: &mut Option<Tally>,
    marks: &mut Marks,
    line: &mut dyn Line,
    request: &Request,
    around: &Surroundings,
) -> Outcome {
    let mut semaphore = Semaphore {
        tally,
        marks,
        line,
        now: around.now,
        news: false,
    };
    // A read changes nothing: it counts late permits as available.
    let reads = matches!(request.action, Action::Inspect | Action::Count(Count::Look));
    let came_back = !reads && semaphore.reclaim() && semaphore.there() > 0;
    let mut reply = semaphore.decide(&request.action);
    // Where there is nothing to have nobody is told.
    let news = semaphore.news && semaphore.there() > 0;
    if let Reply::Released { listeners } = &mut reply
        && news
    {
        *listeners = around.listeners;
    }
    Outcome {
        reply: Ok(reply),
        news: (news || came_back).then(|| request.subject.channel()),
    }
}

/// Who has how many of the permits that are out: each is told with its owner and what is left of its lease.
pub fn holding(
    available: i64,
    out: impl Iterator<Item = (String, Option<Duration>)>,
    waiting: Vec<String>,
) -> Holding {
    let mut owners: BTreeMap<String, HeldBy> = BTreeMap::new();
    let (mut count, mut last) = (0, Some(Duration::ZERO));
    for (owner, ttl) in out {
        count += 1;
        last = last.zip(ttl).map(|(last, ttl)| last.max(ttl));
        let held = owners.entry(owner.clone()).or_insert(HeldBy {
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
    Holding {
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

struct Semaphore<'a> {
    tally: &'a mut Option<Tally>,
    marks: &'a mut Marks,
    line: &'a mut dyn Line,
    now: Moment,
    /// Whether it may be worth asking again.
    news: bool,
}

const RELEASED: Reply = Reply::Released { listeners: 0 };
const GRANTED: Reply = Reply::Granted { token: None };

impl Semaphore<'_> {
    fn decide(&mut self, action: &Action) -> Reply {
        match action {
            Action::Acquire { owner, entry, .. } if self.marks.has(owner, *entry) => Reply::Undone,
            Action::Acquire {
                owner,
                entry,
                lease,
                permits,
                waits,
                ..
            } => self.acquire(*owner, *entry, *lease, *permits, *waits),
            // It is somebody's.
            Action::Alter { .. } => Reply::NO_NUMBER,
            Action::Count(count) => self.count(*count),
            Action::ForceRelease => {
                let out = self
                    .tally
                    .as_mut()
                    .map_or(0, |tally| tally.take_back(|_| true));
                self.news |= out > 0;
                Reply::Forced(out > 0)
            }
            Action::Inspect => Reply::Inspected(self.inspect()),
            // Whoever asks first gets them.
            Action::Pass { from, .. } => self.release(from, 0),
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
        permits: Wanted,
        waits: Option<Duration>,
    ) -> Reply {
        let until = self.now + lease;
        match (self.renew(&owner, until), self.has(&owner)) {
            (Reply::Renewed, _) => return GRANTED,
            // With permits that have gone: granting it would make them up.
            (_, true) => return Reply::Gone,
            (_, false) if entry != Entry::First => return Reply::Gone,
            (_, false) => {}
        }
        if let (None, Some(of)) = (&self.tally, permits.of) {
            *self.tally = Some(Tally::new(of));
        }
        let permits = permits.count;
        // One who wants more than there are by now is not obeyed.
        let total = self.total();
        let first = self.line.first_at(self.now);
        let first = first.filter(|first| i64::from(wanted_by(*first)) <= total);
        if first.is_none_or(|first| first == owner)
            && let Some(tally) = self.tally.as_mut()
            && tally.there >= i64::from(permits)
        {
            tally.there -= i64::from(permits);
            let ids = permits_of(owner);
            tally.out.extend(ids.map(|id| Out { id, owner, until }));
            // Who stands behind it may find enough for itself.
            self.news |= self.line.leave(&owner);
            return GRANTED;
        }
        if let Some(waits) = waits {
            // Who wants more than there are would keep everybody out for as long as it likes.
            if i64::from(permits) <= self.total() {
                self.line.stand(owner, self.now + waits);
            } else {
                self.news |= self.line.leave(&owner);
            }
        }
        let out = self.tally.as_ref().map_or(&[][..], |tally| &tally.out);
        let soonest = out.iter().map(|out| out.until).min();
        Reply::Busy {
            ttl: soonest.map(|until| until.since(self.now)),
        }
    }

    fn count(&mut self, count: Count) -> Reply {
        let done = match (count, self.tally.as_mut()) {
            (Count::Look, _) => false,
            (Count::SetOnce(_), Some(_)) => false,
            (Count::SetOnce(to) | Count::Set(to), None) => {
                *self.tally = Some(Tally::new(to));
                true
            }
            (Count::Forget, _) => self.tally.take().is_some(),
            (Count::Set(to), Some(tally)) => {
                tally.there = i64::from(to) - tally.out();
                true
            }
            (Count::Return(id), tally) => {
                tally.is_some_and(|tally| tally.take_back(|out| out.id == id) > 0)
            }
        };
        self.news |= done;
        let tally = self.tally.as_ref();
        Reply::Counted {
            done,
            permits: tally.map(|tally| tally.permits(self.now)),
        }
    }

    /// Gives back all that an owner has. `Gone` if those were not all that it was granted: others were returned by their ids,
    /// or have expired. It is not counted here how often it has them.
    fn release(&mut self, owner: &OwnerId, left: u32) -> Reply {
        let granted = u64::from(wanted_by(*owner));
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
        let tally = self.tally.as_mut();
        let had = tally.map_or(0, |tally| tally.take_back(|out| out.owner == *owner));
        self.news |= match had {
            0 => self.line.leave(owner),
            _ => true,
        };
        had
    }

    /// Only if it has all it was granted: somebody may have given back one of them.
    fn renew(&mut self, owner: &OwnerId, until: Moment) -> Reply {
        if self.count_of(owner) != wanted_by(*owner) as usize {
            return Reply::Gone;
        }
        let out = self.tally.iter_mut().flat_map(|tally| &mut tally.out);
        for out in out.filter(|out| out.owner == *owner) {
            out.until = out.until.max(until);
        }
        Reply::Renewed
    }

    fn has(&self, owner: &OwnerId) -> bool {
        self.count_of(owner) > 0
    }

    fn count_of(&self, owner: &OwnerId) -> usize {
        let owners = self.tally.iter().flat_map(Tally::owners);
        owners.filter(|has| has == owner).count()
    }

    fn undo(&mut self, owner: &OwnerId, entry: Entry) -> Reply {
        // Carried out, it cannot come again: no mark is needed.
        if entry == Entry::First && self.take_back(owner) > 0 {
            return RELEASED;
        }
        self.marks.put(owner, entry, self.now);
        Reply::Marked
    }

    fn inspect(&mut self) -> Option<Holding> {
        let tally = self
            .tally
            .as_ref()
            .filter(|tally| tally.is_held(self.now))?;
        let out = tally.out.iter().filter(|out| out.until > self.now);
        let out = out.map(|out| (out.owner.to_string(), Some(out.until.since(self.now))));
        let waiting = self.line.some(fair::SHOWN).into_iter();
        let waiting = waiting.map(|owner| owner.to_string()).collect();
        Some(holding(tally.permits(self.now).available, out, waiting))
    }

    /// Takes back what nobody has given back in time; says whether there was any.
    fn reclaim(&mut self) -> bool {
        let now = self.now;
        let tally = self.tally.as_mut();
        tally.is_some_and(|tally| tally.take_back(|out| out.until <= now) > 0)
    }

    /// How many there are in all.
    fn total(&self) -> i64 {
        let tally = self.tally.as_ref();
        tally.map_or(0, |tally| tally.there.saturating_add(tally.out()))
    }

    fn there(&self) -> i64 {
        self.tally.as_ref().map_or(0, |tally| tally.there)
    }
}

impl Tally {
    fn new(there: u32) -> Self {
        Self {
            there: i64::from(there),
            out: Vec::new(),
        }
    }

    /// Takes back permits that are out; says how many.
    fn take_back(&mut self, back: impl FnMut(&mut Out) -> bool) -> u64 {
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
