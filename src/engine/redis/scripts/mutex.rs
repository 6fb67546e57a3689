//! The plain lock: its actions as script calls, and what comes back as replies.
//!
//! The scripts are files of their own, each headed by its keys, arguments and results; the numbers here
//! are explained there.

use std::borrow::Cow;
use std::sync::LazyLock;
use std::time::Duration;

use redis::Value;

use super::batch::Passenger;
use super::words::Words;
use super::{Place, Script};
use crate::engine::redis::failure;
use crate::engine::redis::keys::Keys;
use crate::engine::{Cause, Failure};
use crate::protocol::state::MARK_TTL;
use crate::protocol::{Action, Entry, Holding, Reply, Request};

macro_rules! scripts {
    ($($name:ident = $file:literal;)*) => {
        $(static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(Cow::Borrowed(include_str!(concat!("../lua/mutex/", $file)))));)*
    };
}

scripts! {
    ACQUIRE = "acquire.lua";
    FORCE_RELEASE = "force_release.lua";
    INSPECT = "inspect.lua";
    PASS = "pass.lua";
    RELEASE = "release.lua";
    RENEW = "renew.lua";
    UNDO = "undo.lua";
}

/// What one waits for; the rest is rare, or goes its own way.
pub(super) const PASSENGERS: [Passenger; 5] = [
    Passenger {
        script: &ACQUIRE,
        keys: 2,
        args: &[None, Some("1"), Some("1"), None],
    },
    Passenger {
        script: &RELEASE,
        keys: 1,
        args: &[None, Some("0"), None],
    },
    Passenger {
        script: &PASS,
        keys: 2,
        args: &[None; 5],
    },
    Passenger {
        script: &ACQUIRE,
        keys: 2,
        args: &[None; 4],
    },
    Passenger {
        script: &RELEASE,
        keys: 1,
        args: &[None; 3],
    },
];

/// Its place among the [`PASSENGERS`].
pub(super) const fn passenger(action: &Action) -> Option<usize> {
    match action {
        Action::Acquire {
            entry: Entry::First,
            ..
        } => Some(0),
        Action::Release { left: 0, .. } => Some(1),
        Action::Pass { .. } => Some(2),
        Action::Acquire { .. } => Some(3),
        Action::Release { .. } => Some(4),
        Action::ForceRelease | Action::Inspect | Action::Renew { .. } | Action::Undo { .. } => None,
    }
}

/// The script that carries out one action.
pub(super) fn script(action: &Action) -> &'static Script {
    match action {
        Action::Acquire { .. } => &ACQUIRE,
        Action::ForceRelease => &FORCE_RELEASE,
        Action::Inspect => &INSPECT,
        Action::Pass { .. } => &PASS,
        Action::Release { .. } => &RELEASE,
        Action::Renew { .. } => &RENEW,
        Action::Undo { .. } => &UNDO,
    }
}

/// The script that renews many holds at once: the same.
pub(super) fn renewals() -> &'static Script {
    &RENEW
}

/// The keys of that script.
pub(super) const fn places(action: &Action) -> &'static [Place] {
    match action {
        Action::Acquire { .. } | Action::Pass { .. } | Action::Undo { .. } => {
            &[Place::Lock, Place::Undone]
        }
        Action::ForceRelease | Action::Inspect | Action::Release { .. } | Action::Renew { .. } => {
            &[Place::Lock]
        }
    }
}

/// The arguments of that script.
pub(super) fn args(request: &Request, keys: &Keys, words: &mut Words) {
    // An argument, not a key: it is published to, never stored, and in a cluster has no slot.
    let channel = request.subject.channel();
    let channel = keys.channel(&channel);
    match &request.action {
        Action::Acquire {
            owner,
            entry,
            lease,
        } => {
            words.owner(owner);
            words.number(entry.attempt());
            words.number(match *entry {
                Entry::First => 1,
                Entry::Again { count, .. } => count,
            });
            words.millis(*lease);
        }
        Action::ForceRelease => words.text(&channel),
        Action::Inspect => {}
        Action::Pass {
            from,
            to,
            lease,
            own_listeners,
        } => {
            words.owner(from);
            words.owner(to);
            words.millis(*lease);
            words.number(*own_listeners);
            words.text(&channel);
        }
        Action::Release { owner, left } => {
            words.owner(owner);
            words.number(*left);
            words.text(&channel);
        }
        Action::Renew { owner, lease } => {
            words.owner(owner);
            words.millis(*lease);
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
        }
    }
}

/// What a script's result means for this action.
pub(crate) fn reply(action: &Action, result: Value) -> Result<Reply, Failure> {
    match (action, result) {
        (Action::Acquire { .. }, Value::Int(code)) => match code {
            -3 => Ok(Reply::Granted),
            -4 => Ok(Reply::Undone),
            -5 => Ok(Reply::Gone),
            ttl => Ok(Reply::Busy {
                ttl: remaining(ttl),
            }),
        },
        (Action::ForceRelease, Value::Int(taken)) => Ok(Reply::Forced(taken == 1)),
        (Action::Inspect, Value::Array(answer)) => inspected(answer),
        (Action::Pass { .. }, Value::Int(-3)) => Ok(Reply::Granted),
        (Action::Renew { .. }, Value::Array(mut answers)) if answers.len() == 1 => {
            renewal(answers.remove(0))
        }
        (Action::Release { .. } | Action::Pass { .. } | Action::Undo { .. }, Value::Int(code)) => {
            match code {
                -6 => Ok(Reply::Marked),
                -3 => Ok(Reply::Kept),
                -2 => Ok(Reply::Taken),
                -1 => Ok(Reply::Gone),
                listeners => Ok(Reply::Released {
                    listeners: u32::try_from(listeners).unwrap_or(0),
                }),
            }
        }
        (_, other) => Err(unexpected(&other)),
    }
}

/// What one line of a renewal's result means.
pub(crate) fn renewal(answer: Value) -> Result<Reply, Failure> {
    match answer {
        Value::Int(1) => Ok(Reply::Renewed),
        Value::Int(-1) => Ok(Reply::Gone),
        Value::Int(-2) => Ok(Reply::Taken),
        Value::BulkString(error) => Err(failure::from_text(&String::from_utf8_lossy(&error))),
        other => Err(unexpected(&other)),
    }
}

fn inspected(answer: Vec<Value>) -> Result<Reply, Failure> {
    let mut answer = answer.into_iter();
    let ttl = match answer.next() {
        Some(Value::Int(ttl)) => ttl,
        other => return Err(unexpected(&other.unwrap_or(Value::Nil))),
    };
    let mut owners = Vec::new();
    while let (Some(owner), Some(count)) = (answer.next(), answer.next()) {
        let owner: String = redis::from_redis_value(owner).map_err(|e| unexpected(&e))?;
        let count: String = redis::from_redis_value(count).map_err(|e| unexpected(&e))?;
        // Fields of other primitives (a read/write lock's `mode`), or of none, are no owners.
        let client = owner.split(':').next().unwrap_or_default();
        let is_owner = uuid::Uuid::try_parse(client).is_ok();
        if let Ok(count) = count.parse()
            && is_owner
        {
            owners.push((owner, count));
        }
    }
    if ttl == -2 {
        return Ok(Reply::Inspected(None));
    }
    if owners.is_empty() {
        return Err(Failure::new(Cause::WrongKind, "a hash that is no lock"));
    }
    Ok(Reply::Inspected(Some(Holding {
        owners,
        ttl: remaining(ttl),
    })))
}

fn remaining(ttl: i64) -> Option<Duration> {
    u64::try_from(ttl).ok().map(Duration::from_millis)
}

fn unexpected(what: &impl std::fmt::Debug) -> Failure {
    Failure::new(Cause::Unexpected, format!("unexpected answer {what:?}"))
}
