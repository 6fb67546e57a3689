//! Locks with one owner at a time: their actions as script calls, and the results as replies.
//!
//! The plain, the fenced and the simple lock differ only in their scripts. The scripts are files of their own; the head of each
//! explains its keys, arguments and results, and the numbers used here.

use std::borrow::Cow;
use std::sync::LazyLock;

use redis::Value;

use super::arg_writer::ArgWriter;
use super::batch::{Args, SubScript};
use super::replies::{GRANTED, NO_HOLD, UNDONE, release_reply, remaining, renewal, unexpected};
use super::{KeyRole, KindScripts, Script, inspect, write_alias};
use crate::engine::StoreError;
use crate::engine::redis::keys::Keys;
use crate::protocol::tombstones::TOMBSTONE_TTL;
use crate::protocol::{Action, Entry, FencingToken, Kind, Reply, Request};

/// The script for each action on one kind of lock.
pub(super) struct ExclusiveScripts {
    acquire: LazyLock<Script>,
    force_release: LazyLock<Script>,
    kind: Kind,
    transfer: LazyLock<Script>,
    release: LazyLock<Script>,
    renew: LazyLock<Script>,
    undo: LazyLock<Script>,
    /// Whether the lock is re-entrant in the store: it counts how often an owner holds the lock.
    is_reentrant: bool,
    /// Whether each grant has a token.
    fenced: bool,
    /// Whether waiters are in a queue in the store.
    queued: bool,
}

/// Builds the text of a script: its own file after the files that it depends on.
macro_rules! script {
    ($($file:literal)then+) => {
        LazyLock::new(|| {
            let text = concat!($(include_str!(concat!("../lua/", $file, ".lua"))),+);
            Script::new(Cow::Borrowed(text))
        })
    };
}

pub(super) static MUTEX: ExclusiveScripts = ExclusiveScripts {
    acquire: script!("format/owner" then "format/lock" then "mutex/acquire"),
    force_release: script!("format/owner" then "format/lock" then "mutex/force_release"),
    kind: Kind::Mutex,
    transfer: script!("mutex/transfer"),
    release: script!("mutex/release"),
    renew: script!("mutex/renew"),
    undo: script!("mutex/undo"),
    is_reentrant: true,
    fenced: false,
    queued: false,
};
pub(super) static SIMPLE: ExclusiveScripts = ExclusiveScripts {
    acquire: script!("format/simple" then "simple/acquire"),
    force_release: script!("format/owner" then "simple/force_release"),
    kind: Kind::Simple,
    transfer: script!("simple/transfer"),
    release: script!("simple/release"),
    renew: script!("simple/renew"),
    undo: script!("simple/undo"),
    is_reentrant: false,
    fenced: false,
    queued: false,
};
/// A fenced lock is released and renewed like a plain lock.
pub(super) static FENCED: ExclusiveScripts = ExclusiveScripts {
    acquire: script!("format/owner" then "format/lock" then "fenced/token" then "fenced/acquire"),
    kind: Kind::Fenced,
    transfer: script!("fenced/token" then "fenced/transfer"),
    force_release: script!("format/owner" then "format/lock" then "mutex/force_release"),
    release: script!("mutex/release"),
    renew: script!("mutex/renew"),
    undo: script!("mutex/undo"),
    is_reentrant: true,
    fenced: true,
    queued: false,
};
/// A fair lock is renewed like a plain lock.
pub(super) static FAIR: ExclusiveScripts = ExclusiveScripts {
    acquire: script!("format/alias" then "format/owner" then "format/lock" then "format/queue" then "fair/queue" then "fair/acquire"),
    kind: Kind::Fair,
    // A fair lock is never transferred: the first waiter in the queue acquires it.
    transfer: script!("format/owner" then "format/queue" then "fair/queue" then "fair/release"),
    force_release: script!("format/owner" then "format/lock" then "format/queue" then "fair/queue" then "fair/force_release"),
    release: script!("format/owner" then "format/queue" then "fair/queue" then "fair/release"),
    renew: script!("mutex/renew"),
    undo: script!("format/owner" then "format/queue" then "fair/queue" then "fair/undo"),
    is_reentrant: true,
    fenced: false,
    queued: true,
};

impl ExclusiveScripts {
    /// Returns the scripts that may be part of a batch: those whose reply a caller waits for. The others are rare, or are sent
    /// separately.
    pub(super) fn sub_scripts(&'static self) -> [SubScript; 5] {
        let keys = self.acquire_keys().len();
        let acquire = |args| SubScript {
            script: &self.acquire,
            keys,
            args,
        };
        let release = |args| SubScript {
            script: &self.release,
            keys: self.release_keys().len(),
            args,
        };
        let transfer = SubScript {
            script: &self.transfer,
            keys,
            args: if self.fenced { &[None; 6] } else { &[None; 5] },
        };
        let (first, again): (Args, Args) = match (self.is_reentrant, self.fenced) {
            (true, true) => (&[None, Some("1"), Some("1"), None, None], &[None; 5]),
            (true, false) => (&[None, Some("1"), Some("1"), None], &[None; 4]),
            (false, _) => (&[None, Some("1"), None], &[None; 3]),
        };
        [
            acquire(first),
            release(&[None, Some("0"), None]),
            transfer,
            acquire(again),
            release(&[None; 3]),
        ]
    }

    fn token(&self, min_token: Option<FencingToken>, args: &mut ArgWriter) {
        if self.fenced {
            args.number(min_token.map_or(0, FencingToken::number));
        }
    }

    /// Returns the keys of a script that releases the lock.
    const fn release_keys(&self) -> &'static [KeyRole] {
        if self.queued {
            return &[
                KeyRole::Lock,
                KeyRole::Queue,
                KeyRole::Timeout,
                KeyRole::Alive,
            ];
        }
        &[KeyRole::Lock]
    }

    /// Returns the keys of a script that may acquire the lock.
    const fn acquire_keys(&self) -> &'static [KeyRole] {
        if self.fenced {
            return &[KeyRole::Lock, KeyRole::Tombstones, KeyRole::Token];
        }
        if self.queued {
            return &[
                KeyRole::Lock,
                KeyRole::Tombstones,
                KeyRole::Queue,
                KeyRole::Timeout,
                KeyRole::Alive,
            ];
        }
        &[KeyRole::Lock, KeyRole::Tombstones]
    }
}

impl KindScripts for ExclusiveScripts {
    fn script(&'static self, action: &Action) -> &'static Script {
        match action {
            Action::Acquire { .. } => &self.acquire,
            Action::ForceRelease => &self.force_release,
            // A lock has neither a count nor permits: the reply says so.
            Action::CounterOp { .. } | Action::SemaphoreOp(_) | Action::Inspect => &inspect::SCRIPT,
            Action::Transfer { .. } => &self.transfer,
            Action::Release { .. } => &self.release,
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
                min_token,
                waiter_ttl,
                ..
            } => {
                args.owner(owner);
                args.number(entry.attempt());
                if self.is_reentrant {
                    args.number(match *entry {
                        Entry::Fresh => 1,
                        Entry::Reentry { count, .. } => count,
                    });
                }
                args.millis(*lease);
                self.token(*min_token, args);
                if self.queued {
                    args.millis(waiter_ttl.unwrap_or_default());
                    write_alias(request, keys, args);
                }
            }
            Action::ForceRelease => args.text(&channel),
            Action::CounterOp { .. } | Action::SemaphoreOp(_) | Action::Inspect => {
                inspect::args(request, keys, inspect::WHOLE, args);
            }
            Action::Transfer { from: owner, .. } if self.queued => {
                args.owner(owner);
                args.number(0);
                args.text(&channel);
            }
            Action::Transfer {
                from,
                to,
                lease,
                own_subscribers,
                min_token,
            } => {
                args.owner(from);
                args.owner(to);
                args.millis(*lease);
                args.number(*own_subscribers);
                args.text(&channel);
                self.token(*min_token, args);
            }
            Action::Release { owner, left } => {
                args.owner(owner);
                args.number(*left);
                args.text(&channel);
            }
            Action::Renew { owner, lease } => {
                args.owner(owner);
                args.millis(*lease);
            }
            Action::Undo { owner, entry } => {
                args.owner(owner);
                args.number(entry.attempt());
                if self.is_reentrant {
                    args.number(match *entry {
                        Entry::Fresh => 0,
                        Entry::Reentry { count, .. } => count,
                    });
                }
                args.millis(TOMBSTONE_TTL);
                args.text(&channel);
            }
        }
    }

    fn key_roles(&self, action: &Action) -> &'static [KeyRole] {
        match action {
            Action::Transfer { .. } if self.queued => self.release_keys(),
            Action::Acquire { .. } | Action::Transfer { .. } => self.acquire_keys(),
            Action::Undo { .. } if self.queued => self.acquire_keys(),
            Action::Undo { .. } => &[KeyRole::Lock, KeyRole::Tombstones],
            Action::ForceRelease | Action::Release { .. } => self.release_keys(),
            Action::Renew { .. } => &[KeyRole::Lock],
            Action::CounterOp { .. } | Action::SemaphoreOp(_) | Action::Inspect => {
                inspect::KEY_ROLES
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
            (Action::Acquire { .. } | Action::Transfer { .. }, Value::Array(token)) => {
                granted(token)
            }
            (Action::CounterOp { .. }, _) => Ok(Reply::NOT_A_COUNTER),
            (Action::SemaphoreOp(_), _) => Ok(Reply::NOT_A_SEMAPHORE),
            (Action::ForceRelease, Value::Int(taken)) => Ok(Reply::Forced(taken == 1)),
            (Action::Inspect, value) => inspect::Inspection::read(value)?.reply_as(self.kind),
            (Action::Transfer { .. }, Value::Int(GRANTED)) => Ok(Reply::Granted { token: None }),
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

/// Returns the index of an action's sub-script.
pub(super) const fn sub_script(action: &Action) -> Option<usize> {
    match action {
        Action::Acquire {
            entry: Entry::Fresh,
            ..
        } => Some(0),
        Action::Release { left: 0, .. } => Some(1),
        Action::Transfer { .. } => Some(2),
        Action::Acquire { .. } => Some(3),
        Action::Release { .. } => Some(4),
        Action::CounterOp { .. }
        | Action::SemaphoreOp(_)
        | Action::ForceRelease
        | Action::Inspect => None,
        Action::Renew { .. } | Action::Undo { .. } => None,
    }
}

/// Reads the result of a grant, which is its token alone.
fn granted(values: Vec<Value>) -> Result<Reply, StoreError> {
    let token = match values.into_iter().next() {
        Some(token) => number(token)?,
        None => None,
    };
    if token.is_none() {
        return Err(unexpected(&"a grant without a token"));
    }
    Ok(Reply::Granted { token })
}

/// Returns a token, or `None` if the text is not a number.
fn number(token: Value) -> Result<Option<FencingToken>, StoreError> {
    let token: String = redis::from_redis_value(token).map_err(|e| unexpected(&e))?;
    Ok(token.parse().ok().map(FencingToken::new))
}
