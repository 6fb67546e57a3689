//! The messages between the nodes of a cluster, and the conclusions of each node: failures, elections, new owners of slots.
//!
//! As in Redis, a node announces its slots and the epoch of its claim; the greater epoch wins. A master that has not answered for the node
//! timeout is suspected, has failed if the majority of the masters suspects it, and is replaced by the replica that this majority votes
//! for. Real nodes gossip now and then with a few others; these send everything to all, ten times a second.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use crate::cluster_view::{Claims, ClusterView, Election};
use crate::core::Core;
use crate::random::Random;

/// A node's state, and the nodes that it suspects.
#[derive(Clone, Debug)]
pub(crate) struct Heartbeat {
    pub(crate) node: usize,
    pub(crate) config_epoch: u64,
    pub(crate) master: Option<usize>,
    version: u64,
    address: (String, u16),
    current_epoch: u64,
    claims: Claims,
    suspects: Vec<usize>,
    has_vote: bool,
    offset: u64,
}

/// A replica's request to be elected in place of its master.
#[derive(Clone, Debug)]
pub(crate) struct VoteRequest {
    pub(crate) master: usize,
    epoch: u64,
    config_epoch: u64,
    claims: Claims,
}

impl ClusterView {
    /// Returns this node's heartbeat; the claims are those of the last one if nothing has changed.
    pub(crate) fn heartbeat(&self, before: Option<&Heartbeat>, offset: u64) -> Heartbeat {
        let own = &self.peers[self.me];
        let before = before.filter(|before| before.version == self.version);
        let claims = before.map(|before| before.claims.clone());
        let suspects = self.peers.iter().enumerate();
        let suspects = suspects.filter(|(_, peer)| peer.is_suspected || peer.failed.is_some());
        Heartbeat {
            node: self.me,
            version: self.version,
            address: own.address.clone(),
            config_epoch: own.config_epoch,
            current_epoch: self.current_epoch,
            master: own.master,
            claims: claims.unwrap_or_else(|| self.ranges_of(self.me).into()),
            suspects: suspects.map(|(node, _)| node).collect(),
            has_vote: own.master.is_none() && self.count(self.me) > 0,
            offset,
        }
    }

    /// Makes this node a replica of another. The server follows that one as soon as it can.
    pub(crate) fn become_replica_of(&mut self, master: usize) {
        self.migrating.clear();
        self.importing.clear();
        self.election = None;
        self.myself().master = Some(master);
        self.changed();
    }

    /// Votes for a replica, if this node may: it is a master that knows of the failure, and has not voted in that epoch.
    pub(crate) fn votes_for(&mut self, request: &VoteRequest, timeout: Duration) -> bool {
        let now = Instant::now();
        if self.master().is_some() || self.count(self.me) == 0 {
            return false;
        }
        self.current_epoch = self.current_epoch.max(request.epoch);
        let master = &self.peers[request.master];
        let has_voted = master.voted.is_some_and(|voted| now < voted + 2 * timeout);
        let slots = request.claims.iter();
        let mut slots = slots.flat_map(|&(first, last)| first..=last);
        let is_outdated = slots.any(|slot| {
            let owner = self.owner(slot);
            owner.is_some_and(|owner| self.peers[owner].config_epoch > request.config_epoch)
        });
        let may_vote = request.epoch >= self.current_epoch
            && self.last_vote_epoch != self.current_epoch
            && master.failed.is_some()
            && !has_voted
            && !is_outdated;
        if may_vote {
            self.last_vote_epoch = self.current_epoch;
            self.peers[request.master].voted = Some(now);
        }
        may_vote
    }

    /// Returns a replica's request for votes, when it is due.
    pub(crate) fn candidate(
        &mut self,
        offset: u64,
        timeout: Duration,
        random: &mut Random,
    ) -> Option<VoteRequest> {
        let now = Instant::now();
        let master = self.master()?;
        if self.peers[master].failed.is_none() || self.count(master) == 0 {
            self.election = None;
            return None;
        }
        let patience = (2 * timeout).max(Duration::from_secs(2));
        let election = self.election.filter(|election| now < election.repeats);
        let Some(mut election) = election else {
            let mut others = Vec::from_iter(self.replicas_of(master));
            others.retain(|&other| other != self.me && self.peers[other].offset > offset);
            let rank = u32::try_from(others.len()).unwrap_or(0);
            let random = Duration::from_millis(500 + random.below(500));
            self.election = Some(Election {
                begins: now + random + rank * Duration::from_secs(1),
                repeats: now + 2 * patience,
                has_asked: false,
            });
            return None;
        };
        if now < election.begins || election.has_asked {
            return None;
        }
        election.has_asked = true;
        self.election = Some(election);
        self.current_epoch += 1;
        Some(VoteRequest {
            master,
            epoch: self.current_epoch,
            config_epoch: self.peers[master].config_epoch,
            claims: self.ranges_of(master).into(),
        })
    }

    /// Notices the nodes that have been silent for too long, and returns the nodes whose failure the others are to be notified of.
    pub(crate) fn failures(&mut self, timeout: Duration) -> Vec<usize> {
        let now = Instant::now();
        let (me, majority) = (self.me, self.majority());
        let am_master = self.master().is_none();
        let voters: BTreeSet<usize> = self.voters().collect();
        let mut failed = Vec::new();
        for node in (0..self.peers.len()).filter(|&node| node != me) {
            let peer = &mut self.peers[node];
            peer.is_suspected = now > peer.heard + timeout;
            if !peer.is_suspected || peer.failed.is_some() {
                continue;
            }
            let reports = peer.reports.iter().filter(|&(reporter, &since)| {
                voters.contains(reporter) && now <= since + 2 * timeout
            });
            if reports.count() + usize::from(am_master) >= majority {
                peer.failed = Some(now);
                if am_master {
                    failed.push(node);
                }
            }
        }
        failed
    }
}

impl Core {
    /// Returns how long a node may be silent before it is suspected.
    pub(crate) fn node_timeout(&self) -> Duration {
        let setting = self.configuration.get("cluster-node-timeout").parse();
        Duration::from_millis(setting.unwrap_or(15_000))
    }

    /// Processes the heartbeat of another node.
    pub(crate) fn hear(&mut self, heartbeat: &Heartbeat) {
        let timeout = self.node_timeout();
        let Some(view) = self.cluster.as_deref_mut() else {
            return;
        };
        let now = Instant::now();
        let node = heartbeat.node;
        let has_slots = view.count(node) > 0;
        view.current_epoch = view.current_epoch.max(heartbeat.current_epoch);
        for (suspect, peer) in view.peers.iter_mut().enumerate() {
            if heartbeat.has_vote && heartbeat.suspects.contains(&suspect) {
                peer.reports.insert(node, now);
            } else {
                peer.reports.remove(&node);
            }
        }
        let peer = &mut view.peers[node];
        peer.heard = now;
        peer.offset = heartbeat.offset;
        // A master that was not replaced for that long is accepted again.
        let is_back = |failed| peer.master.is_some() || !has_slots || now > failed + 2 * timeout;
        if peer.failed.is_some_and(is_back) {
            peer.failed = None;
        }
        if view.is_unaware || view.heard_versions[node] == heartbeat.version {
            return;
        }
        peer.address.clone_from(&heartbeat.address);
        peer.master = heartbeat.master;
        peer.config_epoch = heartbeat.config_epoch;
        if heartbeat.master.is_none() {
            self.hear_claims(heartbeat);
        } else if has_slots {
            let lost: Vec<u16> = view.slots_of(node).collect();
            for slot in lost {
                self.assign_slot(slot, None);
            }
        }
        if let Some(view) = &mut self.cluster {
            view.heard_versions[node] = heartbeat.version;
        }
    }

    fn hear_claims(&mut self, heartbeat: &Heartbeat) {
        let Some(view) = self.cluster.as_deref_mut() else {
            return;
        };
        let (me, node, epoch) = (view.me, heartbeat.node, heartbeat.config_epoch);
        let my_master = view.master().unwrap_or(me);
        // Of two masters with the same epoch, one takes a new epoch.
        if my_master == me
            && view.peers[me].config_epoch == epoch
            && view.peers[me].id < view.peers[node].id
        {
            view.current_epoch += 1;
            view.myself().config_epoch = view.current_epoch;
            view.changed();
        }
        let mut lost = BTreeSet::new();
        let mut successor = None;
        let ranges = heartbeat.claims.iter();
        for slot in ranges.flat_map(|&(first, last)| first..=last) {
            let Some(view) = &self.cluster else { return };
            let owner = view.owner(slot);
            let is_newer = owner.is_none_or(|owner| view.peers[owner].config_epoch < epoch);
            if owner == Some(node) || view.importing.contains_key(&slot) || !is_newer {
                continue;
            }
            if owner == Some(me) {
                lost.insert(slot);
            }
            if owner == Some(my_master) {
                successor = Some(node);
            }
            self.assign_slot(slot, Some(node));
        }
        let Some(view) = self.cluster.as_deref_mut() else {
            return;
        };
        if let Some(successor) = successor.filter(|_| view.count(my_master) == 0) {
            view.become_replica_of(successor);
        } else if !lost.is_empty() {
            self.remove_keys_in(&lost);
        }
    }

    /// Replaces its master with the data that it has, under an epoch that the others accept.
    pub(crate) fn replace_master(&mut self, is_elected: bool) {
        self.promote();
        let Some(view) = self.cluster.as_deref_mut() else {
            return;
        };
        let (me, Some(master)) = (view.me, view.master()) else {
            return;
        };
        view.election = None;
        view.myself().master = None;
        if is_elected {
            view.myself().config_epoch = view.current_epoch;
        } else {
            view.bump_epoch();
        }
        let slots: Vec<u16> = view.slots_of(master).collect();
        for slot in slots {
            // The subscriptions to its shard channels stay: this node has served them before.
            view.assign(slot, Some(me));
        }
        view.changed();
        self.update_cluster_state();
    }

    /// Decides whether this node serves requests: it does not while slots, or most masters, are missing.
    pub(crate) fn update_cluster_state(&mut self) {
        let timeout = self.node_timeout();
        let needs_all = self.configuration.get("cluster-require-full-coverage") == "yes";
        let Some(view) = self.cluster.as_deref_mut() else {
            return;
        };
        let now = Instant::now();
        let is_gone = |node: &usize| view.peers[*node].failed.is_some();
        let is_reachable = |node: &usize| !is_gone(node) && !view.peers[*node].is_suspected;
        let has_majority = view.voters().filter(is_reachable).count() >= view.majority();
        let is_whole = view.unassigned() == 0 && !view.voters().any(|node| is_gone(&node));
        let is_ok = has_majority && (is_whole || !needs_all);
        if !has_majority {
            view.minority = Some(now);
        }
        let is_master = view.master().is_none();
        // A master that comes back waits, since it may have been replaced.
        let is_early =
            |since: Option<Instant>, delay| since.is_some_and(|since| now < since + delay);
        let rejoining = timeout.clamp(Duration::from_millis(500), Duration::from_secs(5));
        let waits = is_master
            && is_ok
            && (is_early(view.restarted, WRITABLE_DELAY) || is_early(view.minority, rejoining));
        if !waits {
            view.is_ok = is_ok;
        }
    }
}

/// The time for which a restarted master serves no requests.
const WRITABLE_DELAY: Duration = Duration::from_secs(2);
