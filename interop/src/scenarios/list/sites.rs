//! The part of the list for several servers of which one has the locks.

use crate::scenarios::terms::{CLUSTER, CLUSTER_SHORT, SENTINEL, SENTINEL_SHORT};
use crate::scenarios::{Play, Scenario, exclusion, failover};

pub(super) const SITES: &[Scenario] = &[
    Scenario {
        name: "sentinel-exclude",
        shows: "behind sentinels: a hold keeps the other out",
        play: Play::Pair(SENTINEL, |stage| Box::pin(exclusion::play(stage))),
    },
    Scenario {
        name: "sentinel-wake",
        shows: "behind sentinels: a waiter wakes on unlock, both ways round",
        play: Play::Pair(SENTINEL, |stage| Box::pin(failover::wakes(stage))),
    },
    Scenario {
        name: "sentinel-failover",
        shows: "behind sentinels: the master is killed, the hold is kept at the next, and its unlock wakes the other there",
        play: Play::Pair(SENTINEL_SHORT, |stage| {
            Box::pin(failover::is_survived(stage))
        }),
    },
    Scenario {
        name: "cluster-exclude",
        shows: "in a cluster: a hold keeps the other out",
        play: Play::Pair(CLUSTER, |stage| Box::pin(exclusion::play(stage))),
    },
    Scenario {
        name: "cluster-wake",
        shows: "in a cluster: a waiter wakes on unlock, both ways round, by a message in its slot",
        play: Play::Pair(CLUSTER, |stage| Box::pin(failover::wakes(stage))),
    },
    Scenario {
        name: "cluster-failover",
        shows: "in a cluster: the master is killed, the hold is kept at the next, and its unlock wakes the other there",
        play: Play::Pair(CLUSTER_SHORT, |stage| {
            Box::pin(failover::is_survived(stage))
        }),
    },
];
