//! The read/write lock: its actions as script calls, and what comes back as replies.
//!
//! The scripts are files of their own, each headed by its keys, arguments and results; the numbers here are explained
//! there. A reader and a writer have their own.

use std::borrow::Cow;
use std::sync::LazyLock;

use redis::Value;

use super::answers::{held_or_not, remaining, renewal, unexpected};
use super::words::Words;
use super::{Place, Primitive, Script, inspect, write_twin};
use crate::engine::Failure;
use crate::engine::redis::keys::{Key, Keys};
use crate::protocol::marks::MARK_TTL;
use crate::protocol::{Action, Entry, Kind, OwnerId, Reply, Request};

/// A script for each action on one side of the lock.
pub(super) struct Scripts {
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
                include_str!("../lua/format/twin.lua"),
                include_str!("../lua/format/owner.lua"),
                include_str!("../lua/format/read_write.lua"),
                include_str!("../lua/rw/holds.lua"),
                include_str!(concat!("../lua/rw/", $file, ".lua"))
            );
            Script::new(Cow::Borrowed(text))
        })
    };
}

pub(super) static READ: Scripts = Scripts {
    acquire: script!("read"),
    release: script!("release_read"),
    renew: script!("renew_read"),
    undo: script!("undo_read"),
    writes: false,
};
pub(super) static WRITER: Scripts = Scripts {
    acquire: script!("write"),
    release: script!("release_write"),
    renew: script!("renew_write"),
    undo: script!("undo_write"),
    writes: true,
};
static FORCE_RELEASE: LazyLock<Script> = script!("force_release");

impl Primitive for Scripts {
    fn script(&'static self, action: &Action) -> &'static Script {
        match action {
            Action::Acquire { .. } => &self.acquire,
            Action::ForceRelease => &FORCE_RELEASE,
            // Of no lock are there many: whoever asks learns that.
            Action::Alter { .. } | Action::Count(_) | Action::Inspect => &inspect::SCRIPT,
            // It is never passed: whoever asks first gets it.
            Action::Pass { .. } | Action::Release { .. } => &self.release,
            Action::Renew { .. } => &self.renew,
            Action::Undo { .. } => &self.undo,
        }
    }

    fn args(&self, request: &Request, keys: &Keys, words: &mut Words) {
        // An argument, not a key: it is published to, never stored, and in a cluster has no slot.
        let channel = request.subject.channel();
        let channel = keys.channel(&channel);
        let base = keys.base(&request.subject.name);
        match &request.action {
            Action::Acquire {
                owner,
                entry,
                lease,
                waits,
                beside,
                past,
                ..
            } => {
                words.owner(owner);
                words.number(entry.attempt());
                words.number(match *entry {
                    Entry::First => 1,
                    Entry::Again { count, .. } => count,
                });
                words.millis(*lease);
                words.text(&base);
                match beside {
                    Some(owner) => words.owner(owner),
                    None => words.nothing(),
                }
                if self.writes {
                    words.millis(waits.unwrap_or_default());
                } else {
                    words.number(u32::from(*past));
                }
                write_twin(request, keys, words);
            }
            Action::ForceRelease => {
                words.text(&channel);
                words.text(&base);
            }
            Action::Alter { .. } | Action::Count(_) | Action::Inspect => {
                inspect::args(request, keys, inspect::WHOLE, words);
            }
            Action::Pass { from, .. } => release(from, 0, &channel, &base, words),
            Action::Release { owner, left } => release(owner, *left, &channel, &base, words),
            Action::Renew { owner, lease } => {
                words.owner(owner);
                words.millis(*lease);
                if !self.writes {
                    words.text(&base);
                }
            }
            Action::Undo { owner, entry } => {
                words.owner(owner);
                words.number(entry.attempt());
                words.number(match *entry {
                    Entry::First => 0,
                    Entry::Again { count, .. } => count,
                });
                words.millis(MARK_TTL);
                words.text(&channel);
                words.text(&base);
            }
        }
    }

    fn places(&self, action: &Action) -> &'static [Place] {
        match action {
            Action::Acquire { .. } => &[Place::Lock, Place::Undone, Place::Writers],
            Action::Undo { .. } if self.writes => &[Place::Lock, Place::Undone, Place::Writers],
            Action::Undo { .. } => &[Place::Lock, Place::Undone],
            Action::Alter { .. } | Action::Count(_) | Action::Inspect => inspect::PLACES,
            Action::Pass { .. } | Action::Release { .. } if self.writes => {
                &[Place::Lock, Place::Writers]
            }
            Action::ForceRelease
            | Action::Pass { .. }
            | Action::Release { .. }
            | Action::Renew { .. } => &[Place::Lock],
        }
    }

    fn reply(&self, action: &Action, result: Value) -> Result<Reply, Failure> {
        match (action, result) {
            (Action::Acquire { .. }, Value::Int(code)) => match code {
                -3 => Ok(Reply::Granted { token: None }),
                -4 => Ok(Reply::Undone),
                -5 => Ok(Reply::Gone),
                ttl => Ok(Reply::Busy {
                    ttl: remaining(ttl),
                }),
            },
            (Action::Alter { .. }, _) => Ok(Reply::NO_NUMBER),
            (Action::Count(_), _) => Ok(Reply::NO_PERMITS),
            (Action::ForceRelease, Value::Int(taken)) => Ok(Reply::Forced(taken == 1)),
            (Action::Inspect, answer) => inspect::Inspection::read(answer)?.reply_as(Kind::Write),
            (Action::Renew { .. }, Value::Array(mut answers)) if answers.len() == 1 => {
                renewal(answers.remove(0))
            }
            (
                Action::Release { .. } | Action::Pass { .. } | Action::Undo { .. },
                Value::Int(code),
            ) => Ok(held_or_not(code)),
            (_, other) => Err(unexpected(&other)),
        }
    }
}

fn release(owner: &OwnerId, left: u32, channel: &Key<'_>, base: &Key<'_>, words: &mut Words) {
    words.owner(owner);
    words.number(left);
    words.text(channel);
    words.text(base);
}
