//! What a server executes, seen from beside it.

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

/// Reads along with the server (`MONITOR`): which script calls it has executed, those that travelled
/// together each for itself, and what is written, or asked before it, where there are no scripts. The scripts must be known
/// to it before, and names plain.
pub(crate) struct Witness {
    seen: Arc<Mutex<HashMap<String, Vec<Words>>>>,
    reader: AbortHandle,
}

pub(crate) type Words = Vec<String>;

impl Witness {
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

    /// How many calls about this lock were executed that the closure likes.
    pub(crate) fn count(&self, name: &str, likes: impl Fn(&[String]) -> bool) -> usize {
        let seen = self.seen();
        let calls = seen.get(name).into_iter().flatten();
        calls.filter(|words| likes(words)).count()
    }

    /// Every call about this lock, oldest first; those of scripts without their keys.
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

    /// The owners in the calls of a script about this lock, oldest first.
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

impl Drop for Witness {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// The arguments of a script's call, which follow its keys.
pub(crate) fn args<W: AsRef<[u8]>>(words: &[W]) -> &[W] {
    let keys = String::from_utf8_lossy(words[LOCK - 1].as_ref());
    let keys: usize = keys.parse().expect("the number of keys");
    &words[LOCK + keys..]
}

/// Where a script's call has the name of its lock, the first of its keys.
const LOCK: usize = 3;

/// The lock that a command is about, if it is one to note.
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

/// What asks whether an acquire was undone, undoes one, takes a lock, and renews it.
const NOTED: [&str; 5] = ["ZSCORE", "ZADD", "HSET", "SET", "PEXPIRE"];

/// The scripts whose calls may be lost, of whatever kind of lock.
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

    /// Has a server know all of them, and what they travel in: a rule counts a call that is answered NOSCRIPT
    /// as well.
    pub(crate) fn make_known(server: &RedisServer) {
        for script in Self::every_text() {
            server.cmd(&["SCRIPT", "LOAD", script]);
        }
    }

    /// All of them, and what they travel in.
    pub(crate) fn every_text() -> impl Iterator<Item = &'static str> {
        let scripts = Self::ALL.into_iter().flat_map(Self::texts);
        scripts.copied().chain(batches())
    }

    /// Whether a call, given by its words, is a run of this script.
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

    /// Of every kind of lock. What is given back, renewed or undone is a plain lock where it has no script of its own; and
    /// some are passed to nobody.
    const fn texts(self) -> &'static [&'static str] {
        match self {
            Self::Acquire => &[
                lua!("format/owner" then "format/lock" then "mutex/acquire"),
                lua!("format/owner" then "format/lock" then "fenced/token" then "fenced/acquire"),
                lua!("format/twin" then "format/owner" then "format/lock" then "format/queue" then "fair/line" then "fair/acquire"),
                lua!("format/twin" then "format/owner" then "format/read_write" then "rw/holds" then "rw/read"),
                lua!("format/twin" then "format/owner" then "format/read_write" then "rw/holds" then "rw/write"),
                lua!("format/simple" then "simple/acquire"),
                lua!("format/twin" then "format/number" then "format/permits" then "semaphore/line" then "semaphore/tally" then "semaphore/acquire"),
            ],
            Self::Pass => &[
                lua!("mutex/pass"),
                lua!("fenced/token" then "fenced/pass"),
                lua!("simple/pass"),
            ],
            Self::Release => &[
                lua!("mutex/release"),
                lua!("format/owner" then "format/queue" then "fair/line" then "fair/release"),
                lua!("format/twin" then "format/owner" then "format/read_write" then "rw/holds" then "rw/release_read"),
                lua!("format/twin" then "format/owner" then "format/read_write" then "rw/holds" then "rw/release_write"),
                lua!("simple/release"),
                lua!("format/twin" then "format/number" then "format/permits" then "semaphore/line" then "semaphore/tally" then "semaphore/release"),
            ],
            Self::Renew => &[
                lua!("mutex/renew"),
                lua!("format/twin" then "format/owner" then "format/read_write" then "rw/holds" then "rw/renew_read"),
                lua!("format/twin" then "format/owner" then "format/read_write" then "rw/holds" then "rw/renew_write"),
                lua!("simple/renew"),
                lua!("format/twin" then "format/number" then "format/permits" then "semaphore/line" then "semaphore/tally" then "semaphore/renew"),
            ],
            Self::Undo => &[
                lua!("mutex/undo"),
                lua!("format/owner" then "format/queue" then "fair/line" then "fair/undo"),
                lua!("format/twin" then "format/owner" then "format/read_write" then "rw/holds" then "rw/undo_read"),
                lua!("format/twin" then "format/owner" then "format/read_write" then "rw/holds" then "rw/undo_write"),
                lua!("simple/undo"),
                lua!("format/twin" then "format/number" then "format/permits" then "semaphore/line" then "semaphore/tally" then "semaphore/undo"),
            ],
        }
    }
}

/// Far longer than anything takes on a busy machine; only a failure waits for it.
const PATIENCE: Duration = Duration::from_secs(120);
