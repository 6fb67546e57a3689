//! Taking a lock: granted, busy, or called away while waiting.

use std::time::Duration;

use distlock::{Client, Lease, LockInfo, LockKind};

use crate::duration::short;
use crate::exit::{self, Failure, Wanted};
use crate::kind::Kind;
use crate::label::Who;
use crate::out::shown;
use crate::signals::{News, Signals, stop_ourselves};
use crate::taken::Taken;
use crate::waiting;

/// Which locks, and how they are to be held.
pub(crate) struct Wish<'a> {
    pub(crate) kind: Kind,
    /// All of them, or none; at least one.
    pub(crate) names: &'a [String],
    /// How long to wait for it; for ever, if not said.
    pub(crate) wait: Option<Duration>,
    pub(crate) lease: Option<Lease>,
    pub(crate) max_hold: Option<Duration>,
    /// For how long a server that is new grants nothing.
    pub(crate) failover_delay: Option<Duration>,
}

/// How a wait ended.
pub(crate) enum Waited {
    /// Somebody else still holds it.
    Busy,
    /// A signal wants us to end; with this code.
    Ended(u8),
    Granted(Taken),
}

/// Waits for a lock, for ever or as long as was wished.
pub(crate) async fn take(
    client: &Client,
    wish: &Wish<'_>,
    signals: &mut Signals,
) -> Result<Waited, Failure> {
    let mut taking = std::pin::pin!(wish.kind.take(client, wish));
    let wanted = wish
        .kind
        .permits()
        .map_or(Wanted::LockToTake, |_| Wanted::Semaphore);
    let mut telling = std::pin::pin!(waiting::tell(client, wish.names));
    loop {
        tokio::select! {
            biased;
            taken = &mut taking => {
                let taken = taken.map_err(|failure| failure.of(wanted))?;
                return Ok(taken.map_or(Waited::Busy, Waited::Granted));
            }
            news = signals.next() => match news {
                News::End(signal) => return Ok(Waited::Ended(exit::by_signal(signal.as_raw()))),
                News::Stop => stop_ourselves(),
                News::Child | News::Private(_) => {}
            },
            () = &mut telling => {}
        }
    }
}

/// Says who has the lock, unless being busy was to be passed over.
pub(crate) async fn busy(client: &Client, wish: &Wish<'_>, code: u8) -> Failure {
    if code == 0 {
        return Failure::silent(0);
    }
    let (name, seen) = first_held(client, wish.names).await;
    let name = shown(name);
    let why = match (wish.kind, seen) {
        // Readers keep no reader out.
        (Kind::Read, Some(lock)) if lock.kind == LockKind::Read => {
            format!("a writer waits for `{name}`, and readers stand behind it")
        }
        (_, Some(lock)) => match &lock.holders[..] {
            [] => format!("`{name}` is held by somebody else"),
            [holder] => format!("`{name}` is held by {}", Who::of(holder)),
            [holder, others @ ..] => {
                format!(
                    "`{name}` is held by {} and {} more",
                    Who::of(holder),
                    others.len()
                )
            }
        },
        (Kind::Fair, None) => format!("others came first for `{name}`"),
        (_, None) => match wish.failover_delay {
            Some(delay) => format!(
                "`{name}` is not to be had, though nobody holds it: the server was started or promoted less than {} \
                 ago (--failover-delay), or its holder has just gone",
                short(delay)
            ),
            None => format!("`{name}` is held by somebody else"),
        },
    };
    let waited = wish.wait.filter(|wait| !wait.is_zero());
    let waited = waited.map_or_else(String::new, |wait| format!(" (waited {})", short(wait)));
    Failure::new(code, format!("{why}{waited}"))
}

/// The first of these that somebody holds, and who; or the first of all.
pub(crate) async fn first_held<'a>(
    client: &Client,
    names: &'a [String],
) -> (&'a str, Option<LockInfo>) {
    for name in names {
        if let Ok(Some(seen)) = client.admin().inspect(name).await {
            return (name, Some(seen));
        }
    }
    (names.first().map_or("", |name| name), None)
}
