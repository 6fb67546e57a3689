//! The part of the list for one lock on a majority of several servers.

use std::time::Duration;

use crate::hammer;
use crate::quorum::Settings;
use crate::scenarios::{Play, Scenario, quorum_lock};

/// Three servers. A server has a second to reply to our client; and it votes only when it has been up for as long as the lease.
const THREE: Settings = Settings {
    servers: 3,
    lease: Duration::from_secs(20),
    patience: Duration::from_secs(10),
};

/// A lease that expires in a scenario, and is renewed in good time on a busy machine.
const SHORT: Settings = Settings {
    lease: Duration::from_secs(8),
    ..THREE
};

const FIVE: Settings = Settings {
    servers: 5,
    patience: Duration::from_millis(500),
    ..THREE
};

pub(super) const QUORUM: &[Scenario] = &[
    Scenario {
        name: "quorum-exclude",
        shows: "a hold on three servers keeps the other out, who asks them in the opposite order",
        play: Play::Quorum(THREE, |stage| Box::pin(quorum_lock::excludes(stage))),
    },
    Scenario {
        name: "quorum-majority",
        shows: "who has one server of three keeps nobody out of the lock, who has two everybody",
        play: Play::Quorum(THREE, |stage| Box::pin(quorum_lock::needs_most(stage))),
    },
    Scenario {
        name: "quorum-handover",
        shows: "a waiter has it soon after it is given back on all servers",
        play: Play::Quorum(THREE, |stage| Box::pin(quorum_lock::hands_over(stage))),
    },
    Scenario {
        name: "quorum-kept",
        shows: "a lease on three servers is kept or extended for longer than it lasts",
        play: Play::Quorum(SHORT, |stage| Box::pin(quorum_lock::is_kept(stage))),
    },
    Scenario {
        name: "quorum-death",
        shows: "a holder that is killed frees all servers when its lease is over, not before",
        play: Play::Quorum(SHORT, |stage| Box::pin(quorum_lock::dead_holder(stage))),
    },
    Scenario {
        name: "quorum-away",
        shows: "with one server of five killed and one that hangs it is had, kept and given back, by one at a time",
        play: Play::Quorum(FIVE, |stage| Box::pin(quorum_lock::two_away(stage))),
    },
    Scenario {
        name: "quorum-hammer",
        shows: "a hammer on three servers: counters exact, no overlap",
        play: Play::QuorumFleet(|fleet| Box::pin(hammer::quorum_lock::play(fleet))),
    },
];
