//! The store that holds the locks.

use std::ffi::OsStr;
use std::time::Duration;

use distlock::{Client, Durability, Lease, ReleaseOn};

use crate::args;
use crate::exit::{self, Failure};
use crate::label::without_passwords;
use crate::out::{say, shown};

/// The file of the current user.
const DEFAULT: &str = "sqlite:";

/// Timeout for the acknowledgements of replicas.
const LONGEST_ACKNOWLEDGEMENT: Duration = Duration::from_secs(1);

/// Upper bound of the wait for the store when the work is done.
pub(crate) const MAX_CLOSE_TIME: Duration = Duration::from_secs(2);

pub(crate) async fn connect(store: &args::Store, release_on: ReleaseOn) -> Result<Client, Failure> {
    if url(store).is_empty() {
        // An empty url does not mean the default: a script with an unset variable would exclude no client but itself.
        let message = "the address of the store (`--url` or DISTLOCK_URL) is empty; leave it out to use your own file";
        return Err(Failure::new(exit::USAGE, message));
    }
    if scheme(store).eq_ignore_ascii_case("memory") {
        let message = "`memory:` is private to this process and would exclude no other; use sqlite: or redis://";
        return Err(Failure::new(exit::USAGE, message));
    }
    let mut builder = Client::builder(url(store)).release_on(release_on);
    if let Some(acks) = store.acks {
        let timeout = LONGEST_ACKNOWLEDGEMENT;
        builder = builder.durability(Durability::Replicas { acks, timeout });
    }
    if let Some(delay) = store.failover_delay {
        builder = builder.failover_delay(delay);
        // No lease may be longer than the delay, and the default lease must not be the reason to reject it.
        if let Lease::KeepAlive(usual) = Lease::default() {
            builder = builder.default_lease(Lease::KeepAlive(usual.min(delay)));
        }
    }
    Ok(builder.connect().await?)
}

/// Returns whether the store detects the end of processes: the lock then stays held until the command has ended, even
/// if this process crashes.
pub(crate) fn sees_processes(store: &args::Store) -> bool {
    scheme(store).eq_ignore_ascii_case("sqlite")
}

fn scheme(store: &args::Store) -> &str {
    url(store).split(':').next().unwrap_or_default()
}

fn url(store: &args::Store) -> &str {
    store.url.as_deref().unwrap_or(DEFAULT)
}

/// Returns the store's url for a message: without passwords.
pub(crate) fn address(store: &args::Store) -> String {
    shown(&without_passwords(&[url(store)]))
}

/// Returns the option that names the store, for a command in a message, with a blank in front. It is empty if the
/// default or DISTLOCK_URL names the store, or if the url cannot be copied as it is: a password in it is not shown, and
/// a shell would split it.
pub(crate) fn option(store: &args::Store) -> String {
    let given = store.url.as_deref().map(OsStr::new);
    if given.is_none() || std::env::var_os("DISTLOCK_URL").as_deref() == given {
        return String::new();
    }
    let (given, address) = (url(store), address(store));
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ":/.,-_@%?=".contains(c);
    if address != given || !given.chars().all(is_plain) {
        return String::new();
    }
    format!(" --url {address}")
}

/// Closes the client. Holds that the store does not release in time are left to their leases.
pub(crate) async fn leave(client: &Client) {
    let closed = tokio::time::timeout(MAX_CLOSE_TIME, client.close()).await;
    if let Ok(Err(error)) = closed {
        say(error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_password() {
        let shown = |url: &str| {
            address(&args::Store {
                url: Some(url.to_owned()),
                acks: None,
                failover_delay: None,
            })
        };
        assert_eq!(shown("redis://ann:secret@db:7/0"), "redis://***@db:7/0");
        assert_eq!(shown("redis://:secret@db/"), "redis://***@db/");
        assert_eq!(shown("redis://:se cret@db/"), "redis://***@db/");
        assert_eq!(shown("redis+unix:///s?pass=b"), "redis+unix:///s?pass=***");
    }

    #[test]
    fn a_suggested_command_names_the_store_of_the_option() {
        let option = |url: Option<&str>| {
            option(&args::Store {
                url: url.map(str::to_owned),
                acks: None,
                failover_delay: None,
            })
        };
        assert_eq!(
            option(Some("redis://some-where/0")),
            " --url redis://some-where/0"
        );
        for url in [
            None,
            Some("redis://ann:secret@somewhere/"),
            Some("sqlite:a b"),
            Some("sqlite:a;b"),
        ] {
            assert_eq!(option(url), "", "{url:?}");
        }
    }
}
