//! An observer of the commands that a server executes.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::task::AbortHandle;

use super::batch::{apart, batches};
use super::form::Form;
use super::login::Rights;
use super::transport::connect;
use super::{RedisServer, eventually};

/// Reads the server's commands with `MONITOR`. It records every script call, the calls of a batch one by one, and without
/// scripts the writes and the reads that precede them. The server must have loaded the scripts before, and names must not
/// need quoting.
pub(crate) struct CommandMonitor {
    seen: Arc<Mutex<HashMap<String, Vec<Words>>>>,
    reader: AbortHandle,
}

pub(crate) type Words = Vec<String>;

impl CommandMonitor {
    pub(crate) async fn start(server: &RedisServer) -> Self {
        let mut stream = connect(server.addr()).await.expect("the server runs");
        let login = Rights::from_env().greeting();
        let asked = format!("{login}MONITOR\r\n");
        stream
            .write_all(asked.as_bytes())
            .await
            .expect("it listens");
        let mut lines = BufReader::new(stream).lines();
        for _ in login.lines() {
            lines.next_line().await.expect("it answers");
        }
        let agreed = lines.next_line().await.expect("it answers");
        assert_eq!(agreed.as_deref(), Some("+OK"));
        let seen = Arc::<Mutex<HashMap<String, Vec<Words>>>>::default();
        let notes = seen.clone();
        let reader = tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let Some((whose, words)) = line.split_once(" \"") else {
                    continue;
                };
                if whose.ends_with(" lua]") {
                    continue;
                }
                let words = words.trim_end_matches('"').split("\" \"");
                let words: Words = words.map(ToOwned::to_owned).collect();
                let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
                for call in apart(words) {
                    if let Some(lock) = lock_of(&call) {
                        notes.entry(lock).or_default().push(call);
                    }
                }
            }
        });
        Self {
            seen,
            reader: reader.abort_handle(),
        }
    }

    /// Returns how many of the executed calls about this lock satisfy the closure.
    pub(crate) fn count(&self, name: &str, likes: impl Fn(&[String]) -> bool) -> usize {
        let seen = self.seen();
        let calls = seen.get(name).into_iter().flatten();
        calls.filter(|words| likes(words)).count()
    }

    /// Returns every call about this lock, oldest first; calls of scripts are shown without their keys.
    pub(crate) fn calls(&self, name: &str) -> Vec<String> {
        let seen = self.seen();
        let calls = seen.get(name).into_iter().flatten();
        let shown = calls.map(|words| {
            let script = Script::ALL.iter().find(|script| script.runs(words));
            let Some(script) = script else {
                return words.join(" ");
            };
            format!("{script:?} {:?}", args(words))
        });
        shown.collect()
    }

    /// Returns the owners in the calls of a script about this lock, oldest first.
    pub(crate) fn owners(&self, name: &str, script: Script) -> Vec<String> {
        let seen = self.seen();
        let calls = seen.get(name).into_iter().flatten();
        let calls = calls.filter(|words| script.runs(words));
        calls.map(|words| args(words)[0].clone()).collect()
    }

    /// Waits until this very call has been executed more than `before` times.
    pub(crate) async fn executed(&self, call: &[String], before: usize) {
        eventually(PATIENCE, "the request is executed", async || {
            self.count(&call[LOCK], |words| words == call) > before
        })
        .await;
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<String, Vec<Words>>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CommandMonitor {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// Returns the arguments of a script's call, which follow its keys.
pub(crate) fn args<W: AsRef<[u8]>>(words: &[W]) -> &[W] {
    let keys = String::from_utf8_lossy(words[LOCK - 1].as_ref());
    let keys: usize = keys.parse().expect("the number of keys");
    &words[LOCK + keys..]
}

/// The index of the lock's name in a script's call: it is the first key.
const LOCK: usize = 3;

/// Returns the lock that a command is about, if the command is to be recorded.
fn lock_of(words: &[String]) -> Option<String> {
    match words {
        [evalsha, _, _, lock, ..] if evalsha == "EVALSHA" => Some(lock.clone()),
        [word, key, ..] if NOTED.contains(&word.as_str()) => {
            let marks = key.strip_prefix("distlock_undone:{");
            let lock = marks.and_then(|key| key.strip_suffix('}'));
            Some(lock.unwrap_or(key).to_owned())
        }
        _ => None,
    }
}

/// The commands that check for a tombstone, write one, acquire a lock, and renew it.
const NOTED: [&str; 5] = ["ZSCORE", "ZADD", "HSET", "SET", "PEXPIRE"];

/// The scripts whose calls may be lost, for every kind of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    Acquire,
    Pass,
    Release,
    Renew,
    Undo,
}

impl Script {
    pub(crate) const ALL: [Self; 5] = [
        Self::Acquire,
        Self::Pass,
        Self::Release,
        Self::Renew,
        Self::Undo,
    ];

    /// Loads all of them and their batch scripts into a server: a rule also counts a call that is answered with NOSCRIPT.
    pub(crate) fn load_all(server: &RedisServer) {
        for script in Self::every_text() {
            server.cmd(&["SCRIPT", "LOAD", script]);
        }
    }

    /// Returns the texts of all of them and of their batch scripts.
    pub(crate) fn every_text() -> impl Iterator<Item = &'static str> {
        let scripts = Self::ALL.into_iter().flat_map(Self::texts);
        scripts.copied().chain(batches())
    }

    /// Returns whether a call, given by its words, runs this script.
    pub(crate) fn runs(self, words: &[impl AsRef<[u8]>]) -> bool {
        static HASHES: LazyLock<[Vec<String>; 5]> = LazyLock::new(|| {
            let hashes = |text: &&str| Form::ALL.map(|form| form.hash(text));
            Script::ALL.map(|script| script.texts().iter().flat_map(hashes).collect())
        });
        words.len() > LOCK
            && words[0].as_ref() == b"EVALSHA"
            && HASHES[self as usize]
                .iter()
                .any(|hash| words[1].as_ref() == hash.as_bytes())
    }

    /// Returns the texts for every kind of lock. A kind without a script of its own is released, renewed or undone by the
    /// script of the plain lock; some kinds are never passed on.
    const fn texts(self) -> &'static [&'static str] {
        match self {
            Self::Acquire => &[
                lua!("format/owner" then "format/lock" then "mutex/acquire"),
                lua!("format/owner" then "format/lock" then "fenced/token" then "fenced/acquire"),
                lua!("format/alias" then "format/owner" then "format/lock" then "format/queue" then "fair/queue" then "fair/acquire"),
                lua!("format/alias" then "format/owner" then "format/read_write" then "rw/holds" then "rw/read"),
                lua!("format/alias" then "format/owner" then "format/read_write" then "rw/holds" then "rw/write"),
                lua!("format/simple" then "simple/acquire"),
                lua!("format/alias" then "format/number" then "format/permits" then "semaphore/queue" then "semaphore/permits" then "semaphore/acquire"),
            ],
            Self::Pass => &[
                lua!("mutex/transfer"),
                lua!("fenced/token" then "fenced/transfer"),
                lua!("simple/transfer"),
            ],
            Self::Release => &[
                lua!("mutex/release"),
                lua!("format/owner" then "format/queue" then "fair/queue" then "fair/release"),
                lua!("format/alias" then "format/owner" then "format/read_write" then "rw/holds" then "rw/release_read"),
                lua!("format/alias" then "format/owner" then "format/read_write" then "rw/holds" then "rw/release_write"),
                lua!("simple/release"),
                lua!("format/alias" then "format/number" then "format/permits" then "semaphore/queue" then "semaphore/permits" then "semaphore/release"),
            ],
            Self::Renew => &[
                lua!("mutex/renew"),
                lua!("format/alias" then "format/owner" then "format/read_write" then "rw/holds" then "rw/renew_read"),
                lua!("format/alias" then "format/owner" then "format/read_write" then "rw/holds" then "rw/renew_write"),
                lua!("simple/renew"),
                lua!("format/alias" then "format/number" then "format/permits" then "semaphore/queue" then "semaphore/permits" then "semaphore/renew"),
            ],
            Self::Undo => &[
                lua!("mutex/undo"),
                lua!("format/owner" then "format/queue" then "fair/queue" then "fair/undo"),
                lua!("format/alias" then "format/owner" then "format/read_write" then "rw/holds" then "rw/undo_read"),
                lua!("format/alias" then "format/owner" then "format/read_write" then "rw/holds" then "rw/undo_write"),
                lua!("simple/undo"),
                lua!("format/alias" then "format/number" then "format/permits" then "semaphore/queue" then "semaphore/permits" then "semaphore/undo"),
            ],
        }
    }
}

/// Upper bound for anything on a busy machine; only a failure waits this long.
const PATIENCE: Duration = Duration::from_secs(120);
