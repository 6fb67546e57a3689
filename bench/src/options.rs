//! The command line of this program.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Outcome, ensure};
use crate::roster::{self, Contestant};
use crate::scenario::{self, Scenario};

/// The task of this process.
pub(crate) enum Order {
    /// `contestant NAME`: run as this contestant.
    Contestant(String),
    /// `list`: print the contestants and scenarios.
    List,
    /// `publish RESULTS PAGE`: put the results of a run into the page that shows them.
    Publish { results: PathBuf, page: PathBuf },
    /// `needs` and the arguments of a run: print what has to be built for it, a folder a line.
    Needs(Options),
    /// `run --contestants FOLDER [--quick | --smoke] [--only NAMES] [--json FILE] [SCENARIO…]`.
    Run(Options),
}

/// The options of a run.
pub(crate) struct Options {
    /// The folder in which the contestants of other languages were built, and in which results are written.
    pub(crate) folder: PathBuf,
    pub(crate) scenarios: Vec<&'static Scenario>,
    pub(crate) contestants: Vec<&'static Contestant>,
    pub(crate) json: Option<PathBuf>,
    pub(crate) pace: Pace,
}

/// How thorough to be.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Pace {
    /// The pace of published figures.
    Full,
    /// A short run that shows that everything works.
    #[default]
    Quick,
    /// The same in seconds.
    Smoke,
}

impl Order {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Outcome<Self> {
        match words.next().as_deref() {
            Some("contestant") => {
                let name = words.next();
                let missing = || Failure::new("the contestant's name is missing");
                Ok(Self::Contestant(name.ok_or_else(missing)?))
            }
            Some("list") => Ok(Self::List),
            Some("publish") => match (words.next(), words.next()) {
                (Some(results), Some(page)) => Ok(Self::Publish {
                    results: results.into(),
                    page: page.into(),
                }),
                _ => Err(Failure::new("the file of results, or the page, is missing")),
            },
            Some("needs") => Options::parse(words).map(Self::Needs),
            Some("run") => Options::parse(words).map(Self::Run),
            other => Err(Failure::new(format!(
                "{other:?} is not contestant, list, needs, publish or run; see scripts/bench"
            ))),
        }
    }
}

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> Outcome<Self> {
        let mut folder = None;
        let mut json = None;
        let mut pace = Pace::Full;
        let mut only: Option<Vec<&'static Contestant>> = None;
        let mut scenarios = Vec::new();
        while let Some(word) = words.next() {
            let mut value = || {
                let value = words.next();
                value.ok_or_else(|| Failure::new(format!("`{word}` needs a value")))
            };
            match word.as_str() {
                "--contestants" => folder = Some(PathBuf::from(value()?)),
                "--json" => json = Some(PathBuf::from(value()?)),
                "--quick" => pace = Pace::Quick,
                "--smoke" => pace = Pace::Smoke,
                "--only" => {
                    let names = value()?;
                    let named: Outcome<_> = names.split(',').map(Contestant::named).collect();
                    only = Some(named?);
                }
                option if option.starts_with('-') => {
                    return Err(Failure::new(format!(
                        "there is no option `{option}`; see scripts/bench --help"
                    )));
                }
                name => scenarios.push(scenario::named(name)?),
            }
        }
        let folder = folder.ok_or_else(|| Failure::new("`--contestants` is missing"))?;
        if scenarios.is_empty() {
            scenarios = scenario::ALL.iter().collect();
        }
        let everybody = || roster::ALL.iter().collect();
        let mut contestants = only.unwrap_or_else(everybody);
        if pace == Pace::Smoke {
            contestants.retain(|one| one.is_here());
        }
        let takes_part = |one: &&Contestant| scenarios.iter().any(|of| (of.takes_part)(**one));
        contestants.retain(takes_part);
        ensure!(!contestants.is_empty(), "nobody is left to measure");
        Ok(Self {
            folder,
            scenarios,
            contestants,
            json,
            pace,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Outcome<Order> {
        Order::parse(line.split_whitespace().map(str::to_owned))
    }

    fn run(line: &str) -> Options {
        match parse(line) {
            Ok(Order::Run(options)) => options,
            Ok(_) => panic!("not an order to run: {line}"),
            Err(failure) => panic!("{failure}"),
        }
    }

    #[test]
    fn everything_is_measured_without_a_filter() {
        let all = run("run --contestants f");
        assert_eq!(all.scenarios.len(), scenario::ALL.len());
        assert_eq!(all.contestants.len(), roster::ALL.len());
        let some = run("run --contestants f U --only raw,distlock --quick");
        assert_eq!((some.scenarios.len(), some.contestants.len()), (1, 2));
        assert_eq!(some.pace, Pace::Quick);
    }

    #[test]
    fn only_selected_contestants_are_built() {
        let embedded = run("run --contestants f E");
        assert!(
            embedded
                .contestants
                .iter()
                .all(|one| one.built_in().is_none())
        );
        let some = run("run --contestants f --only redsync,raw,redis-py U");
        let built: Vec<_> = some
            .contestants
            .iter()
            .filter_map(|one| one.built_in())
            .collect();
        assert_eq!(built, ["go", "python"]);
    }

    #[test]
    fn smoke_needs_no_other_language() {
        let smoke = run("run --contestants f --smoke");
        assert!(smoke.contestants.iter().all(|one| one.name != "redisson"));
        assert!(smoke.contestants.iter().any(|one| one.name == "distlock"));
    }

    #[test]
    fn invalid_options_are_rejected() {
        for line in [
            "",
            "walk",
            "contestant",
            "publish results.json",
            "run",
            "run --contestants",
            "run --contestants f X",
            "run --contestants f --quik U",
            "run --contestants f --only tokio-mutex U",
            "run --contestants f --only nobody",
            "run --contestants f --smoke --only redisson",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
