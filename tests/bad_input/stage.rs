//! A server, and somebody who may do so much there and no more.

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
    /// One that gives up soon when it is not answered.
    pub(crate) hasty: Client,
    pub(crate) name: String,
    prefix: &'a str,
}

/// How it shows that something is denied.
#[derive(Debug)]
pub(crate) enum Broken {
    Told(Error),
    /// Nobody is told, but what should come does not.
    Seen(&'static str),
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self::Told(error)
    }
}

impl<'a> Stage<'a> {
    /// For a user with these rules, whose names have a prefix.
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

    /// What the lock itself is kept in.
    pub(crate) fn key(&self) -> String {
        format!("{}{}", self.prefix, self.name)
    }

    /// What else is kept of it, or the channel that it has.
    pub(crate) fn beside(&self, what: &str) -> String {
        let key = self.key();
        match key.contains('{') {
            true => format!("{what}:{key}"),
            false => format!("{what}:{{{key}}}"),
        }
    }

    /// Has the server carry out for a while nothing that it is sent, and then all of it.
    pub(crate) fn pause(&self) {
        self.server.simulated().stall(Duration::from_secs(1));
    }

    /// Until it is so, or longer than it should take.
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
    /// How long a condition may take, where it is not [`LONG`].
    pub(crate) static LIMIT: Duration;
}

/// How long a condition may take here.
pub(crate) fn limit() -> Duration {
    LIMIT.try_with(|limit| *limit).unwrap_or(LONG)
}

/// Longer than anything takes that may happen, on a busy machine; each thing that is denied and not told waits for it.
pub(crate) const LONG: Duration = Duration::from_secs(10);
/// Shorter than a server is made to [pause](Stage::pause).
const HASTE: Duration = Duration::from_millis(500);
