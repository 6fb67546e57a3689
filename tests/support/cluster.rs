//! A real cluster for one test: three masters, and a replica of each where a test needs them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use redis::{FromRedisValue, RedisResult, Value};

use super::RedisServer;
use super::login::Rights;
use super::replication::{follows, is_master, received, sent, until};

/// The processes of a cluster, which have found each other. All calls block.
pub(crate) struct Cluster {
    servers: Vec<RedisServer>,
}

const MASTERS: usize = 3;
const SLOTS: u16 = 16384;
const EVEN: [u16; MASTERS] = [0, SLOTS / 3, SLOTS / 3 * 2];

impl Cluster {
    /// Starts three masters, each with a replica.
    pub(crate) fn start() -> Self {
        Self::start_by(EVEN, MASTERS * 2, &[], RedisServer::start_with)
    }

    /// Starts three masters without replicas, so that none can be replaced.
    pub(crate) fn start_masters() -> Self {
        Self::start_masters_with(&[])
    }

    /// Starts three masters without replicas, with further arguments for each.
    pub(crate) fn start_masters_with(args: &[&str]) -> Self {
        Self::start_by(EVEN, MASTERS, args, RedisServer::start_with)
    }

    /// Starts three masters without replicas, over TLS; the arguments name the certificates.
    pub(crate) fn start_masters_tls(args: &[&str]) -> Self {
        let secret = ["--tls-cluster", "yes", "--tls-replication", "yes"];
        let args: Vec<&str> = secret.iter().chain(args).copied().collect();
        Self::start_by(EVEN, MASTERS, &args, RedisServer::start_tls)
    }

    /// Starts three masters of which the first has nearly all slots, and a replica of it; the other masters only vote when
    /// the first one dies.
    pub(crate) fn start_lopsided() -> Self {
        Self::start_by([2, 0, 1], MASTERS + 1, &[], RedisServer::start_with)
    }

    /// Starts a cluster; `first` has the first slot of each master.
    fn start_by(
        first: [u16; MASTERS],
        count: usize,
        more: &[&str],
        start: fn(&[&str]) -> RedisServer,
    ) -> Self {
        let args = [
            "--cluster-enabled",
            "yes",
            "--cluster-node-timeout",
            "1500",
            "--cluster-replica-validity-factor",
            "0",
            "--repl-diskless-sync",
            "yes",
            "--repl-diskless-sync-delay",
            "0",
            "--repl-ping-replica-period",
            "1",
        ];
        let args: Vec<&str> = args.iter().chain(more).copied().collect();
        let servers = (0..count).map(|_| start(&args));
        let cluster = Self {
            servers: servers.collect(),
        };
        let meet = cluster.servers[0].port().to_string();
        for (server, epoch) in cluster.servers.iter().zip(1..) {
            server.cmd(&["CLUSTER", "SET-CONFIG-EPOCH", &format!("{epoch}")]);
            server.cmd(&["CLUSTER", "MEET", "127.0.0.1", &meet]);
        }
        let masters = &cluster.servers[..MASTERS];
        for (server, from) in masters.iter().zip(first) {
            let next = first.into_iter().filter(|next| *next > from).min();
            let slots = from..next.unwrap_or(SLOTS);
            let slots: Vec<String> = slots.map(|slot| slot.to_string()).collect();
            let mut words = vec!["CLUSTER", "ADDSLOTS"];
            words.extend(slots.iter().map(String::as_str));
            server.cmd(&words);
        }
        until("everybody knows everybody", || {
            cluster.servers.iter().all(|server| {
                let nodes: String = server.query(&["CLUSTER", "NODES"]);
                let met = |line: &&str| !line.contains("handshake") && !line.contains("noaddr");
                nodes.lines().filter(met).count() == count
            })
        });
        for (replica, master) in cluster.servers[MASTERS..].iter().zip(masters) {
            let id = id(master);
            until("it knows its master", || {
                let asked = ["CLUSTER", "REPLICATE", &id];
                replica.try_query::<Value>(&asked).is_ok()
            });
        }
        cluster.until_settled();
        cluster
    }

    /// Keeps the nodes from declaring a busy master dead.
    pub(crate) fn stay(self) -> Self {
        for server in &self.servers {
            server.config_set("cluster-node-timeout", "120000");
        }
        self
    }

    /// Returns whether its servers support sharded channels, which Redis has from 7.0 on.
    pub(crate) fn is_sharded(&self) -> bool {
        let known: RedisResult<Value> = self.servers[0].try_query(&["PUBSUB", "SHARDNUMSUB"]);
        match known {
            Ok(_) => true,
            Err(error) if error.to_string().contains("Unknown subcommand") => false,
            Err(error) => panic!("it is up: {error}"),
        }
    }

    pub(crate) fn url(&self) -> String {
        self.url_as("")
    }

    /// Returns the url with a user and a password in front of the hosts, `user:password@`.
    pub(crate) fn url_as(&self, login: &str) -> String {
        let hosts = self.servers.iter().take(MASTERS);
        self.url_at(login, &hosts.map(RedisServer::addr).collect::<Vec<_>>())
    }

    /// Returns the url with other hosts, such as the proxies in front of these servers.
    pub(crate) fn url_at(&self, login: &str, hosts: &[SocketAddr]) -> String {
        let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        format!("redis-cluster://{login}{}", hosts.join(","))
    }

    /// Returns all servers, in the order in which they were started: masters first.
    pub(crate) fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// Returns the servers that have slots.
    pub(crate) fn masters(&self) -> Vec<&RedisServer> {
        let owners = self.owners();
        let mut ports: Vec<u16> = owners.values().copied().collect();
        ports.sort_unstable();
        ports.dedup();
        ports.into_iter().map(|port| self.at(port)).collect()
    }

    /// Returns the server that has a key's slot, according to all servers that run.
    pub(crate) fn owner(&self, key: &str) -> &RedisServer {
        let slot = self.slot(key);
        let mut owner = None;
        until("somebody has the slot", || {
            owner = self.owners().get(&slot).copied();
            owner.is_some()
        });
        self.at(owner.expect("somebody has it"))
    }

    pub(crate) fn slot(&self, key: &str) -> u16 {
        let mut up = self.servers.iter();
        let slot = up.find_map(|server| server.try_query(&["CLUSTER", "KEYSLOT", key]).ok());
        slot.expect("one of them runs")
    }

    /// Returns a connected replica of this master.
    pub(crate) fn replica_of(&self, master: &RedisServer) -> &RedisServer {
        let port = master.port();
        let mut found = None;
        until("a replica follows", || {
            found = self.servers.iter().find(|server| follows(server, port));
            found.is_some()
        });
        found.expect("there is one")
    }

    /// Sends a command to the server that has the key, which is the second word.
    pub(crate) fn query<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.owner(words[1]).query(words)
    }

    /// Returns every key of all masters, sorted.
    pub(crate) fn keys(&self) -> Vec<String> {
        let keys = self.masters().into_iter().flat_map(RedisServer::keys);
        let mut keys: Vec<String> = keys.collect();
        keys.sort();
        keys
    }

    /// Waits until a replica has all that its master has sent by now; returns the replica.
    pub(crate) fn until_replicated(&self, master: &RedisServer) -> &RedisServer {
        let replica = self.replica_of(master);
        let sent = sent(master);
        until("the replica has it", || {
            received(replica).is_some_and(|offset| offset >= sent)
        });
        replica
    }

    /// Kills a master with SIGKILL once its replica has caught up; returns its successor.
    pub(crate) fn kill(&self, master: &RedisServer) -> &RedisServer {
        let replica = self.until_replicated(master);
        master.kill();
        self.until_master(replica);
        replica
    }

    /// Fails over from a master to its replica, in order; returns the replica.
    pub(crate) fn fail_over(&self, master: &RedisServer) -> &RedisServer {
        let replica = self.until_replicated(master);
        until("it takes its place", || {
            let _: RedisResult<Value> = replica.try_query(&["CLUSTER", "FAILOVER"]);
            thread::sleep(Duration::from_millis(100));
            is_master(replica)
        });
        self.until_master(replica);
        replica
    }

    /// Waits until this server is a master, and all servers that run know that.
    pub(crate) fn until_master(&self, server: &RedisServer) {
        until("it is a master", || is_master(server));
        until("all know it", || {
            let port = server.port();
            let known = |other: &RedisServer| match slots(other) {
                Some(slots) => slots.values().any(|owner| *owner == port),
                None => true,
            };
            self.servers.iter().all(known)
        });
    }

    /// Moves a slot to another master, key by key, as an operator does in a running cluster.
    pub(crate) fn migrate(&self, slot: u16, to: &RedisServer) {
        let from = self.at(self.owners()[&slot]);
        self.begin_migration(slot, from, to);
        self.move_keys(slot, from, to);
        self.end_migration(slot, to);
    }

    pub(crate) fn begin_migration(&self, slot: u16, from: &RedisServer, to: &RedisServer) {
        let slot = slot.to_string();
        to.cmd(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)]);
        from.cmd(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)]);
    }

    pub(crate) fn move_keys(&self, slot: u16, from: &RedisServer, to: &RedisServer) {
        let (slot, port) = (slot.to_string(), to.port().to_string());
        loop {
            let asked = ["CLUSTER", "GETKEYSINSLOT", &slot, "10"];
            let keys: Vec<String> = from.query(&asked);
            if keys.is_empty() {
                return;
            }
            let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000"];
            words.extend(Rights::from_env().for_migrating());
            words.push("KEYS");
            words.extend(keys.iter().map(String::as_str));
            from.cmd(&words);
        }
    }

    pub(crate) fn end_migration(&self, slot: u16, to: &RedisServer) {
        let (slot, id) = (slot.to_string(), id(to));
        // The new owner is told first: otherwise the other masters would redirect clients to a server that does not know
        // yet.
        to.cmd(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]);
        for master in self.masters() {
            let told: RedisResult<Value> =
                master.try_query(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]);
            // The master may have keys in the slot that were written meanwhile.
            let _ = told;
        }
    }

    /// Waits until all nodes report that the cluster is well, and the replicas are connected.
    pub(crate) fn until_settled(&self) {
        until("the cluster is well", || {
            self.servers.iter().all(|server| {
                let info: RedisResult<String> = server.try_query(&["CLUSTER", "INFO"]);
                info.is_ok_and(|info| info.contains("cluster_state:ok"))
            })
        });
        until("the replicas follow", || {
            let followed = |master: &&RedisServer| {
                let port = master.port();
                self.servers.iter().any(|server| follows(server, port))
            };
            let masters = self.masters();
            let replicas = self.servers.len() - MASTERS;
            masters
                .into_iter()
                .filter(|master| followed(master))
                .count()
                >= replicas
        });
        until("all agree", || {
            let mut views = self.servers.iter().filter_map(slots);
            let first = views.next();
            views.all(|view| Some(view) == first)
        });
    }

    /// Returns the owner of each slot: the claim with the latest epoch decides.
    fn owners(&self) -> HashMap<u16, u16> {
        let mut known: HashMap<u16, (u64, u16)> = HashMap::new();
        for server in &self.servers {
            for (slot, claim) in claims(server) {
                let best = known.entry(slot).or_insert(claim);
                *best = claim.max(*best);
            }
        }
        known
            .into_iter()
            .map(|(slot, (_, port))| (slot, port))
            .collect()
    }

    fn at(&self, port: u16) -> &RedisServer {
        let found = self.servers.iter().find(|server| server.port() == port);
        found.expect("it is one of ours")
    }
}

fn id(server: &RedisServer) -> String {
    server.query(&["CLUSTER", "MYID"])
}

/// Returns the port that owns each slot, in the view of one server; `None` if it does not answer.
fn slots(server: &RedisServer) -> Option<HashMap<u16, u16>> {
    let claims = claims(server);
    (!claims.is_empty()).then(|| {
        let claims = claims.into_iter();
        claims.map(|(slot, (_, port))| (slot, port)).collect()
    })
}

/// Returns the config epoch and the port of each slot's master.
fn claims(server: &RedisServer) -> HashMap<u16, (u64, u16)> {
    let nodes: RedisResult<String> = server.try_query(&["CLUSTER", "NODES"]);
    let mut claims = HashMap::new();
    for line in nodes.unwrap_or_default().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, address, flags, _, _, _, epoch, _, slots @ ..] = &*words else {
            continue;
        };
        if !flags.contains("master") {
            continue;
        }
        let mut address = address.split([':', '@', ',']).skip(1);
        let mut port = || address.next().and_then(|port| port.parse::<u16>().ok());
        let (port, bus) = (port().expect("a port"), port().expect("another"));
        // To a client without TLS, newer servers do not report their TLS port.
        let port = if port == 0 { bus - 10_000 } else { port };
        let epoch = epoch.parse().expect("an epoch");
        for range in slots.iter().filter(|range| !range.starts_with('[')) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let [first, last] = [first, last].map(|slot| slot.parse::<u16>().expect("a slot"));
            claims.extend((first..=last).map(|slot| (slot, (epoch, port))));
        }
    }
    claims
}
