//! The stories that are played over the broken network: each sends a few requests of one sort, and each of these requests is lost in a case
//! of its own.

use std::ops::Range;

use super::rules::{DeliveryTime, RULES, Rule};
use crate::support::command::Command;
use crate::support::{Family, Fault, Match, Script, args};

#[derive(Clone, Debug)]
pub(crate) struct Story {
    pub(crate) plot: Plot,
    pub(crate) script: Script,
    /// Selects runs of the script by the count that they leave.
    count: Count,
    /// The number of requests of the sort that the story sends without faults.
    pub(crate) requests: u64,
    /// Without scripts: the requests, counted from 0 among all of the story, that are lost command by command. The others are as in another
    /// story.
    pub(crate) in_parts: Range<usize>,
    /// Whether a lost request is retried, word for word.
    pub(crate) repeated: Repeated,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Count {
    Any,
    First,
    More,
    None,
    Some,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeated {
    Always,
    Never,
    /// Once the hold has ended, there is nothing to retry.
    WhileHeld,
}

macro_rules! stories {
    ($($plot:ident: $script:ident $count:ident $requests:literal $in_parts:expr, $repeated:ident;)*) => {
        /// The course of a story, implemented in [`story_steps`](super::story_steps).
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Plot {
            $($plot),*
        }

        static STORIES: &[Story] = &[
            $(Story {
                plot: Plot::$plot,
                script: Script::$script,
                count: Count::$count,
                requests: $requests,
                in_parts: $in_parts,
                repeated: Repeated::$repeated,
            }),*
        ];
    };
}

stories! {
    Acquire: Acquire First 4 0..2, Never;
    WaitSubscribed: Acquire First 3 0..4, Never;
    WaitPolling: Acquire First 4 0..0, Never;
    Reenter: Acquire More 3 1..3, Never;
    ReleaseInPart: Release Some 3 4..6, WhileHeld;
    Release: Release None 3 0..0, Always;
    HandOff: Pass Any 4 1..3, Never;
    Drop: Release None 2 1..2, Always;
    DropInPart: Release Some 2 4..5, WhileHeld;
    Renew: Renew Any 2 2..3, WhileHeld;
    Extend: Renew Any 2 1..2, Never;
    Undo: Undo Any 2 1..4, Always;
    UndoReentry: Undo Any 2 2..4, WhileHeld;
    // Stories in the store's queue.
    StandInQueue: Acquire First 3 0..0, Never;
    LeaveTheQueue: Release None 2 0..0, Always;
    ReleaseToTheNext: Release None 2 0..0, Always;
    UndoInQueue: Undo Any 2 0..0, Always;
    UndoAnOrphan: Undo Any 2 0..0, Always;
}

impl Story {
    /// Returns the stories that are played with this kind of lock.
    pub(crate) fn all<F: Family>() -> impl Iterator<Item = &'static Self> {
        STORIES.iter().filter(|story| match story.plot {
            Plot::HandOff => F::PASSED_ON,
            Plot::Reenter | Plot::ReleaseInPart | Plot::DropInPart | Plot::UndoReentry => F::AGAIN,
            Plot::StandInQueue
            | Plot::LeaveTheQueue
            | Plot::ReleaseToTheNext
            | Plot::UndoInQueue
            | Plot::UndoAnOrphan => F::IN_ORDER,
            _ => true,
        })
    }

    /// Returns whether nothing goes wrong in the story except by the rule. A story in which something is undone has to break something
    /// itself.
    pub(crate) fn is_whole(&self) -> bool {
        self.script != Script::Undo
    }

    /// Returns whether a request is one of the sort that is to be lost.
    fn is_target(&self, words: &[impl AsRef<[u8]>]) -> bool {
        if !self.script.runs(words) {
            return false;
        }
        let count = match self.script {
            // This argument is the attempt's number: only the plain lock sends a count, and attempt 1 is the first acquire.
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

/// The loss in a story: of a request, or, without scripts, of one of the commands that a request consists of.
#[derive(Clone, Debug)]
pub(crate) enum Moment {
    Command(Command),
    /// The nth request of the sort that the story is about, counted from 1.
    Request(u64),
}

impl Moment {
    /// Returns the ways in which this moment is lost. The first request is lost in all ways, each other request in every second. A command
    /// that only reads is lost in one way, which are taken in turn; a command that writes in some, and in any case so late that it has been
    /// undone and no request has touched the lock since.
    pub(crate) fn ways(&self, turn: usize) -> Vec<&'static Rule> {
        let command = match self {
            Self::Command(command) => command,
            Self::Request(1) => return RULES.iter().collect(),
            Self::Request(_) => return RULES.iter().skip(turn % 2).step_by(2).collect(),
        };
        let is_late = |rule: &&Rule| {
            rule.fault == Fault::HoldRequest
                && rule.deliver_held == Some(DeliveryTime::AfterCleanup)
        };
        // No network duplicates a part of a transaction.
        let ways = RULES.iter();
        let ways = ways.filter(|rule| rule.fault != Fault::DuplicateRequest);
        let (mut late, others): (Vec<_>, Vec<_>) = ways.partition(is_late);
        if !command.writes {
            let mut all = late.into_iter().chain(others).cycle();
            return all.nth(turn).into_iter().collect();
        }
        late.extend(others.into_iter().cycle().skip(turn * OTHERS).take(OTHERS));
        late
    }

    /// Returns whether these words are such a request or command.
    pub(crate) fn is_one(&self, story: &Story, name: &str, words: &[impl AsRef<[u8]>]) -> bool {
        match self {
            Self::Command(command) => command.is_one(name, words),
            Self::Request(_) => story.is_target(words),
        }
    }

    /// Selects this request or command.
    pub(crate) fn select(&self, story: &'static Story, name: &str) -> Match {
        match self {
            Self::Command(command) => command.select(name),
            Self::Request(nth) => Match::words(|words| story.is_target(words)).nth(*nth),
        }
    }
}

/// The number of other ways in which a writing command is lost.
const OTHERS: usize = 5;
