//! Who is at the other end of a connection, and what is asked of it.

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

/// What is asked of the server at the other end beside what it is told to do.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionContext {
    /// Whom all connections of the client have met.
    pub(crate) incarnations: Arc<IncarnationTracker>,
    /// What it takes for what is granted here to count.
    pub(crate) durability: DurabilityPolicy,
    /// Where it is kept since when a server is known by its data.
    pub(crate) promotion_record: PromotionRecord,
    pub(crate) events: Events,
}

impl ConnectionContext {
    /// Gets to know the server, before anything is asked of it: what it grants comes after.
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
            let why = "connected, but the server does not answer";
            Err(StoreError::new(StoreErrorKind::Unreachable, why))
        })?;
        self.incarnations.observe(server.incarnation.clone());
        Ok(server)
    }

    /// From when on it grants something new, if there is a delay.
    async fn grants_allowed_at(
        &self,
        connection: &mut MultiplexedConnection,
        info: &ServerInfo,
    ) -> Result<Option<Instant>, StoreError> {
        let Some(delay) = self.durability.failover_delay else {
            return Ok(None);
        };
        let unknown = || {
            let why =
                "failover_delay needs to know which server this is, and it does not say (INFO)";
            StoreError::new(StoreErrorKind::Unusable, why)
        };
        let incarnation = info.incarnation.as_ref().ok_or_else(unknown)?;
        // Also of one that was never promoted: who may not do this is to be told now, and not when another takes its place.
        let promoted_for = self
            .promotion_record
            .first_seen(connection, incarnation, delay);
        let promoted_for = promoted_for.await?;
        let age = match incarnation.is_promoted() {
            true => promoted_for,
            false => info.uptime.ok_or_else(unknown)?,
        };
        // Not when it was asked: that long ago it was when it was said, and the question may have waited.
        Ok(self.durability.grants_allowed_at(Instant::now(), age))
    }
}

/// Who is at the other end.
#[derive(Debug)]
pub(super) struct ServerState {
    pub(super) incarnation: Option<Incarnation>,
    /// It grants nothing new before.
    grants_allowed_at: Option<Instant>,
    /// Whether EVAL_RO is unknown there, or denied to this user.
    no_read_only_scripts: AtomicBool,
}

impl ServerState {
    /// Whether scripts that only read may go as such, as far as is known.
    pub(super) fn has_read_only_scripts(&self) -> bool {
        !self.no_read_only_scripts.load(Ordering::Relaxed)
    }

    /// For the rest of this connection they go as any other.
    pub(super) fn set_no_read_only_scripts(&self) {
        self.no_read_only_scripts.store(true, Ordering::Relaxed);
    }

    /// For how long it grants nothing new, because it has not been the one for long enough.
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
