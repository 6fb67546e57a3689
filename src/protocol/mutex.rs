//! The plain, reentrant lock: Redisson's `RLock`.

use std::time::Duration;

use super::marks::Marks;
use super::state::Outcome;
use super::{Action, Entry, Holding, Moment, OwnerId, Reply, Request};

/// A held lock. A free one is not remembered at all.
#[derive(Clone, Debug)]
#[cfg_attr(
    feature = "sqlite",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
pub struct Mutex {
    owner: OwnerId,
    count: u32,
    until: Moment,
}

impl Mutex {
    /// One that this owner holds so often, until then.
    pub const fn new(owner: OwnerId, count: u32, until: Moment) -> Self {
        Self {
            owner,
            count,
            until,
        }
    }

    /// How often it is held.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Whose it is.
    pub const fn owner(&self) -> OwnerId {
        self.owner
    }

    /// When the lease runs out.
    pub const fn until(&self) -> Moment {
        self.until
    }

    fn raise_lease(&mut self, lease: Duration, now: Moment) {
        self.until = self.until.max(now + lease);
    }
}

/// Decides one request to the plain lock.
pub fn apply(
    held: &mut Option<Mutex>,
    marks: &mut Marks,
    request: &Request,
    now: Moment,
    listeners: u32,
) -> Outcome {
    let reply = decide(held, marks, &request.action, now, listeners);
    Outcome::of(request, reply)
}

fn decide(
    held: &mut Option<Mutex>,
    marks: &mut Marks,
    action: &Action,
    now: Moment,
    listeners: u32,
) -> Reply {
    match action {
        Action::Acquire {
            owner,
            entry,
            lease,
        } => acquire(held, marks, owner, *entry, *lease, now),
        Action::ForceRelease => Reply::Forced(held.take().is_some()),
        Action::Inspect => Reply::Inspected(held.as_ref().map(|held| Holding {
            owners: vec![(held.owner.to_string(), u64::from(held.count))],
            ttl: Some(held.until.since(now)),
        })),
        Action::Pass {
            from,
            to,
            lease,
            own_listeners,
        } => {
            let released = release(held, from, 0, listeners);
            let free = matches!(released, Reply::Released { .. });
            if !free || listeners > *own_listeners || marks.has(to, Entry::First) {
                return released;
            }
            *held = Some(Mutex::new(*to, 1, now + *lease));
            Reply::Granted
        }
        Action::Release { owner, left } => release(held, owner, *left, listeners),
        Action::Renew { owner, lease } => match mine(held, owner) {
            Ok(held) => {
                held.raise_lease(*lease, now);
                Reply::Renewed
            }
            Err(refusal) => refusal,
        },
        Action::Undo { owner, entry } => undo(held, marks, owner, *entry, now, listeners),
    }
}

fn acquire(
    held: &mut Option<Mutex>,
    marks: &Marks,
    owner: &OwnerId,
    entry: Entry,
    lease: Duration,
    now: Moment,
) -> Reply {
    if marks.has(owner, entry) {
        return Reply::Undone;
    }
    match (held, entry) {
        (Some(held), entry) if held.owner == *owner => {
            if let Entry::Again { count, .. } = entry {
                held.count = held.count.max(count);
            }
            held.raise_lease(lease, now);
            Reply::Granted
        }
        (Some(held), _) => Reply::Busy {
            ttl: Some(held.until.since(now)),
        },
        // Granting it would make up the hold it goes by.
        (None, Entry::Again { .. }) => Reply::Gone,
        (free, Entry::First) => {
            *free = Some(Mutex::new(*owner, 1, now + lease));
            Reply::Granted
        }
    }
}

fn undo(
    held: &mut Option<Mutex>,
    marks: &mut Marks,
    owner: &OwnerId,
    entry: Entry,
    now: Moment,
    listeners: u32,
) -> Reply {
    let left = match entry {
        // Carried out, it cannot come again: no mark is needed.
        Entry::First if mine(held, owner).is_ok() => return release(held, owner, 0, listeners),
        Entry::First => 0,
        Entry::Again { count, .. } => count,
    };
    // Into a hold that goes on one cannot tell by the count: others may have left meanwhile.
    marks.put(owner, entry, now);
    if mine(held, owner).is_ok_and(|held| held.count > left) {
        return release(held, owner, left, listeners);
    }
    Reply::Marked
}

fn release(held: &mut Option<Mutex>, owner: &OwnerId, left: u32, listeners: u32) -> Reply {
    match mine(held, owner) {
        Ok(mine) if left > 0 => {
            mine.count = mine.count.min(left);
            Reply::Kept
        }
        Ok(_) => {
            *held = None;
            Reply::Released { listeners }
        }
        Err(refusal) => refusal,
    }
}

/// The owner's hold, or what to say instead.
fn mine<'a>(held: &'a mut Option<Mutex>, owner: &OwnerId) -> Result<&'a mut Mutex, Reply> {
    match held {
        Some(held) if held.owner == *owner => Ok(held),
        Some(_) => Err(Reply::Taken),
        None => Err(Reply::Gone),
    }
}
