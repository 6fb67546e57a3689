//! The semaphore with leased permits: its actions as script calls, and the results as replies.
//!
//! The scripts are files of their own. The head of each explains its keys, arguments and results, and the numbers used here.

use std::borrow::Cow;
use std::sync::LazyLock;

use redis::Value;

use super::arg_writer::ArgWriter;
use super::replies::{GRANTED, NO_HOLD, UNDONE, release_reply, remaining, renewal, unexpected};
use super::{KeyRole, KindScripts, Script, inspect, write_alias};
use crate::engine::StoreError;
use crate::engine::redis::keys::Keys;
use crate::protocol::permit::{owner_prefix, permit_count};
use crate::protocol::tombstones::TOMBSTONE_TTL;
use crate::protocol::{Action, Kind, OwnerId, Permits, Reply, Request, SemaphoreOp};

/// The script for each action.
pub(super) struct SemaphoreScripts {
    acquire: LazyLock<Script>,
    count: LazyLock<Script>,
    force_release: LazyLock<Script>,
    read: LazyLock<Script>,
    release: LazyLock<Script>,
    renew: LazyLock<Script>,
    undo: LazyLock<Script>,
}

macro_rules! script {
    ($file:literal) => {
        LazyLock::new(|| {
            let text = concat!(
                include_str!("../lua/format/alias.lua"),
                include_str!("../lua/format/number.lua"),
                include_str!("../lua/format/permits.lua"),
                include_str!("../lua/semaphore/queue.lua"),
                include_str!("../lua/semaphore/permits.lua"),
                include_str!(concat!("../lua/semaphore/", $file, ".lua"))
            );
            Script::new(Cow::Borrowed(text))
        })
    };
}

pub(super) static SEMAPHORE: SemaphoreScripts = SemaphoreScripts {
    acquire: script!("acquire"),
    count: script!("count"),
    force_release: script!("force_release"),
    read: script!("read"),
    release: script!("release"),
    renew: script!("renew"),
    undo: script!("undo"),
};

impl KindScripts for SemaphoreScripts {
    fn script(&'static self, action: &Action) -> &'static Script {
        match action {
            Action::Acquire { .. } => &self.acquire,
            Action::SemaphoreOp(SemaphoreOp::Get) => &self.read,
            Action::SemaphoreOp(_) => &self.count,
            Action::ForceRelease => &self.force_release,
            Action::CounterOp { .. } | Action::Inspect => &inspect::SCRIPT,
            // A permit is never transferred: the first request after the release acquires it.
            Action::Transfer { .. } | Action::Release { .. } => &self.release,
            Action::Renew { .. } => &self.renew,
            Action::Undo { .. } => &self.undo,
        }
    }

    fn args(&self, request: &Request, keys: &Keys, args: &mut ArgWriter) {
        // The channel is an argument, not a key: it is published to and never stored, and has no slot in a cluster.
        let channel = request.subject.channel();
        let channel = keys.channel(&channel);
        match &request.action {
            Action::Acquire {
                owner,
                entry,
                lease,
                waiter_ttl,
                permits,
                ..
            } => {
                args.owner(owner);
                args.number(entry.attempt());
                args.bytes(&owner_prefix(*owner));
                args.number(permits.count);
                args.millis(*lease);
                args.millis(waiter_ttl.unwrap_or_default());
                args.text(&channel);
                match permits.of {
                    Some(of) => args.number(of),
                    None => args.empty(),
                }
                write_alias(request, keys, args);
            }
            Action::SemaphoreOp(count) => {
                match count {
                    SemaphoreOp::Get => {
                        write_alias(request, keys, args);
                        return;
                    }
                    SemaphoreOp::Delete => {
                        args.bytes(b"forget");
                        args.empty();
                    }
                    SemaphoreOp::SetOnce(to) => {
                        args.bytes(b"once");
                        args.number(*to);
                    }
                    SemaphoreOp::Set(to) => {
                        args.bytes(b"set");
                        args.number(*to);
                    }
                    SemaphoreOp::Return(permit) => {
                        args.bytes(b"return");
                        args.bytes(permit.bytes());
                    }
                }
                args.text(&channel);
                write_alias(request, keys, args);
            }
            Action::ForceRelease => {
                args.text(&channel);
                write_alias(request, keys, args);
            }
            Action::CounterOp { .. } | Action::Inspect => {
                inspect::args(request, keys, inspect::WHOLE, args);
            }
            Action::Transfer { from, .. } => {
                release(from, 0, args);
                args.text(&channel);
                args.number(permit_count(*from));
                write_alias(request, keys, args);
            }
            Action::Release { owner, left } => {
                release(owner, *left, args);
                args.text(&channel);
                args.number(permit_count(*owner));
                write_alias(request, keys, args);
            }
            Action::Renew { owner, lease } => {
                args.owner(owner);
                args.bytes(&owner_prefix(*owner));
                args.number(permit_count(*owner));
                args.millis(*lease);
                args.text(&channel);
                write_alias(request, keys, args);
            }
            Action::Undo { owner, entry } => {
                args.owner(owner);
                args.number(entry.attempt());
                args.bytes(&owner_prefix(*owner));
                args.millis(TOMBSTONE_TTL);
                args.text(&channel);
                args.number(permit_count(*owner));
                write_alias(request, keys, args);
            }
        }
    }

    fn key_roles(&self, action: &Action) -> &'static [KeyRole] {
        match action {
            Action::Acquire { .. } | Action::Undo { .. } => &[
                KeyRole::Lock,
                KeyRole::PermitTimeouts,
                KeyRole::Tombstones,
                KeyRole::SemaphoreQueue,
                KeyRole::Alive,
                KeyRole::Clients,
            ],
            Action::Transfer { .. } | Action::Release { .. } => &[
                KeyRole::Lock,
                KeyRole::PermitTimeouts,
                KeyRole::SemaphoreQueue,
                KeyRole::Alive,
                KeyRole::Clients,
            ],
            Action::CounterOp { .. } | Action::Inspect => inspect::KEY_ROLES,
            Action::Renew { .. } | Action::SemaphoreOp(_) | Action::ForceRelease => {
                &[KeyRole::Lock, KeyRole::PermitTimeouts, KeyRole::Clients]
            }
        }
    }

    fn reply(&self, action: &Action, result: Value) -> Result<Reply, StoreError> {
        match (action, result) {
            (Action::Acquire { .. }, Value::Int(code)) => match code {
                GRANTED => Ok(Reply::Granted { token: None }),
                UNDONE => Ok(Reply::Undone),
                NO_HOLD => Ok(Reply::Gone),
                ttl => Ok(Reply::Busy {
                    ttl: remaining(ttl),
                }),
            },
            (Action::CounterOp { .. }, _) => Ok(Reply::NOT_A_COUNTER),
            (Action::SemaphoreOp(_), Value::Array(values)) => counted(values),
            (Action::ForceRelease, Value::Int(taken)) => Ok(Reply::Forced(taken == 1)),
            (Action::Inspect, value) => inspect::Inspection::read(value)?.reply_as(Kind::Semaphore),
            (Action::Renew { .. }, Value::Array(mut replies)) if replies.len() == 1 => {
                renewal(replies.remove(0))
            }
            (
                Action::Release { .. } | Action::Transfer { .. } | Action::Undo { .. },
                Value::Int(code),
            ) => Ok(release_reply(code)),
            (_, other) => Err(unexpected(&other)),
        }
    }
}

fn release(owner: &OwnerId, left: u32, args: &mut ArgWriter) {
    args.owner(owner);
    args.number(left);
    args.bytes(&owner_prefix(*owner));
}

fn counted(values: Vec<Value>) -> Result<Reply, StoreError> {
    let value = Value::Array(values);
    let value = redis::from_redis_value::<(u32, Option<i64>, u64)>(value);
    let (done, available, out) = value.map_err(|e| unexpected(&e))?;
    Ok(Reply::Counted {
        done: done == 1,
        // Permits may be in use even if the number of available ones was deleted.
        permits: (available.is_some() || out > 0).then(|| Permits {
            available: available.unwrap_or_default(),
            out,
        }),
    })
}
