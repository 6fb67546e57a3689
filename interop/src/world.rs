//! The world that all scenarios share: one server, or several, the peers, and how thorough to be.

mod keys;
mod patience;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde_json::json;
use tokio::sync::Mutex;

use crate::failure::{Failure, Outcome, ensure};
use crate::library::Build;
use crate::peer::Peer;
use crate::quorum::Servers;
use crate::site::{self, Mode, Site};
use crate::support::RedisServer;
use keys::{COUNTERS, named_after};
pub(crate) use keys::{
    channel, counter, latch_channel, permits_out, reader_key, rw_channel, semaphore_channel,
};
pub(crate) use patience::{until, until_within};

/// The server, the peers and the pace.
pub(crate) struct World {
    site: Site,
    /// The same world in other modes, started when they are first needed.
    elsewhere: StdMutex<HashMap<Mode, Arc<Self>>>,
    pub(crate) builds: Vec<Build>,
    pub(crate) pace: Pace,
    /// Servers for one lock on a majority, started when they are first needed.
    servers: OnceLock<Servers>,
    logs: PathBuf,
    /// One process of each build, started when it is first needed. The mutex is held across the start, so that two tasks do not start the
    /// same one.
    peers: Arc<Peers>,
}

type Peers = Mutex<HashMap<Build, Arc<Peer>>>;

/// How thorough to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) quick: bool,
    pub(crate) hammer: Duration,
}

impl Pace {
    /// Returns this number of rounds, or a third in a quick run.
    pub(crate) const fn rounds(self, thorough: u32) -> u32 {
        if self.quick {
            thorough.div_ceil(3)
        } else {
            thorough
        }
    }
}

impl World {
    pub(crate) fn new(builds: Vec<Build>, logs: PathBuf, pace: Pace) -> Self {
        Self {
            site: Site::start(Mode::Single),
            elsewhere: StdMutex::default(),
            builds,
            pace,
            servers: OnceLock::new(),
            logs,
            peers: Arc::default(),
        }
    }

    /// Returns another world with a server of its own, and the same peers.
    pub(crate) fn beside(&self) -> Self {
        self.in_mode(Mode::Single, self.peers.clone())
    }

    /// Returns another world with a server and peers of its own.
    pub(crate) fn apart(&self) -> Self {
        self.in_mode(Mode::Single, Arc::default())
    }

    fn in_mode(&self, mode: Mode, peers: Arc<Peers>) -> Self {
        Self {
            site: Site::start(mode),
            elsewhere: StdMutex::default(),
            builds: self.builds.clone(),
            pace: self.pace,
            servers: OnceLock::new(),
            logs: self.logs.clone(),
            peers,
        }
    }

    /// Returns the world in which scenarios of this mode are played, by the same peers: this one has a single server.
    pub(crate) fn of(self: &Arc<Self>, mode: Mode) -> Arc<Self> {
        if mode == Mode::Single {
            return self.clone();
        }
        let mut elsewhere = self.elsewhere();
        // Both block for seconds.
        tokio::task::block_in_place(|| {
            let world = elsewhere
                .entry(mode)
                .or_insert_with(|| Arc::new(self.in_mode(mode, self.peers.clone())));
            world.site.mend();
            world.clone()
        })
    }

    fn elsewhere(&self) -> MutexGuard<'_, HashMap<Mode, Arc<Self>>> {
        (self.elsewhere)
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the server that has the locks.
    pub(crate) fn server(&self) -> &RedisServer {
        self.site.server()
    }

    pub(crate) const fn site(&self) -> &Site {
        &self.site
    }

    /// Kills that server, and waits until another one is promoted.
    pub(crate) fn fail_over(&self) {
        tokio::task::block_in_place(|| self.site.fail_over());
    }

    /// Returns the process that scenarios share. One that died since it was last used is a failure.
    pub(crate) async fn peer(&self, build: &Build) -> Outcome<Arc<Peer>> {
        let mut peers = self.peers.lock().await;
        if let Some(peer) = peers.get(build) {
            peer.ask(json!({"cmd": "clock"})).await?;
            return Ok(peer.clone());
        }
        let peer = self.fresh_peer(build).await?;
        peers.insert(build.clone(), peer.clone());
        Ok(peer)
    }

    /// Starts a process for one scenario that kills it or needs two.
    pub(crate) async fn fresh_peer(&self, build: &Build) -> Outcome<Arc<Peer>> {
        Peer::start(build, &self.logs).await
    }

    /// Returns the servers that share nothing.
    pub(crate) fn servers(&self) -> &Servers {
        self.servers.get_or_init(Servers::start)
    }

    /// Lets every process end in order; one that is already dead is a failure.
    pub(crate) async fn end(&self) -> Outcome {
        for peer in self.peers.lock().await.values() {
            peer.ask(json!({"cmd": "exit"})).await?;
        }
        Ok(())
    }

    /// Drops the processes that a failed scenario has used: threads in them may still wait. Returns the end of their logs.
    pub(crate) async fn give_up(&self, builds: &[Build]) -> String {
        let mut said = String::new();
        let mut peers = self.peers.lock().await;
        for build in builds {
            let Some(peer) = peers.remove(build) else {
                continue;
            };
            let tail = peer.log_tail();
            if !tail.is_empty() {
                let title = build.title();
                said += &format!("\nthe log of the peer with {title} ends:\n{tail}");
            }
        }
        said
    }

    /// Returns the address of Redis, as the peers expect it.
    pub(crate) fn address(&self) -> String {
        format!("redis://{}", self.server().addr())
    }

    /// Waits until a client sleeps for this lock: it has subscribed, and has sent one more request since. Returns its channel: each waiter
    /// for a fair lock has a channel of its own.
    pub(crate) async fn asleep(&self, key: &str) -> Outcome<String> {
        let all = channel(key);
        let own = format!("{all}:");
        let at = || {
            let mut channels = self.channels().into_iter();
            channels.find(|channel| *channel == all || channel.starts_with(&own))
        };
        let at = loop {
            until("somebody listens", || at().is_some()).await?;
            // A former subscriber may just be leaving.
            if let Some(at) = at() {
                break at;
            }
        };
        self.asleep_on(&at).await?;
        Ok(at)
    }

    /// Waits until the queue of a fair lock has this length, and its last waiter sleeps.
    pub(crate) async fn until_queued(&self, key: &str, length: usize) -> Outcome<Vec<String>> {
        let line = || self.line(key);
        until("it stands in line", || line().len() == length).await?;
        let owners = line();
        if let Some(last) = owners.last() {
            self.asleep_on(&format!("{}:{last}", channel(key))).await?;
        }
        Ok(owners)
    }

    /// Returns the queue of a fair lock, the head first.
    pub(crate) fn line(&self, key: &str) -> Vec<String> {
        let queue = named_after("redisson_lock_queue:", key);
        self.server().query(&["LRANGE", &queue, "0", "-1"])
    }

    /// Returns how long this queued waiter has before Redisson skips it.
    pub(crate) fn patience_with(&self, key: &str, owner: &str) -> Outcome<Duration> {
        let timeout = named_after("redisson_lock_timeout:", key);
        let score: Option<f64> = self.server().query(&["ZSCORE", &timeout, owner]);
        let score = score.ok_or_else(|| Failure::new(format!("{owner} has no time")))?;
        Ok(self.until_score(score))
    }

    /// Returns how long it takes until the first permit comes back by itself.
    pub(crate) fn permit_left(&self, key: &str) -> Outcome<Duration> {
        let out = permits_out(key);
        let first: Vec<(Vec<u8>, f64)> =
            self.server()
                .query(&["ZRANGE", &out, "0", "0", "WITHSCORES"]);
        let first = first.first();
        let (_, score) = first.ok_or_else(|| Failure::new("no permit is out"))?;
        Ok(self.until_score(*score))
    }

    /// Returns the time from now on, by the server's clock.
    fn until_score(&self, millis: f64) -> Duration {
        let (seconds, micros): (u64, u64) = self.server().query(&["TIME"]);
        let now = (seconds * 1000 + micros / 1000) as f64;
        Duration::from_millis((millis - now).max(0.0) as u64)
    }

    /// Waits until a subscriber of this channel sleeps.
    pub(crate) async fn asleep_on(&self, channel: &str) -> Outcome {
        until("somebody listens", || self.listeners(channel) > 0).await?;
        // The last request before the sleep follows the subscription; no event shows when its reply arrives. Woken a little earlier or
        // later, the waiter passes or fails alike; but one of Java's for a read/write lock may not wake at all if that is too early
        // (`rw-asleep`).
        tokio::time::sleep(Duration::from_millis(150)).await;
        Ok(())
    }

    /// Checks that this channel, and no other, has subscribers. A world without subscribers fails, too: the only one may have left before
    /// the next came.
    pub(crate) fn hears_only(&self, channel: &str) -> Outcome {
        let channels = self.channels();
        ensure!(!channels.is_empty(), "nobody listens any more");
        ensure!(channels == [channel], "the channels are {channels:?}");
        Ok(())
    }

    /// Returns the channels with a subscriber that is no server.
    fn channels(&self) -> Vec<String> {
        let [channels, ..] = self.site.mode().messages();
        let mut channels: Vec<String> = self.server().query(&["PUBSUB", channels]);
        channels.sort();
        channels.retain(|channel| !site::is_theirs(channel));
        channels
    }

    pub(crate) fn listeners(&self, channel: &str) -> u64 {
        let [_, count, _] = self.site.mode().messages();
        let counts: (String, u64) = self.server().query(&["PUBSUB", count, channel]);
        counts.1
    }

    /// Returns how many messages have been sent so far, on any channel.
    pub(crate) fn messages(&self) -> u64 {
        let [.., publish] = self.site.mode().messages();
        self.server().commandstats(publish)
    }

    /// Waits until the lock is free.
    pub(crate) async fn until_free(&self, key: &str) -> Outcome {
        until("it is free", || self.server().pttl(key) == -2).await
    }

    /// Returns the remaining lease.
    pub(crate) fn left(&self, key: &str) -> Outcome<Duration> {
        let left = u64::try_from(self.server().pttl(key));
        let left = left.map_err(|_| Failure::new(format!("the lease of `{key}` is over")))?;
        Ok(Duration::from_millis(left))
    }

    /// Waits until a lease has been renewed `often` times, and fails if it expires. Returns the least that was left of it.
    pub(crate) async fn renewals(&self, key: &str, often: u32) -> Outcome<Duration> {
        let mut before = self.left(key)?;
        let (mut seen, mut lowest) = (0, before);
        while seen < often {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let left = self.left(key)?;
            seen += u32::from(left > before);
            lowest = lowest.min(left);
            before = left;
        }
        Ok(lowest)
    }

    /// Checks that no key is left, and no subscription but Redisson's own: with the clients still there, so it is not their end that cleans
    /// up. The check waits, since Redisson deletes the key that guards its unlock in the background. The tombstone of a request of ours that
    /// was undone, because its reply did not come in time, expires by itself.
    pub(crate) async fn is_clean(&self) -> Outcome {
        let keys = || {
            let mut keys = self.server().keys();
            keys.retain(|key| !(key.starts_with(UNDONE) && self.server().pttl(key) > 0));
            keys
        };
        let clean = || {
            let unsubscribed =
                self.channels().is_empty() || only_redisson_is_subscribed(self.server());
            unsubscribed && keys().is_empty()
        };
        let gone = until_within(CLEAN_WITHIN, "nothing is left", clean).await;
        gone.map_err(|_| {
            let (keys, channels) = (keys(), self.channels());
            let clients = subscribers(self.server());
            let what =
                format!("left: keys {keys:?}, channels {channels:?}, subscribed {clients:?}");
            Failure::new(what)
        })
    }

    /// Returns the value of Redisson's counter for a fenced lock, if it exists.
    pub(crate) fn counter(&self, key: &str) -> Option<u64> {
        self.server().query(&["GET", &counter(key)])
    }

    /// Removes the counters of fenced locks, which stay when all else goes. They must have no expiry.
    pub(crate) fn forget_tokens(&self) -> Outcome {
        for key in self.server().keys() {
            if key.starts_with(COUNTERS) {
                let left = self.server().pttl(&key);
                ensure!(left == -1, "the counter `{key}` ends in {left} ms");
                self.server().cmd(&["DEL", &key]);
            }
        }
        Ok(())
    }

    /// Removes the records that our clients keep of their changes to numbers, which have to expire by themselves.
    pub(crate) fn forget_done(&self) -> Outcome {
        for key in self.server().keys() {
            if key.starts_with(DONE) {
                let left = self.server().pttl(&key);
                let gone = left == -2;
                ensure!(
                    gone || (0..=DONE_MS).contains(&left),
                    "`{key}` ends in {left} ms"
                );
                self.server().cmd(&["DEL", &key]);
            }
        }
        Ok(())
    }
}

/// Reports whether clients are subscribed and all of them are Redisson's. 4.7.0 stays subscribed if a wait of its own ends while it is still
/// subscribing, which a process that is stopped for a moment does however long the wait is. A waiter of Redisson that our client did not
/// notify is seen elsewhere: its lock is not granted.
pub(crate) fn only_redisson_is_subscribed(server: &RedisServer) -> bool {
    let clients = subscribers(server);
    !clients.is_empty() && clients.iter().all(|client| client == "redisson")
}

/// Returns the names of the subscribed clients.
pub(crate) fn subscribers(server: &RedisServer) -> Vec<String> {
    let list: String = server.query(&["CLIENT", "LIST", "TYPE", "pubsub"]);
    let field = |line: &str, field: &str| {
        let mut words = line.split(' ');
        let value = words.find_map(|word| word.strip_prefix(field)?.strip_prefix('='));
        value.unwrap_or_default().to_owned()
    };
    let subscribed = |line: &&str| {
        let counts = ["sub", "psub", "ssub"].map(|kind| field(line, kind));
        counts.iter().any(|count| !count.is_empty() && count != "0")
    };
    let clients = list.lines().filter(subscribed);
    let clients = clients.map(|line| field(line, "name"));
    clients
        .filter(|client| !site::is_one_of_them(client))
        .collect()
}

/// The prefix of records of what our client has done to a number; they expire.
const DONE: &str = "distlock_done:";
const DONE_MS: i64 = 5 * 60 * 1000;

/// The prefix of tombstones of our requests that were undone without a reply; they expire by themselves.
pub(crate) const UNDONE: &str = "distlock_undone:";

/// Upper bound for work in the background.
pub(crate) const CLEAN_WITHIN: Duration = Duration::from_secs(60);
