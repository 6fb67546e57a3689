//! The lock libraries on the other side, and how a peer with each is started.

use std::path::{Path, PathBuf};

use tokio::process::Command;

/// A library that others lock with.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Library {
    RedisPy,
    Redisson,
    Redlock,
    Redsync,
}

/// Which lock two sides share.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Shared {
    /// `Client::fair_lock`, Redisson's `RFairLock`.
    Fair,
    /// `Client::fenced_lock`, Redisson's `RFencedLock`.
    Fenced,
    /// `Client::lock`, Redisson's `RLock`.
    Plain,
    /// `Client::rw_lock`, Redisson's `RReadWriteLock`.
    ReadWrite,
    /// `Client::simple_lock`, that of the others.
    Simple,
}

/// A version of a library, and where its peer was built.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Build {
    pub(crate) library: Library,
    pub(crate) version: String,
    pub(crate) folder: PathBuf,
}

impl Library {
    /// As its own documentation spells it.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::RedisPy => "redis-py",
            Self::Redisson => "Redisson",
            Self::Redlock => "redlock",
            Self::Redsync => "redsync",
        }
    }
}

impl Shared {
    pub(crate) const ALL: [Self; 5] = [
        Self::Plain,
        Self::Fair,
        Self::Fenced,
        Self::ReadWrite,
        Self::Simple,
    ];

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Fair => "The fair lock",
            Self::Fenced => "The fenced lock",
            Self::Plain => "The plain lock",
            Self::ReadWrite => "The read/write lock",
            Self::Simple => "The simple lock",
        }
    }

    /// What the table says when it is the other side that holds.
    pub(crate) const fn they_hold(self) -> &'static str {
        match self {
            Self::Fair | Self::Fenced | Self::Plain | Self::ReadWrite => "Java holds",
            Self::Simple => "they hold",
        }
    }

    /// What the peers are told.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Fair => "fair",
            Self::Fenced => "fenced",
            Self::Plain => "plain",
            Self::ReadWrite => "read-write",
            Self::Simple => "simple",
        }
    }
}

impl Build {
    /// Redisson in this version.
    pub(crate) fn redisson(peers: &Path, version: &str) -> Self {
        Self {
            library: Library::Redisson,
            version: version.into(),
            folder: peers.join(version),
        }
    }

    /// Those who share the simple lock, each in the version that its own file of dependencies pins.
    pub(crate) fn of_simple_locks(peers: &Path) -> [Self; 3] {
        [
            (Library::RedisPy, REDIS_PY, "redis=="),
            (Library::Redsync, REDSYNC, "redsync/v4 v"),
            (Library::Redlock, REDLOCK, "\"redlock\": \""),
        ]
        .map(|(library, pins, before)| Self {
            library,
            version: pinned(pins, before).into(),
            folder: peers.join(library.title()),
        })
    }

    /// Whether it has a lock like this.
    pub(crate) fn has(&self, shared: Shared) -> bool {
        match (self.library, shared) {
            (Library::Redisson, Shared::Fenced) => self.release() >= FIRST_FENCED,
            (Library::Redisson, Shared::Fair | Shared::Plain | Shared::ReadWrite) => true,
            (Library::RedisPy | Library::Redlock | Library::Redsync, Shared::Simple) => true,
            (Library::Redisson, Shared::Simple)
            | (Library::RedisPy | Library::Redlock | Library::Redsync, _) => false,
        }
    }

    /// The first two numbers of its version.
    fn release(&self) -> [u32; 2] {
        let mut numbers = self.version.split('.').map(|number| number.parse());
        [(); 2].map(|()| numbers.next().and_then(Result::ok).unwrap_or(0))
    }

    /// `Redisson 4.7.0`.
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.library.title(), self.version)
    }

    /// The same in one word, for files and logs.
    pub(crate) fn word(&self) -> String {
        format!("{}-{}", self.library.title(), self.version)
    }

    /// Something that is there if the peer was built.
    pub(crate) fn program(&self) -> PathBuf {
        self.folder.join(match self.library {
            Library::RedisPy => "peer.py",
            Library::Redisson => "classes/distlock/peer/Peer.class",
            Library::Redlock => "peer.mjs",
            Library::Redsync => "peer",
        })
    }

    /// Starts the peer.
    pub(crate) fn command(&self) -> Command {
        let mut command;
        match self.library {
            Library::RedisPy => {
                command = Command::new(self.folder.join("bin/python"));
                command.arg(self.program());
            }
            Library::Redisson => {
                let (classes, libraries) = (self.folder.join("classes"), self.folder.join("lib/*"));
                command = Command::new("java");
                command
                    // Small, and quick to start: dozens of threads, but little to do.
                    .args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
                    .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
                    .arg("-cp")
                    .arg(format!("{}:{}", classes.display(), libraries.display()))
                    .arg("distlock.peer.Peer");
            }
            Library::Redlock => {
                command = Command::new("node");
                command.arg(self.program());
            }
            Library::Redsync => command = Command::new(self.program()),
        }
        command
    }
}

/// The version that stands behind these words.
fn pinned<'a>(pins: &'a str, before: &str) -> &'a str {
    let (_, rest) = pins.split_once(before).expect("the library is pinned");
    let end = rest.find(|letter: char| letter == '"' || letter.is_whitespace());
    &rest[..end.unwrap_or(rest.len())]
}

/// The first Redisson with `RFencedLock`.
const FIRST_FENCED: [u32; 2] = [3, 19];

const REDIS_PY: &str = include_str!("../peers/redis-py/requirements.txt");
const REDSYNC: &str = include_str!("../peers/redsync/go.mod");
const REDLOCK: &str = include_str!("../peers/redlock/package.json");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_the_one_that_is_pinned() {
        assert_eq!(pinned("a==1\nredis==8.1.0\nb==2\n", "redis=="), "8.1.0");
        assert_eq!(pinned("{\"redlock\": \"5.0\"}", "\"redlock\": \""), "5.0");
        for build in Build::of_simple_locks(Path::new("p")) {
            assert!(
                build
                    .version
                    .starts_with(|digit: char| digit.is_ascii_digit())
            );
            let has = Shared::ALL.map(|shared| build.has(shared));
            assert_eq!(has, [false, false, false, false, true]);
        }
    }

    #[test]
    fn only_newer_versions_of_redisson_have_the_fenced_lock() {
        for (version, fenced) in [
            ("4.7.0", true),
            ("3.19.0", true),
            ("3.18.1", false),
            ("3.13.6", false),
        ] {
            let build = Build::redisson(Path::new("p"), version);
            let has = Shared::ALL.map(|shared| build.has(shared));
            assert_eq!(has, [true, true, fenced, true, false], "{version}");
        }
    }
}
