//! The read/write lock: its actions as script calls, and the results as replies.
//!
//! The scripts are files of their own, separate for readers and writers. The head of each explains its keys, arguments and
//! results, and the numbers used here.

use std::borrow::Cow;
use std::sync::LazyLock;

use redis::Value;

use super::arg_writer::ArgWriter;
use super::replies::{GRANTED, NO_HOLD, UNDONE, release_reply, remaining, renewal, unexpected};
use super::{KeyRole, KindScripts, Script, inspect, write_alias};
use crate::engine::StoreError;
use crate::engine::redis::keys::{Key, Keys};
use crate::protocol::tombstones::TOMBSTONE_TTL;
use crate::protocol::{Action, Entry, Kind, OwnerId, Reply, Request};

/// The script for each action on one side of the lock.
pub(super) struct ReadWriteScripts {
    acquire: LazyLock<Script>,
    release: LazyLock<Script>,
    renew: LazyLock<Script>,
    undo: LazyLock<Script>,
    writes: bool,
}

macro_rules! script {
    ($file:literal) => {
        LazyLock::new(|| {
            let text = concat!(
                include_str!("../lua/format/alias.lua"),
                include_str!("../lua/format/owner.lua"),
                include_str!("../lua/format/read_write.lua"),
                include_str!("../lua/rw/holds.lua"),
                include_str!(concat!("../lua/rw/", $file, ".lua"))
            );
            Script::new(Cow::Borrowed(text))
        })
    };
}

pub(super) static READ: ReadWriteScripts = ReadWriteScripts {
    acquire: script!("read"),
    release: script!("release_read"),
    renew: script!("renew_read"),
    undo: script!("undo_read"),
    writes: false,
};
pub(super) static WRITER: ReadWriteScripts = ReadWriteScripts {
    acquire: script!("write"),
    release: script!("release_write"),
    renew: script!("renew_write"),
    undo: script!("undo_write"),
    writes: true,
};
static FORCE_RELEASE: LazyLock<Script> = script!("force_release");

impl KindScripts for ReadWriteScripts {
    fn script(&'static self, action: &Action) -> &'static Script {
        match action {
            Action::Acquire { .. } => &self.acquire,
            Action::ForceRelease => &FORCE_RELEASE,
            // A lock has neither a count nor permits: the reply says so.
            Action::CounterOp { .. } | Action::SemaphoreOp(_) | Action::Inspect => &inspect::SCRIPT,
            // A read/write lock is never transferred: the first request after the release acquires it.
            Action::Transfer { .. } | Action::Release { .. } => &self.release,
            Action::Renew { .. } => &self.renew,
            Action::Undo { .. } => &self.undo,
        }
    }

    fn args(&self, request: &Request, keys: &Keys, args: &mut ArgWriter) {
        // The channel is an argument, not a key: it is published to and never stored, and has no slot in a cluster.
        let channel = request.subject.channel();
        let channel = keys.channel(&channel);
        let reader_timeout_prefix = keys.reader_timeout_prefix(&request.subject.name);
        match &request.action {
            Action::Acquire {
                owner,
                entry,
                lease,
                waiter_ttl,
                other_side,
                bypass_writers,
                ..
            } => {
                args.owner(owner);
                args.number(entry.attempt());
                args.number(match *entry {
                    Entry::Fresh => 1,
                    Entry::Reentry { count, .. } => count,
                });
                args.millis(*lease);
                args.text(&reader_timeout_prefix);
                match other_side {
                    Some(owner) => args.owner(owner),
                    None => args.empty(),
                }
                if self.writes {
                    args.millis(waiter_ttl.unwrap_or_default());
                } else {
                    args.number(u32::from(*bypass_writers));
                }
                write_alias(request, keys, args);
            }
            Action::ForceRelease => {
                args.text(&channel);
                args.text(&reader_timeout_prefix);
            }
            Action::CounterOp { .. } | Action::SemaphoreOp(_) | Action::Inspect => {
                inspect::args(request, keys, inspect::WHOLE, args);
            }
            Action::Transfer { from, .. } => {
                release(from, 0, &channel, &reader_timeout_prefix, args)
            }
            Action::Release { owner, left } => {
                release(owner, *left, &channel, &reader_timeout_prefix, args)
            }
            Action::Renew { owner, lease } => {
                args.owner(owner);
                args.millis(*lease);
                if !self.writes {
                    args.text(&reader_timeout_prefix);
                }
            }
            Action::Undo { owner, entry } => {
                args.owner(owner);
                args.number(entry.attempt());
                args.number(match *entry {
                    Entry::Fresh => 0,
                    Entry::Reentry { count, .. } => count,
                });
                args.millis(TOMBSTONE_TTL);
                args.text(&channel);
                args.text(&reader_timeout_prefix);
            }
        }
    }

    fn key_roles(&self, action: &Action) -> &'static [KeyRole] {
        match action {
            Action::Acquire { .. } => &[KeyRole::Lock, KeyRole::Tombstones, KeyRole::Writers],
            Action::Undo { .. } if self.writes => {
                &[KeyRole::Lock, KeyRole::Tombstones, KeyRole::Writers]
            }
            Action::Undo { .. } => &[KeyRole::Lock, KeyRole::Tombstones],
            Action::CounterOp { .. } | Action::SemaphoreOp(_) | Action::Inspect => {
                inspect::KEY_ROLES
            }
            Action::Transfer { .. } | Action::Release { .. } if self.writes => {
                &[KeyRole::Lock, KeyRole::Writers]
            }
            Action::ForceRelease
            | Action::Transfer { .. }
            | Action::Release { .. }
            | Action::Renew { .. } => &[KeyRole::Lock],
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
            (Action::SemaphoreOp(_), _) => Ok(Reply::NOT_A_SEMAPHORE),
            (Action::ForceRelease, Value::Int(taken)) => Ok(Reply::Forced(taken == 1)),
            (Action::Inspect, value) => inspect::Inspection::read(value)?.reply_as(Kind::Write),
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

fn release(
    owner: &OwnerId,
    left: u32,
    channel: &Key<'_>,
    reader_timeout_prefix: &Key<'_>,
    args: &mut ArgWriter,
) {
    args.owner(owner);
    args.number(left);
    args.text(channel);
    args.text(reader_timeout_prefix);
}
