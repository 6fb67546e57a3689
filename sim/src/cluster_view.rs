//! The view of one node of a cluster: the other nodes, the slots of each, and the epochs of these claims.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use crate::cluster_slots::{SLOTS, ranges, slot_of};
use crate::core::Core;

/// A cluster as one of its nodes knows it.
#[derive(Debug)]
pub(crate) struct ClusterView {
    /// The number of this node.
    pub(crate) me: usize,
    /// All nodes by their numbers, this one included.
    pub(crate) peers: Vec<Peer>,
    owners: Vec<Option<u8>>,
    /// The number of slots of each node, by the node's number.
    counts: Vec<u16>,
    /// The slots that are being moved to another node, and that node.
    pub(crate) migrating: BTreeMap<u16, usize>,
    /// The slots that are being moved here, and the node that they come from.
    pub(crate) importing: BTreeMap<u16, usize>,
    /// The greatest epoch that this node knows.
    pub(crate) current_epoch: u64,
    /// The epoch of the last election in which it has voted.
    pub(crate) last_vote_epoch: u64,
    /// Whether the state is `cluster_state:ok`.
    pub(crate) is_ok: bool,
    /// The time of the node's last restart.
    pub(crate) restarted: Option<Instant>,
    /// The last time at which it saw too few masters.
    pub(crate) minority: Option<Instant>,
    /// The election in which it is a candidate.
    pub(crate) election: Option<Election>,
    /// Whether the node learns only that others are alive, and nothing of slots and roles.
    pub(crate) is_unaware: bool,
    /// Counts the changes of this node's own state.
    pub(crate) version: u64,
    /// The version of the last state that each of the others has sent.
    pub(crate) heard_versions: Vec<u64>,
    pub(crate) bus: UnboundedSender<Publication>,
}

/// A node as another one knows it.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) id: String,
    pub(crate) address: (String, u16),
    pub(crate) config_epoch: u64,
    /// The master that it is a replica of.
    pub(crate) master: Option<usize>,
    pub(crate) offset: u64,
    /// The time of its last answer.
    pub(crate) heard: Instant,
    /// The masters that suspect it, and the time of each report.
    pub(crate) reports: BTreeMap<usize, Instant>,
    /// Whether it has not answered for the node timeout (`fail?`).
    pub(crate) is_suspected: bool,
    /// The moment since which a majority of the masters agrees on that (`fail`).
    pub(crate) failed: Option<Instant>,
    /// The time at which this node last voted for a replica of it.
    pub(crate) voted: Option<Instant>,
}

/// An election in which a replica is a candidate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Election {
    pub(crate) begins: Instant,
    pub(crate) repeats: Instant,
    pub(crate) has_asked: bool,
}

/// A message on its way to the other nodes.
#[derive(Clone, Debug)]
pub(crate) struct Publication {
    pub(crate) from: usize,
    pub(crate) to: Vec<usize>,
    pub(crate) channel: Vec<u8>,
    pub(crate) message: Vec<u8>,
    pub(crate) is_sharded: bool,
}

impl ClusterView {
    pub(crate) fn new(me: usize, peers: Vec<Peer>, bus: UnboundedSender<Publication>) -> Self {
        let current_epoch = peers.iter().map(|peer| peer.config_epoch).max();
        Self {
            me,
            owners: vec![None; SLOTS.into()],
            counts: vec![0; peers.len()],
            migrating: BTreeMap::new(),
            importing: BTreeMap::new(),
            current_epoch: current_epoch.unwrap_or(0),
            last_vote_epoch: 0,
            is_ok: true,
            restarted: None,
            minority: None,
            election: None,
            is_unaware: false,
            version: 1,
            heard_versions: vec![0; peers.len()],
            peers,
            bus,
        }
    }

    pub(crate) fn owner(&self, slot: u16) -> Option<usize> {
        self.owners[usize::from(slot)].map(usize::from)
    }

    pub(crate) fn assign(&mut self, slot: u16, owner: Option<usize>) {
        let before = self.owner(slot);
        if before == owner {
            return;
        }
        if let Some(before) = before {
            self.counts[before] -= 1;
        }
        if let Some(owner) = owner {
            self.counts[owner] += 1;
        }
        self.owners[usize::from(slot)] = owner.and_then(|owner| u8::try_from(owner).ok());
        self.changed();
    }

    /// Notes that the view has changed: this node sends it to the others, and processes their last heartbeats again.
    pub(crate) fn changed(&mut self) {
        self.version += 1;
        self.heard_versions.fill(0);
    }

    /// Returns the number of slots of a node.
    pub(crate) fn count(&self, node: usize) -> u16 {
        self.counts[node]
    }

    /// Returns the number of slots that no node has.
    pub(crate) fn unassigned(&self) -> u16 {
        SLOTS - self.counts.iter().sum::<u16>()
    }

    pub(crate) fn slots_of(&self, node: usize) -> impl Iterator<Item = u16> {
        (0..SLOTS).filter(move |&slot| self.owner(slot) == Some(node))
    }

    pub(crate) fn ranges_of(&self, node: usize) -> Vec<(u16, u16)> {
        if self.counts[node] == 0 {
            return Vec::new();
        }
        ranges(self.slots_of(node))
    }

    pub(crate) fn myself(&mut self) -> &mut Peer {
        &mut self.peers[self.me]
    }

    /// Returns the master of this node, if it is a replica.
    pub(crate) fn master(&self) -> Option<usize> {
        self.peers[self.me].master
    }

    /// Returns the masters that have slots and thereby a vote.
    pub(crate) fn voters(&self) -> impl Iterator<Item = usize> {
        let nodes = 0..self.peers.len();
        nodes.filter(|&node| self.peers[node].master.is_none() && self.counts[node] > 0)
    }

    pub(crate) fn majority(&self) -> usize {
        self.voters().count() / 2 + 1
    }

    /// Returns the replicas of a master.
    pub(crate) fn replicas_of(&self, master: usize) -> impl Iterator<Item = usize> {
        let nodes = 0..self.peers.len();
        nodes.filter(move |&node| self.peers[node].master == Some(master))
    }

    /// Returns whether two nodes have the same slots: a master and its replicas.
    pub(crate) fn are_of_one_shard(&self, one: usize, other: usize) -> bool {
        let master = |node: usize| self.peers[node].master.unwrap_or(node);
        master(one) == master(other)
    }

    pub(crate) fn by_id(&self, id: &str) -> Option<usize> {
        self.peers.iter().position(|peer| peer.id == id)
    }

    /// Takes a new epoch that is greater than all known ones, without a vote.
    pub(crate) fn bump_epoch(&mut self) {
        let epochs = self.peers.iter().map(|peer| peer.config_epoch);
        let greatest = epochs.max().unwrap_or(0).max(self.current_epoch);
        let own = self.myself().config_epoch;
        if own == 0 || own != greatest {
            self.current_epoch += 1;
            self.myself().config_epoch = self.current_epoch;
            self.changed();
        }
    }

    /// Returns whether this node serves requests, and suspects no other.
    pub(crate) fn is_well(&self) -> bool {
        let mut peers = self.peers.iter();
        let is_well = |peer: &Peer| !peer.is_suspected && peer.failed.is_none();
        self.is_ok && !self.is_unaware && self.election.is_none() && peers.all(is_well)
    }

    /// Records a heartbeat without changes from all other nodes.
    pub(crate) fn hear_all(&mut self) {
        let now = Instant::now();
        for peer in &mut self.peers {
            peer.heard = now;
        }
    }

    /// Returns the roles, epochs and slots of all nodes.
    pub(crate) fn summary(&self) -> (Vec<Option<usize>>, Vec<u64>, Vec<Option<u8>>) {
        let masters = self.peers.iter().map(|peer| peer.master).collect();
        let nodes = 0..self.peers.len();
        let epochs = nodes.filter(|&node| self.peers[node].master.is_none());
        let epochs = epochs.map(|node| self.peers[node].config_epoch).collect();
        (masters, epochs, self.owners.clone())
    }

    /// Resets the view after a restart of the server.
    pub(crate) fn restart(&mut self) {
        let now = Instant::now();
        self.is_ok = false;
        self.restarted = Some(now);
        self.minority = None;
        self.election = None;
        for peer in &mut self.peers {
            peer.heard = now;
            peer.is_suspected = false;
            peer.reports.clear();
        }
    }
}

impl Core {
    /// Assigns a slot to another node in this node's view. The slot's shard channels end if this node served them.
    pub(crate) fn assign_slot(&mut self, slot: u16, owner: Option<usize>) {
        let Some(view) = &mut self.cluster else {
            return;
        };
        let before = view.owner(slot);
        let served = before.is_some_and(|before| view.are_of_one_shard(before, view.me));
        view.assign(slot, owner);
        if served && before != owner {
            self.unsubscribe_slot(slot);
        }
    }

    pub(crate) fn keys_in_slot(&self, slot: u16) -> Vec<Vec<u8>> {
        let keys = self.keyspace.entries_of(0).map(|(key, _)| key);
        keys.filter(|key| slot_of(key) == slot).cloned().collect()
    }

    /// Removes all keys of slots that this node has lost.
    pub(crate) fn remove_keys_in(&mut self, slots: &BTreeSet<u16>) {
        self.keyspace.select(0, self.clock.now_ms());
        let keys = self.keyspace.entries_of(0).map(|(key, _)| key);
        let lost = keys.filter(|key| slots.contains(&slot_of(key)));
        for key in lost.cloned().collect::<Vec<_>>() {
            self.keyspace.remove(&key);
        }
        self.replicate();
    }

    /// Sends a message to the other nodes: to all of them, or to those of its shard.
    pub(crate) fn broadcast(&self, channel: &[u8], message: &[u8], is_sharded: bool) {
        let Some(view) = &self.cluster else { return };
        let others = (0..view.peers.len()).filter(|&node| node != view.me);
        let to = others.filter(|&node| !is_sharded || view.are_of_one_shard(node, view.me));
        let publication = Publication {
            from: view.me,
            to: to.collect(),
            channel: channel.to_vec(),
            message: message.to_vec(),
            is_sharded,
        };
        // The bus ends with the test, so an error is no failure.
        let _ = view.bus.send(publication);
    }
}

/// The slots that a node claims, as ranges.
pub(crate) type Claims = Arc<[(u16, u16)]>;
