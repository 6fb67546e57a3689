//! What the engine needs to know beside the address.

use std::sync::Arc;
use std::time::Duration;

use super::durability::DurabilityPolicy;
use super::pubsub_mode::PubSubMode;
use crate::engine::events::Events;

/// What connections are made over.
#[derive(Clone, Debug, Default)]
pub enum Network {
    /// The operating system's sockets.
    #[default]
    System,
    /// A simulated network.
    #[cfg(feature = "simulation")]
    Simulated(Arc<dyn crate::simulation::Host>),
}

/// What the engine needs to know beside the address.
#[derive(Clone, Debug)]
pub struct RedisSettings {
    /// Goes before every lock's name.
    pub prefix: Arc<str>,
    /// How long making a connection may take.
    pub connect_timeout: Duration,
    /// How long a reply may take before the connection is taken for dead.
    pub command_timeout: Duration,
    /// Whether the server runs scripts for us.
    pub scripts: bool,
    /// Whether it is enough that the server may be reached later.
    pub lazy_connect: bool,
    /// What it takes for a grant to count.
    pub durability: DurabilityPolicy,
    /// Whether it is one of a cluster's servers, and how messages are sent there.
    pub shard: Option<PubSubMode>,
    /// Where background tasks emit their events.
    pub events: Events,
    /// What connections are made over.
    pub network: Network,
}

impl RedisSettings {
    pub(super) fn pubsub_mode(&self) -> PubSubMode {
        self.shard.unwrap_or_default()
    }
}
