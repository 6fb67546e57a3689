//! The store the locks live in.

use std::time::Duration;

use distlock::{Client, Durability, HoldsEndWith, Lease};

use crate::args;
use crate::exit::{self, Failure};
use crate::out::say;

/// The user's own file.
const DEFAULT: &str = "sqlite:";

/// How long replicas have to say that they have it.
const LONGEST_ACKNOWLEDGEMENT: Duration = Duration::from_secs(1);

/// However the store is, nobody waits longer for it when all is done.
pub(crate) const LONGEST_GOODBYE: Duration = Duration::from_secs(2);

pub(crate) async fn connect(
    store: &args::Store,
    holds_end_with: HoldsEndWith,
) -> Result<Client, Failure> {
    if url(store).is_empty() {
        // Not the default: a script whose variable is not set would lock nobody out but itself.
        let message = "the address of the store (`--url` or DISTLOCK_URL) is empty; leave it away for your own file";
        return Err(Failure::new(exit::USAGE, message));
    }
    if scheme(store).eq_ignore_ascii_case("memory") {
        let message =
            "`memory:` is this process's own: it would lock nothing; use sqlite: or redis://";
        return Err(Failure::new(exit::USAGE, message));
    }
    let mut builder = Client::builder(url(store)).holds_end_with(holds_end_with);
    if let Some(acks) = store.acks {
        let timeout = LONGEST_ACKNOWLEDGEMENT;
        builder = builder.durability(Durability::Replicas { acks, timeout });
    }
    if let Some(delay) = store.failover_delay {
        builder = builder.failover_delay(delay);
        // No lease may be longer, and one that nobody has chosen is not to be the reason why this is refused.
        if let Lease::KeepAlive(usual) = Lease::default() {
            builder = builder.default_lease(Lease::KeepAlive(usual.min(delay)));
        }
    }
    Ok(builder.connect().await?)
}

/// Whether the store sees by itself who is at work: what a command works on then stays locked until it has
/// ended, whatever becomes of us.
pub(crate) fn sees_processes(store: &args::Store) -> bool {
    scheme(store).eq_ignore_ascii_case("sqlite")
}

fn scheme(store: &args::Store) -> &str {
    url(store).split(':').next().unwrap_or_default()
}

fn url(store: &args::Store) -> &str {
    store.url.as_deref().unwrap_or(DEFAULT)
}

/// Closes the client. What the store does not hear of in time is left to its lease.
pub(crate) async fn leave(client: &Client) {
    let closed = tokio::time::timeout(LONGEST_GOODBYE, client.close()).await;
    if let Ok(Err(error)) = closed {
        say(error);
    }
}
