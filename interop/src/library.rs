//! The lock libraries on the other side, and how a peer with each of them is started.

use std::path::{Path, PathBuf};

use tokio::process::Command;

use crate::failure::{Failure, Outcome};

/// A lock library of the other side.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Library {
    RedisPy,
    Redisson,
    Redlock,
    Redsync,
}

/// The lock that two sides share.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Shared {
    /// `Client::counting_semaphore`, Redisson's `RSemaphore`.
    Counting,
    /// `Client::fair_lock`, Redisson's `RFairLock`.
    Fair,
    /// `Client::fenced_lock`, Redisson's `RFencedLock`.
    Fenced,
    /// `Client::latch`, Redisson's `RCountDownLatch`.
    Latch,
    /// `MultiLock`, Redisson's `RedissonMultiLock`.
    Multi,
    /// `Client::lock`, Redisson's `RLock`.
    Plain,
    /// `QuorumLock` of plain locks, `RedissonRedLock`.
    Quorum,
    /// `Client::rw_lock`, Redisson's `RReadWriteLock`.
    ReadWrite,
    /// `Client::semaphore`, Redisson's `RPermitExpirableSemaphore`.
    Semaphore,
    /// `Client::simple_lock`, the lock of the other libraries.
    Simple,
    /// `QuorumLock` of simple locks: the lock of redsync and redlock with several servers.
    SimpleQuorum,
}

/// A version of a library, and the folder in which its peer was built.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Build {
    pub(crate) library: Library,
    pub(crate) version: String,
    pub(crate) folder: PathBuf,
}

impl Library {
    /// Returns the library's name as its own documentation spells it.
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
    pub(crate) const ALL: [Self; 11] = [
        Self::Plain,
        Self::Fair,
        Self::Fenced,
        Self::ReadWrite,
        Self::Semaphore,
        Self::Counting,
        Self::Latch,
        Self::Multi,
        Self::Quorum,
        Self::Simple,
        Self::SimpleQuorum,
    ];

    /// Returns the library with this name on the command line.
    pub(crate) fn named(word: &str) -> Outcome<Self> {
        let named = Self::ALL.into_iter().find(|one| one.word() == word);
        named.ok_or_else(|| Failure::new(format!("there is no lock `{word}`")))
    }

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Counting => "The semaphore that only counts",
            Self::Fair => "The fair lock",
            Self::Fenced => "The fenced lock",
            Self::Latch => "The latch",
            Self::Multi => "Several locks at once",
            Self::Plain => "The plain lock",
            Self::Quorum => "One lock on most of several servers",
            Self::ReadWrite => "The read/write lock",
            Self::Semaphore => "The semaphore",
            Self::Simple => "The simple lock",
            Self::SimpleQuorum => "One simple lock on most of several servers",
        }
    }

    /// Returns the direction for the table when the other side is the holder.
    pub(crate) const fn they_hold(self) -> &'static str {
        match self {
            Self::Counting
            | Self::Fair
            | Self::Fenced
            | Self::Multi
            | Self::Plain
            | Self::Quorum
            | Self::ReadWrite
            | Self::Semaphore => "Java holds",
            Self::Latch => "Java counts",
            Self::Simple | Self::SimpleQuorum => "they hold",
        }
    }

    /// Returns the direction for the table when our side is the holder.
    pub(crate) const fn we_hold(self) -> &'static str {
        match self {
            Self::Latch => "we count",
            Self::Counting
            | Self::Fair
            | Self::Fenced
            | Self::Multi
            | Self::Plain
            | Self::Quorum
            | Self::ReadWrite
            | Self::Semaphore
            | Self::Simple
            | Self::SimpleQuorum => "we hold",
        }
    }

    /// Returns the word that names this lock to the peers.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Counting => "counting",
            Self::Fair => "fair",
            Self::Fenced => "fenced",
            Self::Latch => "latch",
            Self::Multi => "multi",
            Self::Plain => "plain",
            Self::Quorum => "quorum",
            Self::ReadWrite => "read-write",
            Self::Semaphore => "semaphore",
            Self::Simple => "simple",
            Self::SimpleQuorum => "simple-quorum",
        }
    }
}

impl Build {
    /// Returns the build of Redisson in this version.
    pub(crate) fn redisson(peers: &Path, version: &str) -> Self {
        Self {
            library: Library::Redisson,
            version: version.into(),
            folder: peers.join(version),
        }
    }

    /// Returns the libraries that share the simple lock, each in the version that its own file of dependencies pins.
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

    /// Reports whether this version has a lock like this.
    pub(crate) fn has(&self, shared: Shared) -> bool {
        match (self.library, shared) {
            (Library::Redisson, Shared::Fenced) => self.release() >= FIRST_FENCED,
            (
                Library::Redisson,
                Shared::Counting
                | Shared::Fair
                | Shared::Latch
                | Shared::Multi
                | Shared::Plain
                | Shared::Quorum
                | Shared::ReadWrite
                | Shared::Semaphore,
            ) => true,
            (Library::RedisPy | Library::Redlock | Library::Redsync, Shared::Simple)
            | (Library::Redlock | Library::Redsync, Shared::SimpleQuorum) => true,
            (Library::Redisson, Shared::Simple | Shared::SimpleQuorum)
            | (Library::RedisPy | Library::Redlock | Library::Redsync, _) => false,
        }
    }

    /// Reports whether this version can acquire several permits of a semaphore at once.
    pub(crate) fn takes_several_permits(&self) -> bool {
        self.release() >= FIRST_SEVERAL
    }

    /// Reports whether the ids of its permits are stored in the format of ours: 16 bytes, not 32 letters.
    pub(crate) fn has_short_permit_ids(&self) -> bool {
        self.release() >= FIRST_SHORT
    }

    /// Reports whether it notifies the waiters of a counting semaphore of permits that are added.
    pub(crate) fn tells_of_added_permits(&self) -> bool {
        self.release() >= FIRST_TOLD
    }

    /// Returns the first two numbers of its version.
    pub(crate) fn release(&self) -> [u32; 2] {
        let mut numbers = self.version.split('.').map(|number| number.parse());
        [(); 2].map(|()| numbers.next().and_then(Result::ok).unwrap_or(0))
    }

    /// Returns the title, such as `Redisson 4.7.0`.
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.library.title(), self.version)
    }

    /// Returns the title in one word, for files and logs.
    pub(crate) fn word(&self) -> String {
        format!("{}-{}", self.library.title(), self.version)
    }

    /// Returns a file that exists if the peer was built.
    pub(crate) fn program(&self) -> PathBuf {
        self.folder.join(match self.library {
            Library::RedisPy => "peer.py",
            Library::Redisson => "classes/distlock/peer/Peer.class",
            Library::Redlock => "peer.mjs",
            Library::Redsync => "peer",
        })
    }

    /// Returns the command that starts the peer.
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
                    // A small JVM that is quick to start: it has dozens of threads, but little to do.
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

/// Returns the version that follows these words.
fn pinned<'a>(pins: &'a str, before: &str) -> &'a str {
    let (_, rest) = pins.split_once(before).expect("the library is pinned");
    let end = rest.find(|letter: char| letter == '"' || letter.is_whitespace());
    &rest[..end.unwrap_or(rest.len())]
}

/// The first Redisson with `RFencedLock`.
const FIRST_FENCED: [u32; 2] = [3, 19];

/// The first with permits of 16 bytes; and, a minor version too late, the first that acquires several: 3.23.4.
const FIRST_SHORT: [u32; 2] = [3, 17];
const FIRST_SEVERAL: [u32; 2] = [3, 24];

/// A minor version too late, the first whose `RSemaphore.addPermits` is announced: 3.16.2.
const FIRST_TOLD: [u32; 2] = [3, 17];

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
            let has = Shared::ALL.into_iter().filter(|shared| build.has(*shared));
            let has: Vec<Shared> = has.collect();
            let simple = [Shared::Simple, Shared::SimpleQuorum];
            // redis-py supports only one server.
            let count = if build.library == Library::RedisPy {
                1
            } else {
                2
            };
            assert_eq!(has, simple[..count]);
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
            assert_eq!(
                has,
                [
                    true, true, fenced, true, true, true, true, true, true, false, false,
                ],
                "{version}"
            );
        }
    }
}
