//! Settings of the engine, beside the address.

use std::sync::Arc;
use std::time::Duration;

use super::durability::DurabilityPolicy;
use super::pubsub_mode::PubSubMode;
use crate::engine::events::Events;

/// The network that connections are made over.
#[derive(Clone, Debug, Default)]
pub enum Network {
    /// The operating system's sockets.
    #[default]
    System,
    /// A simulated network.
    #[cfg(feature = "simulation")]
    Simulated(Arc<dyn crate::simulation::Host>),
}

/// Settings of the engine, beside the address.
#[derive(Clone, Debug)]
pub struct RedisSettings {
    /// Prefix of every lock's name.
    pub prefix: Arc<str>,
    /// Maximum time to make a connection.
    pub connect_timeout: Duration,
    /// Maximum time for a reply before the connection is considered dead.
    pub command_timeout: Duration,
    /// Whether the server runs our scripts.
    pub scripts: bool,
    /// Whether connecting succeeds if the server cannot be reached yet.
    pub lazy_connect: bool,
    /// Conditions under which a grant counts.
    pub durability: DurabilityPolicy,
    /// How messages are sent, if the server is a node of a cluster.
    pub cluster_node: Option<PubSubMode>,
    /// Destination of the events of background tasks.
    pub events: Events,
    /// The network that connections are made over.
    pub network: Network,
}

impl RedisSettings {
    pub(super) fn pubsub_mode(&self) -> PubSubMode {
        self.cluster_node.unwrap_or_default()
    }
}
