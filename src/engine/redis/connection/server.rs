//! Who is at the other end of a connection, and what is asked of it.

#![expect(
    clippy::disallowed_methods,
    reason = "engines may read the clock and wait"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;

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
    /// Where it is kept since when a promoted server is known.
    pub(crate) record: Record,
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
            })
        };
        let server = tokio::time::timeout_at(by.into(), meeting).await;
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
        let age = if identity.is_promoted() {
            let seen = self.record.first_seen(connection, identity, delay);
            seen.await?
        } else {
            told.up.ok_or_else(unknown)?
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
}

impl Server {
    /// For how long it grants nothing new, because it has not been the one for long enough.
    pub(super) fn held_back(&self) -> Option<Duration> {
        let left = self.grants_from?.saturating_duration_since(Instant::now());
        Some(left).filter(|left| !left.is_zero())
    }
}
