//! A server, and a user that has only certain rights there.

use std::time::Duration;

use tokio::time::Instant;

use distlock::{Client, Error};

use super::PATIENCE;
use super::support::rights::user;
use super::support::{RedisServer, builder};

/// One lock, of whatever kind is played.
pub(crate) struct Stage<'a> {
    pub(crate) server: &'a RedisServer,
    pub(crate) client: Client,
    /// Another process of the same user.
    pub(crate) other: Client,
    /// A client with a short timeout.
    pub(crate) hasty: Client,
    pub(crate) name: String,
    prefix: &'a str,
}

/// The signs that something is denied.
#[derive(Debug)]
pub(crate) enum Broken {
    Told(Error),
    /// No call reports an error, but an expected effect is missing.
    Seen(&'static str),
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self::Told(error)
    }
}

impl<'a> Stage<'a> {
    /// Connects the clients of a user with these rules, whose names have a prefix.
    pub(crate) async fn new(
        server: &'a RedisServer,
        rules: &[&str],
        [prefix, name]: [&'a str; 2],
        parameters: &str,
    ) -> Result<Self, Broken> {
        let rules = [&["resetkeys", "resetchannels", "-@all"], rules].concat();
        let url = user(server, &rules) + parameters;
        Ok(Self {
            server,
            client: connect(&url, prefix, PATIENCE).await?,
            other: connect(&url, prefix, PATIENCE).await?,
            hasty: connect(&url, prefix, HASTE).await?,
            name: name.to_owned(),
            prefix,
        })
    }

    /// Returns the key of the lock itself.
    pub(crate) fn key(&self) -> String {
        format!("{}{}", self.prefix, self.name)
    }

    /// Returns the name of a key beside the lock, or of its channel.
    pub(crate) fn beside(&self, what: &str) -> String {
        let key = self.key();
        match key.contains('{') {
            true => format!("{what}:{key}"),
            false => format!("{what}:{{{key}}}"),
        }
    }

    /// Has the server execute nothing that it is sent for a while, and then all of it.
    pub(crate) fn pause(&self) {
        self.server.simulated().stall(Duration::from_secs(1));
    }

    /// Waits until the condition holds, or for longer than that should take.
    pub(crate) async fn until(
        &self,
        what: &'static str,
        mut condition: impl FnMut() -> bool,
    ) -> Result<(), Broken> {
        let begun = Instant::now();
        while !condition() {
            if begun.elapsed() > limit() {
                return Err(Broken::Seen(what));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

async fn connect(url: &str, prefix: &str, limit: Duration) -> Result<Client, Error> {
    let builder = builder(url).command_timeout(limit);
    let builder = builder.connect_timeout(PATIENCE).key_prefix(prefix);
    builder.connect().await
}

tokio::task_local! {
    /// The limit of a condition, where it is not [`LONG`].
    pub(crate) static LIMIT: Duration;
}

/// Returns the limit of a condition in this scenario.
pub(crate) fn limit() -> Duration {
    LIMIT.try_with(|limit| *limit).unwrap_or(LONG)
}

/// Upper bound for anything that succeeds, on a busy machine; each denied command without an error waits this long.
pub(crate) const LONG: Duration = Duration::from_secs(10);
/// Shorter than a server is made to [pause](Stage::pause).
const HASTE: Duration = Duration::from_millis(500);
