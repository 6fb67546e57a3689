//! What a storm needs of the servers it is about, behind sentinels or in a cluster.

use redis::{RedisResult, Value};

use super::load::Names;
use super::probe::until;
use super::support::RedisServer;
use super::support::replication::is_master;

/// Servers, each master of which has replicas that may take its place. All calls block.
pub(crate) trait Stage {
    fn describe(&self) -> &'static str;

    fn url(&self) -> String;

    /// How many replicas a master has, as configured.
    fn replicas(&self) -> u32;

    /// Locks for everybody, some of them at each master.
    fn names(&self) -> Names;

    /// One of this round's own, at the master whose turn it is.
    fn name_at(&self, round: usize, word: &str) -> String;

    /// Until all masters have their replicas, and all know it.
    fn until_settled(&self);

    /// The master that is to be replaced in this round.
    fn master(&self, round: usize) -> &RedisServer;

    fn followers(&self, master: &RedisServer) -> Vec<&RedisServer>;

    /// Where a client finds this master, and hears of no other, whatever becomes of it.
    fn side_door(&self, master: &RedisServer) -> String;

    /// Whether a master that says nothing for a second or so is replaced. Otherwise a busy machine is forgiven: what is not
    /// provoked is not to happen.
    fn look_out(&self, quickly: bool);

    /// Has a replica take its place, in order.
    fn order(&self, master: &RedisServer);

    /// Has a replica take its place, whatever the others think of it.
    fn take_over(&self, master: &RedisServer);

    /// Has a replica take its place while it lives on and serves whoever came by the side door.
    fn cut_off(&self, master: &RedisServer);

    /// Until the new master can be found: then the failover is over.
    fn until_found(&self, new: &RedisServer);

    /// The old master is back, if it was away, as a replica of the new one.
    fn rejoin(&self, old: &RedisServer, new: &RedisServer);
}

/// How a master comes to be replaced.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Failover {
    /// `kill -9`.
    Killed,
    /// `kill -9`, and no replica has what it has granted last.
    LostWrite,
    /// `SENTINEL FAILOVER`, `CLUSTER FAILOVER`.
    Ordered,
    /// It lives on, and a client with it.
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

    /// Whether somebody may believe in what the new master does not know of.
    pub(crate) const fn has_holder(self) -> bool {
        matches!(self, Self::LostWrite | Self::Split)
    }
}

/// How many replicas follow a master by its own word.
pub(crate) fn followed_by(master: &RedisServer) -> usize {
    let role: RedisResult<(String, i64, Vec<Value>)> = master.try_query(&["ROLE"]);
    role.map_or(0, |(_, _, replicas)| replicas.len())
}

/// The replica that has become a master, as soon as it says so itself.
pub(crate) fn until_promoted<'a>(replicas: &[&'a RedisServer]) -> &'a RedisServer {
    let mut new = None;
    until("a replica is promoted", || {
        new = replicas.iter().find(|replica| is_master(replica));
        new.is_some()
    });
    new.expect("there is one")
}
