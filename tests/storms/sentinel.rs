//! A master behind sentinels.

use std::collections::HashMap;
use std::time::Duration;
use std::{fs, thread};

use redis::{RedisResult, Value};

use super::load::Names;
use super::probe::until;
use super::stage::Stage;
use super::support::replication::is_master;
use super::support::sentinel::{MASTER, named};
use super::support::{RedisServer, Topology};

pub(crate) struct Watched {
    topology: Topology,
}

impl Watched {
    pub(crate) fn start() -> Self {
        let topology = Topology::start();
        for sentinel in topology.sentinels() {
            // For twice this timeout they would not replace the next master that dies.
            let words = ["SENTINEL", "SET", MASTER, "failover-timeout", "5000"];
            sentinel.cmd(&words);
        }
        Self { topology }
    }
}

impl Stage for Watched {
    fn describe(&self) -> &'static str {
        "sentinel"
    }

    fn url(&self) -> String {
        self.topology.url()
    }

    fn replicas(&self) -> u32 {
        2
    }

    fn names(&self) -> Names {
        let names = |word| (0..3).map(|at| format!("{word}-{at}")).collect();
        Names {
            short: names("short"),
            long: names("long"),
        }
    }

    fn name_at(&self, round: usize, word: &str) -> String {
        format!("{word}-{round}")
    }

    fn until_settled(&self) {
        // They name the next master before they are done with the last: if that one died then, they would disagree for good.
        until("the sentinels are done", || {
            let named = self.topology.agreed();
            let mut servers = self.topology.servers().iter();
            servers.any(|server| Some(server.port()) == named && is_master(server))
                && self.topology.sentinels().iter().all(is_done)
        });
        self.topology.until_settled();
    }

    fn master(&self, _: usize) -> &RedisServer {
        self.topology.master()
    }

    fn followers(&self, master: &RedisServer) -> Vec<&RedisServer> {
        let servers = self.topology.servers().iter();
        let others = servers.filter(|server| server.port() != master.port());
        others.collect()
    }

    /// Returns the address of its socket: sentinels and all other clients use its port.
    fn side_door(&self, master: &RedisServer) -> String {
        format!("redis+unix://{}", master.socket_path().display())
    }

    fn set_quick_failover(&self, quickly: bool) {
        let silence = if quickly { 1 } else { 60 };
        self.topology.call_down_after(Duration::from_secs(silence));
    }

    fn order(&self, _: &RedisServer) {
        self.topology.order_failover();
    }

    fn take_over(&self, _: &RedisServer) {
        panic!("sentinels know of no such thing");
    }

    /// Makes the server stop listening and close all connections that came by the port: to those clients it is down.
    fn cut_off(&self, master: &RedisServer) {
        master.config_set("port", "0");
        let clients: String = master.query(&["CLIENT", "LIST"]);
        let by_port = |line: &&str| line.contains(" addr=127.") && !line.contains("flags=U");
        for line in clients.lines().filter(by_port) {
            let id = line
                .split(' ')
                .find_map(|field| field.strip_prefix("id="))
                .expect("each has one");
            // The connection may have ended by itself.
            let _: RedisResult<Value> = master.try_query(&["CLIENT", "KILL", "ID", id]);
        }
    }

    /// Waits for the sentinels: they report it when they have seen it themselves, which takes them a second or two.
    fn until_found(&self, new: &RedisServer) {
        until("a sentinel names the new master", || {
            let mut sentinels = self.topology.sentinels().iter();
            sentinels.any(|sentinel| named(sentinel) == Some(new.port()))
        });
    }

    fn rejoin(&self, old: &RedisServer, new: &RedisServer) {
        if old.try_query::<Value>(&["PING"]).is_err() {
            old.restart();
        }
        old.config_set("port", &old.port().to_string());
        // Sentinels do it seconds later.
        old.cmd(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
    }
}

/// Returns whether a sentinel's master is healthy, and no failover is in progress.
fn is_done(sentinel: &RedisServer) -> bool {
    let told: RedisResult<HashMap<String, String>> =
        sentinel.try_query(&["SENTINEL", "MASTER", MASTER]);
    told.is_ok_and(|told| told.get("flags").is_some_and(|flags| flags == "master"))
}

impl Drop for Watched {
    /// Prints the logs after a failure: the record of what the sentinels have done, and why, is deleted with them.
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        let (servers, sentinels) = (self.topology.servers(), self.topology.sentinels());
        for server in servers.iter().chain(sentinels) {
            let log = server.socket_path().with_file_name("redis.log");
            let log = fs::read_to_string(log).unwrap_or_default();
            eprintln!("the log of {}:\n{log}", server.addr());
        }
    }
}
