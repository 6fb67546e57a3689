//! The runner: plays every scenario with every contestant, and keeps the book.

use std::collections::HashSet;

use crate::book::{Book, Entry, Result, figure};
use crate::machine::Machine;
use crate::options::{Options, Pace};
use crate::scenario::{Act, Scenario};
use crate::stage::Stage;
use crate::targets;

/// Measures everything; `told` is called with each measurement as it is made.
pub(crate) fn run(machine: Machine, options: &Options, mut told: impl FnMut(&str)) -> Book {
    let mut book = Book {
        machine,
        pace: options.pace,
        ..Book::default()
    };
    for scenario in &options.scenarios {
        told(&format!("{}: {}", scenario.name, scenario.shows));
        let mut part = Book::default();
        measure(scenario, options.pace, options, &mut part, &mut told);
        // A short time on a crowded machine may have been too little to do anything, so more and longer measurements follow. The gates
        // check the median of all.
        let broken = targets::gates(&part);
        if options.pace == Pace::Smoke && !broken.is_empty() {
            told(&format!("  more: {}", broken.join("; ")));
            for _ in 0..MORE {
                measure(scenario, Pace::Quick, options, &mut part, &mut told);
            }
        }
        book.entries.append(&mut part.entries);
        book.versions.append(&mut part.versions);
    }
    book
}

/// Plays a scenario at this pace, and adds to the results that are in the book.
fn measure(
    scenario: &Scenario,
    pace: Pace,
    options: &Options,
    book: &mut Book,
    told: &mut impl FnMut(&str),
) {
    // Processes of one scenario are not reused in the next: they have grown threads and heaps.
    let mut stage = Stage::new(options.folder.clone(), pace);
    play(scenario, &mut stage, options, book, told);
    book.versions.append(&mut stage.versions);
}

/// Plays repetition by repetition, and within one cell contestant by contestant, so that contestants that are compared are neighbours in
/// time. Every other time the last goes first.
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
    let first = book.repetitions();
    for repetition in first..first + repetitions {
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
                    // One repetition is enough to know this.
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

/// Returns the line for the terminal of a run.
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

/// The extra repetitions: together with the first, there are five then.
const MORE: u32 = 2;
