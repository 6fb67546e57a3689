//! Read phase: reads the state that decides a request, and decides it.

use std::time::Duration;

use redis::{Pipeline, Value};

use super::OptimisticResult;
use super::write_plan::WritePlan;
use crate::engine::redis::failure;
use crate::engine::redis::format::{self, LONGEST_HOLDER, LONGEST_TOKEN, MOST_OWNERS, Side};
use crate::engine::redis::keys::Keys;
use crate::engine::{StoreError, StoreErrorKind};
use crate::protocol::state::{ApplyContext, PrimitiveState, State};
use crate::protocol::store_queue::MemoryQueue;
use crate::protocol::tombstones::Tombstones;
use crate::protocol::{
    Action, ClientId, Entry, FencingToken, HolderSnapshot, LockSnapshot, Moment, OwnerId, Reply,
    Request, StateKind,
};

/// The moment at which the rules decide, which stands for the server's time: the rules only compare times, and what is
/// written is counted from the server's clock.
fn reference_time() -> Moment {
    Moment::at(Duration::from_secs(1))
}

/// The queries to the server for one request.
pub(super) struct ReadPhase<'a> {
    request: &'a Request,
    lock: String,
    tombstones_key: String,
    /// Key of the last token, for a lock that has one.
    token: Option<String>,
    channel: String,
    commands: Pipeline,
}

/// State of a lock, as read from the server.
struct ObservedState {
    /// Owners and counts; a simple lock has one.
    owners: Vec<(String, u32)>,
    /// Whether the key holds no lock of this kind: another type, or a hash without an owner.
    other: bool,
    /// Time to live in ms: -1 without an end, -2 if the lock is free.
    pttl: i64,
    token: Option<FencingToken>,
    /// Whether the last token is a number that Redis can increment.
    counter_is_valid: bool,
}

impl<'a> ReadPhase<'a> {
    pub(super) fn new(request: &'a Request, keys: &Keys) -> Self {
        let name = &request.subject.name;
        let lock = keys.lock(name).to_string();
        let tombstones_key = keys.tombstones(name).to_string();
        let kind = request.subject.kind;
        let token = kind.is_fenced().then(|| keys.token(name).to_string());
        let channel = keys.channel(&request.subject.channel()).to_string();
        let mut commands = Pipeline::new();
        // An earlier read phase that was not followed by a write may have left watched keys.
        commands.cmd("UNWATCH");
        commands
            .cmd("WATCH")
            .arg(&lock)
            .arg(&tombstones_key)
            .arg(&token);
        commands.cmd("PTTL").arg(&lock);
        // One more than a lock can have is read, so that another program's data of any size costs the same.
        match (kind.state_kind(), acting_owner(&request.action)) {
            (StateKind::Simple, _) => {
                let range = commands.cmd("GETRANGE").arg(&lock);
                range.arg(0).arg(LONGEST_HOLDER);
            }
            // Only the names are read: another program's values may be of any size.
            (_, Some(owner)) => {
                let names = commands.cmd("HRANDFIELD").arg(&lock);
                names.arg(MOST_OWNERS + 1);
                commands.cmd("HGET").arg(&lock).arg(owner.to_string());
            }
            (_, None) => {
                let fields = commands.cmd("HRANDFIELD").arg(&lock);
                fields.arg(MOST_OWNERS + 1).arg("WITHVALUES");
            }
        }
        commands.cmd("TIME");
        commands.cmd("PUBSUB").arg("NUMSUB").arg(&channel);
        if let Some(token) = &token {
            // One byte more than the longest token is read, and the time to live, which distinguishes a missing counter
            // from an empty one.
            let range = commands.cmd("GETRANGE").arg(token);
            range.arg(0).arg(LONGEST_TOKEN);
            commands.cmd("PTTL").arg(token);
        }
        if let Some((owner, entry)) = acquiring_owner(&request.action) {
            commands
                .cmd("ZSCORE")
                .arg(&tombstones_key)
                .arg(tombstone_member(&owner, entry));
        }
        Self {
            request,
            lock,
            tombstones_key,
            token,
            channel,
            commands,
        }
    }

    pub(super) const fn commands(&self) -> &Pipeline {
        &self.commands
    }

    /// Returns the reply, and the plan of what is to be written first, if anything.
    pub(super) fn decide(
        self,
        replies: Vec<Value>,
    ) -> Result<(OptimisticResult, Option<WritePlan>), StoreError> {
        let mut replies = replies.into_iter();
        let mut next = || replies.next().unwrap_or(Value::Nil);
        let (_unwatched, watched) = (next(), next());
        value::<String>(watched)?;
        let pttl: i64 = value(next())?;
        let mut seen = self.seen(pttl, &mut next)?;
        let (seconds, micros): (u64, u64) = value(next())?;
        let (_, subscribers): (String, u32) = value(next())?;
        if self.token.is_some() {
            let token: Vec<u8> = value(next())?;
            let is_missing = value::<i64>(next())? == -2;
            let token = String::from_utf8_lossy(&token).into_owned();
            let token = Some(token).filter(|_| !is_missing);
            let is_valid = |token: &String| {
                let last = token.parse::<i64>().ok();
                // Only a number as Redis itself writes it counts: Redis increments nothing else.
                last.is_some_and(|last| {
                    token.len() <= LONGEST_TOKEN
                        && last.to_string() == *token
                        && last < FencingToken::LAST.into()
                })
            };
            seen.counter_is_valid = token.as_ref().is_none_or(is_valid);
            seen.token = token.and_then(|token| token.parse().ok().map(FencingToken::new));
        }
        // A user that may not read the tombstones must not go on as if there were none.
        let has_tombstone = matches!(
            value(next())?,
            Value::BulkString(_) | Value::SimpleString(_) | Value::Double(_)
        );

        if self.request.action == Action::Inspect {
            return Ok((inspected(seen), None));
        }
        let before = self.held(&seen);
        let mut tombstones = Tombstones::default();
        if let (Some((owner, entry)), true) = (acquiring_owner(&self.request.action), has_tombstone)
        {
            tombstones.insert(&owner, entry, reference_time());
        }
        let clock_token =
            FencingToken::new(seconds.saturating_mul(1_000_000).saturating_add(micros));
        let in_time = self.token.is_none() || clock_token <= FencingToken::LAST;
        if let (Action::Transfer { to, .. }, false) =
            (&self.request.action, seen.counter_is_valid && in_time)
        {
            // No token can be granted, so the lock is released and not transferred.
            tombstones.insert(to, Entry::Fresh, reference_time());
        }
        let mut state = State::new(before.clone(), tombstones);
        let ctx = ApplyContext {
            now: reference_time(),
            subscribers,
            next_token: clock_token.max(seen.token.map_or(clock_token, FencingToken::next)),
        };
        let outcome = state.apply(self.request, &ctx, &mut MemoryQueue::default());
        let reply = match outcome.reply {
            // No client of ours leaves a lock without an end, and no rule knows such a lock.
            Ok(Reply::Busy { .. }) if seen.pttl == -1 => Reply::Busy { ttl: None },
            Ok(Reply::Granted { token: Some(token) })
                if !seen.counter_is_valid || token > FencingToken::LAST =>
            {
                let why = if in_time { BAD_COUNTER } else { CLOCK_TOO_LATE };
                return Ok((Err(StoreError::new(StoreErrorKind::WrongKind, why)), None));
            }
            Ok(reply) => reply,
            Err(wrong) => return Ok((Err(wrong.into()), None)),
        };
        let mut write_plan = WritePlan::new(self.lock, self.tombstones_key, self.channel);
        write_plan.change(
            self.request,
            before.as_ref(),
            state.held_now(),
            reference_time(),
        );
        if matches!(reply, Reply::Tombstoned | Reply::Kept)
            && let Action::Undo { owner, entry } = &self.request.action
        {
            let millis = seconds * 1000 + micros / 1000;
            write_plan.add_tombstone(&tombstone_member(owner, *entry), millis);
        }
        if let (Reply::Granted { token: Some(token) }, Some(counter)) = (&reply, &self.token)
            && seen.token != Some(*token)
        {
            write_plan.set_token(counter, *token);
        }
        if outcome.notify.is_some() {
            write_plan.publish();
        }
        Ok((Ok(reply), write_plan.into_transaction()))
    }

    fn seen(
        &self,
        pttl: i64,
        next: &mut impl FnMut() -> Value,
    ) -> Result<ObservedState, StoreError> {
        let mut seen = ObservedState {
            owners: Vec::new(),
            other: false,
            pttl,
            token: None,
            counter_is_valid: true,
        };
        let shape = self.request.subject.kind.state_kind();
        let requester = acting_owner(&self.request.action).filter(|_| shape != StateKind::Simple);
        let reply = next();
        let own = requester.map(|owner| (owner, next()));
        match (shape, reply) {
            (_, error @ Value::ServerError(_)) => {
                let Err(failure) = value::<()>(error) else {
                    return Ok(seen);
                };
                if failure.kind != StoreErrorKind::WrongKind {
                    return Err(failure);
                }
                seen.other = true;
            }
            (StateKind::Mutex, reply) => {
                let fields: Vec<(Vec<u8>, Option<Vec<u8>>)> = match own {
                    None => value(reply)?,
                    Some(_) => {
                        let names: Vec<Vec<u8>> = value(reply)?;
                        names.into_iter().map(|name| (name, None)).collect()
                    }
                };
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let is_lock = fields.len() <= MOST_OWNERS && fields.iter().all(is_hold);
                if let Some((owner, count)) = own
                    && let Some(count) = value::<Option<String>>(count)?
                {
                    // A hold of the owner counts, whatever else the hash contains.
                    let count = count.parse().unwrap_or(1);
                    seen.owners.push((owner.to_string(), count));
                } else if is_lock {
                    let holds = fields.iter().map(|(owner, count)| {
                        let count = count.as_deref().map(text);
                        (
                            text(owner),
                            count.and_then(|count| count.parse().ok()).unwrap_or(1),
                        )
                    });
                    seen.owners.extend(holds);
                } else {
                    seen.other = true;
                }
            }
            // These kinds need scripts.
            (
                StateKind::ReadWrite
                | StateKind::Semaphore
                | StateKind::Counter
                | StateKind::Countdown,
                _,
            ) => {
                seen.other = true;
            }
            (StateKind::Simple, _) if pttl == -2 => {}
            (StateKind::Simple, reply) => {
                let owner: Vec<u8> = value(reply)?;
                let long = owner.len() > LONGEST_HOLDER;
                let owner = String::from_utf8_lossy(&owner).into_owned();
                // A request that only acquires waits for any holder. A string of an unknown format is neither reported
                // nor removed.
                let action = &self.request.action;
                let removes = matches!(action, Action::ForceRelease | Action::Inspect);
                seen.other = long || removes && owner.parse::<OwnerId>().is_err();
                seen.owners.push((owner, 1));
            }
        }
        Ok(seen)
    }

    /// Returns the hold as the rules see it: that of the requesting owner, or of some other.
    fn held(&self, seen: &ObservedState) -> Option<PrimitiveState> {
        let shape = self.request.subject.kind.state_kind();
        let until = match u64::try_from(seen.pttl) {
            Ok(millis) => reference_time() + Duration::from_millis(millis),
            Err(_) => reference_time() + Duration::MAX,
        };
        if seen.other {
            let shapes = [StateKind::Mutex, StateKind::Simple];
            let other = shapes.into_iter().find(|other| *other != shape);
            return other
                .and_then(|other| PrimitiveState::new(other, UNKNOWN_OWNER, 1, until, None));
        }
        let requester = acting_owner(&self.request.action).map(|owner| owner.to_string());
        let mine = seen
            .owners
            .iter()
            .find(|(owner, _)| Some(owner) == requester.as_ref());
        let (owner, count) = mine.or(seen.owners.first())?;
        // An owner that is not ours only has to differ from ours.
        let owner = owner.parse().unwrap_or(UNKNOWN_OWNER);
        PrimitiveState::new(shape, owner, *count, until, seen.token)
    }
}

/// Returns whether a field of a hash is a hold of the plain lock, judged by its owner, and by its count if that was
/// read.
fn is_hold((owner, count): &(Vec<u8>, Option<Vec<u8>>)) -> bool {
    let exclusive = format::owner(owner) == Some(Side::Reader);
    exclusive && count.as_deref().is_none_or(format::is_hold_count)
}

const UNKNOWN_OWNER: OwnerId = OwnerId::new(ClientId::new([0; 16]), 0);

/// Returns the owner whose hold the request is about.
const fn acting_owner(action: &Action) -> Option<OwnerId> {
    match action {
        Action::Acquire { owner, .. }
        | Action::Release { owner, .. }
        | Action::Renew { owner, .. }
        | Action::Undo { owner, .. } => Some(*owner),
        Action::Transfer { from, .. } => Some(*from),
        Action::CounterOp { .. } | Action::SemaphoreOp(_) => None,
        Action::ForceRelease | Action::Inspect => None,
    }
}

/// Returns the acquire that may have been undone before it arrived.
const fn acquiring_owner(action: &Action) -> Option<(OwnerId, Entry)> {
    match action {
        Action::Acquire { owner, entry, .. } => Some((*owner, *entry)),
        Action::Transfer { to, .. } => Some((*to, Entry::Fresh)),
        Action::CounterOp { .. }
        | Action::SemaphoreOp(_)
        | Action::ForceRelease
        | Action::Inspect
        | Action::Release { .. }
        | Action::Renew { .. }
        | Action::Undo { .. } => None,
    }
}

/// The same words as in the scripts.
const BAD_COUNTER: &str = "its token counter, redisson_lock_token:{NAME}, is no integer below 2^53; docs/fencing.md says how to reset it";
const CLOCK_TOO_LATE: &str =
    "the clock of the server is beyond the year 2255, where tokens end; set it right";

fn tombstone_member(owner: &OwnerId, entry: Entry) -> String {
    format!("{owner}#{}", entry.attempt())
}

fn inspected(seen: ObservedState) -> OptimisticResult {
    if seen.pttl == -2 {
        return Ok(Reply::Inspected(None));
    }
    if seen.other {
        return Err(StoreError::new(
            StoreErrorKind::WrongKind,
            "the key holds data of another kind",
        ));
    }
    let ttl = u64::try_from(seen.pttl).ok().map(Duration::from_millis);
    let owners = seen.owners.into_iter();
    let owners = owners.map(|(owner, count)| HolderSnapshot {
        owner,
        count: u64::from(count),
        ttl,
    });
    Ok(Reply::Inspected(Some(LockSnapshot {
        owners: owners.collect(),
        ttl,
        token: seen.token,
        waiting: Vec::new(),
        ..LockSnapshot::default()
    })))
}

/// Reads a reply; an error is the server's.
fn value<T: redis::FromRedisValue>(reply: Value) -> Result<T, StoreError> {
    let reply = reply.extract_error();
    let reply = reply.map_err(|error| failure::from_call_error(&error))?;
    redis::from_redis_value(reply)
        .map_err(|error| StoreError::new(StoreErrorKind::Unexpected, error.to_string()))
}
