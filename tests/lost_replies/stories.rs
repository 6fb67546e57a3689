//! What is done over the broken network: each story sends a few requests of one sort, and each of them
//! is lost in a case of its own.

use std::ops::Range;
use std::pin::Pin;

use distlock::Wait;

use super::case::Case;
use super::lines::{hand_over, leave, stand, undo_an_echo, undo_in_line};
use super::support::{Family, Script, args};
use super::tellings::{
    BACKOFF, abandon, abandon_in_part, acquire, extend, pass_on, reenter, release, release_in_part,
    renew, undo, undo_reentry, wait,
};

pub(crate) struct Story<F: Family> {
    pub(crate) name: &'static str,
    /// How many requests of the sort it sends when nothing goes wrong.
    pub(crate) requests: u64,
    /// Without scripts: which of all its requests, counted from 0, are lost, command by command. The others are as in
    /// another story.
    pub(crate) in_parts: Range<usize>,
    pub(crate) script: Script,
    /// Whether a request that is lost is sent again, word for word.
    pub(crate) repeated: Repeated,
    pub(crate) tell: for<'c> fn(&'c mut Case<F>) -> Telling<'c>,
    /// Which runs of the script are meant, by the count they leave.
    count: Count,
    /// Whether an owner takes once more what it holds.
    again: bool,
}

pub(crate) type Telling<'c> = Pin<Box<dyn Future<Output = ()> + 'c>>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Count {
    Any,
    First,
    More,
    None,
    Some,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeated {
    Always,
    Never,
    /// When the hold is over, there is nothing to repeat.
    WhileHeld,
}

impl<F: Family> Story<F> {
    /// Those that are told with this kind of lock.
    pub(crate) fn all() -> impl Iterator<Item = &'static Self> {
        let alone = Self::OF_EVERY_LOCK.iter();
        let alone = alone.filter(|story| F::PASSED_ON || story.script != Script::Pass);
        let alone = alone.filter(|story| F::AGAIN || !story.again);
        alone.chain(Self::IN_LINE.iter().filter(|_| F::IN_ORDER))
    }

    const OF_EVERY_LOCK: &'static [Self] = &[
        Self {
            requests: 4,
            in_parts: 0..2,
            ..story("acquire", Script::Acquire, Count::First, |case| {
                Box::pin(acquire(case))
            })
        },
        Self {
            requests: 3,
            in_parts: 0..4,
            ..story("wait and listen", Script::Acquire, Count::First, |case| {
                Box::pin(wait(case, Wait::Notify, 2))
            })
        },
        Self {
            requests: 4,
            ..story("wait and poll", Script::Acquire, Count::First, |case| {
                Box::pin(wait(case, Wait::Poll(BACKOFF), 3))
            })
        },
        Self {
            requests: 3,
            in_parts: 1..3,
            again: true,
            ..story("re-enter", Script::Acquire, Count::More, |case| {
                Box::pin(reenter(case))
            })
        },
        Self {
            requests: 3,
            in_parts: 4..6,
            repeated: Repeated::WhileHeld,
            again: true,
            ..story("release in part", Script::Release, Count::Some, |case| {
                Box::pin(release_in_part(case))
            })
        },
        Self {
            requests: 3,
            repeated: Repeated::Always,
            ..story("release", Script::Release, Count::None, |case| {
                Box::pin(release(case))
            })
        },
        Self {
            requests: 4,
            in_parts: 1..3,
            ..story("pass on", Script::Pass, Count::Any, |case| {
                Box::pin(pass_on(case))
            })
        },
        Self {
            in_parts: 1..2,
            repeated: Repeated::Always,
            ..story("drop", Script::Release, Count::None, |case| {
                Box::pin(abandon(case))
            })
        },
        Self {
            in_parts: 4..5,
            repeated: Repeated::WhileHeld,
            again: true,
            ..story("drop in part", Script::Release, Count::Some, |case| {
                Box::pin(abandon_in_part(case))
            })
        },
        Self {
            in_parts: 2..3,
            repeated: Repeated::WhileHeld,
            ..story("renew", Script::Renew, Count::Any, |case| {
                Box::pin(renew(case))
            })
        },
        Self {
            in_parts: 1..2,
            ..story("extend", Script::Renew, Count::Any, |case| {
                Box::pin(extend(case))
            })
        },
        Self {
            in_parts: 1..4,
            repeated: Repeated::Always,
            ..story("undo", Script::Undo, Count::Any, |case| {
                Box::pin(undo(case))
            })
        },
        Self {
            in_parts: 2..4,
            repeated: Repeated::WhileHeld,
            again: true,
            ..story("undo re-entry", Script::Undo, Count::Any, |case| {
                Box::pin(undo_reentry(case))
            })
        },
    ];

    const IN_LINE: &'static [Self] = &[
        Self {
            requests: 3,
            ..story("stand in line", Script::Acquire, Count::First, |case| {
                Box::pin(stand(case))
            })
        },
        Self {
            repeated: Repeated::Always,
            ..story("leave the line", Script::Release, Count::None, |case| {
                Box::pin(leave(case))
            })
        },
        Self {
            repeated: Repeated::Always,
            ..story("to the next", Script::Release, Count::None, |case| {
                Box::pin(hand_over(case))
            })
        },
        Self {
            repeated: Repeated::Always,
            ..story("undo in line", Script::Undo, Count::Any, |case| {
                Box::pin(undo_in_line(case))
            })
        },
        Self {
            repeated: Repeated::Always,
            ..story("undo an echo", Script::Undo, Count::Any, |case| {
                Box::pin(undo_an_echo(case))
            })
        },
    ];

    /// Whether nothing goes wrong in it but what the rule says. To have something undone, a story has to
    /// break something itself.
    pub(crate) fn is_whole(&self) -> bool {
        self.script != Script::Undo
    }

    /// Whether a request is one of the sort that is to be lost.
    pub(crate) fn is_target(&self, words: &[impl AsRef<[u8]>]) -> bool {
        if !self.script.runs(words) {
            return false;
        }
        let count = match self.script {
            // The number of the attempt: nobody but the plain lock is told a count, and the first is the first.
            Script::Acquire | Script::Release => args(words)[1].as_ref(),
            Script::Pass | Script::Renew | Script::Undo => b"",
        };
        match self.count {
            Count::Any => true,
            Count::First => count == b"1",
            Count::More => count != b"1",
            Count::None => count == b"0",
            Count::Some => count != b"0",
        }
    }
}

const fn story<F: Family>(
    name: &'static str,
    script: Script,
    count: Count,
    tell: for<'c> fn(&'c mut Case<F>) -> Telling<'c>,
) -> Story<F> {
    Story {
        name,
        requests: 2,
        in_parts: 0..0,
        script,
        repeated: Repeated::Never,
        tell,
        count,
        again: false,
    }
}
