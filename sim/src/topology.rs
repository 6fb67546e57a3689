//! A master, its replicas and the sentinels that watch them.

use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::{Clock, Network, Sentinel, Server};

/// The numbers and times of a [`Topology`].
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "a test lists what it wants")]
pub struct Layout {
    /// The number of replicas.
    pub replicas: usize,
    /// The time after which the replicas have a write.
    pub lag: Duration,
    /// The number of sentinels.
    pub sentinels: usize,
    /// The number of sentinels that it takes to call a master down.
    pub quorum: usize,
    /// The length of a silence after which a sentinel calls a server down.
    pub down_after: Duration,
    /// The longest duration of a failover; the next one is tried after twice that.
    pub failover_timeout: Duration,
}

impl Default for Layout {
    fn default() -> Self {
        Self {
            replicas: 2,
            lag: Duration::from_millis(2),
            sentinels: 3,
            quorum: 2,
            down_after: Duration::from_secs(1),
            failover_timeout: Duration::from_secs(6),
        }
    }
}

/// A master, its replicas and the sentinels that watch them, each on a host of its own: `redis-0`, …, `sentinel-0`, ….
#[derive(Clone, Debug)]
pub struct Topology {
    network: Network,
    servers: Vec<Server>,
    sentinels: Vec<Sentinel>,
    watching: Vec<AbortHandle>,
}

impl Topology {
    /// The name by which the sentinels know the master.
    pub const NAME: &str = "mymaster";

    /// Starts all servers and sentinels; the first server is the master.
    pub fn start(network: &Network, clock: &Clock, seed: u64, layout: Layout) -> Self {
        let seeds = (1..).map(|number: u64| seed.wrapping_mul(1000).wrapping_add(number));
        let mut seeds = seeds;
        let mut seed = || seeds.next().expect("they do not end");
        let mut servers: Vec<Server> = Vec::new();
        for number in 0..=layout.replicas {
            let (host, server) = (
                format!("redis-{number}"),
                Server::new(clock.clone(), seed()),
            );
            server.set_address(&host, 6379);
            server.set_lag(layout.lag);
            if let Some(master) = servers.first() {
                server.follow(master, layout.lag);
            }
            network.listen(&host, 6379, &server);
            servers.push(server);
        }
        let sentinels = (0..layout.sentinels).map(|number| {
            let host = format!("sentinel-{number}");
            Sentinel::start(network, clock.clone(), seed(), &host, 26379)
        });
        let sentinels: Vec<Sentinel> = sentinels.collect();
        let mut topology = Self {
            network: network.clone(),
            servers,
            sentinels,
            watching: Vec::new(),
        };
        let [quorum, down_after, timeout] = [
            layout.quorum as u128,
            layout.down_after.as_millis(),
            layout.failover_timeout.as_millis(),
        ]
        .map(|number| number.to_string());
        for sentinel in &topology.sentinels {
            sentinel.call(&[
                "SENTINEL",
                "MONITOR",
                Self::NAME,
                "redis-0",
                "6379",
                &quorum,
            ]);
            sentinel.call(&[
                "SENTINEL",
                "SET",
                Self::NAME,
                "down-after-milliseconds",
                &down_after,
            ]);
            sentinel.call(&["SENTINEL", "SET", Self::NAME, "failover-timeout", &timeout]);
        }
        topology.watching = topology.sentinels.iter().map(Sentinel::watch).collect();
        topology
    }

    /// Returns the URL of the sentinels, for a client.
    pub fn url(&self) -> String {
        let hosts = self.sentinels.iter().map(|sentinel| {
            let (host, port) = sentinel.server().address();
            format!("{host}:{port}")
        });
        let hosts: Vec<String> = hosts.collect();
        format!("redis-sentinel://{}/{}/0", hosts.join(","), Self::NAME)
    }

    /// Returns all servers, the initial master first.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Returns all sentinels.
    pub fn sentinels(&self) -> &[Sentinel] {
        &self.sentinels
    }

    /// Returns the server that all living sentinels regard as the master.
    pub fn master(&self) -> Option<&Server> {
        let alive = self
            .sentinels
            .iter()
            .filter(|sentinel| sentinel.server().is_alive());
        let mut named = alive.map(|sentinel| sentinel.master(Self::NAME));
        let first = named.next()??;
        let agreed = named.all(|other| other.as_ref() == Some(&first));
        self.servers
            .iter()
            .find(|server| agreed && server.address() == first)
    }

    /// Waits until all sentinels agree on another master than this, and returns it.
    pub async fn until_not(&self, old: &Server) -> &Server {
        loop {
            let new = self.master().filter(|new| new.address() != old.address());
            if let Some(new) = new {
                return new;
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until every server follows the master or is it, and every sentinel knows the others.
    pub async fn until_settled(&self) {
        loop {
            let know = self
                .sentinels
                .iter()
                .all(|sentinel| sentinel.peers(Self::NAME) + 1 == self.sentinels.len());
            let calm = self.sentinels.iter().all(Sentinel::is_calm);
            let master = self.master().map(Server::address);
            let follow = self
                .servers
                .iter()
                .all(|server| Some(server.address()) == master || server.follows() == master);
            if know && calm && master.is_some() && follow {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Has the sentinels replace the master by an operator's order, and returns the old and the new master.
    pub async fn fail_over(&self) -> (&Server, &Server) {
        let old = self.master().expect("the sentinels agree");
        self.sentinels[0].call(&["SENTINEL", "FAILOVER", Self::NAME]);
        (old, self.until_not(old).await)
    }

    /// Cuts a server off from all sentinels and from the other servers. Clients still reach it.
    pub fn isolate(&self, server: &Server) {
        let (host, _) = server.address();
        for sentinel in &self.sentinels {
            let (other, _) = sentinel.server().address();
            self.network.block(&host, &other);
            self.network.block(&other, &host);
        }
        server.cut_links(true);
    }

    /// Ends all blocks of the network, and the isolation of this server.
    pub fn heal(&self, server: &Server) {
        self.network.heal();
        server.cut_links(false);
    }

    /// Stops the sentinels from watching, for good.
    pub fn stop_watching(&self) {
        self.watching.iter().for_each(AbortHandle::abort);
    }
}
