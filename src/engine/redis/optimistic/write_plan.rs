//! Write plan: the changes of a decision, in one transaction.

use redis::{Cmd, Pipeline, Value};

use super::OptimisticResult;
use crate::engine::redis::failure;
use crate::engine::{StoreError, StoreErrorKind};
use crate::protocol::state::PrimitiveState;
use crate::protocol::tombstones::TOMBSTONE_TTL;
use crate::protocol::{Action, FencingToken, Moment, Reply, Request, StateKind};

/// The commands between MULTI and EXEC.
pub(super) struct WritePlan {
    lock: String,
    tombstones_key: String,
    channel: String,
    queued: Vec<Cmd>,
    /// Index of the command whose reply is the number of subscribers that were notified.
    publish: Option<usize>,
    commands: Pipeline,
}

impl WritePlan {
    pub(super) fn new(lock: String, tombstones_key: String, channel: String) -> Self {
        Self {
            lock,
            tombstones_key,
            channel,
            queued: Vec::new(),
            publish: None,
            commands: Pipeline::new(),
        }
    }

    /// Plans the commands that change the hold `before` into the hold `after`.
    pub(super) fn change(
        &mut self,
        request: &Request,
        before: Option<&PrimitiveState>,
        after: Option<&PrimitiveState>,
        now: Moment,
    ) {
        let shape = request.subject.kind.state_kind();
        let owner = |held: &PrimitiveState| held.holder().map(|(owner, _)| owner);
        let same = before.and_then(owner) == after.and_then(owner);
        if let Some(before) = before.filter(|_| !same).and_then(owner) {
            match shape {
                // Other owners may have fields in the same hash.
                StateKind::Mutex if request.action != Action::ForceRelease => {
                    let field = before.to_string();
                    self.add("HDEL", |cmd| cmd.arg(field));
                }
                StateKind::Mutex | StateKind::ReadWrite | StateKind::Simple => {
                    self.add("DEL", |cmd| cmd)
                }
                // These kinds have no holder.
                StateKind::Semaphore | StateKind::Counter | StateKind::Countdown => {}
            }
        }
        let Some((after, (holder, until))) = after.and_then(|held| Some((held, held.holder()?)))
        else {
            return;
        };
        let lease = u64::try_from(until.since(now).as_millis()).unwrap_or(u64::MAX);
        let count = before.filter(|_| same).map(PrimitiveState::count);
        match shape {
            StateKind::Simple if !same => {
                self.add("SET", |cmd| {
                    cmd.arg(holder.to_string()).arg("PX").arg(lease)
                });
                return;
            }
            StateKind::Mutex if count != Some(after.count()) => {
                let field = holder.to_string();
                self.add("HSET", |cmd| cmd.arg(field).arg(after.count()));
            }
            StateKind::Mutex | StateKind::ReadWrite | StateKind::Simple => {}
            StateKind::Semaphore | StateKind::Counter | StateKind::Countdown => {}
        }
        let ends = before.filter(|_| same).and_then(PrimitiveState::holder);
        if ends.map(|(_, ends)| ends) != Some(until) {
            self.add("PEXPIRE", |cmd| cmd.arg(lease));
        }
    }

    /// Stores the last token, without expiry.
    pub(super) fn set_token(&mut self, counter: &str, token: FencingToken) {
        let set = cmd("SET", counter, |cmd| cmd.arg(token.number()));
        self.queued.push(set);
    }

    /// Adds a tombstone that refuses an acquire, from this millisecond of the server's clock on.
    pub(super) fn add_tombstone(&mut self, member: &str, millis: u64) {
        let ttl = u64::try_from(TOMBSTONE_TTL.as_millis()).unwrap_or(u64::MAX);
        let commands = [
            cmd("ZREMRANGEBYSCORE", &self.tombstones_key, |cmd| {
                cmd.arg("-inf").arg(millis)
            }),
            cmd("ZADD", &self.tombstones_key, |cmd| {
                cmd.arg(millis + ttl).arg(member)
            }),
            cmd("PEXPIRE", &self.tombstones_key, |cmd| cmd.arg(ttl)),
        ];
        self.queued.extend(commands);
    }

    /// Notifies the waiters.
    pub(super) fn publish(&mut self) {
        self.publish = Some(self.queued.len());
        let published = cmd("PUBLISH", &self.channel, |cmd| cmd.arg("0"));
        self.queued.push(published);
    }

    /// Completes the transaction; `None` if there is nothing to write.
    pub(super) fn into_transaction(mut self) -> Option<Self> {
        if self.queued.is_empty() {
            return None;
        }
        self.commands.cmd("MULTI");
        for cmd in &self.queued {
            self.commands.add_command(cmd.clone());
        }
        self.commands.cmd("EXEC");
        Some(self)
    }

    pub(super) const fn commands(&self) -> &Pipeline {
        &self.commands
    }

    /// Interprets the replies to the transaction; `None` if another client changed the lock first.
    pub(super) fn interpret(
        &self,
        outcome: OptimisticResult,
        replies: Vec<Value>,
    ) -> Result<Option<Reply>, StoreError> {
        let mut refused = None;
        let mut end = Value::Nil;
        for reply in replies {
            match reply.extract_error() {
                Ok(reply) => end = reply,
                // The first error says why; the error of EXEC only says that nothing was done.
                Err(error) => {
                    refused.get_or_insert_with(|| failure::from_call_error(&error));
                }
            }
        }
        let reply = outcome?;
        match (refused, end, reply) {
            // On a server that is out of memory, the count stays too high. Only its owner uses the count, and will
            // release all of it.
            (Some(refused), _, Reply::Kept) if refused.kind == StoreErrorKind::OutOfMemory => {
                Ok(Some(Reply::Kept))
            }
            (Some(refused), _, _) => Err(refused),
            (None, Value::Array(done), reply) => {
                let published = self.publish.and_then(|place| done.into_iter().nth(place));
                let published =
                    published.and_then(|published| redis::from_redis_value(published).ok());
                Ok(Some(match (reply, published) {
                    (Reply::Released { .. }, Some(subscribers)) => Reply::Released { subscribers },
                    (reply, _) => reply,
                }))
            }
            (None, Value::Nil, _) => Ok(None),
            (None, other, _) => {
                let what = format!("unexpected reply {other:?}");
                Err(StoreError::new(StoreErrorKind::Unexpected, what))
            }
        }
    }

    fn add(&mut self, command: &str, args: impl FnOnce(&mut Cmd) -> &mut Cmd) {
        let cmd = cmd(command, &self.lock, args);
        self.queued.push(cmd);
    }
}

fn cmd(command: &str, key: &str, args: impl FnOnce(&mut Cmd) -> &mut Cmd) -> Cmd {
    let mut cmd = redis::cmd(command);
    cmd.arg(key);
    args(&mut cmd);
    cmd
}
