//! The command line of this program.

use std::path::PathBuf;
use std::time::Duration;

use crate::failure::{Failure, Outcome, ensure};
use crate::library::{Build, Shared};
use crate::party::Kind;
use crate::scenarios::{self, Scenario};
use crate::table::Times;
use crate::worker::Work;
use crate::world::Pace;

/// The task of this process.
pub(crate) enum Order {
    /// `hold URL KIND NAME MILLIS`: acquire a lock and keep it.
    Hold {
        url: String,
        kind: Kind,
        name: String,
        lease: Duration,
    },
    /// `hold-most LOCK NAME MILLIS URL…`: acquire a lock on a majority of these servers and keep it.
    HoldMost {
        shared: Shared,
        name: String,
        lease: Duration,
        urls: Vec<String>,
    },
    /// `list`: print the names of the scenarios.
    List,
    /// `run --peers FOLDER --version VERSION… [--quick] [--hammer SECONDS] [--table] [SCENARIO…]`.
    Run(Options),
    /// `worker ORDER`: run as a process of the hammer.
    Worker(Work),
}

/// The options of a run.
pub(crate) struct Options {
    pub(crate) builds: Vec<Build>,
    pub(crate) logs: PathBuf,
    pub(crate) pace: Pace,
    pub(crate) scenarios: Vec<&'static Scenario>,
    pub(crate) times: Times,
}

impl Order {
    pub(crate) fn parse(words: impl Iterator<Item = String>) -> Outcome<Self> {
        let mut words = words;
        let mut next = |what: &str| {
            let word = words.next();
            word.ok_or_else(|| Failure::new(format!("{what} is missing; see scripts/interop")))
        };
        match next("what to do")?.as_str() {
            "hold" => Ok(Self::Hold {
                url: next("the address")?,
                kind: kind(&next("the kind")?)?,
                name: next("the name")?,
                lease: Duration::from_millis(next("the lease")?.parse()?),
            }),
            "hold-most" => Ok(Self::HoldMost {
                shared: Shared::named(&next("the lock")?)?,
                name: next("the name")?,
                lease: Duration::from_millis(next("the lease")?.parse()?),
                urls: words.collect(),
            }),
            "list" => Ok(Self::List),
            "run" => Options::parse(words).map(Self::Run),
            "worker" => Work::from_json(&next("the order")?).map(Self::Worker),
            other => Err(Failure::new(format!(
                "`{other}` is not hold, hold-most, list, run or worker"
            ))),
        }
    }
}

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> Outcome<Self> {
        let mut folder = None;
        let mut versions = Vec::new();
        let mut scenarios: Vec<&'static Scenario> = Vec::new();
        let mut quick = false;
        let mut hammer = None;
        let mut times = Times::Show;
        while let Some(word) = words.next() {
            let mut value = || {
                let value = words.next();
                value.ok_or_else(|| Failure::new(format!("`{word}` needs a value")))
            };
            match word.as_str() {
                "--peers" => folder = Some(PathBuf::from(value()?)),
                "--version" => versions.push(value()?),
                "--quick" => quick = true,
                "--hammer" => hammer = Some(seconds(&value()?)?),
                "--table" => times = Times::Hide,
                name => scenarios.push(named(name)?),
            }
        }
        ensure!(
            !versions.is_empty(),
            "`--version` is missing; see scripts/interop"
        );
        let folder = folder.ok_or_else(|| Failure::new("`--peers` is missing"))?;
        if scenarios.is_empty() {
            scenarios = scenarios::all().collect();
        }
        let hammer = hammer.unwrap_or(Duration::from_secs(if quick { 3 } else { 10 }));
        Ok(Self {
            builds: versions
                .iter()
                .map(|version| Build::redisson(&folder, version))
                .chain(Build::of_simple_locks(&folder))
                .collect(),
            logs: folder.join("logs"),
            pace: Pace { quick, hammer },
            scenarios,
            times,
        })
    }
}

fn kind(word: &str) -> Outcome<Kind> {
    let mut all = [
        Kind::Fair,
        Kind::Fenced,
        Kind::Multi,
        Kind::Permit,
        Kind::Plain,
        Kind::Read,
        Kind::Write,
    ]
    .into_iter();
    all.find(|kind| kind.word() == word)
        .ok_or_else(|| Failure::new(format!("there is no kind `{word}`")))
}

fn named(name: &str) -> Outcome<&'static Scenario> {
    let all = || scenarios::all().chain(scenarios::LONG_FORMS);
    let found = all().find(|scenario| scenario.name == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = all().map(|scenario| scenario.name).collect();
        Failure::new(format!(
            "there is no scenario `{name}`; there are {}",
            names.join(", ")
        ))
    })
}

fn seconds(text: &str) -> Outcome<Duration> {
    let seconds = text.parse().ok().filter(|seconds| *seconds > 0);
    let wrong = || Failure::new(format!("`{text}` is not a number of seconds"));
    seconds.map(Duration::from_secs).ok_or_else(wrong)
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
    fn everything_is_played_without_a_filter() {
        let all = run("run --peers p --version 4 --version 3");
        assert_eq!(all.scenarios.len(), scenarios::all().count());
        assert_eq!(all.builds[1].folder, PathBuf::from("p/3"));
        let some = run("run --peers p --version 4 wake hammer --quick");
        let names: Vec<&str> = some.scenarios.iter().map(|one| one.name).collect();
        assert_eq!(names, ["wake", "hammer"]);
        assert!(some.pace.hammer < all.pace.hammer);
        assert_eq!(all.times, Times::Show);
        let table = run("run --peers p --version 4 --table");
        assert_eq!(table.times, Times::Hide);
    }

    #[test]
    fn the_hammer_runs_for_the_configured_time() {
        let options = run("run --peers p --version 4 --hammer 60 --quick");
        assert_eq!(options.pace.hammer, Duration::from_secs(60));
    }

    #[test]
    fn invalid_options_are_rejected() {
        for line in [
            "",
            "walk",
            "hold url plain name",
            "hold url strange name 5",
            "hold-most strange name 5 url",
            "run --peers p",
            "run --version 4",
            "run --peers p --version 4 sleepwalk",
            "run --peers p --version 4 --hammer 0",
            "run --peers p --version 4 --hammer",
            "worker {}",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn no_two_scenarios_have_the_same_name() {
        for (at, scenario) in scenarios::all().enumerate() {
            let mut before = scenarios::all().take(at);
            assert!(
                before.all(|other| other.name != scenario.name && other.shows != scenario.shows)
            );
        }
    }
}
