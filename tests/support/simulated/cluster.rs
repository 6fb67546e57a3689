//! A simulated cluster for one test: three masters, and a replica of each where a test needs them.

use std::net::SocketAddr;
use std::ops::Deref;
use std::time::Duration;

use distlock_sim::slot_of;
use tokio::time::sleep;

use super::{RedisServer, eventually, world};

/// A simulated cluster, with the fixture's methods that take the names of locks. Nodes are numbered, masters first.
pub(crate) struct Cluster {
    nodes: distlock_sim::Cluster,
    servers: Vec<RedisServer>,
}

const MASTERS: usize = 3;

impl Cluster {
    /// Starts three masters, each with a replica.
    pub(crate) fn start() -> Self {
        let world = world();
        let seed = world.below(u64::MAX);
        let nodes = distlock_sim::Cluster::new(&world.network, MASTERS, 1, seed);
        Self::of(nodes)
    }

    /// Starts three masters without replicas, so that none can be replaced.
    pub(crate) fn start_masters() -> Self {
        let world = world();
        let seed = world.below(u64::MAX);
        let nodes = distlock_sim::Cluster::new(&world.network, MASTERS, 0, seed);
        Self::of(nodes)
    }

    fn of(nodes: distlock_sim::Cluster) -> Self {
        nodes.set_node_timeout(NODE_TIMEOUT);
        let servers = nodes.servers();
        let servers = servers.iter().enumerate().map(|(node, server)| {
            let host = nodes.host(node).parse().expect("it is an address");
            RedisServer::at(SocketAddr::new(host, PORT), server)
        });
        Self {
            servers: servers.collect(),
            nodes,
        }
    }

    pub(crate) fn url(&self) -> String {
        self.url_as("")
    }

    /// Returns the url with a user and a password in front of the hosts, `user:password@`.
    pub(crate) fn url_as(&self, login: &str) -> String {
        format!("redis-cluster://{login}{}", self.addresses(MASTERS))
    }

    /// Returns the servers by their numbers.
    pub(crate) fn redis(&self) -> &[RedisServer] {
        &self.servers
    }

    /// Returns the node that has a lock.
    pub(crate) fn node_of(&self, name: &str) -> usize {
        self.owner(slot_of(name)).expect("a node has the slot")
    }

    /// Returns the name of a lock that this node has.
    pub(crate) fn name_at(&self, node: usize) -> String {
        let mut names = (0..).map(|number| format!("lock-{number}"));
        let name = names.find(|name| self.node_of(name) == node);
        name.expect("there is no end of names")
    }

    /// Returns another master than this one.
    pub(crate) fn another_than(&self, node: usize) -> usize {
        let others = self.masters().into_iter();
        let mut others = others.filter(|other| *other != node);
        others.next().expect("there are several")
    }

    /// Returns the keys of all masters, sorted, without the tombstones, which expire by themselves.
    pub(crate) fn held(&self) -> Vec<String> {
        let masters = self.masters().into_iter();
        let keys = masters.flat_map(|master| self.servers[master].keys());
        let mut keys: Vec<String> = keys
            .filter(|key| !key.starts_with("distlock_undone:"))
            .collect();
        keys.sort();
        keys
    }

    /// Fails over from a lock's master to its replica, in order; returns the replica.
    pub(crate) fn fail_over(&self, name: &str) -> usize {
        let replica = self.replicas_of(self.node_of(name))[0];
        self.nodes.fail_over(replica);
        replica
    }

    /// Kills a lock's master once its replica has caught up, and waits for the successor; returns both.
    pub(crate) async fn kill_master(&self, name: &str) -> (usize, usize) {
        let master = self.node_of(name);
        sleep(LAG).await;
        self.kill(master);
        (master, self.successor(name, master).await)
    }

    /// Waits until another node has a lock, and returns that node.
    pub(crate) async fn successor(&self, name: &str, master: usize) -> usize {
        eventually(FAILOVER, "a replica is elected", async || {
            self.node_of(name) != master
        })
        .await;
        self.node_of(name)
    }

    /// Starts to migrate a lock's slot to another node; returns the node that has it.
    pub(crate) fn begin_moving(&self, name: &str, to: usize) -> usize {
        let from = self.node_of(name);
        self.begin_migration(slot_of(name), from, to);
        from
    }

    /// Moves the keys of a lock's slot, and ends the migration.
    pub(crate) fn finish_moving(&self, name: &str, from: usize, to: usize) {
        self.move_keys(slot_of(name), from, to);
        self.end_migration(slot_of(name), to);
    }
}

impl Deref for Cluster {
    type Target = distlock_sim::Cluster;

    fn deref(&self) -> &Self::Target {
        &self.nodes
    }
}

const PORT: u16 = 6379;
const NODE_TIMEOUT: Duration = Duration::from_millis(1500);
/// Longer than a replica's lag.
const LAG: Duration = Duration::from_millis(10);
/// Longer than it takes to notice a dead master and to elect a replica.
const FAILOVER: Duration = Duration::from_secs(10);
