//! Locks that one owner has at a time: their actions as script calls, and what comes back as replies.
//!
//! The plain, the fenced and the simple lock differ in their scripts alone. Those are files of their own, each headed by its
//! keys, arguments and results; the numbers here are explained there.

use std::borrow::Cow;
use std::sync::LazyLock;

use redis::Value;

use super::answers::{held_or_not, remaining, renewal, text, unexpected};
use super::batch::{Args, Passenger};
use super::words::Words;
use super::{Place, Primitive, Script};
use crate::engine::redis::keys::Keys;
use crate::engine::{Cause, Failure};
use crate::protocol::marks::MARK_TTL;
use crate::protocol::{Action, Entry, FencingToken, HeldBy, Holding, Reply, Request};

/// A script for each action on one kind of lock.
pub(super) struct Scripts {
    acquire: LazyLock<Script>,
    force_release: LazyLock<Script>,
    inspect: LazyLock<Script>,
    pass: LazyLock<Script>,
    release: LazyLock<Script>,
    renew: LazyLock<Script>,
    undo: LazyLock<Script>,
    /// Whether the store counts how often an owner holds it.
    counts: bool,
    /// Whether each grant has a token.
    fenced: bool,
    /// Whether those who wait stand in a line of the store's.
    line: bool,
}

macro_rules! scripts {
    ($kind:literal, $counts:literal) => {
        Scripts {
            acquire: script!($kind, "acquire"),
            force_release: script!($kind, "force_release"),
            inspect: script!($kind, "inspect"),
            pass: script!($kind, "pass"),
            release: script!($kind, "release"),
            renew: script!($kind, "renew"),
            undo: script!($kind, "undo"),
            counts: $counts,
            fenced: false,
            line: false,
        }
    };
}

macro_rules! script {
    ($kind:literal, $($file:literal)then+) => {
        LazyLock::new(|| {
            let text = concat!($(include_str!(concat!("../lua/", $kind, "/", $file, ".lua"))),+);
            Script::new(Cow::Borrowed(text))
        })
    };
}

pub(super) static MUTEX: Scripts = scripts!("mutex", true);
pub(super) static SIMPLE: Scripts = scripts!("simple", false);
/// What is given back, or renewed, is a plain lock.
pub(super) static FENCED: Scripts = Scripts {
    acquire: script!("fenced", "token" then "acquire"),
    inspect: script!("fenced", "inspect"),
    pass: script!("fenced", "token" then "pass"),
    force_release: script!("mutex", "force_release"),
    release: script!("mutex", "release"),
    renew: script!("mutex", "renew"),
    undo: script!("mutex", "undo"),
    counts: true,
    fenced: true,
    line: false,
};
/// What is renewed is a plain lock.
pub(super) static FAIR: Scripts = Scripts {
    acquire: script!("fair", "line" then "acquire"),
    inspect: script!("fenced", "inspect"),
    // It is never passed: whoever is first in line gets it.
    pass: script!("fair", "line" then "release"),
    force_release: script!("fair", "line" then "force_release"),
    release: script!("fair", "line" then "release"),
    renew: script!("mutex", "renew"),
    undo: script!("fair", "line" then "undo"),
    counts: true,
    fenced: false,
    line: true,
};

impl Scripts {
    /// What one waits for; the rest is rare, or goes its own way.
    pub(super) fn passengers(&'static self) -> [Passenger; 5] {
        let keys = self.taken().len();
        let acquire = |args| Passenger {
            script: &self.acquire,
            keys,
            args,
        };
        let release = |args| Passenger {
            script: &self.release,
            keys: self.given().len(),
            args,
        };
        let pass = Passenger {
            script: &self.pass,
            keys,
            args: if self.fenced { &[None; 6] } else { &[None; 5] },
        };
        let (first, again): (Args, Args) = match (self.counts, self.fenced) {
            (true, true) => (&[None, Some("1"), Some("1"), None, None], &[None; 5]),
            (true, false) => (&[None, Some("1"), Some("1"), None], &[None; 4]),
            (false, _) => (&[None, Some("1"), None], &[None; 3]),
        };
        [
            acquire(first),
            release(&[None, Some("0"), None]),
            pass,
            acquire(again),
            release(&[None; 3]),
        ]
    }

    fn token(&self, seen: Option<FencingToken>, words: &mut Words) {
        if self.fenced {
            words.number(seen.map_or(0, FencingToken::number));
        }
    }

    /// The keys of a script that gives the lock back.
    const fn given(&self) -> &'static [Place] {
        if self.line {
            return &[Place::Lock, Place::Queue, Place::Timeout, Place::Alive];
        }
        &[Place::Lock]
    }

    /// The keys of a script that may take the lock.
    const fn taken(&self) -> &'static [Place] {
        if self.fenced {
            return &[Place::Lock, Place::Undone, Place::Token];
        }
        if self.line {
            return &[
                Place::Lock,
                Place::Undone,
                Place::Queue,
                Place::Timeout,
                Place::Alive,
            ];
        }
        &[Place::Lock, Place::Undone]
    }
}

impl Scripts {
    const fn looked_at(&self) -> &'static [Place] {
        if self.fenced || self.line {
            &[Place::Lock, Place::Token, Place::Queue]
        } else {
            &[Place::Lock]
        }
    }
}

impl Primitive for Scripts {
    fn script(&'static self, action: &Action) -> &'static Script {
        match action {
            Action::Acquire { .. } => &self.acquire,
            Action::ForceRelease => &self.force_release,
            // Of no lock are there many: whoever asks learns that.
            Action::Alter { .. } | Action::Count(_) | Action::Inspect => &self.inspect,
            Action::Pass { .. } => &self.pass,
            Action::Release { .. } => &self.release,
            Action::Renew { .. } => &self.renew,
            Action::Undo { .. } => &self.undo,
        }
    }

    fn args(&self, request: &Request, keys: &Keys, words: &mut Words) {
        // An argument, not a key: it is published to, never stored, and in a cluster has no slot.
        let channel = request.subject.channel();
        let channel = keys.channel(&channel);
        match &request.action {
            Action::Acquire {
                owner,
                entry,
                lease,
                seen,
                waits,
                ..
            } => {
                words.owner(owner);
                words.number(entry.attempt());
                if self.counts {
                    words.number(match *entry {
                        Entry::First => 1,
                        Entry::Again { count, .. } => count,
                    });
                }
                words.millis(*lease);
                self.token(*seen, words);
                if self.line {
                    words.millis(waits.unwrap_or_default());
                }
            }
            Action::ForceRelease => words.text(&channel),
            Action::Alter { .. } | Action::Count(_) | Action::Inspect => {}
            Action::Pass { from: owner, .. } if self.line => {
                words.owner(owner);
                words.number(0);
                words.text(&channel);
            }
            Action::Pass {
                from,
                to,
                lease,
                own_listeners,
                seen,
            } => {
                words.owner(from);
                words.owner(to);
                words.millis(*lease);
                words.number(*own_listeners);
                words.text(&channel);
                self.token(*seen, words);
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
                if self.counts {
                    words.number(match *entry {
                        Entry::First => 0,
                        Entry::Again { count, .. } => count,
                    });
                }
                words.millis(MARK_TTL);
                words.text(&channel);
            }
        }
    }

    fn places(&self, action: &Action) -> &'static [Place] {
        match action {
            Action::Pass { .. } if self.line => self.given(),
            Action::Acquire { .. } | Action::Pass { .. } => self.taken(),
            Action::Undo { .. } if self.line => self.taken(),
            Action::Undo { .. } => &[Place::Lock, Place::Undone],
            Action::ForceRelease | Action::Release { .. } => self.given(),
            Action::Renew { .. } => &[Place::Lock],
            Action::Alter { .. } | Action::Count(_) | Action::Inspect => self.looked_at(),
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
            (Action::Acquire { .. } | Action::Pass { .. }, Value::Array(token)) => granted(token),
            (Action::Alter { .. }, _) => Ok(Reply::NO_NUMBER),
            (Action::Count(_), _) => Ok(Reply::NO_PERMITS),
            (Action::ForceRelease, Value::Int(taken)) => Ok(Reply::Forced(taken == 1)),
            (Action::Inspect, Value::Array(answer)) => inspected(answer, self.fenced || self.line),
            (Action::Pass { .. }, Value::Int(-3)) => Ok(Reply::Granted { token: None }),
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

/// Its place among the passengers.
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
        Action::Alter { .. } | Action::Count(_) | Action::ForceRelease | Action::Inspect => None,
        Action::Renew { .. } | Action::Undo { .. } => None,
    }
}

/// A grant, by its token alone.
fn granted(answer: Vec<Value>) -> Result<Reply, Failure> {
    let token = match answer.into_iter().next() {
        Some(token) => number(token)?,
        None => None,
    };
    if token.is_none() {
        return Err(unexpected(&"grant without a token"));
    }
    Ok(Reply::Granted { token })
}

/// A token, or none where the text is no number.
fn number(token: Value) -> Result<Option<FencingToken>, Failure> {
    let token: String = redis::from_redis_value(token).map_err(|e| unexpected(&e))?;
    Ok(token.parse().ok().map(FencingToken::new))
}

fn inspected(answer: Vec<Value>, whole: bool) -> Result<Reply, Failure> {
    let mut answer = answer.into_iter();
    let ttl = match answer.next() {
        Some(Value::Int(ttl)) => ttl,
        other => return Err(unexpected(&other.unwrap_or(Value::Nil))),
    };
    let (mut token, mut waiting) = (None, Vec::new());
    if whole {
        token = number(answer.next().unwrap_or(Value::Nil))?;
        let line = answer.next().unwrap_or(Value::Nil);
        waiting = redis::from_redis_value(line).map_err(|e| unexpected(&e))?;
    }
    let mut owners = Vec::new();
    while let (Some(owner), Some(count)) = (answer.next(), answer.next()) {
        let (owner, count) = (text(owner)?, text(count)?);
        if owner == "mode" {
            return Err(Failure::new(Cause::WrongKind, "a read/write lock"));
        }
        // Fields of other primitives, or of none, are no owners.
        let client = owner.split(':').next().unwrap_or_default();
        let is_owner = uuid::Uuid::try_parse(client).is_ok();
        if let Ok(count) = count.parse()
            && is_owner
        {
            owners.push(HeldBy {
                owner,
                count,
                ttl: remaining(ttl),
            });
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
        token,
        waiting,
        ..Holding::default()
    })))
}
