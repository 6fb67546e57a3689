//! A master, two replicas and three sentinels for one test.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use redis::{RedisResult, Value};

use super::RedisServer;
use super::login::Rights;
use super::replication::{follows, is_master, received, sent, until};

/// Six processes that have found each other. All calls block.
pub(crate) struct Topology {
    servers: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
}

/// The silence after which sentinels declare a master down that is to be replaced.
const SOON: Duration = Duration::from_secs(1);
/// The silence after which they do otherwise: far longer than a busy machine stands still.
const LATE: Duration = Duration::from_secs(120);

/// The name that the sentinels know the master by.
pub(crate) const MASTER: &str = "mymaster";

impl Topology {
    pub(crate) fn start() -> Self {
        Self::start_by("", &[], &[])
    }

    /// Starts them with passwords: one for the servers, another for the sentinels.
    pub(crate) fn start_guarded(servers: &str, sentinels: &str) -> Self {
        let file =
            format!("sentinel auth-pass {MASTER} {servers}\nsentinel sentinel-pass {sentinels}\n");
        let server = ["--requirepass", servers, "--masterauth", servers];
        Self::start_by(&file, &server, &["--requirepass", sentinels])
    }

    fn start_by(file: &str, server: &[&str], sentinel: &[&str]) -> Self {
        let delay = [
            "--repl-diskless-sync",
            "yes",
            "--repl-diskless-sync-delay",
            "0",
        ];
        let ping = ["--repl-ping-replica-period", "1"];
        let all: Vec<&str> = delay.iter().chain(&ping).chain(server).copied().collect();
        let first = RedisServer::start_with(&all);
        let port = first.port().to_string();
        let replica: Vec<&str> = ["--replicaof", "127.0.0.1", &port]
            .into_iter()
            .chain(all)
            .collect();
        let (second, third) = (
            RedisServer::start_with(&replica),
            RedisServer::start_with(&replica),
        );
        let login = Rights::from_env().for_sentinels(MASTER);
        // A busy machine may stand still for seconds, and a slow master must not be replaced without an order.
        let late = LATE.as_millis();
        let file = format!(
            "sentinel monitor {MASTER} 127.0.0.1 {port} 2\n\
             sentinel down-after-milliseconds {MASTER} {late}\n\
             sentinel failover-timeout {MASTER} 6000\n\
             sentinel parallel-syncs {MASTER} 2\n{file}{login}"
        );
        let args: Vec<&str> = ["--sentinel"].iter().chain(sentinel).copied().collect();
        let sentinels = (0..3).map(|_| RedisServer::start_from(&file, &args));
        let topology = Self {
            servers: vec![first, second, third],
            sentinels: sentinels.collect(),
        };
        for sentinel in &topology.sentinels {
            hurry(sentinel);
        }
        topology.until_settled();
        topology
    }

    /// Sets how long a master must be silent before the sentinels declare it down.
    pub(crate) fn call_down_after(&self, silence: Duration) {
        let millis = silence.as_millis().to_string();
        for sentinel in &self.sentinels {
            let patient = ["down-after-milliseconds", &*millis];
            let words = ["SENTINEL", "SET", MASTER].into_iter().chain(patient);
            let told: RedisResult<Value> = sentinel.try_query(&words.collect::<Vec<_>>());
            // A sentinel that does not run declares no master down.
            let _ = told;
        }
    }

    pub(crate) fn url(&self) -> String {
        self.url_as("")
    }

    /// Returns the url with a user and a password in front of the hosts, `user:password@`.
    pub(crate) fn url_as(&self, login: &str) -> String {
        let hosts = self.sentinels.iter();
        self.url_at(login, &hosts.map(RedisServer::addr).collect::<Vec<_>>())
    }

    /// Returns the url with other hosts, such as the proxies in front of these sentinels.
    pub(crate) fn url_at(&self, login: &str, hosts: &[SocketAddr]) -> String {
        let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        format!("redis-sentinel://{login}{}/{MASTER}/0", hosts.join(","))
    }

    /// Returns all three servers, in the order in which they were started.
    pub(crate) fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    pub(crate) fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// Waits until all sentinels that run agree on the master, and returns it.
    pub(crate) fn master(&self) -> &RedisServer {
        let mut master = None;
        until("the sentinels agree", || {
            master = self.agreed();
            master.is_some()
        });
        let port = master.expect("they agree");
        self.at(port)
    }

    /// Returns the servers other than the master.
    pub(crate) fn replicas(&self) -> Vec<&RedisServer> {
        let master = self.master().port();
        let others = self.servers.iter().filter(|server| server.port() != master);
        others.collect()
    }

    /// Has the sentinels promote a replica, and returns the old master and the new one once all of them report it. The old
    /// one is not demoted at once. Earlier writes are not lost.
    pub(crate) fn fail_over(&self) -> (&RedisServer, &RedisServer) {
        let old = self.order_failover();
        (old, self.until_not(old))
    }

    /// Orders a failover once the replicas have caught up with the master, and waits for no more than that.
    pub(crate) fn order_failover(&self) -> &RedisServer {
        let old = self.until_replicated();
        until("a failover can be begun", || {
            let ordered: RedisResult<Value> =
                self.sentinels[0].try_query(&["SENTINEL", "FAILOVER", MASTER]);
            ordered.is_ok()
        });
        old
    }

    /// Waits for the successor of this master, and returns it.
    pub(crate) fn until_not(&self, old: &RedisServer) -> &RedisServer {
        let mut new = None;
        until("the sentinels agree on another", || {
            let named = self.agreed().filter(|port| *port != old.port());
            new = named.map(|port| self.at(port));
            new.is_some_and(is_master)
        });
        new.expect("they agree")
    }

    /// Has the sentinels replace a master that is dead or hangs, and returns its successor once all of them report it.
    pub(crate) fn replace(&self, dead: &RedisServer) -> &RedisServer {
        self.call_down_after(SOON);
        self.until_not(dead);
        self.call_down_after(LATE);
        // If the machine stood still meanwhile, the sentinels may have replaced the successor as well.
        self.until_done();
        self.until_not(dead)
    }

    /// Waits until no sentinel is about to replace the master.
    fn until_done(&self) {
        until("the sentinels are done", || {
            self.sentinels.iter().all(|sentinel| {
                let asked = ["SENTINEL", "MASTER", MASTER];
                let told: RedisResult<HashMap<String, String>> = sentinel.try_query(&asked);
                // A sentinel that does not run replaces no master.
                told.map_or(true, |told| {
                    told.get("flags").is_some_and(|flags| flags == "master")
                })
            })
        });
    }

    /// Waits until a replica is a master, which the sentinels may not have reported yet, and returns it.
    pub(crate) fn until_promoted(&self, old: &RedisServer) -> &RedisServer {
        let mut new = None;
        until("a replica is promoted", || {
            new = self
                .servers
                .iter()
                .find(|server| server.port() != old.port() && is_master(server));
            new.is_some()
        });
        new.expect("there is one")
    }

    /// Kills the master with SIGKILL; returns it, and its successor once all sentinels report it.
    pub(crate) fn kill_master(&self) -> (&RedisServer, &RedisServer) {
        let old = self.until_replicated();
        old.kill();
        (old, self.replace(old))
    }

    /// Waits until the replicas have all that the master has by now, and returns the master. A replica receives writes later
    /// than the client its reply, and one that has just connected up to a second later.
    pub(crate) fn until_replicated(&self) -> &RedisServer {
        let master = self.master();
        let sent = sent(master);
        let others = || {
            self.servers
                .iter()
                .filter(|other| other.port() != master.port())
        };
        until("the replicas have it", || {
            others().all(|other| received(other).is_some_and(|offset| offset >= sent))
        });
        master
    }

    /// Waits until each sentinel knows the others and two connected replicas.
    pub(crate) fn until_settled(&self) {
        until("everybody has found everybody", || {
            self.agreed().is_some() && self.sentinels.iter().all(knows_everybody)
        });
        until("the replicas follow", || {
            self.agreed().is_some_and(|master| {
                let mut others = self.servers.iter().filter(|server| server.port() != master);
                others.all(|server| follows(server, master))
            })
        });
    }

    /// Returns the master's port, if all sentinels that run report the same.
    pub(crate) fn agreed(&self) -> Option<u16> {
        let mut said = self.sentinels.iter().filter_map(named);
        let first = said.next()?;
        said.all(|port| port == first).then_some(first)
    }

    fn at(&self, port: u16) -> &RedisServer {
        let found = self.servers.iter().find(|server| server.port() == port);
        found.expect("it is one of ours")
    }
}

/// Returns the master's port according to one sentinel.
pub(crate) fn named(sentinel: &RedisServer) -> Option<u16> {
    let asked = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER];
    let said: RedisResult<(String, u16)> = sentinel.try_query(&asked);
    said.ok().map(|(_, port)| port)
}

/// Returns the number of a server's connections, without those of sentinels, of replicas and of the fixture.
pub(crate) fn client_connections(server: &RedisServer) -> usize {
    let list: String = server.query(&["CLIENT", "LIST"]);
    let visits = |line: &&str| {
        let has = |word: &str| line.split(' ').any(|field| field.starts_with(word));
        !has("name=sentinel-") && !has("flags=S") && !has("flags=M") && line.contains(" addr=127.")
    };
    list.lines().filter(visits).count()
}

/// Makes a sentinel poll more often than by default, and leave TILT mode soon, which a busy machine causes.
fn hurry(sentinel: &RedisServer) {
    let faster = [
        "SENTINEL",
        "DEBUG",
        "INFO-PERIOD",
        "500",
        "PUBLISH-PERIOD",
        "500",
        "TILT-PERIOD",
        "500",
    ];
    // Servers before 7.0 do not know this command, and take longer.
    let _: RedisResult<Value> = sentinel.try_query(&faster);
}

fn knows_everybody(sentinel: &RedisServer) -> bool {
    let count = |what| {
        let all: RedisResult<Vec<Vec<String>>> = sentinel.try_query(&["SENTINEL", what, MASTER]);
        all.map_or(0, |all| {
            let sound = all.iter().filter(|one| {
                let flags = one.iter().skip_while(|word| *word != "flags").nth(1);
                // `master_down` is not among them: it is the report of another sentinel, and Valkey keeps it.
                let gone = ["s_down", "o_down", "disconnected"];
                flags.is_some_and(|flags| !flags.split(',').any(|flag| gone.contains(&flag)))
            });
            sound.count()
        })
    };
    count("SENTINELS") == 2 && count("REPLICAS") == 2
}
