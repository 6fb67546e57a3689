//! Reads the results of an earlier run from its file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::book::{Book, Entry, Result, figure};
use crate::failure::{Failure, Outcome};
use crate::machine::Machine;
use crate::options::Pace;
use crate::roster::Contestant;
use crate::scenario;

#[derive(Deserialize)]
struct Results {
    machine: Machine,
    pace: Pace,
    entries: Vec<ResultRecord>,
    versions: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct ResultRecord {
    scenario: String,
    cell: String,
    contestant: String,
    repetition: u32,
    #[serde(flatten)]
    said: ResultKind,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum ResultKind {
    Cannot(String),
    Failed(String),
    Figures(BTreeMap<String, f64>),
}

/// Returns the book of an earlier run.
pub(crate) fn read(file: &Path) -> Outcome<Book> {
    let about =
        |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| about(&error))?;
    let results: Results = serde_json::from_str(&text)
        .map_err(|error| about(&format!("not what `scripts/bench --json` writes: {error}")))?;
    let mut book = Book {
        machine: results.machine,
        pace: results.pace,
        ..Book::default()
    };
    for (name, version) in results.versions {
        book.versions
            .insert(Contestant::named(&name)?.name, version);
    }
    for line in results.entries {
        book.entries.push(Entry {
            scenario: scenario::named(&line.scenario)?.name,
            cell: line.cell,
            contestant: Contestant::named(&line.contestant)?.name,
            repetition: line.repetition,
            result: line.said.result()?,
        });
    }
    Ok(book)
}

impl ResultKind {
    fn result(self) -> Outcome<Result> {
        Ok(match self {
            Self::Cannot(why) => Result::Cannot(why),
            Self::Failed(why) => Result::Failed(why),
            Self::Figures(figures) => {
                let figures = figures.into_iter().map(|(name, value)| {
                    let known = figure::ALL.iter().find(|known| **known == name);
                    let unknown = || Failure::new(format!("there is no figure `{name}`"));
                    Ok((*known.ok_or_else(unknown)?, value))
                });
                Result::Figures(figures.collect::<Outcome<_>>()?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_round_trip() {
        let mut book = Book::default();
        book.versions.insert("raw", "1".into());
        for result in [
            Result::Figures([(figure::RATE, 1.5)].into()),
            Result::Cannot("it polls".into()),
            Result::Failed("it hangs".into()),
        ] {
            book.entries.push(Entry {
                scenario: "U",
                cell: "16".into(),
                contestant: "raw",
                repetition: 2,
                result,
            });
        }
        let folder = tempfile::tempdir().expect("there is room");
        let file = folder.path().join("results.json");
        let text = serde_json::to_string(&book).expect("it is plain data");
        fs::write(&file, &text).expect("there is room");
        let again = read(&file).expect("it was written so");
        assert_eq!(serde_json::to_string(&again).expect("as above"), text);
    }
}
