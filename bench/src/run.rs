//! Plays every scenario with everybody, and keeps the book.

use std::collections::HashSet;

use crate::book::{Book, Entry, Result, figure};
use crate::machine::Machine;
use crate::options::{Options, Pace};
use crate::scenario::{Act, Scenario};
use crate::stage::Stage;
use crate::targets;

/// Measures everything; `told` hears of each measurement as it is made.
pub(crate) fn run(machine: Machine, options: &Options, mut told: impl FnMut(&str)) -> Book {
    let mut book = Book {
        machine,
        pace: options.pace,
        ..Book::default()
    };
    for scenario in &options.scenarios {
        told(&format!("{}: {}", scenario.name, scenario.shows));
        let mut part = if options.pace == Pace::Smoke {
            settled(|told| measured(scenario, options, told), &mut told)
        } else {
            measured(scenario, options, &mut told)
        };
        book.entries.append(&mut part.entries);
        book.versions.append(&mut part.versions);
    }
    book
}

/// What is measured again while a gate is broken: a moment's run on a crowded machine may have had no time in
/// which to do anything. What is out of hand for another reason is so every time.
fn settled<T: FnMut(&str)>(mut measured: impl FnMut(&mut T) -> Book, told: &mut T) -> Book {
    let mut book = measured(told);
    for _ in 1..TRIES {
        let broken = targets::gates(&book);
        // Whoever failed has failed: that is not a matter of time.
        if broken.is_empty() || !book.failures().is_empty() {
            break;
        }
        told(&format!("  again: {}", broken.join("; ")));
        book = measured(told);
    }
    book
}

const TRIES: u32 = 5;

/// A scenario, with everybody who takes part.
fn measured(scenario: &Scenario, options: &Options, told: &mut impl FnMut(&str)) -> Book {
    let mut book = Book::default();
    // Processes of one scenario are not carried into the next: they have grown threads and heaps.
    let mut stage = Stage::new(options.folder.clone(), options.pace);
    play(scenario, &mut stage, options, &mut book, told);
    book.versions = stage.versions;
    book
}

/// Repetition by repetition, and within one cell contestant by contestant, so that those who are compared
/// are neighbours in time. Every other time the last goes first.
fn play(
    scenario: &Scenario,
    stage: &mut Stage,
    options: &Options,
    book: &mut Book,
    told: &mut impl FnMut(&str),
) {
    let mut contestants = options.contestants.clone();
    contestants.retain(|one| (scenario.takes_part)(**one));
    if contestants.is_empty() {
        return;
    }
    let mut out = HashSet::new();
    let repetitions = if scenario.once {
        1
    } else {
        stage.repetitions()
    };
    for repetition in 0..repetitions {
        for cell in (scenario.cells)(options.pace) {
            for contestant in &contestants {
                if out.contains(&(cell.label.clone(), contestant.name)) {
                    continue;
                }
                let act = Act {
                    scenario: scenario.name,
                    cell: cell.clone(),
                    contestant,
                    repetition,
                };
                let played = (scenario.play)(stage, &act);
                let result = played.unwrap_or_else(|failure| Result::Failed(failure.to_string()));
                if !matches!(result, Result::Figures(_)) {
                    // Once is enough to know.
                    out.insert((cell.label.clone(), contestant.name));
                }
                told(&line(&act, &result));
                book.entries.push(Entry {
                    scenario: scenario.name,
                    cell: act.cell.label,
                    contestant: contestant.name,
                    repetition,
                    result,
                });
            }
        }
        contestants.reverse();
    }
}

/// For whoever watches the run.
fn line(act: &Act, result: &Result) -> String {
    let said = match result {
        Result::Cannot(why) => format!("cannot: {why}"),
        Result::Failed(why) => format!("FAILED: {why}"),
        Result::Figures(figures) => {
            let shown = [
                figure::RATE,
                figure::HANDOFFS,
                figure::P50,
                figure::P99,
                figure::SCRIPTS,
                figure::MEMORY,
            ];
            let shown = shown.iter().filter_map(|name| {
                let value = figures.get(name)?;
                Some(format!("{name} {value:.1}"))
            });
            shown.collect::<Vec<_>>().join("  ")
        }
    };
    format!(
        "  {} {:<16} #{} {:<15} {said}",
        act.scenario,
        act.cell.label,
        act.repetition + 1,
        act.contestant.name
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cycle of one caller with so many commands.
    fn cycle(commands: f64) -> Book {
        let figures = [(figure::RATE, 1.0), (figure::COMMANDS, commands)];
        let mut book = Book::default();
        book.entries.push(Entry {
            scenario: "F",
            cell: "1".into(),
            contestant: "fair",
            repetition: 0,
            result: Result::Figures(figures.into()),
        });
        book
    }

    fn settle(commands: &[f64]) -> (Book, usize) {
        let mut said = 0;
        let mut told = |_: &str| said += 1;
        let mut left = commands.iter();
        let book = settled(
            |_| cycle(*left.next().expect("it gives up before that")),
            &mut told,
        );
        (book, said)
    }

    #[test]
    fn what_was_out_of_hand_once_is_measured_again() {
        let (book, said) = settle(&[9.0, 9.0, 2.0]);
        assert_eq!((targets::gates(&book).len(), said), (0, 2));
    }

    #[test]
    fn what_is_out_of_hand_every_time_breaks_its_gate() {
        let (book, said) = settle(&[3.0; TRIES as usize]);
        assert_eq!((targets::gates(&book).len(), said), (1, 4));
    }
}
