//! The state of a server without its scripts: a command sees this state and its arguments.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::Clock;
use crate::acl::User;
use crate::clients::Client;
use crate::cluster_view::ClusterView;
use crate::configuration::Configuration;
use crate::keyspace::Keyspace;
use crate::pubsub::PubSub;
use crate::random::Random;
use crate::replication::Link;
use crate::sentinel::{self, Greeting};
use crate::server::Fault;

/// The state of a server without its scripts.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    pub(crate) keyspace: Keyspace,
    pub(crate) clients: BTreeMap<u64, Client>,
    pub(crate) next_client: u64,
    pub(crate) pubsub: PubSub,
    pub(crate) users: BTreeMap<String, User>,
    /// The requests that users were denied, the latest first.
    pub(crate) denials: Vec<String>,
    pub(crate) configuration: Configuration,
    pub(crate) run_id: String,
    pub(crate) replication_id: String,
    pub(crate) started_us: u64,
    /// The replication id before the last promotion.
    pub(crate) replication_id_before: String,
    /// The amount of written data, in nominal bytes.
    pub(crate) offset: u64,
    /// The master, if this server is a replica.
    pub(crate) master: Option<Link>,
    pub(crate) replicas: Vec<Link>,
    /// The time after which this server has a write, when it becomes a replica by a sentinel's command.
    pub(crate) lag: Duration,
    /// The last message of each sentinel on the channel on which sentinels greet each other.
    pub(crate) greetings: BTreeMap<String, Greeting>,
    /// The state of the sentinel, if this server is one.
    pub(crate) sentinel: Option<Box<sentinel::State>>,
    /// The cluster that this server is a node of.
    pub(crate) cluster: Option<Box<ClusterView>>,
    /// The address of the server.
    pub(crate) address: (String, u16),
    /// The number of requests that were executed since the server was made.
    pub(crate) commands: u64,
    /// The number of executions of each command since the server started, by requests and by scripts.
    pub(crate) calls: BTreeMap<&'static str, u64>,
    /// The connections that have sent `MONITOR`.
    pub(crate) monitors: BTreeSet<u64>,
    /// The number of connections since the server started.
    pub(crate) connections: u64,
    pub(crate) fault: Option<Fault>,
    /// The moment until which nothing is executed.
    pub(crate) stalled_until: Option<Instant>,
    /// Whether a transaction is being executed, in which nothing waits.
    pub(crate) is_in_exec: bool,
    /// The number of scripts in the cache, for `INFO`.
    pub(crate) cached_scripts: usize,
}

/// One command as it is executed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) client: u64,
    /// The protocol of the reply. A script sees version 2.
    pub(crate) protocol: u8,
    /// The command's name, as the table has it.
    pub(crate) name: &'static str,
    /// The request: the command's name and its arguments.
    pub(crate) args: &'a [Vec<u8>],
}

impl Core {
    pub(crate) fn new(clock: Clock, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let (run_id, replication_id) = (random.run_id(), random.run_id());
        let started_us = clock.now_us();
        Self {
            clock,
            random,
            keyspace: Keyspace::new(),
            clients: BTreeMap::from([(Client::ADMINISTRATOR, Client::administrator())]),
            next_client: 1,
            pubsub: PubSub::default(),
            users: BTreeMap::from([("default".to_owned(), User::default_user())]),
            denials: Vec::new(),
            configuration: Configuration::new(),
            run_id,
            replication_id,
            replication_id_before: "0".repeat(40),
            offset: 0,
            master: None,
            replicas: Vec::new(),
            lag: Duration::ZERO,
            greetings: BTreeMap::new(),
            sentinel: None,
            cluster: None,
            address: ("127.0.0.1".to_owned(), 6379),
            started_us,
            commands: 0,
            calls: BTreeMap::new(),
            monitors: BTreeSet::new(),
            connections: 0,
            fault: None,
            stalled_until: None,
            cached_scripts: 0,
            is_in_exec: false,
        }
    }

    /// Starts anew: no connections, no subscriptions, a new run id.
    pub(crate) fn restart(&mut self, keep_data: bool) {
        for client in self.clients.values() {
            client.outbox.close();
        }
        self.clients.retain(|id, _| *id == Client::ADMINISTRATOR);
        self.pubsub = PubSub::default();
        if !keep_data {
            self.keyspace.flush(true);
            // The replicas lose the data, too.
            self.replicate();
        }
        self.keyspace.forget_watches();
        self.run_id = self.random.run_id();
        self.replication_id = self.random.run_id();
        self.started_us = self.clock.now_us();
        self.stalled_until = None;
        self.cached_scripts = 0;
        self.connections = 0;
        self.calls.clear();
        self.monitors.clear();
        self.greetings.clear();
        if let Some(view) = &mut self.cluster {
            view.restart();
        }
    }

    /// Returns whether the server is alone, in a cluster or a sentinel, as it reports itself.
    pub(crate) const fn mode(&self) -> &'static str {
        if self.cluster.is_some() {
            "cluster"
        } else if self.sentinel.is_some() {
            "sentinel"
        } else {
            "standalone"
        }
    }

    /// Returns whether there is no memory for more data.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        self.fault == Some(Fault::OutOfMemory) || self.configuration.is_out_of_memory()
    }

    /// Returns the state of a connection, which exists as long as one of its requests is executed.
    pub(crate) fn client(&mut self, id: u64) -> &mut Client {
        self.clients
            .entry(id)
            .or_insert_with(|| Client::new(id, None))
    }

    /// Registers a connection. It needs no `AUTH` as long as the default user has no password.
    pub(crate) fn connect(&mut self, id: u64) -> &mut Client {
        let is_open = self
            .users
            .get("default")
            .is_some_and(User::needs_no_password);
        let user = is_open.then(|| "default".to_owned());
        self.clients.entry(id).or_insert(Client::new(id, user))
    }

    /// Removes a connection.
    pub(crate) fn disconnect(&mut self, id: u64) {
        self.keyspace.unwatch(id);
        self.pubsub.forget(id);
        self.monitors.remove(&id);
        if let Some(client) = self.clients.remove(&id) {
            client.outbox.close();
        }
    }
}
