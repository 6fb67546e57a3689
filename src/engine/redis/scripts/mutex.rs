//! The plain lock: its actions as script calls, and what comes back as replies.
//!
//! The scripts are files of their own, each headed by its keys, arguments and results; the numbers here
//! are explained there.

use std::borrow::Cow;
use std::sync::LazyLock;
use std::time::Duration;

use redis::Value;

use super::{Call, Script};
use crate::engine::redis::failure;
use crate::engine::redis::keys::Keys;
use crate::engine::{Cause, Failure};
use crate::protocol::state::MARK_TTL;
use crate::protocol::{Action, Entry, Holding, Reply, Request, Subject};

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
pub(super) const TRAVELLERS: [(&LazyLock<Script>, usize, usize); 3] =
    [(&ACQUIRE, 2, 4), (&RELEASE, 1, 3), (&PASS, 2, 5)];

/// Whether this script takes a lock and frees none.
pub(super) fn takes(script: &Script) -> bool {
    std::ptr::eq(script, &*ACQUIRE)
}

/// The call that carries out one action.
pub(crate) fn call(subject: &Subject, action: &Action, keys: &Keys) -> Call {
    let lock = keys.lock(&subject.name);
    // An argument, not a key: it is published to, never stored, and in a cluster has no slot.
    let channel = || keys.channel(&subject.channel());
    let undone = || keys.undone(&subject.name);
    match action {
        Action::Acquire {
            owner,
            entry,
            lease,
        } => {
            let count = match *entry {
                Entry::First => 1,
                Entry::Again { count, .. } => count,
            };
            Call {
                script: &ACQUIRE,
                keys: vec![lock, undone()],
                args: vec![
                    owner.to_string(),
                    entry.attempt().to_string(),
                    count.to_string(),
                    millis(*lease),
                ],
            }
        }
        Action::ForceRelease => Call {
            script: &FORCE_RELEASE,
            keys: vec![lock],
            args: vec![channel()],
        },
        Action::Inspect => Call {
            script: &INSPECT,
            keys: vec![lock],
            args: Vec::new(),
        },
        Action::Pass {
            from,
            to,
            lease,
            own_listeners,
        } => Call {
            script: &PASS,
            keys: vec![lock, undone()],
            args: vec![
                from.to_string(),
                to.to_string(),
                millis(*lease),
                own_listeners.to_string(),
                channel(),
            ],
        },
        Action::Release { owner, left } => Call {
            script: &RELEASE,
            keys: vec![lock],
            args: vec![owner.to_string(), left.to_string(), channel()],
        },
        Action::Renew { owner, lease } => Call {
            script: &RENEW,
            keys: vec![lock],
            args: vec![owner.to_string(), millis(*lease)],
        },
        Action::Undo { owner, entry } => {
            let left = match *entry {
                Entry::First => 0,
                Entry::Again { count, .. } => count,
            };
            Call {
                script: &UNDO,
                keys: vec![lock, undone()],
                args: vec![
                    owner.to_string(),
                    entry.attempt().to_string(),
                    left.to_string(),
                    millis(MARK_TTL),
                    channel(),
                ],
            }
        }
    }
}

/// The call that renews many holds at once. Whoever asks has seen that they are renewals.
pub(crate) fn renew_all(requests: &[Request], keys: &Keys) -> Call {
    let mut locks = Vec::with_capacity(requests.len());
    let mut args = Vec::with_capacity(2 * requests.len());
    for request in requests {
        if let Action::Renew { owner, lease } = &request.action {
            locks.push(keys.lock(&request.subject.name));
            args.push(owner.to_string());
            args.push(millis(*lease));
        }
    }
    Call {
        script: &RENEW,
        keys: locks,
        args,
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

fn millis(time: Duration) -> String {
    time.as_millis().to_string()
}

fn unexpected(what: &impl std::fmt::Debug) -> Failure {
    Failure::new(Cause::Unexpected, format!("unexpected answer {what:?}"))
}
