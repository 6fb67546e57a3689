//! Who is at the other end of a connection, and what is asked of it.

#![expect(
    clippy::disallowed_methods,
    reason = "engines may read the clock and wait"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;

use crate::engine::redis::assurance::Assurance;
use crate::engine::redis::identity::{self, Identity, Met};
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
            let grants_from = self.assurance.grants_from(connection, &told, &self.record);
            let grants_from = grants_from.await?;
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
