//! Connections over a simulated network.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo};
use tokio::time::timeout;

use crate::engine::redis::failure;
use crate::engine::tag_simulated_process;
use crate::engine::{StoreError, StoreErrorKind};
use crate::simulation::Host;

/// A server on a simulated network.
#[derive(Clone)]
pub(crate) struct SimulatedTransport {
    host: Arc<dyn Host>,
    info: Box<ConnectionInfo>,
}

impl SimulatedTransport {
    pub(super) fn new(host: &Arc<dyn Host>, info: ConnectionInfo) -> Self {
        Self {
            host: host.clone(),
            info: Box::new(info),
        }
    }

    pub(super) fn server(&self) -> &ConnectionAddr {
        self.info.addr()
    }

    /// Makes a connection, within `limit`.
    #[expect(clippy::disallowed_methods, reason = "the connection owns this task")]
    pub(super) async fn open(
        &self,
        config: AsyncConnectionConfig,
        limit: Duration,
    ) -> Result<MultiplexedConnection, StoreError> {
        let ConnectionAddr::Tcp(host, port) = self.server() else {
            let why = "a simulated network supports only TCP";
            return Err(StoreError::new(StoreErrorKind::Unusable, why));
        };
        let unreachable = |why: &str| {
            let why = format!("{host}:{port}: {why}");
            StoreError::new(StoreErrorKind::Unreachable, why)
        };
        let making = async {
            let stream = self.host.connect(host, *port).await;
            let stream = stream.map_err(|error| unreachable(&error.to_string()))?;
            let redis = self.info.redis_settings();
            let made = MultiplexedConnection::new_with_config(redis, stream, config).await;
            made.map_err(|error| failure::from_connect_error(&error))
        };
        let made = timeout(limit, making).await;
        let (connection, driver) = made.map_err(|_| unreachable("no reply in time"))??;
        // The task ends when the last handle to the connection is dropped.
        tokio::spawn(tag_simulated_process(driver));
        Ok(connection)
    }
}
