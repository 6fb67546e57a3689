//! The plain, reentrant lock, Redisson's `RLock`, and the fenced lock, its `RFencedLock`, which
//! gives each grant a token.

use std::time::Duration;

use super::state::{ApplyContext, Outcome};
use super::tombstones::Tombstones;
use super::{
    Action, Entry, FencingToken, HolderSnapshot, Kind, LockSnapshot, Moment, OwnerId, Reply,
    Request,
};

/// A held lock. A free lock is not stored at all.
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
    /// The token of the grant, if it was requested as a fenced lock's.
    #[cfg_attr(
        feature = "sqlite",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    token: Option<FencingToken>,
}

impl Mutex {
    /// Creates a lock that this owner holds `count` times, until then.
    pub const fn new(
        owner: OwnerId,
        count: u32,
        until: Moment,
        token: Option<FencingToken>,
    ) -> Self {
        Self {
            owner,
            count,
            until,
            token,
        }
    }

    /// Returns the token of the grant, if it was requested as a fenced lock's.
    pub const fn token(&self) -> Option<FencingToken> {
        self.token
    }

    /// Returns how often it is held.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Returns its owner.
    pub const fn owner(&self) -> OwnerId {
        self.owner
    }

    /// Returns when the lease expires.
    pub const fn until(&self) -> Moment {
        self.until
    }

    fn raise_lease(&mut self, lease: Duration, now: Moment) {
        self.until = self.until.max(now + lease);
    }
}

/// Decides one request to the plain or the fenced lock.
pub fn apply(
    held: &mut Option<Mutex>,
    tombstones: &mut Tombstones,
    request: &Request,
    ctx: &ApplyContext,
) -> Outcome {
    let reply = decide(held, tombstones, request, ctx);
    Outcome::of(request, reply)
}

pub(super) fn decide(
    held: &mut Option<Mutex>,
    tombstones: &mut Tombstones,
    request: &Request,
    ctx: &ApplyContext,
) -> Reply {
    let ApplyContext {
        now, subscribers, ..
    } = *ctx;
    let kind = request.subject.kind;
    let token = |min_token| kind.is_fenced().then(|| ctx.token_after(min_token));
    match &request.action {
        Action::Acquire {
            owner,
            entry,
            lease,
            min_token,
            ..
        } => {
            if tombstones.contains(owner, *entry) {
                return Reply::Undone;
            }
            acquire(held, owner, *entry, *lease, now, || token(*min_token))
        }
        Action::CounterOp { .. } => Reply::NOT_A_COUNTER,
        Action::SemaphoreOp(_) => Reply::NOT_A_SEMAPHORE,
        Action::ForceRelease => Reply::Forced(held.take().is_some()),
        Action::Inspect => Reply::Inspected(held.as_ref().map(|held| LockSnapshot {
            owners: vec![HolderSnapshot {
                owner: held.owner.to_string(),
                count: u64::from(held.count),
                ttl: Some(held.until.since(now)),
            }],
            ttl: Some(held.until.since(now)),
            token: held.token.filter(|_| kind != Kind::Mutex),
            waiting: Vec::new(),
            ..LockSnapshot::default()
        })),
        Action::Transfer {
            from,
            to,
            lease,
            own_subscribers,
            min_token,
        } => {
            let released = release(held, from, 0, subscribers);
            let free = matches!(released, Reply::Released { .. });
            if !free || subscribers > *own_subscribers || tombstones.contains(to, Entry::Fresh) {
                return released;
            }
            acquire(held, to, Entry::Fresh, *lease, now, || token(*min_token))
        }
        Action::Release { owner, left } => release(held, owner, *left, subscribers),
        Action::Renew { owner, lease } => match mine(held, owner) {
            Ok(held) => {
                held.raise_lease(*lease, now);
                Reply::Renewed
            }
            Err(refusal) => refusal,
        },
        Action::Undo { owner, entry } => undo(held, tombstones, owner, *entry, now, subscribers),
    }
}

pub(super) fn acquire(
    held: &mut Option<Mutex>,
    owner: &OwnerId,
    entry: Entry,
    lease: Duration,
    now: Moment,
    token: impl FnOnce() -> Option<FencingToken>,
) -> Reply {
    match (held, entry) {
        (Some(held), entry) if held.owner == *owner => {
            if let Entry::Reentry { count, .. } = entry {
                held.count = held.count.max(count);
            }
            held.raise_lease(lease, now);
            // One grant has one token, however often the request arrives.
            held.token = held.token.or_else(token);
            Reply::Granted { token: held.token }
        }
        (Some(held), _) => Reply::Busy {
            ttl: Some(held.until.since(now)),
        },
        // A grant would make up the hold that the request is to enter.
        (None, Entry::Reentry { .. }) => Reply::Gone,
        (free, Entry::Fresh) => {
            let token = token();
            *free = Some(Mutex::new(*owner, 1, now + lease, token));
            Reply::Granted { token }
        }
    }
}

pub(super) fn undo(
    held: &mut Option<Mutex>,
    tombstones: &mut Tombstones,
    owner: &OwnerId,
    entry: Entry,
    now: Moment,
    subscribers: u32,
) -> Reply {
    let left = match entry {
        // The acquire was carried out and cannot arrive again: no tombstone is needed.
        Entry::Fresh if mine(held, owner).is_ok() => return release(held, owner, 0, subscribers),
        Entry::Fresh => 0,
        Entry::Reentry { count, .. } => count,
    };
    // The count of a hold that goes on does not show whether the acquire was carried out: other
    // guards may have left meanwhile.
    tombstones.insert(owner, entry, now);
    if mine(held, owner).is_ok_and(|held| held.count > left) {
        return release(held, owner, left, subscribers);
    }
    Reply::Tombstoned
}

pub(super) fn release(
    held: &mut Option<Mutex>,
    owner: &OwnerId,
    left: u32,
    subscribers: u32,
) -> Reply {
    match mine(held, owner) {
        Ok(mine) if left > 0 => {
            mine.count = mine.count.min(left);
            Reply::Kept
        }
        Ok(_) => {
            *held = None;
            Reply::Released { subscribers }
        }
        Err(refusal) => refusal,
    }
}

/// Returns the owner's hold, or the reply that refuses the request.
fn mine<'a>(held: &'a mut Option<Mutex>, owner: &OwnerId) -> Result<&'a mut Mutex, Reply> {
    match held {
        Some(held) if held.owner == *owner => Ok(held),
        Some(_) => Err(Reply::Taken),
        None => Err(Reply::Gone),
    }
}
