//! What a decision changes, in one transaction.

use redis::{Cmd, Pipeline, Value};

use super::Answer;
use crate::engine::redis::failure;
use crate::engine::{Cause, Failure};
use crate::protocol::marks::MARK_TTL;
use crate::protocol::state::Held;
use crate::protocol::{Action, FencingToken, Moment, Reply, Request, Shape};

/// The commands between MULTI and EXEC.
pub(super) struct Writing {
    lock: String,
    undone: String,
    channel: String,
    inside: Vec<Cmd>,
    /// Which of them says how many have heard of it.
    publish: Option<usize>,
    commands: Pipeline,
}

impl Writing {
    pub(super) fn new(lock: String, undone: String, channel: String) -> Self {
        Self {
            lock,
            undone,
            channel,
            inside: Vec::new(),
            publish: None,
            commands: Pipeline::new(),
        }
    }

    /// Makes of the one hold the other.
    pub(super) fn change(
        &mut self,
        request: &Request,
        before: Option<&Held>,
        after: Option<&Held>,
        now: Moment,
    ) {
        let shape = request.subject.kind.shape();
        let owner = |held: &Held| held.holder().map(|(owner, _)| owner);
        let same = before.and_then(owner) == after.and_then(owner);
        if let Some(before) = before.filter(|_| !same).and_then(owner) {
            match shape {
                // Others may have their fields beside it.
                Shape::Counted if request.action != Action::ForceRelease => {
                    let field = before.to_string();
                    self.add("HDEL", |cmd| cmd.arg(field));
                }
                Shape::Counted | Shape::Shared | Shape::Value => self.add("DEL", |cmd| cmd),
                // Nobody holds them.
                Shape::Tally | Shape::Counter | Shape::Countdown => {}
            }
        }
        let Some((after, (holder, until))) = after.and_then(|held| Some((held, held.holder()?)))
        else {
            return;
        };
        let lease = u64::try_from(until.since(now).as_millis()).unwrap_or(u64::MAX);
        let count = before.filter(|_| same).map(Held::count);
        match shape {
            Shape::Value if !same => {
                self.add("SET", |cmd| {
                    cmd.arg(holder.to_string()).arg("PX").arg(lease)
                });
                return;
            }
            Shape::Counted if count != Some(after.count()) => {
                let field = holder.to_string();
                self.add("HSET", |cmd| cmd.arg(field).arg(after.count()));
            }
            Shape::Counted | Shape::Shared | Shape::Value => {}
            Shape::Tally | Shape::Counter | Shape::Countdown => {}
        }
        let ends = before.filter(|_| same).and_then(Held::holder);
        if ends.map(|(_, ends)| ends) != Some(until) {
            self.add("PEXPIRE", |cmd| cmd.arg(lease));
        }
    }

    /// The last token is this one from now on, and for ever.
    pub(super) fn count_on(&mut self, counter: &str, token: FencingToken) {
        let set = cmd("SET", counter, |cmd| cmd.arg(token.number()));
        self.inside.push(set);
    }

    /// Refuses an acquire from this server's millisecond on.
    pub(super) fn mark(&mut self, mark: &str, millis: u64) {
        let ttl = u64::try_from(MARK_TTL.as_millis()).unwrap_or(u64::MAX);
        let commands = [
            cmd("ZREMRANGEBYSCORE", &self.undone, |cmd| {
                cmd.arg("-inf").arg(millis)
            }),
            cmd("ZADD", &self.undone, |cmd| cmd.arg(millis + ttl).arg(mark)),
            cmd("PEXPIRE", &self.undone, |cmd| cmd.arg(ttl)),
        ];
        self.inside.extend(commands);
    }

    /// Tells those who wait.
    pub(super) fn publish(&mut self) {
        self.publish = Some(self.inside.len());
        let told = cmd("PUBLISH", &self.channel, |cmd| cmd.arg("0"));
        self.inside.push(told);
    }

    /// None if there is nothing to write.
    pub(super) fn if_any(mut self) -> Option<Self> {
        if self.inside.is_empty() {
            return None;
        }
        self.commands.cmd("MULTI");
        for cmd in &self.inside {
            self.commands.add_command(cmd.clone());
        }
        self.commands.cmd("EXEC");
        Some(self)
    }

    pub(super) const fn commands(&self) -> &Pipeline {
        &self.commands
    }

    /// What became of it; none if others were quicker.
    pub(super) fn done(
        &self,
        outcome: Answer,
        answers: Vec<Value>,
    ) -> Result<Option<Reply>, Failure> {
        let mut refused = None;
        let mut end = Value::Nil;
        for answer in answers {
            match answer.extract_error() {
                Ok(answer) => end = answer,
                // The first says why; EXEC only that it has done nothing.
                Err(error) => {
                    refused.get_or_insert_with(|| failure::of_calling(&error));
                }
            }
        }
        let reply = outcome?;
        match (refused, end, reply) {
            // A server short of memory keeps a higher count; nobody but its owner goes by that, who will take it all.
            (Some(refused), _, Reply::Kept) if refused.cause == Cause::OutOfMemory => {
                Ok(Some(Reply::Kept))
            }
            (Some(refused), _, _) => Err(refused),
            (None, Value::Array(done), reply) => {
                let told = self.publish.and_then(|place| done.into_iter().nth(place));
                let told = told.and_then(|told| redis::from_redis_value(told).ok());
                Ok(Some(match (reply, told) {
                    (Reply::Released { .. }, Some(listeners)) => Reply::Released { listeners },
                    (reply, _) => reply,
                }))
            }
            (None, Value::Nil, _) => Ok(None),
            (None, other, _) => {
                let what = format!("unexpected {other:?}");
                Err(Failure::new(Cause::Unexpected, what))
            }
        }
    }

    fn add(&mut self, word: &str, args: impl FnOnce(&mut Cmd) -> &mut Cmd) {
        let cmd = cmd(word, &self.lock, args);
        self.inside.push(cmd);
    }
}

fn cmd(word: &str, key: &str, args: impl FnOnce(&mut Cmd) -> &mut Cmd) -> Cmd {
    let mut cmd = redis::cmd(word);
    cmd.arg(key);
    args(&mut cmd);
    cmd
}
