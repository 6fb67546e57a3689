//! What the engine needs to know beside the address.

use std::sync::Arc;
use std::time::Duration;

use super::assurance::Assurance;
use super::manner::Manner;
use crate::engine::events::Events;

/// What connections are made over.
#[derive(Clone, Debug, Default)]
pub enum Transport {
    /// The operating system's sockets.
    #[default]
    System,
    /// A simulated network.
    #[cfg(feature = "simulation")]
    Simulated(Arc<dyn crate::simulation::Host>),
}

/// What the engine needs to know beside the address.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Goes before every lock's name.
    pub prefix: Arc<str>,
    /// How long making a connection may take.
    pub connect_timeout: Duration,
    /// How long a reply may take before the connection is taken for dead.
    pub command_timeout: Duration,
    /// Whether the server runs scripts for us.
    pub scripts: bool,
    /// Whether it is enough that the server may be reached later.
    pub may_be_down: bool,
    /// What it takes for a grant to count.
    pub assurance: Assurance,
    /// Whether it is one of a cluster's servers, and how messages are sent there.
    pub shard: Option<Manner>,
    /// Where background tasks emit their events.
    pub events: Events,
    /// What connections are made over.
    pub transport: Transport,
}

impl Settings {
    pub(super) fn manner(&self) -> Manner {
        self.shard.unwrap_or_default()
    }
}
