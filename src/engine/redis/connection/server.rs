//! Handshake with the server at the other end of a connection, and the state that results.

#![expect(
    clippy::disallowed_methods,
    reason = "engines may read the clock and wait"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::time::Instant;

use crate::engine::events::Events;
use crate::engine::redis::durability::DurabilityPolicy;
use crate::engine::redis::incarnation::{self, Incarnation, IncarnationTracker, ServerInfo};
use crate::engine::redis::promotion_record::PromotionRecord;
use crate::engine::{StoreError, StoreErrorKind};

/// Context of a connection: the state and settings for the checks that it makes beside its calls.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionContext {
    /// The incarnations that all connections of the client have observed.
    pub(crate) incarnations: Arc<IncarnationTracker>,
    /// Conditions under which a grant on this connection counts.
    pub(crate) durability: DurabilityPolicy,
    /// Record of since when a server has been known with its data.
    pub(crate) promotion_record: PromotionRecord,
    pub(crate) events: Events,
}

impl ConnectionContext {
    /// Identifies the server before any request is sent to it: every grant on this connection comes after.
    pub(super) async fn handshake(
        &self,
        connection: &mut MultiplexedConnection,
        by: Instant,
    ) -> Result<ServerState, StoreError> {
        let exchange = async {
            let info = incarnation::query(connection).await?;
            let grants_allowed_at = self.grants_allowed_at(connection, &info).await?;
            Ok(ServerState {
                incarnation: info.incarnation,
                grants_allowed_at,
                no_read_only_scripts: AtomicBool::new(false),
            })
        };
        let server = tokio::time::timeout_at(by, exchange).await;
        let server = server.unwrap_or_else(|_| {
            let why = "connected, but the server does not reply";
            Err(StoreError::new(StoreErrorKind::Unreachable, why))
        })?;
        self.incarnations.observe(server.incarnation.clone());
        Ok(server)
    }

    /// Returns the time from which the server grants new locks, if there is a failover delay.
    async fn grants_allowed_at(
        &self,
        connection: &mut MultiplexedConnection,
        info: &ServerInfo,
    ) -> Result<Option<Instant>, StoreError> {
        let Some(delay) = self.durability.failover_delay else {
            return Ok(None);
        };
        let unknown = || {
            let why = "failover_delay needs the identity and the uptime of the server, which INFO does not report";
            StoreError::new(StoreErrorKind::Unusable, why)
        };
        let incarnation = info.incarnation.as_ref().ok_or_else(unknown)?;
        // Also for a server that was never promoted: a user that may not do this gets the error now, and not after a
        // failover.
        let promoted_for = self
            .promotion_record
            .known_for(connection, incarnation, delay);
        let promoted_for = promoted_for.await?;
        let age = match incarnation.is_promoted() {
            true => promoted_for,
            false => info.uptime.ok_or_else(unknown)?,
        };
        // Measured from the arrival of the reply, not from sending the query, which may have waited: the age is as of
        // the reply.
        Ok(self.durability.grants_allowed_at(Instant::now(), age))
    }
}

/// State of the server at the other end.
#[derive(Debug)]
pub(super) struct ServerState {
    pub(super) incarnation: Option<Incarnation>,
    /// The server grants nothing new before this time.
    grants_allowed_at: Option<Instant>,
    /// Whether EVAL_RO is unknown to the server, or denied to this user.
    no_read_only_scripts: AtomicBool,
}

impl ServerState {
    /// Returns whether read-only scripts may be sent as such, as far as is known.
    pub(super) fn has_read_only_scripts(&self) -> bool {
        !self.no_read_only_scripts.load(Ordering::Relaxed)
    }

    /// Sends read-only scripts as any others for the rest of this connection.
    pub(super) fn set_no_read_only_scripts(&self) {
        self.no_read_only_scripts.store(true, Ordering::Relaxed);
    }

    /// Returns how long the server still grants nothing new, because it was started or promoted too recently.
    pub(super) fn grant_delay_left(&self) -> Option<Duration> {
        if planted!(DelayIgnored) {
            return None;
        }
        let left = self
            .grants_allowed_at?
            .saturating_duration_since(Instant::now());
        Some(left).filter(|left| !left.is_zero())
    }
}
