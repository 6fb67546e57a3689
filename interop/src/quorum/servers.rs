//! Five servers that share nothing.

use std::time::Duration;

use crate::clock::Stamp;
use crate::failure::{Failure, Outcome};
use crate::support::RedisServer;
use crate::world::{UNDONE, listening, until_within};

/// Five of them. The first three are never disturbed, and so grow old.
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

    /// Waits until they are so old that ours counts their votes on a lease like this: they may have forgotten nobody.
    pub(crate) async fn come_of_age(&self, lease: Duration) {
        let of_age = self.started + lease + UPTIME_IS_COARSE;
        tokio::time::sleep(of_age.since(Stamp::now())).await;
    }
}

/// A server that is away, and comes back when this is dropped.
pub(crate) enum Away<'a> {
    Killed(&'a RedisServer),
    Hung(&'a RedisServer),
}

impl<'a> Away<'a> {
    /// Comes back without its memory.
    pub(crate) fn kill(server: &'a RedisServer) -> Self {
        server.kill();
        Self::Killed(server)
    }

    /// Keeps its connections, and answers when it is back.
    pub(crate) fn hang(server: &'a RedisServer) -> Self {
        server.stop_process();
        Self::Hung(server)
    }
}

impl Drop for Away<'_> {
    fn drop(&mut self) {
        match self {
            Self::Killed(server) => server.restart(),
            Self::Hung(server) => server.continue_process(),
        }
    }
}

/// Nobody listens on any of them, and no key is left but the marks of our undone requests, which end by themselves.
pub(crate) async fn nothing_is_left(servers: &[RedisServer], within: Duration) -> Outcome {
    let keys = || -> Vec<String> {
        let all = servers.iter().flat_map(|server| {
            let mut keys = server.keys();
            keys.retain(|key| !(key.starts_with(UNDONE) && server.pttl(key) > 0));
            keys
        });
        all.collect()
    };
    let channels = || servers.iter().flat_map(RedisServer::pubsub_channels);
    let clean = || keys().is_empty() && channels().next().is_none();
    let gone = until_within(within, "nothing is left", clean).await;
    gone.map_err(|_| {
        let (keys, channels) = (keys(), channels().collect::<Vec<_>>());
        let clients: Vec<String> = servers.iter().flat_map(listening).collect();
        let what = format!("left: keys {keys:?}, channels {channels:?}, listening {clients:?}");
        Failure::new(what)
    })
}

/// Redis counts whole seconds, and may be ahead by one, which ours takes off.
const UPTIME_IS_COARSE: Duration = Duration::from_secs(2);
