//! The semaphore whose permits are leased: its actions as script calls, and what comes back as replies.
//!
//! The scripts are files of their own, each headed by its keys, arguments and results; the numbers here are explained there.

use std::borrow::Cow;
use std::sync::LazyLock;

use redis::Value;

use super::answers::{held_or_not, remaining, renewal, unexpected};
use super::words::Words;
use super::{Place, Primitive, Script, inspect, write_twin};
use crate::engine::Failure;
use crate::engine::redis::keys::Keys;
use crate::protocol::marks::MARK_TTL;
use crate::protocol::permit::{shared_by, wanted_by};
use crate::protocol::{Action, Count, Kind, OwnerId, Permits, Reply, Request};

/// A script for each action.
pub(super) struct Scripts {
    acquire: LazyLock<Script>,
    count: LazyLock<Script>,
    force_release: LazyLock<Script>,
    look: LazyLock<Script>,
    release: LazyLock<Script>,
    renew: LazyLock<Script>,
    undo: LazyLock<Script>,
}

macro_rules! script {
    ($file:literal) => {
        LazyLock::new(|| {
            let text = concat!(
                include_str!("../lua/format/twin.lua"),
                include_str!("../lua/format/number.lua"),
                include_str!("../lua/format/permits.lua"),
                include_str!("../lua/semaphore/line.lua"),
                include_str!("../lua/semaphore/tally.lua"),
                include_str!(concat!("../lua/semaphore/", $file, ".lua"))
            );
            Script::new(Cow::Borrowed(text))
        })
    };
}

pub(super) static SEMAPHORE: Scripts = Scripts {
    acquire: script!("acquire"),
    count: script!("count"),
    force_release: script!("force_release"),
    look: script!("look"),
    release: script!("release"),
    renew: script!("renew"),
    undo: script!("undo"),
};

impl Primitive for Scripts {
    fn script(&'static self, action: &Action) -> &'static Script {
        match action {
            Action::Acquire { .. } => &self.acquire,
            Action::Count(Count::Look) => &self.look,
            Action::Count(_) => &self.count,
            Action::ForceRelease => &self.force_release,
            Action::Alter { .. } | Action::Inspect => &inspect::SCRIPT,
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
        match &request.action {
            Action::Acquire {
                owner,
                entry,
                lease,
                waits,
                permits,
                ..
            } => {
                words.owner(owner);
                words.number(entry.attempt());
                words.bytes(&shared_by(*owner));
                words.number(permits.count);
                words.millis(*lease);
                words.millis(waits.unwrap_or_default());
                words.text(&channel);
                match permits.of {
                    Some(of) => words.number(of),
                    None => words.nothing(),
                }
                write_twin(request, keys, words);
            }
            Action::Count(count) => {
                match count {
                    Count::Look => {
                        write_twin(request, keys, words);
                        return;
                    }
                    Count::Forget => {
                        words.bytes(b"forget");
                        words.nothing();
                    }
                    Count::SetOnce(to) => {
                        words.bytes(b"once");
                        words.number(*to);
                    }
                    Count::Set(to) => {
                        words.bytes(b"set");
                        words.number(*to);
                    }
                    Count::Return(permit) => {
                        words.bytes(b"return");
                        words.bytes(permit.bytes());
                    }
                }
                words.text(&channel);
                write_twin(request, keys, words);
            }
            Action::ForceRelease => {
                words.text(&channel);
                write_twin(request, keys, words);
            }
            Action::Alter { .. } | Action::Inspect => {
                inspect::args(request, keys, inspect::WHOLE, words);
            }
            Action::Pass { from, .. } => {
                release(from, 0, words);
                words.text(&channel);
                words.number(wanted_by(*from));
                write_twin(request, keys, words);
            }
            Action::Release { owner, left } => {
                release(owner, *left, words);
                words.text(&channel);
                words.number(wanted_by(*owner));
                write_twin(request, keys, words);
            }
            Action::Renew { owner, lease } => {
                words.owner(owner);
                words.bytes(&shared_by(*owner));
                words.number(wanted_by(*owner));
                words.millis(*lease);
                words.text(&channel);
                write_twin(request, keys, words);
            }
            Action::Undo { owner, entry } => {
                words.owner(owner);
                words.number(entry.attempt());
                words.bytes(&shared_by(*owner));
                words.millis(MARK_TTL);
                words.text(&channel);
                words.number(wanted_by(*owner));
                write_twin(request, keys, words);
            }
        }
    }

    fn places(&self, action: &Action) -> &'static [Place] {
        match action {
            Action::Acquire { .. } | Action::Undo { .. } => &[
                Place::Lock,
                Place::Out,
                Place::Undone,
                Place::Line,
                Place::Alive,
                Place::Clients,
            ],
            Action::Pass { .. } | Action::Release { .. } => &[
                Place::Lock,
                Place::Out,
                Place::Line,
                Place::Alive,
                Place::Clients,
            ],
            Action::Alter { .. } | Action::Inspect => inspect::PLACES,
            Action::Renew { .. } | Action::Count(_) | Action::ForceRelease => {
                &[Place::Lock, Place::Out, Place::Clients]
            }
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
            (Action::Count(_), Value::Array(answer)) => counted(answer),
            (Action::ForceRelease, Value::Int(taken)) => Ok(Reply::Forced(taken == 1)),
            (Action::Inspect, answer) => {
                inspect::Inspection::read(answer)?.reply_as(Kind::Semaphore)
            }
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

fn release(owner: &OwnerId, left: u32, words: &mut Words) {
    words.owner(owner);
    words.number(left);
    words.bytes(&shared_by(*owner));
}

fn counted(answer: Vec<Value>) -> Result<Reply, Failure> {
    let answer = Value::Array(answer);
    let answer = redis::from_redis_value::<(u32, Option<i64>, u64)>(answer);
    let (done, there, out) = answer.map_err(|e| unexpected(&e))?;
    Ok(Reply::Counted {
        done: done == 1,
        // Some may be out though somebody has deleted the number.
        permits: (there.is_some() || out > 0).then(|| Permits {
            available: there.unwrap_or_default(),
            out,
        }),
    })
}
