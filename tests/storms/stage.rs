//! The operations that a storm needs of its servers, behind sentinels or in a cluster.

use redis::{RedisResult, Value};

use super::load::Names;
use super::probe::until;
use super::support::RedisServer;
use super::support::replication::is_master;

/// Servers, each master of which has replicas that may be promoted. All calls block.
pub(crate) trait Stage {
    fn describe(&self) -> &'static str;

    fn url(&self) -> String;

    /// Returns how many replicas a master has, as configured.
    fn replicas(&self) -> u32;

    /// Returns locks for all processes, some of them at each master.
    fn names(&self) -> Names;

    /// Returns a name for this round only, at the master of the round.
    fn name_at(&self, round: usize, word: &str) -> String;

    /// Waits until all masters have their replicas, and all know it.
    fn until_settled(&self);

    /// Returns the master that is to be replaced in this round.
    fn master(&self, round: usize) -> &RedisServer;

    fn followers(&self, master: &RedisServer) -> Vec<&RedisServer>;

    /// Returns an address at which a client finds this master, and learns of no other, whatever becomes of it.
    fn side_door(&self, master: &RedisServer) -> String;

    /// Sets whether a master is replaced after a second or so of silence. Otherwise the limit is long, for a busy machine: only the
    /// provoked failovers are to happen.
    fn set_quick_failover(&self, quickly: bool);

    /// Has a replica take its place, by a coordinated failover.
    fn order(&self, master: &RedisServer);

    /// Has a replica take its place without the agreement of the others.
    fn take_over(&self, master: &RedisServer);

    /// Has a replica take its place while it lives on and serves clients that came by the side door.
    fn cut_off(&self, master: &RedisServer);

    /// Waits until the new master can be found: then the failover is over.
    fn until_found(&self, new: &RedisServer);

    /// Makes the old master, back if it was away, a replica of the new one.
    fn rejoin(&self, old: &RedisServer, new: &RedisServer);
}

/// The way in which a master comes to be replaced.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Failover {
    /// `kill -9`.
    Killed,
    /// `kill -9`, and no replica has its last grants.
    LostWrite,
    /// `SENTINEL FAILOVER`, `CLUSTER FAILOVER`.
    Ordered,
    /// The old master lives on, and a client with it.
    Split,
    /// `CLUSTER FAILOVER TAKEOVER`.
    TakenOver,
}

impl Failover {
    pub(crate) const fn describe(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::LostWrite => "lost writes",
            Self::Ordered => "ordered",
            Self::Split => "splits",
            Self::TakenOver => "taken over",
        }
    }

    /// Returns whether a process may believe in a lock that the new master does not know of.
    pub(crate) const fn has_holder(self) -> bool {
        matches!(self, Self::LostWrite | Self::Split)
    }
}

/// Returns how many replicas follow a master, as the master reports it.
pub(crate) fn followed_by(master: &RedisServer) -> usize {
    let role: RedisResult<(String, i64, Vec<Value>)> = master.try_query(&["ROLE"]);
    role.map_or(0, |(_, _, replicas)| replicas.len())
}

/// Waits until a replica reports that it is a master, and returns it.
pub(crate) fn until_promoted<'a>(replicas: &[&'a RedisServer]) -> &'a RedisServer {
    let mut new = None;
    until("a replica is promoted", || {
        new = replicas.iter().find(|replica| is_master(replica));
        new.is_some()
    });
    new.expect("there is one")
}
