//! The roster: all contestants, and how each of them is started.

use std::env;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Outcome};

/// A program or library that locks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Contestant {
    /// The name on the command line and in the results.
    pub(crate) name: &'static str,
    /// The name in the tables.
    pub(crate) title: &'static str,
    pub(crate) side: Side,
    /// The color in the plots, for contestants that are plotted.
    pub(crate) color: Option<&'static str>,
    kind: Kind,
}

/// How the contestant relates to distlock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Side {
    Ours,
    /// A client that locks with distlock's scripts, and does nothing else.
    Raw,
    Redisson,
    Other,
}

/// The contestant that is compared with the others.
pub(crate) const OURS: &str = "distlock";

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    /// A contestant in this very program.
    Here,
    /// A contestant in this program, on a runtime with one worker thread, so that the server has the other core.
    OneWorker,
    Embedded,
    /// A primitive of distlock other than the plain lock.
    Family,
    Go,
    Java,
    Node,
    Python,
    Rslock,
}

/// All contestants, in the order they play: contestants that are compared first are neighbours in time.
pub(crate) const ALL: &[Contestant] = &[
    drawn(
        "raw-blocking",
        "raw, blocking",
        Side::Raw,
        Kind::Here,
        "#bbbbbb",
    ),
    drawn(
        "raw-yield",
        "raw, yields before writing",
        Side::Raw,
        Kind::Here,
        "#888888",
    ),
    drawn(
        "raw-one",
        "raw, one worker",
        Side::Raw,
        Kind::OneWorker,
        "#555555",
    ),
    drawn(
        "distlock-one",
        "**distlock**, one worker",
        Side::Ours,
        Kind::OneWorker,
        "#ff9896",
    ),
    drawn("raw", "raw ceiling", Side::Raw, Kind::Here, "#111111"),
    drawn(
        "distlock",
        "**distlock**",
        Side::Ours,
        Kind::Here,
        "#d62728",
    ),
    drawn(
        "redisson",
        "Redisson, threads",
        Side::Redisson,
        Kind::Java,
        "#1f77b4",
    ),
    drawn(
        "redisson-async",
        "Redisson, lockAsync",
        Side::Redisson,
        Kind::Java,
        "#7fb2dd",
    ),
    drawn(
        "rueidislock",
        "rueidislock (Go)",
        Side::Other,
        Kind::Go,
        "#2ca02c",
    ),
    drawn("redsync", "redsync (Go)", Side::Other, Kind::Go, "#98df8a"),
    drawn(
        "rslock",
        "rslock (Rust)",
        Side::Other,
        Kind::Rslock,
        "#ff7f0e",
    ),
    drawn(
        "redis-py",
        "redis-py Lock (Python)",
        Side::Other,
        Kind::Python,
        "#9467bd",
    ),
    drawn(
        "redlock",
        "redlock (Node)",
        Side::Other,
        Kind::Node,
        "#8c564b",
    ),
    embedded("memory", "**distlock**, `memory:`", Side::Ours),
    embedded("sqlite", "**distlock**, `sqlite:`", Side::Ours),
    embedded("tokio-mutex", "tokio::sync::Mutex", Side::Other),
    embedded("flock", "flock", Side::Other),
    family("fair", "**distlock**, fair lock"),
    family("fenced", "**distlock**, fenced lock"),
    family("read", "**distlock**, read lock"),
    family("write", "**distlock**, write lock"),
    family("simple", "**distlock**, simple lock"),
    family("permit", "**distlock**, semaphore"),
    family("counted", "**distlock**, counting semaphore"),
    family("latch", "**distlock**, latch: set and opened"),
    family("multi", "**distlock**, three locks at once"),
];

/// Returns the contestants that lock on a server, without twins of others.
pub(crate) fn on_a_server() -> impl Iterator<Item = &'static Contestant> {
    ALL.iter().filter(|one| one.is_on_a_server())
}

const fn drawn(
    name: &'static str,
    title: &'static str,
    side: Side,
    kind: Kind,
    color: &'static str,
) -> Contestant {
    Contestant {
        name,
        title,
        side,
        color: Some(color),
        kind,
    }
}

const fn family(name: &'static str, title: &'static str) -> Contestant {
    Contestant {
        kind: Kind::Family,
        ..embedded(name, title, Side::Ours)
    }
}

const fn embedded(name: &'static str, title: &'static str, side: Side) -> Contestant {
    Contestant {
        name,
        title,
        side,
        color: None,
        kind: Kind::Embedded,
    }
}

impl Contestant {
    pub(crate) fn named(name: &str) -> Outcome<&'static Self> {
        ALL.iter().find(|one| one.name == name).ok_or_else(|| {
            let names: Vec<&str> = ALL.iter().map(|one| one.name).collect();
            let names = names.join(", ");
            Failure::new(format!(
                "there is no contestant `{name}`; there are {names}"
            ))
        })
    }

    pub(crate) fn is_ours(self) -> bool {
        self.side == Side::Ours
    }

    /// Reports whether it is a lock that every library has, on a server, and no twin.
    pub(crate) fn is_on_a_server(self) -> bool {
        !self.is_embedded() && !self.is_twin() && !self.is_family()
    }

    /// Reports whether this program alone suffices: nothing of another language is needed.
    pub(crate) fn is_here(self) -> bool {
        matches!(
            self.kind,
            Kind::Here | Kind::OneWorker | Kind::Embedded | Kind::Family
        )
    }

    /// Reports whether it is another primitive of distlock than the plain lock.
    pub(crate) fn is_family(self) -> bool {
        self.kind == Kind::Family
    }

    pub(crate) fn is_embedded(self) -> bool {
        self.kind == Kind::Embedded
    }

    /// Reports whether it is another contestant's twin, for the one scenario that varies the number of threads.
    pub(crate) fn is_twin(self) -> bool {
        self.kind == Kind::OneWorker
    }

    /// Reports whether a virtual machine compiles the hot code: it needs longer to be warm.
    pub(crate) fn is_slow_to_warm(self) -> bool {
        matches!(self.kind, Kind::Java | Kind::Node)
    }

    /// Returns the folder that it has to be built in first, if any.
    pub(crate) const fn built_in(self) -> Option<&'static str> {
        match self.kind {
            Kind::Here | Kind::OneWorker | Kind::Embedded | Kind::Family => None,
            Kind::Go => Some("go"),
            Kind::Java => Some("redisson"),
            Kind::Node => Some("node"),
            Kind::Python => Some("python"),
            Kind::Rslock => Some("rslock"),
        }
    }

    /// Returns the command that starts it; `folder` is where scripts/bench built the others.
    pub(crate) fn command(self, folder: &Path) -> Outcome<Vec<String>> {
        let text = |path: PathBuf| path.display().to_string();
        let name = self.name.to_owned();
        Ok(match self.kind {
            Kind::Here | Kind::OneWorker | Kind::Embedded | Kind::Family => {
                vec![text(env::current_exe()?), "contestant".into(), name]
            }
            Kind::Rslock => vec![text(folder.join("rslock/contestant"))],
            Kind::Go => vec![text(folder.join("go/contestant")), name],
            Kind::Java => {
                let home = folder.join("redisson");
                let classes = text(home.join("classes"));
                let libraries = text(home.join("lib/*"));
                let path = format!("{classes}:{libraries}");
                // No flags: with smaller stacks for thousands of threads, Redisson's chains of futures overflow
                // them without a word.
                let words = ["java", "-cp", &path, "distlock.bench.Contestant", self.name];
                words.map(str::to_owned).into()
            }
            Kind::Node => {
                let script = text(folder.join("node/contestant.mjs"));
                vec!["node".into(), script]
            }
            Kind::Python => vec![
                text(folder.join("python/bin/python")),
                "bench/contestants/python/contestant.py".into(),
            ],
        })
    }
}
