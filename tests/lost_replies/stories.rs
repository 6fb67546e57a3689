//! What is done over the broken network: each story sends a few requests of one sort, and each of them
//! is lost in a case of its own.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use distlock::{Backoff, Error, Guard, Lease, Wait};

use super::case::Case;
use super::support::{Fault, Match, Script, eventually};
use super::{LEASE, PATIENCE};

pub(crate) struct Story {
    pub(crate) name: &'static str,
    /// How many requests of the sort it sends when nothing goes wrong.
    pub(crate) requests: u64,
    pub(crate) script: Script,
    /// Whether a request that is lost is sent again, word for word.
    pub(crate) repeated: Repeated,
    pub(crate) tell: for<'c> fn(&'c mut Case) -> Telling<'c>,
    /// Which runs of the script are meant, by the count they leave.
    count: Count,
}

pub(crate) type Telling<'c> = Pin<Box<dyn Future<Output = ()> + 'c>>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Count {
    Any,
    First,
    More,
    None,
    Some,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeated {
    Always,
    Never,
    /// When the hold is over, there is nothing to repeat.
    WhileHeld,
}

pub(crate) const STORIES: &[Story] = &[
    Story {
        requests: 4,
        ..story("acquire", Script::Acquire, Count::First, |case| {
            Box::pin(acquire(case))
        })
    },
    Story {
        requests: 3,
        ..story("wait and listen", Script::Acquire, Count::First, |case| {
            Box::pin(wait(case, Wait::Notify, 2))
        })
    },
    Story {
        requests: 4,
        ..story("wait and poll", Script::Acquire, Count::First, |case| {
            Box::pin(wait(case, Wait::Poll(BACKOFF), 3))
        })
    },
    Story {
        requests: 3,
        ..story("re-enter", Script::Acquire, Count::More, |case| {
            Box::pin(reenter(case))
        })
    },
    Story {
        requests: 3,
        repeated: Repeated::WhileHeld,
        ..story("release in part", Script::Release, Count::Some, |case| {
            Box::pin(release_in_part(case))
        })
    },
    Story {
        requests: 3,
        repeated: Repeated::Always,
        ..story("release", Script::Release, Count::None, |case| {
            Box::pin(release(case))
        })
    },
    Story {
        requests: 4,
        ..story("pass on", Script::Pass, Count::Any, |case| {
            Box::pin(pass_on(case))
        })
    },
    Story {
        repeated: Repeated::Always,
        ..story("drop", Script::Release, Count::None, |case| {
            Box::pin(abandon(case))
        })
    },
    Story {
        repeated: Repeated::WhileHeld,
        ..story("drop in part", Script::Release, Count::Some, |case| {
            Box::pin(abandon_in_part(case))
        })
    },
    Story {
        repeated: Repeated::WhileHeld,
        ..story("renew", Script::Renew, Count::Any, |case| {
            Box::pin(renew(case))
        })
    },
    story("extend", Script::Renew, Count::Any, |case| {
        Box::pin(extend(case))
    }),
    Story {
        repeated: Repeated::Always,
        ..story("undo", Script::Undo, Count::Any, |case| {
            Box::pin(undo(case))
        })
    },
    Story {
        repeated: Repeated::WhileHeld,
        ..story("undo re-entry", Script::Undo, Count::Any, |case| {
            Box::pin(undo_reentry(case))
        })
    },
];

const fn story(
    name: &'static str,
    script: Script,
    count: Count,
    tell: for<'c> fn(&'c mut Case) -> Telling<'c>,
) -> Story {
    Story {
        name,
        requests: 2,
        script,
        repeated: Repeated::Never,
        tell,
        count,
    }
}

impl Story {
    /// Whether nothing goes wrong in it but what the rule says. To have something undone, a story has to
    /// break something itself.
    pub(crate) fn is_whole(&self) -> bool {
        self.script != Script::Undo
    }

    /// Whether a request is one of the sort that is to be lost.
    pub(crate) fn is_target(&self, words: &[impl AsRef<[u8]>]) -> bool {
        if !self.script.runs(words) {
            return false;
        }
        let count = match self.script {
            Script::Acquire => words[7].as_ref(),
            Script::Release => words[5].as_ref(),
            Script::Pass | Script::Renew | Script::Undo => b"",
        };
        match self.count {
            Count::Any => true,
            Count::First => count == b"1",
            Count::More => count != b"1",
            Count::None => count == b"0",
            Count::Some => count != b"0",
        }
    }
}

async fn acquire(case: &mut Case) {
    let lock = case.lock();
    case.acquire(lock.try_acquire()).await;
    case.release_all().await;
    case.acquire(lock.acquire()).await;
    case.release_all().await;
    case.acquire(lock.acquire_timeout(PATIENCE)).await;
    case.release_all().await;
    let nobodys = case.client.lock(case.name.as_str());
    case.acquire(nobodys.acquire()).await;
    case.release_all().await;
}

/// Waits for a lock that another client gives back once it was asked for so many times.
async fn wait(case: &mut Case, wait: Wait, asks: usize) {
    let theirs = case.world.other.lock(case.name.as_str());
    let theirs = theirs.acquire().await.expect("their network is fine");
    let executed = async || {
        let owner = theirs.owner();
        let words = |words: &[String]| words.contains(&owner);
        case.world.witness.count(&case.name, words) > 0
    };
    eventually(PATIENCE, "theirs is seen", executed).await;
    let before = runs_of(case, Script::Acquire);
    let lock = case.lock().with_wait(wait);
    let waiting = tokio::spawn(lock.acquire_timeout(PATIENCE));
    eventually(PATIENCE, "it waits, or has failed", async || {
        waiting.is_finished() || runs_of(case, Script::Acquire) >= before + asks
    })
    .await;
    theirs.release().await.expect("their network is fine");
    let waited = !waiting.is_finished();
    let got = case
        .acquire(async { waiting.await.expect("no panic") })
        .await;
    assert!(got || !waited, "a waiter rides through what goes wrong");
    case.release_all().await;
}

async fn reenter(case: &mut Case) {
    let lock = case.lock();
    case.acquire(lock.acquire()).await;
    case.acquire(lock.acquire()).await;
    case.acquire(lock.try_acquire()).await;
    case.release().await;
    // Behind an attempt that may have been undone.
    case.acquire(lock.acquire_timeout(PATIENCE)).await;
    case.release_all().await;
}

async fn release(case: &mut Case) {
    for _ in 0..3 {
        let lock = case.lock();
        case.acquire(lock.acquire()).await;
        case.release_all().await;
    }
}

async fn release_in_part(case: &mut Case) {
    hold_four_times(case).await;
    case.release_all().await;
}

async fn abandon(case: &mut Case) {
    for _ in 0..2 {
        let lock = case.lock();
        case.acquire(lock.acquire()).await;
        case.abandon().await;
    }
}

async fn abandon_in_part(case: &mut Case) {
    hold_four_times(case).await;
    case.abandon().await;
    case.abandon().await;
    case.release_all().await;
}

async fn hold_four_times(case: &mut Case) {
    let lock = case.lock();
    for _ in 0..4 {
        case.acquire(lock.acquire()).await;
    }
}

/// Four wait behind a hold of their own client, and each passes the lock on to the next.
async fn pass_on(case: &mut Case) {
    let lock = case.client.lock(case.name.as_str());
    case.acquire(lock.acquire()).await;
    let mut line: VecDeque<Acquiring> = VecDeque::new();
    for _ in 0..4 {
        let mut waiting: Acquiring = Box::pin(lock.acquire());
        // The first poll puts it in the line.
        let polled = waiting
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        line.push_back(waiting);
    }
    while let Some(next) = line.pop_front() {
        if let Some(guard) = case.guards.pop()
            && let Err(error) = guard.release().await
        {
            case.tolerate(&error);
        }
        case.acquire(next).await;
    }
    case.release_all().await;
}

/// Holds the lock for as long as a few renewals take.
async fn renew(case: &mut Case) {
    let lock = case.lock().with_lease(Lease::KeepAlive(SHORT_LEASE));
    case.acquire(lock.acquire()).await;
    case.acquire(lock.acquire()).await;
    if case.guards.is_empty() {
        return;
    }
    let before = runs_of(case, Script::Renew);
    for renewals in 1..=3 {
        eventually(PATIENCE, "it is renewed", async || {
            runs_of(case, Script::Renew) >= before + renewals
        })
        .await;
        case.check(true).await;
        let left = case.world.pttl(&case.name).await;
        assert!(left > 0 && left <= millis(SHORT_LEASE), "{left} ms left");
    }
    case.release_all().await;
}

async fn extend(case: &mut Case) {
    let lock = case.lock().with_lease(Lease::Fixed(LEASE));
    case.acquire(lock.acquire()).await;
    for times in 2..=3 {
        let Some(guard) = case.guards.last() else {
            return;
        };
        let extended = guard.extend(LEASE * times).await;
        let left = case.world.pttl(&case.name).await;
        match extended {
            Ok(()) => assert!(left > millis(LEASE * (times - 1)), "{left} ms left"),
            Err(error) => {
                case.tolerate(&error);
            }
        }
        assert!(left <= millis(LEASE * times), "{left} ms left");
        case.check(true).await;
    }
    case.release_all().await;
}

/// Has two acquires undone: one was carried out, one never came.
async fn undo(case: &mut Case) {
    for (nth, fault) in [(1, Fault::CutAfter), (2, Fault::CutBefore)] {
        case.proxy.rule(acquires().nth(nth), fault);
    }
    let lock = case.lock();
    for _ in 0..3 {
        case.acquire(lock.try_acquire()).await;
        case.release_all().await;
    }
}

/// Has two re-entries undone.
async fn undo_reentry(case: &mut Case) {
    let lock = case.lock();
    case.acquire(lock.acquire()).await;
    for nth in [1, 2] {
        case.proxy.rule(acquires().nth(nth), Fault::CutAfter);
    }
    for _ in 0..2 {
        case.acquire(lock.try_acquire()).await;
    }
    case.release_all().await;
}

/// How often the server has executed this script for the case.
fn runs_of(case: &Case, script: Script) -> usize {
    let witness = &case.world.witness;
    witness.count(&case.name, |words| script.runs(words))
}

fn acquires() -> Match {
    Match::words(|words| Script::Acquire.runs(words))
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).expect("it is short")
}

type Acquiring = Pin<Box<dyn Future<Output = Result<Guard, Error>> + Send>>;

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(20));
/// A third of it is longer than a call may take, so that a renewal that is lost can be sent again; and a
/// machine that stands still for a second does not end it.
const SHORT_LEASE: Duration = Duration::from_secs(3);
