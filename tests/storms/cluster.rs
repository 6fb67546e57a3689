//! Three masters of a cluster, each with a replica.

use std::time::{Duration, Instant};

use redis::{RedisResult, Value};

use super::load::Names;
use super::stage::Stage;
use super::support::replication::is_master;
use super::support::{Cluster, RedisServer, wait_until};

pub(crate) struct Sharded {
    cluster: Cluster,
    names: Names,
}

impl Sharded {
    pub(crate) fn start() -> Self {
        let cluster = Cluster::start();
        let names = |word| {
            let masters = cluster.masters().into_iter();
            masters
                .map(|master| name_at(&cluster, master, word))
                .collect()
        };
        let names = Names {
            short: names("short"),
            long: names("long"),
        };
        let stage = Self { cluster, names };
        stage.set_quick_failover(false);
        stage
    }

    /// Returns the name of a lock at the master that is to be replaced.
    fn whose_turn(&self, round: usize) -> &str {
        let names = &self.names.long;
        &names[round % names.len()]
    }
}

impl Stage for Sharded {
    fn describe(&self) -> &'static str {
        "cluster"
    }

    fn url(&self) -> String {
        self.cluster.url()
    }

    fn replicas(&self) -> u32 {
        1
    }

    fn names(&self) -> Names {
        self.names.clone()
    }

    fn name_at(&self, round: usize, word: &str) -> String {
        format!("{{{}}}-{word}-{round}", self.whose_turn(round))
    }

    fn until_settled(&self) {
        self.cluster.until_settled();
    }

    fn master(&self, round: usize) -> &RedisServer {
        self.cluster.owner(self.whose_turn(round))
    }

    fn followers(&self, master: &RedisServer) -> Vec<&RedisServer> {
        vec![self.cluster.replica_of(master)]
    }

    /// Makes the node forget the others: it accepts nothing from nodes that it does not know.
    fn side_door(&self, master: &RedisServer) -> String {
        // And it serves its own slots, though no node serves the rest.
        master.config_set("cluster-require-full-coverage", "no");
        let nodes: String = master.query(&["CLUSTER", "NODES"]);
        for line in nodes.lines().filter(|line| !line.contains("myself")) {
            let id = line.split(' ').next().expect("a line has words");
            master.cmd(&["CLUSTER", "FORGET", id]);
        }
        format!("redis-cluster://{}", master.addr())
    }

    fn set_quick_failover(&self, quickly: bool) {
        let silence = if quickly { "1500" } else { PATIENT };
        for server in self.cluster.servers() {
            // One of them may be down.
            let words = ["CONFIG", "SET", NODE_TIMEOUT, silence];
            let _: RedisResult<Value> = server.try_query(&words);
        }
    }

    fn order(&self, master: &RedisServer) {
        let replica = self.cluster.replica_of(master);
        // For twice their node timeout, the others would not agree to replace the same master again.
        self.set_quick_failover(true);
        let mut ordered: Option<Instant> = None;
        wait_until("it takes its place", || {
            // A failover in progress starts anew if it is ordered again.
            if ordered.is_none_or(|at| at.elapsed() > AGAIN) {
                let _: RedisResult<Value> = replica.try_query(&["CLUSTER", "FAILOVER"]);
                ordered = Some(Instant::now());
            }
            is_master(replica)
        });
    }

    fn take_over(&self, master: &RedisServer) {
        let replica = self.cluster.replica_of(master);
        replica.cmd(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
    }

    fn cut_off(&self, master: &RedisServer) {
        self.take_over(master);
    }

    /// Does nothing: a client that asks the new master learns of it at once.
    fn until_found(&self, _: &RedisServer) {}

    fn rejoin(&self, old: &RedisServer, _: &RedisServer) {
        if old.try_query::<Value>(&["PING"]).is_err() {
            old.restart();
            old.config_set(NODE_TIMEOUT, PATIENT);
        }
        let others = self.cluster.servers().iter();
        for other in others.filter(|other| other.port() != old.port()) {
            // Meeting a node that is known already has no effect.
            let port = other.port().to_string();
            old.cmd(&["CLUSTER", "MEET", "127.0.0.1", &port]);
        }
    }
}

/// Returns a name at this master: numbers are appended to the word until its slot is there.
fn name_at(cluster: &Cluster, master: &RedisServer, word: &str) -> String {
    let mut names = (0..).map(|number| format!("{word}-{number}"));
    let name = names.find(|name| cluster.owner(name).port() == master.port());
    name.expect("there is no end of names")
}

const AGAIN: Duration = Duration::from_secs(3);
const NODE_TIMEOUT: &str = "cluster-node-timeout";
const PATIENT: &str = "20000";
