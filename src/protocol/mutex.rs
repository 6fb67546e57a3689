//! The plain, reentrant lock: Redisson's `RLock`.

use std::time::Duration;

use super::state::{Outcome, State};
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
    fn new(owner: &OwnerId, until: Moment) -> Self {
        Self {
            owner: *owner,
            count: 1,
            until,
        }
    }

    /// Whether the lease has run out.
    pub fn has_expired(&self, now: Moment) -> bool {
        self.until <= now
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
pub fn apply(state: &mut State, request: &Request, now: Moment, listeners: u32) -> Outcome {
    let reply = decide(state, &request.action, now, listeners);
    let freed = match (&request.action, &reply) {
        (_, Reply::Released { .. } | Reply::Forced(true)) => true,
        // It was free for a moment; who listens may ask, and finds it taken.
        (Action::Pass { .. }, Reply::Granted) => true,
        (_, _) => false,
    };
    Outcome {
        reply,
        news: freed.then(|| request.subject.channel()),
    }
}

fn decide(state: &mut State, action: &Action, now: Moment, listeners: u32) -> Reply {
    match action {
        Action::Acquire {
            owner,
            entry,
            lease,
        } => acquire(state, owner, *entry, *lease, now),
        Action::ForceRelease => Reply::Forced(state.mutex().take().is_some()),
        Action::Inspect => Reply::Inspected(state.mutex().as_ref().map(|held| Holding {
            owners: vec![(held.owner.to_string(), u64::from(held.count))],
            ttl: Some(held.until.since(now)),
        })),
        Action::Pass {
            from,
            to,
            lease,
            own_listeners,
        } => {
            let released = release(state, from, 0, listeners);
            let free = matches!(released, Reply::Released { .. });
            if !free || listeners > *own_listeners || state.is_marked(to, Entry::First) {
                return released;
            }
            *state.mutex() = Some(Mutex::new(to, now + *lease));
            Reply::Granted
        }
        Action::Release { owner, left } => release(state, owner, *left, listeners),
        Action::Renew { owner, lease } => match mine(state, owner) {
            Ok(held) => {
                held.raise_lease(*lease, now);
                Reply::Renewed
            }
            Err(refusal) => refusal,
        },
        Action::Undo { owner, entry } => undo(state, owner, *entry, now, listeners),
    }
}

fn acquire(
    state: &mut State,
    owner: &OwnerId,
    entry: Entry,
    lease: Duration,
    now: Moment,
) -> Reply {
    if state.is_marked(owner, entry) {
        return Reply::Undone;
    }
    match (state.mutex(), entry) {
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
            *free = Some(Mutex::new(owner, now + lease));
            Reply::Granted
        }
    }
}

fn undo(state: &mut State, owner: &OwnerId, entry: Entry, now: Moment, listeners: u32) -> Reply {
    let left = match entry {
        // Carried out, it cannot come again: no mark is needed.
        Entry::First if mine(state, owner).is_ok() => return release(state, owner, 0, listeners),
        Entry::First => 0,
        Entry::Again { count, .. } => count,
    };
    // Into a hold that goes on one cannot tell by the count: others may have left meanwhile.
    state.mark(owner, entry, now);
    if mine(state, owner).is_ok_and(|held| held.count > left) {
        return release(state, owner, left, listeners);
    }
    Reply::Marked
}

fn release(state: &mut State, owner: &OwnerId, left: u32, listeners: u32) -> Reply {
    let held = match mine(state, owner) {
        Ok(held) => held,
        Err(refusal) => return refusal,
    };
    if left > 0 {
        held.count = held.count.min(left);
        return Reply::Kept;
    }
    *state.mutex() = None;
    Reply::Released { listeners }
}

/// The owner's hold, or what to say instead.
fn mine<'a>(state: &'a mut State, owner: &OwnerId) -> Result<&'a mut Mutex, Reply> {
    match state.mutex() {
        Some(held) if held.owner == *owner => Ok(held),
        Some(_) => Err(Reply::Taken),
        None => Err(Reply::Gone),
    }
}
