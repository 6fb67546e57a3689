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
use crate::engine::redis::assurance::Assurance;
use crate::engine::redis::identity::{self, Identity, Introduction, Met};
use crate::engine::redis::record::Record;
use crate::engine::{Cause, Failure};

/// What is asked of the server at the other end beside what it is told to do.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    /// Whom all connections of the client have met.
    pub(crate) met: Arc<Met>,
    /// What it takes for what is granted here to count.
    pub(crate) assurance: Assurance,
    /// Where it is kept since when a server is known by its data.
    pub(crate) record: Record,
    pub(crate) events: Events,
}

impl Terms {
    /// Gets to know the server, before anything is asked of it: what it grants comes after.
    pub(super) async fn meet(
        &self,
        connection: &mut MultiplexedConnection,
        by: Instant,
    ) -> Result<Server, Failure> {
        let meeting = async {
            let told = identity::ask(connection).await?;
            let grants_from = self.grants_from(connection, &told).await?;
            Ok(Server {
                identity: told.identity,
                grants_from,
                no_read_only_scripts: AtomicBool::new(false),
            })
        };
        let server = tokio::time::timeout_at(by, meeting).await;
        let server = server.unwrap_or_else(|_| {
            let why = "connected, but the server does not answer";
            Err(Failure::new(Cause::Unreachable, why))
        })?;
        self.met.meet(server.identity.clone());
        Ok(server)
    }

    /// From when on it grants something new, if there is a delay.
    async fn grants_from(
        &self,
        connection: &mut MultiplexedConnection,
        told: &Introduction,
    ) -> Result<Option<Instant>, Failure> {
        let Some(delay) = self.assurance.delay else {
            return Ok(None);
        };
        let unknown = || {
            let why =
                "failover_delay needs to know which server this is, and it does not say (INFO)";
            Failure::new(Cause::Unusable, why)
        };
        let identity = told.identity.as_ref().ok_or_else(unknown)?;
        // Also of one that was never promoted: who may not do this is to be told now, and not when another takes its place.
        let seen = self.record.first_seen(connection, identity, delay);
        let seen = seen.await?;
        let age = match identity.is_promoted() {
            true => seen,
            false => told.up.ok_or_else(unknown)?,
        };
        // Not when it was asked: that long ago it was when it was said, and the question may have waited.
        Ok(self.assurance.grants_from(Instant::now(), age))
    }
}

/// Who is at the other end.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) identity: Option<Identity>,
    /// It grants nothing new before.
    grants_from: Option<Instant>,
    /// Whether EVAL_RO is unknown there, or denied to this user.
    no_read_only_scripts: AtomicBool,
}

impl Server {
    /// Whether scripts that only read may go as such, as far as is known.
    pub(super) fn has_read_only_scripts(&self) -> bool {
        !self.no_read_only_scripts.load(Ordering::Relaxed)
    }

    /// For the rest of this connection they go as any other.
    pub(super) fn has_no_read_only_scripts(&self) {
        self.no_read_only_scripts.store(true, Ordering::Relaxed);
    }

    /// For how long it grants nothing new, because it has not been the one for long enough.
    pub(super) fn held_back(&self) -> Option<Duration> {
        if planted!(DelayIgnored) {
            return None;
        }
        let left = self.grants_from?.saturating_duration_since(Instant::now());
        Some(left).filter(|left| !left.is_zero())
    }
}
