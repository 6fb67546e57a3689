//! Acquiring the locks: granted, busy, or interrupted by a signal.

use std::time::Duration;

use distlock::{Client, Lease, LockInfo, LockKind};

use crate::duration::short;
use crate::exit::{self, ExpectedKind, Failure};
use crate::kind::Kind;
use crate::label::HolderInfo;
use crate::out::shown;
use crate::signals::{SignalEvent, Signals, stop_self};
use crate::taken::Taken;
use crate::waiting;

/// The locks to acquire, and how to hold them.
pub(crate) struct TakeParams<'a> {
    pub(crate) kind: Kind,
    /// All of them, or none; at least one.
    pub(crate) names: &'a [String],
    /// The timeout of the wait; `None` to wait forever.
    pub(crate) wait: Option<Duration>,
    pub(crate) lease: Option<Lease>,
    pub(crate) max_hold: Option<Duration>,
    /// How long a restarted or promoted server grants nothing.
    pub(crate) failover_delay: Option<Duration>,
}

/// The outcome of a wait.
pub(crate) enum TakeOutcome {
    /// Another owner still holds a lock.
    Busy,
    /// A signal ended the wait; this is the exit code.
    Ended(u8),
    Granted(Taken),
}

/// Waits for the locks, forever or for the requested time.
pub(crate) async fn take(
    client: &Client,
    params: &TakeParams<'_>,
    signals: &mut Signals,
) -> Result<TakeOutcome, Failure> {
    let mut taking = std::pin::pin!(params.kind.take(client, params));
    let wanted = params
        .kind
        .permits()
        .map_or(ExpectedKind::LockToTake, |_| ExpectedKind::Semaphore);
    let mut telling = std::pin::pin!(waiting::show_holder(client, params.names));
    loop {
        tokio::select! {
            biased;
            taken = &mut taking => {
                let taken = taken.map_err(|failure| failure.of(wanted))?;
                return Ok(taken.map_or(TakeOutcome::Busy, TakeOutcome::Granted));
            }
            event = signals.next() => match event {
                SignalEvent::End(signal) => return Ok(TakeOutcome::Ended(exit::by_signal(signal.as_raw()))),
                SignalEvent::Stop => stop_self(),
                SignalEvent::Child | SignalEvent::Private(_) => {}
            },
            () = &mut telling => {}
        }
    }
}

/// Returns the failure that names the holder, or a silent one if the exit code for a busy lock is 0.
pub(crate) async fn busy(client: &Client, params: &TakeParams<'_>, code: u8) -> Failure {
    if code == 0 {
        return Failure::silent(0);
    }
    let (name, seen) = first_held(client, params.names).await;
    let name = shown(name);
    let why = match (params.kind, seen) {
        // A reader does not exclude other readers.
        (Kind::Read, Some(lock)) if lock.kind == LockKind::Read => {
            format!("a writer waits for `{name}`, and later readers queue behind it")
        }
        (_, Some(lock)) => match &lock.holders[..] {
            [] => format!("`{name}` is held by another owner"),
            [holder] => format!("`{name}` is held by {}", HolderInfo::of(holder)),
            [holder, others @ ..] => {
                format!(
                    "`{name}` is held by {} and {} more",
                    HolderInfo::of(holder),
                    others.len()
                )
            }
        },
        (Kind::Fair, None) => format!("other owners are ahead in the queue of `{name}`"),
        (_, None) => match params.failover_delay {
            Some(delay) => format!(
                "`{name}` has no holder, but is not available: the server was started or promoted less than {} ago \
                 (--failover-delay), or the last hold has just ended",
                short(delay)
            ),
            None => format!("`{name}` is held by another owner"),
        },
    };
    let waited = params.wait.filter(|wait| !wait.is_zero());
    let waited = waited.map_or_else(String::new, |wait| format!(" (waited {})", short(wait)));
    Failure::new(code, format!("{why}{waited}"))
}

/// Returns the first of these names that is held, with its holders; otherwise the first name.
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
