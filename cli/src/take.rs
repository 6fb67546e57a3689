//! Taking a lock: granted, busy, or called away while waiting.

use std::time::Duration;

use distlock::{Client, Guard, Lock};

use crate::duration::short;
use crate::exit::{self, Failure};
use crate::label::Who;
use crate::out::shown;
use crate::signals::{News, Signals, stop_ourselves};
use crate::waiting;

/// How a wait ended.
pub(crate) enum Waited<K> {
    /// Somebody else still holds it.
    Busy,
    /// A signal wants us to end; with this code.
    Ended(u8),
    Granted(Guard<K>),
}

/// Waits for a lock, for ever or for that long.
pub(crate) async fn take<K>(
    client: &Client,
    lock: &Lock<K>,
    wait: Option<Duration>,
    signals: &mut Signals,
) -> Result<Waited<K>, Failure> {
    let mut taking = std::pin::pin!(within(lock, wait));
    let mut telling = std::pin::pin!(waiting::tell(client, lock.name()));
    loop {
        tokio::select! {
            biased;
            guard = &mut taking => return Ok(guard?.map_or(Waited::Busy, Waited::Granted)),
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
pub(crate) async fn busy(client: &Client, name: &str, wait: Option<Duration>, code: u8) -> Failure {
    if code == 0 {
        return Failure::silent(0);
    }
    let seen = client.admin().inspect(name).await.ok().flatten();
    let holder = seen.and_then(|lock| Some(Who::of(lock.holders.first()?)));
    let holder = holder.map_or_else(|| "somebody else".to_owned(), |who| who.to_string());
    let waited = wait.filter(|wait| !wait.is_zero());
    let waited = waited.map_or_else(String::new, |wait| format!(" (waited {})", short(wait)));
    let message = format!("`{}` is held by {holder}{waited}", shown(name));
    Failure::new(code, message)
}

async fn within<K>(lock: &Lock<K>, wait: Option<Duration>) -> Result<Option<Guard<K>>, Failure> {
    Ok(match wait {
        None => Some(lock.acquire().await?),
        Some(Duration::ZERO) => lock.try_acquire().await?,
        Some(wait) => lock.acquire_timeout(wait).await?,
    })
}
