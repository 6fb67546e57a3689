//! Five servers that share nothing.

use std::time::Duration;

use crate::clock::Stamp;
use crate::failure::{Failure, Outcome};
use crate::support::RedisServer;
use crate::world::{UNDONE, only_redisson_is_subscribed, subscribers, until_within};

/// The five servers. The first three are never disturbed, so their uptime grows.
pub(crate) struct Servers {
    all: Vec<RedisServer>,
    started: Stamp,
}

impl Servers {
    pub(crate) fn start() -> Self {
        Self {
            all: (0..5).map(|_| RedisServer::start()).collect(),
            started: Stamp::now(),
        }
    }

    pub(crate) fn first(&self, count: usize) -> &[RedisServer] {
        &self.all[..count]
    }

    /// Waits until the servers have been up for so long that our client counts their votes for this lease: no lock that they granted before
    /// a restart can still be held.
    pub(crate) async fn come_of_age(&self, lease: Duration) {
        let of_age = self.started + lease + UPTIME_IS_COARSE;
        tokio::time::sleep(of_age.since(Stamp::now())).await;
    }
}

/// A server that is killed or stopped, and comes back when this is dropped.
pub(crate) enum UnavailableServer<'a> {
    Killed(&'a RedisServer),
    Hung(&'a RedisServer),
}

impl<'a> UnavailableServer<'a> {
    /// Kills the server; it comes back without its data.
    pub(crate) fn kill(server: &'a RedisServer) -> Self {
        server.kill();
        Self::Killed(server)
    }

    /// Stops the server; it keeps its connections, and replies when it is resumed.
    pub(crate) fn hang(server: &'a RedisServer) -> Self {
        server.stop_process();
        Self::Hung(server)
    }
}

impl Drop for UnavailableServer<'_> {
    fn drop(&mut self) {
        match self {
            Self::Killed(server) => server.restart(),
            Self::Hung(server) => server.continue_process(),
        }
    }
}

/// Checks that no client but Redisson is subscribed on any server, and that no key is left but the tombstones of our undone requests, which
/// expire by themselves.
pub(crate) async fn nothing_is_left(servers: &[RedisServer], within: Duration) -> Outcome {
    let keys = || -> Vec<String> {
        let all = servers.iter().flat_map(|server| {
            let mut keys = server.keys();
            keys.retain(|key| !(key.starts_with(UNDONE) && server.pttl(key) > 0));
            keys
        });
        all.collect()
    };
    let unsubscribed = |server: &RedisServer| {
        server.pubsub_channels().is_empty() || only_redisson_is_subscribed(server)
    };
    let clean = || keys().is_empty() && servers.iter().all(unsubscribed);
    let gone = until_within(within, "nothing is left", clean).await;
    gone.map_err(|_| {
        let channels = servers.iter().flat_map(RedisServer::pubsub_channels);
        let (keys, channels) = (keys(), channels.collect::<Vec<_>>());
        let clients: Vec<String> = servers.iter().flat_map(subscribers).collect();
        let what = format!("left: keys {keys:?}, channels {channels:?}, subscribed {clients:?}");
        Failure::new(what)
    })
}

/// Redis counts whole seconds, and may be ahead by one, which our client subtracts.
const UPTIME_IS_COARSE: Duration = Duration::from_secs(2);
