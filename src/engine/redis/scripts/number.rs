//! Numbers that are nobody's, a latch's and a semaphore's that only counts: their actions as script calls, and what comes
//! back as replies.
//!
//! The scripts are files of their own, each headed by its keys, arguments and results; the numbers here are explained there.

use std::borrow::Cow;
use std::sync::LazyLock;

use redis::Value;

use super::answers::{held_or_not, unexpected};
use super::words::Words;
use super::{Place, Primitive, Script, write_twin};
use crate::engine::Failure;
use crate::engine::redis::keys::Keys;
use crate::protocol::marks::MARK_TTL;
use crate::protocol::{Action, Alter, Deed, Holding, Permits, Reply, Request};

/// A script for each action.
pub(super) struct Scripts {
    alter: LazyLock<Script>,
    look: LazyLock<Script>,
    release: LazyLock<Script>,
    take: LazyLock<Script>,
    undo: LazyLock<Script>,
}

macro_rules! script {
    ($($file:literal),+) => {
        LazyLock::new(|| {
            let text = concat!(
                include_str!("../lua/format/number.lua"),
                include_str!("../lua/number/deeds.lua"),
                $(include_str!(concat!("../lua/", $file, ".lua"))),+
            );
            Script::new(Cow::Borrowed(text))
        })
    };
}

pub(super) static LATCH: Scripts = Scripts {
    alter: script!("latch/alter"),
    look: script!("number/look"),
    // Nobody has anything of it.
    release: script!("number/look"),
    take: script!("number/look"),
    undo: script!("number/undo"),
};

pub(super) static COUNTING: Scripts = Scripts {
    alter: script!("format/twin", "counting/alter"),
    look: script!("number/look"),
    release: script!("semaphore/line", "counting/release"),
    take: script!("format/twin", "semaphore/line", "counting/take"),
    undo: script!("number/undo"),
};

impl Primitive for Scripts {
    fn script(&'static self, action: &Action) -> &'static Script {
        match action {
            Action::Alter {
                change: Alter::Take { .. },
                ..
            } => &self.take,
            Action::Alter { .. } => &self.alter,
            Action::Release { .. } => &self.release,
            Action::Undo { .. } => &self.undo,
            Action::Acquire { .. }
            | Action::Count(_)
            | Action::ForceRelease
            | Action::Inspect
            | Action::Pass { .. }
            | Action::Renew { .. } => &self.look,
        }
    }

    fn args(&self, request: &Request, keys: &Keys, words: &mut Words) {
        // An argument, not a key: it is published to, never stored, and in a cluster has no slot. Redisson makes a key of a
        // latch's, which is in another slot if the name has braces.
        let channel = request.subject.channel();
        let channel = keys.channel(&channel);
        match &request.action {
            Action::Alter {
                deed: Deed { id, settled },
                change,
            } => {
                words.number(id.number());
                words.number(*settled);
                words.millis(MARK_TTL);
                words.text(&channel);
                alter(change, words);
                write_twin(request, keys, words);
            }
            Action::Release { owner, left } => {
                words.number(owner.number());
                words.owner(owner);
                words.number(*left);
                words.text(&channel);
            }
            Action::Undo { owner, .. } => {
                words.number(owner.number());
                words.millis(MARK_TTL);
                words.text(&channel);
            }
            Action::Acquire { .. }
            | Action::Count(_)
            | Action::ForceRelease
            | Action::Inspect
            | Action::Pass { .. }
            | Action::Renew { .. } => {}
        }
    }

    fn places(&self, action: &Action) -> &'static [Place] {
        match action {
            Action::Alter {
                change: Alter::Take { .. },
                ..
            }
            | Action::Release { .. } => &[Place::Lock, Place::Done, Place::Line, Place::Alive],
            Action::Alter { .. } | Action::Undo { .. } => &[Place::Lock, Place::Done],
            Action::Acquire { .. }
            | Action::Count(_)
            | Action::ForceRelease
            | Action::Inspect
            | Action::Pass { .. }
            | Action::Renew { .. } => &[Place::Lock],
        }
    }

    fn reply(&self, action: &Action, result: Value) -> Result<Reply, Failure> {
        match (action, result) {
            (Action::Alter { .. }, Value::Int(code)) => match code {
                -1 => Ok(Reply::Busy { ttl: None }),
                -3 => Ok(Reply::Granted { token: None }),
                -4 => Ok(Reply::Undone),
                other => Err(unexpected(&other)),
            },
            (Action::Alter { .. }, numbers @ Value::Array(_)) => {
                let numbers = redis::from_redis_value::<(Option<i64>, Option<i64>)>(numbers);
                let (before, after) = numbers.map_err(|error| unexpected(&error))?;
                Ok(Reply::Altered { before, after })
            }
            (Action::Count(_), there) => {
                let there: Option<i64> =
                    redis::from_redis_value(there).map_err(|error| unexpected(&error))?;
                Ok(Reply::Counted {
                    done: false,
                    permits: there.map(|available| Permits { available, out: 0 }),
                })
            }
            (Action::ForceRelease, _) => Ok(Reply::Forced(false)),
            (Action::Inspect, Value::Nil) => Ok(Reply::Inspected(None)),
            (Action::Inspect, _) => Ok(Reply::Inspected(Some(Holding::NOBODYS))),
            (Action::Release { .. } | Action::Undo { .. }, Value::Int(code)) => {
                Ok(held_or_not(code))
            }
            (Action::Acquire { .. } | Action::Pass { .. } | Action::Renew { .. }, _) => {
                Ok(Reply::Gone)
            }
            (_, other) => Err(unexpected(&other)),
        }
    }
}

fn alter(change: &Alter, words: &mut Words) {
    let (word, many) = match change {
        Alter::Add(many) => (&b"add"[..], *many),
        Alter::CountDown => (&b"down"[..], 0),
        Alter::Drain => (&b"drain"[..], 0),
        Alter::Forget => (&b"forget"[..], 0),
        Alter::Set(many) => (&b"set"[..], *many),
        Alter::SetOnce(many) => (&b"once"[..], *many),
        Alter::Take {
            place,
            count,
            waits,
        } => {
            words.owner(place);
            words.number(*count);
            return words.millis(waits.unwrap_or_default());
        }
    };
    words.bytes(word);
    words.number(many);
}
