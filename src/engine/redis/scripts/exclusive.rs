//! Locks that one owner has at a time: their actions as script calls, and what comes back as replies.
//!
//! The plain, the fenced and the simple lock differ in their scripts alone. Those are files of their own, each headed by its
//! keys, arguments and results; the numbers here are explained there.

use std::borrow::Cow;
use std::sync::LazyLock;

use redis::Value;

use super::answers::{held_or_not, remaining, renewal, unexpected};
use super::batch::{Args, Passenger};
use super::words::Words;
use super::{Place, Primitive, Script, inspect, write_twin};
use crate::engine::Failure;
use crate::engine::redis::keys::Keys;
use crate::protocol::marks::MARK_TTL;
use crate::protocol::{Action, Entry, FencingToken, Kind, Reply, Request};

/// A script for each action on one kind of lock.
pub(super) struct Scripts {
    acquire: LazyLock<Script>,
    force_release: LazyLock<Script>,
    kind: Kind,
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

/// The text of a script: its file, behind those that stand before it.
macro_rules! script {
    ($($file:literal)then+) => {
        LazyLock::new(|| {
            let text = concat!($(include_str!(concat!("../lua/", $file, ".lua"))),+);
            Script::new(Cow::Borrowed(text))
        })
    };
}

pub(super) static MUTEX: Scripts = Scripts {
    acquire: script!("format/owner" then "format/lock" then "mutex/acquire"),
    force_release: script!("format/owner" then "format/lock" then "mutex/force_release"),
    kind: Kind::Mutex,
    pass: script!("mutex/pass"),
    release: script!("mutex/release"),
    renew: script!("mutex/renew"),
    undo: script!("mutex/undo"),
    counts: true,
    fenced: false,
    line: false,
};
pub(super) static SIMPLE: Scripts = Scripts {
    acquire: script!("format/simple" then "simple/acquire"),
    force_release: script!("format/owner" then "simple/force_release"),
    kind: Kind::Simple,
    pass: script!("simple/pass"),
    release: script!("simple/release"),
    renew: script!("simple/renew"),
    undo: script!("simple/undo"),
    counts: false,
    fenced: false,
    line: false,
};
/// What is given back, or renewed, is a plain lock.
pub(super) static FENCED: Scripts = Scripts {
    acquire: script!("format/owner" then "format/lock" then "fenced/token" then "fenced/acquire"),
    kind: Kind::Fenced,
    pass: script!("fenced/token" then "fenced/pass"),
    force_release: script!("format/owner" then "format/lock" then "mutex/force_release"),
    release: script!("mutex/release"),
    renew: script!("mutex/renew"),
    undo: script!("mutex/undo"),
    counts: true,
    fenced: true,
    line: false,
};
/// What is renewed is a plain lock.
pub(super) static FAIR: Scripts = Scripts {
    acquire: script!("format/twin" then "format/owner" then "format/lock" then "format/queue" then "fair/line" then "fair/acquire"),
    kind: Kind::Fair,
    // It is never passed: whoever is first in line gets it.
    pass: script!("format/owner" then "format/queue" then "fair/line" then "fair/release"),
    force_release: script!("format/owner" then "format/lock" then "format/queue" then "fair/line" then "fair/force_release"),
    release: script!("format/owner" then "format/queue" then "fair/line" then "fair/release"),
    renew: script!("mutex/renew"),
    undo: script!("format/owner" then "format/queue" then "fair/line" then "fair/undo"),
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

impl Primitive for Scripts {
    fn script(&'static self, action: &Action) -> &'static Script {
        match action {
            Action::Acquire { .. } => &self.acquire,
            Action::ForceRelease => &self.force_release,
            // Of no lock are there many: whoever asks learns that.
            Action::Alter { .. } | Action::Count(_) | Action::Inspect => &inspect::SCRIPT,
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
                    write_twin(request, keys, words);
                }
            }
            Action::ForceRelease => words.text(&channel),
            Action::Alter { .. } | Action::Count(_) | Action::Inspect => {
                inspect::args(request, keys, inspect::WHOLE, words);
            }
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
            Action::Alter { .. } | Action::Count(_) | Action::Inspect => inspect::PLACES,
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
            (Action::Inspect, answer) => inspect::Inspection::read(answer)?.reply_as(self.kind),
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
