//! The moments of a story at which something is lost: a request, or, where there are no scripts and a request is many
//! commands, one of these.

use super::rules::{LetGo, RULES, Rule};
use super::stories::Story;
use super::support::command::Command;
use super::support::{Family, Fault, Match};

/// What is lost of a story.
#[derive(Clone, Debug)]
pub(crate) enum Moment {
    Command(Command),
    /// A request of the sort that the story is about: which of them, counted from 1.
    Request(u64),
}

impl Moment {
    /// In which ways it is lost. A command in one of them, which are taken in turn. One that writes in some, and in any
    /// case so late that it has been undone and nobody has touched the lock since.
    pub(crate) fn ways(&self, turn: usize) -> Vec<&'static Rule> {
        let Self::Command(command) = self else {
            return RULES.iter().collect();
        };
        let is_late = |rule: &&Rule| {
            rule.fault == Fault::HoldRequest && rule.let_go == Some(LetGo::AfterCleanup)
        };
        // A part of a transaction that comes twice is nothing that a network does.
        let ways = RULES.iter();
        let ways = ways.filter(|rule| rule.fault != Fault::DuplicateRequest);
        let (mut late, others): (Vec<_>, Vec<_>) = ways.partition(is_late);
        if !command.writes {
            let mut all = late.into_iter().chain(others).cycle();
            return all.nth(turn).into_iter().collect();
        }
        let others = others.into_iter().cycle();
        late.extend(others.skip(turn * OTHERS).take(OTHERS));
        late
    }

    /// Whether these are the words of one.
    pub(crate) fn is_one<F: Family>(
        &self,
        story: &Story<F>,
        name: &str,
        words: &[impl AsRef<[u8]>],
    ) -> bool {
        match self {
            Self::Command(command) => command.is_one(name, words),
            Self::Request(_) => story.is_target(words),
        }
    }

    /// Selects it.
    pub(crate) fn select<F: Family>(&self, story: &'static Story<F>, name: &str) -> Match {
        match self {
            Self::Command(command) => command.select(name),
            Self::Request(nth) => Match::words(|words| story.is_target(words)).nth(*nth),
        }
    }
}

/// In how many ways beside that one.
const OTHERS: usize = 3;
