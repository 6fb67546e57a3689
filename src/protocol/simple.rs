//! The simple lock: one value that is there or not, as in redsync, redis-py, node-redlock and
//! rslock.
//!
//! The store keeps no count: how often an owner holds the lock is known to its client alone.

use super::state::{ApplyContext, Outcome};
use super::tombstones::Tombstones;
use super::{Action, Entry, HolderSnapshot, LockSnapshot, Moment, OwnerId, Reply, Request};

/// A held lock. A free lock is not stored at all.
#[derive(Clone, Debug)]
#[cfg_attr(
    feature = "sqlite",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
pub struct SimpleState {
    /// The lock's owner.
    pub(super) owner: OwnerId,
    /// The end of the lease.
    pub(super) until: Moment,
}

/// Decides one request to the simple lock.
pub fn apply(
    held: &mut Option<SimpleState>,
    tombstones: &mut Tombstones,
    request: &Request,
    ctx: &ApplyContext,
) -> Outcome {
    let reply = decide(held, tombstones, &request.action, ctx);
    Outcome::of(request, reply)
}

fn decide(
    held: &mut Option<SimpleState>,
    tombstones: &mut Tombstones,
    action: &Action,
    ctx: &ApplyContext,
) -> Reply {
    let ApplyContext {
        now, subscribers, ..
    } = *ctx;
    match action {
        Action::Acquire {
            owner,
            entry,
            lease,
            ..
        } => {
            if tombstones.contains(owner, *entry) {
                return Reply::Undone;
            }
            acquire(held, owner, *entry, now + *lease, now)
        }
        Action::CounterOp { .. } => Reply::NOT_A_COUNTER,
        Action::SemaphoreOp(_) => Reply::NOT_A_SEMAPHORE,
        Action::ForceRelease => Reply::Forced(held.take().is_some()),
        Action::Inspect => Reply::Inspected(held.as_ref().map(|held| LockSnapshot {
            owners: vec![HolderSnapshot {
                owner: held.owner.to_string(),
                count: 1,
                ttl: Some(held.until.since(now)),
            }],
            ttl: Some(held.until.since(now)),
            token: None,
            waiting: Vec::new(),
            ..LockSnapshot::default()
        })),
        Action::Transfer {
            from,
            to,
            lease,
            own_subscribers,
            ..
        } => {
            let released = release(held, from, 0, subscribers);
            let free = matches!(released, Reply::Released { .. });
            if !free || subscribers > *own_subscribers || tombstones.contains(to, Entry::Fresh) {
                return released;
            }
            acquire(held, to, Entry::Fresh, now + *lease, now)
        }
        Action::Release { owner, left } => release(held, owner, *left, subscribers),
        Action::Renew { owner, lease } => match mine(held, owner) {
            Ok(mine) => {
                mine.until = mine.until.max(now + *lease);
                Reply::Renewed
            }
            Err(refusal) => refusal,
        },
        Action::Undo { owner, entry } => {
            if *entry == Entry::Fresh && mine(held, owner).is_ok() {
                // The acquire was carried out and cannot arrive again: no tombstone is needed.
                return release(held, owner, 0, subscribers);
            }
            tombstones.insert(owner, *entry, now);
            Reply::Tombstoned
        }
    }
}

fn acquire(
    held: &mut Option<SimpleState>,
    owner: &OwnerId,
    entry: Entry,
    until: Moment,
    now: Moment,
) -> Reply {
    match (held, entry) {
        (Some(held), _) if held.owner == *owner => {
            held.until = held.until.max(until);
            Reply::Granted { token: None }
        }
        (Some(held), _) => Reply::Busy {
            ttl: Some(held.until.since(now)),
        },
        // A grant would make up the hold that the request is to enter.
        (None, Entry::Reentry { .. }) => Reply::Gone,
        (free, Entry::Fresh) => {
            let owner = *owner;
            *free = Some(SimpleState { owner, until });
            Reply::Granted { token: None }
        }
    }
}

fn release(held: &mut Option<SimpleState>, owner: &OwnerId, left: u32, subscribers: u32) -> Reply {
    match mine(held, owner) {
        Ok(_) if left > 0 => Reply::Kept,
        Ok(_) => {
            *held = None;
            Reply::Released { subscribers }
        }
        Err(refusal) => refusal,
    }
}

/// Returns the owner's hold, or the reply that refuses the request.
fn mine<'a>(
    held: &'a mut Option<SimpleState>,
    owner: &OwnerId,
) -> Result<&'a mut SimpleState, Reply> {
    match held {
        Some(held) if held.owner == *owner => Ok(held),
        Some(_) => Err(Reply::Taken),
        None => Err(Reply::Gone),
    }
}
