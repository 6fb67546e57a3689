//! A simulated master, two replicas and three sentinels.

use std::time::Duration;

use distlock_sim::{Clock, Layout, Sentinel, Server};
use tokio::time::timeout;

use super::{RedisServer, eventually, world};

/// The name that the sentinels know the master by.
pub(crate) const MASTER: &str = distlock_sim::Topology::NAME;
/// Longer than any failover takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A master, two replicas and three sentinels, with the fixture's commands for each of them.
pub(crate) struct Topology {
    simulated: distlock_sim::Topology,
    servers: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
}

impl Topology {
    pub(crate) async fn start() -> Self {
        let world = world();
        let seed = world.below(u64::MAX);
        let start = distlock_sim::Topology::start;
        let simulated = start(&world.network, &Clock::new(), seed, Layout::default());
        let sentinels = simulated.sentinels().iter().map(Sentinel::server);
        let topology = Self {
            servers: simulated.servers().iter().map(RedisServer::of).collect(),
            sentinels: sentinels.map(RedisServer::of).collect(),
            simulated,
        };
        topology.until_settled().await;
        topology
    }

    /// Starts them with passwords: one for the servers, another for the sentinels.
    pub(crate) async fn start_guarded(servers: &str, sentinels: &str) -> Self {
        let topology = Self::start().await;
        for (instances, password) in [
            (&topology.servers, servers),
            (&topology.sentinels, sentinels),
        ] {
            for instance in instances {
                let password = format!(">{password}");
                instance.cmd(&["ACL", "SETUSER", "default", "resetpass", &password]);
            }
        }
        topology
    }

    pub(crate) fn url(&self) -> String {
        self.simulated.url()
    }

    /// Returns the url with a user and a password in front of the hosts, `user:password@`.
    pub(crate) fn url_as(&self, login: &str) -> String {
        self.url().replacen("://", &format!("://{login}"), 1)
    }

    /// Returns all three servers, in the order in which they were started.
    pub(crate) fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// Returns the sentinels as servers: they can be killed, be stopped, and have users.
    pub(crate) fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// Returns the simulated sentinels, which report what a test tells them to.
    pub(crate) fn simulated_sentinels(&self) -> &[Sentinel] {
        self.simulated.sentinels()
    }

    /// Returns the server that all running sentinels agree on.
    pub(crate) fn master(&self) -> &RedisServer {
        self.at(self.simulated.master().expect("the sentinels agree"))
    }

    /// Returns the servers other than the master.
    pub(crate) fn replicas(&self) -> Vec<&RedisServer> {
        let master = host(self.master());
        let servers = self.servers.iter();
        servers.filter(|server| host(server) != master).collect()
    }

    /// Waits until every server is the master or follows it, and the sentinels know each other.
    pub(crate) async fn until_settled(&self) {
        let settled = timeout(PATIENCE, self.simulated.until_settled()).await;
        settled.expect("nothing is wrong");
    }

    /// Waits for the successor of this master, and returns it.
    pub(crate) async fn until_not(&self, old: &RedisServer) -> &RedisServer {
        let new = timeout(PATIENCE, self.simulated.until_not(old.simulated())).await;
        self.at(new.expect("a master is replaced"))
    }

    /// Has the sentinels replace a master that keeps running, and returns the old and the new one once all of them report
    /// it.
    pub(crate) async fn fail_over(&self) -> (&RedisServer, &RedisServer) {
        let old = self.master();
        self.sentinels[0].cmd(&["SENTINEL", "FAILOVER", MASTER]);
        (old, self.until_not(old).await)
    }

    /// Kills the master once its replicas have caught up; returns it, and its successor once all sentinels report it.
    pub(crate) async fn kill_master(&self) -> (&RedisServer, &RedisServer) {
        tokio::time::sleep(Layout::default().lag).await;
        let old = self.master();
        old.kill();
        (old, self.until_not(old).await)
    }

    fn at(&self, server: &Server) -> &RedisServer {
        let (wanted, _) = server.address();
        let mut servers = self.servers.iter();
        servers
            .find(|server| host(server) == wanted)
            .expect("it is one of ours")
    }
}

/// Returns the host that a server or a sentinel runs on.
pub(crate) fn host(server: &RedisServer) -> String {
    server.simulated().address().0
}

/// Returns how many connections clients have to a server or a sentinel, as the clients count them.
pub(crate) fn client_connections(server: &RedisServer) -> usize {
    world().network.open_connections(&host(server))
}

/// Waits until no client has a connection to a server, whether the server notices that or not.
pub(crate) async fn until_left(old: &RedisServer) {
    let what = "the old master is left";
    eventually(PATIENCE, what, async || client_connections(old) == 0).await;
}
