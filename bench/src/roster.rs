//! Who takes part, and how each of them is started.

use std::env;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Outcome};

/// Someone who locks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Contestant {
    /// On the command line and in the results.
    pub(crate) name: &'static str,
    /// In the tables.
    pub(crate) title: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    /// This very program.
    Here,
    /// The same on a runtime with one worker thread, so that the server has the other core.
    OneWorker,
    Embedded,
    Go,
    Java,
    Node,
    Python,
    Rslock,
}

/// In the order they play: those who are compared first are neighbours in time.
pub(crate) const ALL: &[Contestant] = &[
    Contestant::new("raw-blocking", "raw, blocking", Kind::Here),
    Contestant::new("raw-yield", "raw, yields before writing", Kind::Here),
    Contestant::new("raw-one", "raw, one worker", Kind::OneWorker),
    Contestant::new("distlock-one", "**distlock**, one worker", Kind::OneWorker),
    Contestant::new("raw", "raw ceiling", Kind::Here),
    Contestant::new("distlock", "**distlock**", Kind::Here),
    Contestant::new("redisson", "Redisson, threads", Kind::Java),
    Contestant::new("redisson-async", "Redisson, lockAsync", Kind::Java),
    Contestant::new("rueidislock", "rueidislock (Go)", Kind::Go),
    Contestant::new("redsync", "redsync (Go)", Kind::Go),
    Contestant::new("rslock", "rslock (Rust)", Kind::Rslock),
    Contestant::new("redis-py", "redis-py Lock (Python)", Kind::Python),
    Contestant::new("redlock", "redlock (Node)", Kind::Node),
    Contestant::new("memory", "**distlock**, `memory:`", Kind::Embedded),
    Contestant::new("sqlite", "**distlock**, `sqlite:`", Kind::Embedded),
    Contestant::new("tokio-mutex", "tokio::sync::Mutex", Kind::Embedded),
    Contestant::new("flock", "flock", Kind::Embedded),
];

impl Contestant {
    const fn new(name: &'static str, title: &'static str, kind: Kind) -> Self {
        Self { name, title, kind }
    }

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
        self.title.starts_with("**")
    }

    /// This program alone: nothing of another language is needed.
    pub(crate) fn is_here(self) -> bool {
        matches!(self.kind, Kind::Here | Kind::OneWorker | Kind::Embedded)
    }

    pub(crate) fn is_embedded(self) -> bool {
        self.kind == Kind::Embedded
    }

    /// Whether it is another's twin, for the one scenario where the number of threads is the question.
    pub(crate) fn is_twin(self) -> bool {
        self.kind == Kind::OneWorker
    }

    /// A virtual machine compiles what is hot: it needs longer to be warm.
    pub(crate) fn is_slow_to_warm(self) -> bool {
        matches!(self.kind, Kind::Java | Kind::Node)
    }

    /// The command that starts it; `folder` is where scripts/bench built the others.
    pub(crate) fn command(self, folder: &Path) -> Outcome<Vec<String>> {
        let text = |path: PathBuf| path.display().to_string();
        let name = self.name.to_owned();
        Ok(match self.kind {
            Kind::Here | Kind::OneWorker | Kind::Embedded => {
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
