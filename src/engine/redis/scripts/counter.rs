//! Counters without an owner, the latch and the counting semaphore: their actions as script calls, and the results as replies.
//!
//! The scripts are files of their own. The head of each explains its keys, arguments and results, and the numbers used here.

use std::borrow::Cow;
use std::sync::LazyLock;

use redis::Value;

use super::arg_writer::ArgWriter;
use super::replies::{GONE, GRANTED, UNDONE, release_reply, unexpected};
use super::{KeyRole, KindScripts, Script, write_alias};
use crate::engine::StoreError;
use crate::engine::redis::keys::Keys;
use crate::protocol::tombstones::TOMBSTONE_TTL;
use crate::protocol::{Action, CounterOp, IdempotencyKey, LockSnapshot, Permits, Reply, Request};

/// The script for each action.
pub(super) struct CounterScripts {
    alter: LazyLock<Script>,
    read: LazyLock<Script>,
    release: LazyLock<Script>,
    take: LazyLock<Script>,
    undo: LazyLock<Script>,
}

macro_rules! script {
    ($($file:literal),+) => {
        LazyLock::new(|| {
            let text = concat!(
                include_str!("../lua/format/number.lua"),
                include_str!("../lua/number/dedup.lua"),
                $(include_str!(concat!("../lua/", $file, ".lua"))),+
            );
            Script::new(Cow::Borrowed(text))
        })
    };
}

pub(super) static LATCH: CounterScripts = CounterScripts {
    alter: script!("latch/alter"),
    read: script!("number/read"),
    // No client holds any part of a latch.
    release: script!("number/read"),
    take: script!("number/read"),
    undo: script!("number/undo"),
};

pub(super) static COUNTING: CounterScripts = CounterScripts {
    alter: script!("format/alias", "counting/alter"),
    read: script!("number/read"),
    release: script!("semaphore/queue", "counting/release"),
    take: script!("format/alias", "semaphore/queue", "counting/take"),
    undo: script!("number/undo"),
};

impl KindScripts for CounterScripts {
    fn script(&'static self, action: &Action) -> &'static Script {
        match action {
            Action::CounterOp {
                change: CounterOp::Take { .. },
                ..
            } => &self.take,
            Action::CounterOp { .. } => &self.alter,
            Action::Release { .. } => &self.release,
            Action::Undo { .. } => &self.undo,
            Action::Acquire { .. }
            | Action::SemaphoreOp(_)
            | Action::ForceRelease
            | Action::Inspect
            | Action::Transfer { .. }
            | Action::Renew { .. } => &self.read,
        }
    }

    fn args(&self, request: &Request, keys: &Keys, args: &mut ArgWriter) {
        // The channel is an argument, not a key: it is published to and never stored, and has no slot in a cluster. Redisson
        // passes the channel of a latch as a key, which is in another slot if the name has braces.
        let channel = request.subject.channel();
        let channel = keys.channel(&channel);
        match &request.action {
            Action::CounterOp {
                key: IdempotencyKey { id, acked_below },
                change,
            } => {
                args.number(id.number());
                args.number(*acked_below);
                args.millis(TOMBSTONE_TTL);
                args.text(&channel);
                alter(change, args);
                write_alias(request, keys, args);
            }
            Action::Release { owner, left } => {
                args.number(owner.number());
                args.owner(owner);
                args.number(*left);
                args.text(&channel);
            }
            Action::Undo { owner, .. } => {
                args.number(owner.number());
                args.millis(TOMBSTONE_TTL);
                args.text(&channel);
            }
            Action::Acquire { .. }
            | Action::SemaphoreOp(_)
            | Action::ForceRelease
            | Action::Inspect
            | Action::Transfer { .. }
            | Action::Renew { .. } => {}
        }
    }

    fn key_roles(&self, action: &Action) -> &'static [KeyRole] {
        match action {
            Action::CounterOp {
                change: CounterOp::Take { .. },
                ..
            }
            | Action::Release { .. } => &[
                KeyRole::Lock,
                KeyRole::Dedup,
                KeyRole::SemaphoreQueue,
                KeyRole::Alive,
            ],
            Action::CounterOp { .. } | Action::Undo { .. } => &[KeyRole::Lock, KeyRole::Dedup],
            Action::Acquire { .. }
            | Action::SemaphoreOp(_)
            | Action::ForceRelease
            | Action::Inspect
            | Action::Transfer { .. }
            | Action::Renew { .. } => &[KeyRole::Lock],
        }
    }

    fn reply(&self, action: &Action, result: Value) -> Result<Reply, StoreError> {
        match (action, result) {
            (Action::CounterOp { .. }, Value::Int(code)) => match code {
                GONE => Ok(Reply::Busy { ttl: None }),
                GRANTED => Ok(Reply::Granted { token: None }),
                UNDONE => Ok(Reply::Undone),
                other => Err(unexpected(&other)),
            },
            (Action::CounterOp { .. }, numbers @ Value::Array(_)) => {
                let numbers = redis::from_redis_value::<(Option<i64>, Option<i64>)>(numbers);
                let (before, after) = numbers.map_err(|error| unexpected(&error))?;
                Ok(Reply::Altered { before, after })
            }
            (Action::SemaphoreOp(_), value) => {
                let available: Option<i64> =
                    redis::from_redis_value(value).map_err(|error| unexpected(&error))?;
                Ok(Reply::Counted {
                    done: false,
                    permits: available.map(|available| Permits { available, out: 0 }),
                })
            }
            (Action::ForceRelease, _) => Ok(Reply::Forced(false)),
            (Action::Inspect, Value::Nil) => Ok(Reply::Inspected(None)),
            (Action::Inspect, _) => Ok(Reply::Inspected(Some(LockSnapshot::OWNERLESS))),
            (Action::Release { .. } | Action::Undo { .. }, Value::Int(code)) => {
                Ok(release_reply(code))
            }
            (Action::Acquire { .. } | Action::Transfer { .. } | Action::Renew { .. }, _) => {
                Ok(Reply::Gone)
            }
            (_, other) => Err(unexpected(&other)),
        }
    }
}

fn alter(change: &CounterOp, args: &mut ArgWriter) {
    let (word, amount) = match change {
        CounterOp::Add(amount) => (&b"add"[..], *amount),
        CounterOp::CountDown => (&b"down"[..], 0),
        CounterOp::Drain => (&b"drain"[..], 0),
        CounterOp::Delete => (&b"forget"[..], 0),
        CounterOp::Set(amount) => (&b"set"[..], *amount),
        CounterOp::SetOnce(amount) => (&b"once"[..], *amount),
        CounterOp::Take {
            queue_owner,
            count,
            waiter_ttl,
        } => {
            args.owner(queue_owner);
            args.number(*count);
            return args.millis(waiter_ttl.unwrap_or_default());
        }
    };
    args.bytes(word);
    args.number(amount);
}
