//! The handle of a simulated cluster: the actions of tests, and the bus between its nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, sleep, sleep_until};

use crate::cluster_bus::Heartbeat;
use crate::cluster_slots::SLOTS;
use crate::cluster_view::{ClusterView, Peer, Publication};
use crate::core::Core;
use crate::random::Random;
use crate::{Clock, Network, Server};

/// A simulated Redis Cluster. Clones are the same cluster.
///
/// Its nodes are servers on hosts of their own, numbered in this order: first the masters, then the first replica of each, then the second.
/// Each has its own view of which node has which slot, and they notify each other of changes as real nodes do.
#[derive(Clone)]
pub struct Cluster {
    shared: Arc<Shared>,
}

struct Shared {
    network: Network,
    nodes: Vec<Node>,
    state: Mutex<State>,
}

struct Node {
    host: String,
    server: Server,
}

struct State {
    random: Random,
    lag: Duration,
    /// The servers that the replicas follow.
    followed: Vec<Option<usize>>,
    /// The replicas that a test has cut off from their masters.
    cut: BTreeSet<usize>,
    heartbeats: Vec<Option<Heartbeat>>,
}

impl Cluster {
    /// Starts a cluster whose masters share the slots evenly.
    ///
    /// # Panics
    /// Panics without a tokio runtime.
    pub fn new(network: &Network, masters: usize, replicas_each: usize, seed: u64) -> Self {
        let share = |master: usize| {
            SLOTS / u16::try_from(masters).expect("few") * u16::try_from(master).expect("few")
        };
        let firsts: Vec<u16> = (0..masters).map(share).collect();
        Self::with_slots(network, &firsts, masters * replicas_each, seed)
    }

    /// Starts a cluster in which each master has the slots from its first one to the next one's. The replicas are those of the first
    /// masters.
    ///
    /// # Panics
    /// Panics without a tokio runtime.
    pub fn with_slots(network: &Network, firsts: &[u16], replicas: usize, seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0xc1u64);
        let (clock, now) = (Clock::new(), Instant::now());
        let masters = firsts.len();
        let count = masters + replicas;
        let host = |node: usize| format!("10.0.0.{}", node + 1);
        let peer = |node: usize| Peer {
            id: random.run_id(),
            address: (host(node), PORT),
            config_epoch: if node < masters { 1 + node as u64 } else { 0 },
            master: (node >= masters).then(|| (node - masters) % masters),
            offset: 0,
            heard: now,
            reports: BTreeMap::new(),
            is_suspected: false,
            failed: None,
            voted: None,
        };
        let peers: Vec<Peer> = (0..count).map(peer).collect();
        let (bus, publications) = unbounded_channel();
        let nodes = (0..count).map(|node| {
            let server = Server::new(clock.clone(), random.next());
            server.set_address(&host(node), PORT);
            network.listen(&host(node), PORT, &server);
            let mut view = ClusterView::new(node, peers.clone(), bus.clone());
            for (master, &first) in firsts.iter().enumerate() {
                let others = firsts.iter().filter(|&&other| other > first);
                let end = others.min().copied().unwrap_or(SLOTS);
                (first..end).for_each(|slot| view.assign(slot, Some(master)));
            }
            let mut inner = server.lock();
            let core = inner.core();
            core.cluster = Some(Box::new(view));
            core.configuration.put("cluster-enabled", "yes");
            drop(inner);
            Node {
                host: host(node),
                server,
            }
        });
        let nodes: Vec<Node> = nodes.collect();
        let state = State {
            random,
            lag: Duration::from_millis(1),
            followed: vec![None; count],
            cut: BTreeSet::new(),
            heartbeats: vec![None; count],
        };
        let shared = Arc::new(Shared {
            network: network.clone(),
            nodes,
            state: Mutex::new(state),
        });
        shared.tick();
        tokio::spawn(run(Arc::downgrade(&shared), publications));
        Self { shared }
    }

    /// Returns the servers by their numbers.
    pub fn servers(&self) -> Vec<Server> {
        let nodes = self.shared.nodes.iter();
        nodes.map(|node| node.server.clone()).collect()
    }

    /// Returns one of the servers.
    pub fn server(&self, node: usize) -> &Server {
        &self.shared.nodes[node].server
    }

    /// Returns the host of a node, as the network knows it.
    pub fn host(&self, node: usize) -> &str {
        &self.shared.nodes[node].host
    }

    /// Returns the addresses of the first nodes, in the form that a client's URL has.
    pub fn addresses(&self, nodes: usize) -> String {
        let nodes = self.shared.nodes.iter().take(nodes);
        let addresses = nodes.map(|node| format!("{}:{PORT}", node.host));
        addresses.collect::<Vec<_>>().join(",")
    }

    /// Has a node announce another address, such as that of a proxy before it.
    pub fn announce(&self, node: usize, host: &str, port: u16) {
        self.with_view(node, |view| {
            view.myself().address = (host.to_owned(), port);
            view.changed();
        });
        self.shared.tick();
    }

    /// Returns the master that has a slot by the greatest epoch that any running node knows.
    pub fn owner(&self, slot: u16) -> Option<usize> {
        let views = self.running().map(|node| {
            self.with_view(node, |view| {
                let owner = view.owner(slot)?;
                Some((view.peers[owner].config_epoch, owner))
            })
        });
        views.flatten().max().map(|(_, owner)| owner)
    }

    /// Returns the master that a node believes has a slot.
    pub fn believed_owner(&self, node: usize, slot: u16) -> Option<usize> {
        self.with_view(node, |view| view.owner(slot))
    }

    /// Returns the master that a node follows, according to that node.
    pub fn master_of(&self, node: usize) -> Option<usize> {
        self.with_view(node, |view| view.master())
    }

    /// Returns the running masters that have slots, according to themselves.
    pub fn masters(&self) -> Vec<usize> {
        let nodes = self.running();
        let masters = nodes.filter(|&node| {
            self.with_view(node, |view| view.master().is_none() && view.count(node) > 0)
        });
        masters.collect()
    }

    /// Returns the running replicas of a master, according to themselves.
    pub fn replicas_of(&self, master: usize) -> Vec<usize> {
        let nodes = self.running();
        nodes
            .filter(|&node| self.master_of(node) == Some(master))
            .collect()
    }

    /// Returns whether all nodes run, agree on everything, serve requests, and all replicas follow their masters.
    pub fn is_settled(&self) -> bool {
        let count = self.shared.nodes.len();
        let first = self.with_view(0, |view| view.summary());
        let following = self.shared.state().followed.clone();
        let follows = |node: usize| {
            let is_linked = self.with_core(node, |core| {
                core.master.as_ref().is_some_and(|link| link.is_up())
            });
            self.master_of(node)
                .is_none_or(|master| following[node] == Some(master) && is_linked)
        };
        self.running().count() == count
            && (0..count).all(|node| {
                follows(node) && self.with_view(node, |view| view.is_ok && view.summary() == first)
            })
    }

    /// Waits until the cluster is settled.
    pub async fn settled(&self) {
        while !self.is_settled() {
            sleep(TICK).await;
        }
    }

    /// Sets how long a node may be silent before the others suspect it. The initial value is 15 seconds, as in Redis.
    pub fn set_node_timeout(&self, timeout: Duration) {
        self.configure("cluster-node-timeout", &timeout.as_millis().to_string());
    }

    /// Changes a setting of all nodes.
    pub fn configure(&self, name: &str, value: &str) {
        for node in 0..self.shared.nodes.len() {
            self.with_core(node, |core| core.configuration.put(name, value));
        }
    }

    /// Sets the time after which the replicas have a write.
    pub fn set_lag(&self, lag: Duration) {
        self.shared.state().lag = lag;
        for node in &self.shared.nodes {
            node.server.set_lag(lag);
        }
    }

    /// Stops the replication to a replica, or restores it.
    pub fn cut_replication(&self, node: usize, is_cut: bool) {
        {
            let mut state = self.shared.state();
            if is_cut {
                state.cut.insert(node);
            } else {
                state.cut.remove(&node);
            }
        }
        self.shared.tick();
    }

    /// Keeps a node from learning of changes, or ends that. It still knows that the others are alive.
    pub fn set_unaware(&self, node: usize, is_unaware: bool) {
        self.with_view(node, |view| view.is_unaware = is_unaware);
        self.shared.tick();
    }

    /// Cuts a node off from all other nodes, not from clients.
    pub fn cut_off(&self, node: usize) {
        for (one, other) in self.links(node) {
            self.shared.network.block(&one, &other);
        }
        self.shared.tick();
    }

    /// Ends the isolation of a node.
    pub fn rejoin(&self, node: usize) {
        for (one, other) in self.links(node) {
            self.shared.network.unblock(&one, &other);
        }
        self.shared.tick();
    }

    /// Kills a node's server.
    pub fn kill(&self, node: usize) {
        self.server(node).kill();
        self.shared.tick();
    }

    /// Restarts a killed server. It still knows the cluster as it was.
    pub fn revive(&self, node: usize, keep_data: bool) {
        let server = self.server(node);
        if !keep_data {
            server.restart(false);
        }
        server.revive();
        self.shared.tick();
    }

    /// Has a replica replace its master in an orderly way (`CLUSTER FAILOVER`): it has all data, and the master follows it.
    ///
    /// # Panics
    /// Panics if the node is no replica.
    pub fn fail_over(&self, replica: usize) {
        let master = self.master_of(replica).expect("it is a replica");
        let behind = self.server(master);
        if behind.is_alive() && self.shared.are_connected(replica, master) {
            self.server(replica).set_lag(Duration::ZERO);
            self.with_core(replica, Core::catch_up);
        }
        self.take_over(replica);
    }

    /// Has a replica replace its master with the data that it has, without a vote (`CLUSTER FAILOVER TAKEOVER`).
    pub fn take_over(&self, replica: usize) {
        self.with_core(replica, |core| core.replace_master(false));
        self.shared.tick();
    }

    /// Moves a slot to another master, key by key, as administrators do in a running cluster.
    pub fn migrate(&self, slot: u16, to: usize) {
        let from = self.owner(slot).expect("a node has the slot");
        if from == to {
            return;
        }
        self.begin_migration(slot, from, to);
        self.move_keys(slot, from, to);
        self.end_migration(slot, to);
    }

    /// Opens a slot at both ends (`CLUSTER SETSLOT IMPORTING` and `MIGRATING`).
    pub fn begin_migration(&self, slot: u16, from: usize, to: usize) {
        self.with_view(to, |view| view.importing.insert(slot, from));
        self.with_view(from, |view| view.migrating.insert(slot, to));
    }

    /// Moves one key (`MIGRATE`). Returns whether it was moved: it stays if the other node has a key of that name.
    pub fn move_key(&self, key: &[u8], from: usize, to: usize) -> bool {
        let now = |core: &mut Core| {
            let now = core.clock.now_ms();
            core.keyspace.select(0, now);
        };
        let is_busy = self.with_core(to, |core| {
            now(core);
            core.keyspace.exists(key)
        });
        if is_busy {
            return false;
        }
        let entry = self.with_core(from, |core| {
            now(core);
            let entry = core.keyspace.remove(key);
            core.replicate();
            entry
        });
        let Some(entry) = entry else { return false };
        self.with_core(to, |core| {
            now(core);
            core.keyspace.set(key, entry);
            core.replicate();
        });
        true
    }

    /// Moves all keys of a slot.
    pub fn move_keys(&self, slot: u16, from: usize, to: usize) {
        for key in self.with_core(from, |core| core.keys_in_slot(slot)) {
            self.move_key(&key, from, to);
        }
    }

    /// Assigns a slot to its new master, first at that master, then at the others (`CLUSTER SETSLOT NODE`).
    pub fn end_migration(&self, slot: u16, to: usize) {
        let id = self.with_view(to, |view| view.peers[to].id.clone());
        let others = self.masters().into_iter().filter(|&node| node != to);
        for node in std::iter::once(to).chain(others) {
            let slot = slot.to_string();
            let words = ["CLUSTER", "SETSLOT", &slot, "NODE", &id];
            // A node that received keys meanwhile keeps the slot open.
            self.server(node).call(&words.map(str::as_bytes));
        }
        self.shared.tick();
    }

    fn running(&self) -> impl Iterator<Item = usize> {
        let nodes = 0..self.shared.nodes.len();
        nodes.filter(|&node| self.server(node).is_alive())
    }

    fn links(&self, node: usize) -> Vec<(String, String)> {
        let hosts = self.shared.nodes.iter().map(|node| &node.host);
        let own = self.host(node);
        let others = hosts.filter(|&host| host != own);
        let pairs = others.flat_map(|other| {
            let (own, other) = (own.to_owned(), other.clone());
            [(own.clone(), other.clone()), (other, own)]
        });
        pairs.collect()
    }

    fn with_core<T>(&self, node: usize, work: impl FnOnce(&mut Core) -> T) -> T {
        self.shared.with_core(node, work)
    }

    fn with_view<T>(&self, node: usize, work: impl FnOnce(&mut ClusterView) -> T) -> T {
        self.shared.with_view(node, work)
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Cluster").finish_non_exhaustive()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_core<T>(&self, node: usize, work: impl FnOnce(&mut Core) -> T) -> T {
        work(self.nodes[node].server.lock().core())
    }

    fn with_view<T>(&self, node: usize, work: impl FnOnce(&mut ClusterView) -> T) -> T {
        self.with_core(node, |core| {
            work(core.cluster.as_deref_mut().expect("each node has one"))
        })
    }

    /// Returns whether two nodes reach each other in both directions.
    fn are_connected(&self, one: usize, other: usize) -> bool {
        let (one, other) = (&self.nodes[one].host, &self.nodes[other].host);
        !self.network.is_blocked(one, other) && !self.network.is_blocked(other, one)
    }

    /// Returns whether all nodes are alive, reach each other and have received everything: then further heartbeats change nothing.
    fn is_quiet(&self, state: &State) -> bool {
        if !state.cut.is_empty() || self.network.has_blocks() {
            return false;
        }
        let versions = self.nodes.iter().map(|node| {
            let mut inner = node.server.lock();
            let is_alive = inner.is_alive;
            let core = inner.core();
            let is_linked = core.master.as_ref().is_none_or(|link| link.is_up());
            let view = core.cluster.as_deref()?;
            let is_well = is_alive && core.stalled_until.is_none() && is_linked && view.is_well();
            is_well.then_some(view.version)
        });
        let Some(versions) = versions.collect::<Option<Vec<u64>>>() else {
            return false;
        };
        let nodes = 0..self.nodes.len();
        nodes.clone().zip(&state.followed).all(|(node, followed)| {
            self.with_view(node, |view| {
                let mut others = nodes.clone().filter(|&other| other != node);
                view.master() == *followed
                    && others.all(|other| view.heard_versions[other] == versions[other])
            })
        })
    }

    /// Has all nodes receive each other's heartbeats, and draw their conclusions.
    fn tick(&self) {
        let mut state = self.state();
        if self.is_quiet(&state) {
            for node in 0..self.nodes.len() {
                self.with_view(node, ClusterView::hear_all);
            }
            return;
        }
        let nodes = 0..self.nodes.len();
        for node in nodes.clone() {
            self.speak(&mut state, node);
        }
        // The node that received slots last speaks first, so that no slot is ever without an owner.
        let mut speakers: Vec<usize> = nodes.clone().collect();
        speakers.sort_by_key(|&node| {
            let heartbeat = state.heartbeats[node].as_ref();
            std::cmp::Reverse(heartbeat.map_or(0, |heartbeat| heartbeat.config_epoch))
        });
        for listener in nodes.clone() {
            for &speaker in &speakers {
                self.send_heartbeat(&state, speaker, listener);
            }
        }
        for node in nodes
            .clone()
            .filter(|&node| state.heartbeats[node].is_some())
        {
            let failed = self.with_core(node, |core| {
                let timeout = core.node_timeout();
                let view = core.cluster.as_deref_mut();
                view.map(|view| view.failures(timeout))
            });
            for failed in failed.into_iter().flatten() {
                self.broadcast_failure(&state, node, failed);
            }
        }
        for node in nodes.clone() {
            self.elect(&mut state, node);
        }
        for node in nodes {
            self.with_core(node, Core::update_cluster_state);
            self.replicate(&mut state, node);
        }
    }

    /// Has a node make its heartbeat, unless it is dead or stalled.
    fn speak(&self, state: &mut State, node: usize) {
        let before = state.heartbeats[node].take();
        let server = &self.nodes[node].server;
        if !server.is_alive() {
            return;
        }
        state.heartbeats[node] = self.with_core(node, |core| {
            if core
                .stalled_until
                .is_some_and(|until| until > Instant::now())
            {
                return None;
            }
            core.catch_up();
            let offset = core.offset;
            let view = core.cluster.as_deref()?;
            Some(view.heartbeat(before.as_ref(), offset))
        });
    }

    /// Has a node receive the heartbeat of another.
    fn send_heartbeat(&self, state: &State, speaker: usize, listener: usize) {
        let heartbeat = state.heartbeats[speaker].as_ref();
        let is_there = speaker != listener
            && state.heartbeats[listener].is_some()
            && self.are_connected(speaker, listener);
        if let Some(heartbeat) = heartbeat.filter(|_| is_there) {
            self.with_core(listener, |core| core.hear(heartbeat));
        }
    }

    fn broadcast_failure(&self, state: &State, from: usize, failed: usize) {
        for node in 0..self.nodes.len() {
            let is_there = state.heartbeats[node].is_some() && self.are_connected(from, node);
            if node != failed && is_there {
                self.with_view(node, |view| {
                    let since = &mut view.peers[failed].failed;
                    since.get_or_insert_with(Instant::now);
                });
            }
        }
    }

    /// Has a replica whose master has failed request votes, and replace the master.
    fn elect(&self, state: &mut State, node: usize) {
        if state.heartbeats[node].is_none() {
            return;
        }
        let request = self.with_core(node, |core| {
            let (timeout, offset) = (core.node_timeout(), core.offset);
            let view = core.cluster.as_deref_mut()?;
            let request = view.candidate(offset, timeout, &mut state.random)?;
            Some((request, view.majority()))
        });
        let Some((request, majority)) = request else {
            return;
        };
        let voters = (0..self.nodes.len()).filter(|&voter| {
            voter != node
                && state.heartbeats[voter].is_some()
                && self.are_connected(node, voter)
                && self.with_core(voter, |core| {
                    let timeout = core.node_timeout();
                    let view = core.cluster.as_deref_mut();
                    view.is_some_and(|view| view.votes_for(&request, timeout))
                })
        });
        if voters.count() < majority {
            return;
        }
        self.with_core(node, |core| core.replace_master(true));
        self.speak(state, node);
        for listener in 0..self.nodes.len() {
            self.send_heartbeat(state, node, listener);
        }
    }

    /// Has a replica follow its master, if they reach each other.
    fn replicate(&self, state: &mut State, node: usize) {
        let master = self.with_view(node, |view| view.master());
        let master = master.filter(|_| state.heartbeats[node].is_some());
        let Some(master) = master else {
            if self.with_view(node, |view| view.master().is_none()) {
                state.followed[node] = None;
            }
            return;
        };
        let is_master = state.heartbeats[master]
            .as_ref()
            .is_some_and(|heartbeat| heartbeat.master.is_none());
        let is_up = is_master && self.are_connected(node, master) && !state.cut.contains(&node);
        let server = &self.nodes[node].server;
        if state.followed[node] == Some(master) {
            server.cut_replication(!is_up);
        } else if is_up {
            server.follow(&self.nodes[master].server, state.lag);
            state.followed[node] = Some(master);
        }
    }

    fn deliver(&self, publication: &Publication, to: usize) {
        let from = publication.from;
        if self.nodes[to].server.is_alive() && self.are_connected(from, to) {
            self.with_core(to, |core| core.deliver(publication));
        }
    }
}

/// Runs the bus until the cluster is dropped: heartbeats ten times a second, and messages between nodes.
async fn run(shared: Weak<Shared>, mut publications: UnboundedReceiver<Publication>) {
    let mut next = Instant::now() + TICK;
    let mut under_way: BTreeMap<(Instant, u64), (Publication, usize)> = BTreeMap::new();
    let mut arrivals: BTreeMap<(usize, usize), Instant> = BTreeMap::new();
    let mut number = 0;
    loop {
        let first = under_way
            .keys()
            .next()
            .map_or(next, |(arrival, _)| *arrival);
        let received = tokio::select! {
            biased;
            received = publications.recv() => Some(received),
            () = sleep_until(first.min(next)) => None,
        };
        let Some(shared) = shared.upgrade() else {
            return;
        };
        match received {
            Some(None) => return,
            Some(Some(publication)) => {
                for &to in &publication.to {
                    let arrival = Instant::now() + shared.network.latency();
                    let last = arrivals.entry((publication.from, to)).or_insert(arrival);
                    *last = arrival.max(*last);
                    number += 1;
                    under_way.insert((*last, number), (publication.clone(), to));
                }
            }
            None => {}
        }
        while let Some(entry) = under_way.first_entry() {
            if entry.key().0 > Instant::now() {
                break;
            }
            let (publication, to) = entry.remove();
            shared.deliver(&publication, to);
        }
        if Instant::now() >= next {
            next = Instant::now() + TICK;
            shared.tick();
        }
    }
}

const PORT: u16 = 6379;

/// The interval between heartbeats.
const TICK: Duration = Duration::from_millis(100);
