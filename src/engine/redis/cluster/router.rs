//! Routing of a request to the server that owns the slot of its lock.

use std::sync::Arc;
use std::time::Duration;

use super::lock_slot;
use super::nodes::Nodes;
use super::redirect::NextAttempt;
use crate::engine::redis::call_priority::CallPriority;
use crate::engine::redis::connector::CallStart;
use crate::engine::redis::node_addr::NodeAddr;
use crate::engine::redis::slot::Slot;
use crate::engine::redis::{Redis, failure, scripts, single};
use crate::engine::{StoreError, StoreErrorKind};
use crate::protocol::{Reply, Request};

/// Redirects that are followed at once. After that many, the servers do not agree yet, and the call waits for a refresh.
const MAX_REDIRECTS: u32 = 3;

/// Sends a request to the server that owns its slot and returns the reply. The driver waits for the replies to several
/// background requests together, all of them within `limit`.
pub(super) async fn send_request(
    nodes: &Nodes,
    request: &Request,
    priority: CallPriority,
    limit: Option<Duration>,
) -> Result<Reply, StoreError> {
    let slot = lock_slot::slot(&nodes.keys, &request.subject.channel())?;
    let mut router = Router::to(nodes, slot)?;
    if let Some(limit) = limit {
        router.limit = router.limit.min(limit);
    }
    loop {
        let Hop { node, asking } = match scripts::reads_other_keys(request) {
            true => router.next_owner_hop().await?,
            false => router.next_hop().await?,
        };
        let connection = match priority {
            CallPriority::Foreground => node.connection_for(request),
            CallPriority::Background => node.background_connection_for(request),
        };
        match single::call(connection, &node.keys, request, asking).await {
            Err(failure) => router.retry_after(failure).await?,
            result => return result,
        }
    }
}

/// Finds the server for each attempt of one call.
///
/// A call that certainly had no effect is retried until shortly before the driver's own timeout, so that the caller still
/// learns the cause.
pub(super) struct Router<'a> {
    nodes: &'a Nodes,
    slot: Slot,
    begun: CallStart,
    /// Time limit for all attempts.
    limit: Duration,
    /// NextAttempt that the last reply asked for.
    next_attempt: Option<NextAttempt>,
    /// Redirects that were followed in a row.
    redirects: u32,
    last: Option<NodeAddr>,
}

/// The server for the next attempt.
pub(super) struct Hop {
    pub(super) node: Arc<Redis>,
    /// Whether `ASKING` has to precede the call: the slot is being migrated to this server.
    pub(super) asking: bool,
}

impl<'a> Router<'a> {
    pub(super) fn to(nodes: &'a Nodes, slot: Slot) -> Result<Self, StoreError> {
        nodes.not_forked()?;
        Ok(Self {
            nodes,
            slot,
            begun: CallStart::now(),
            limit: nodes.settings().command_timeout,
            next_attempt: None,
            redirects: 0,
            last: None,
        })
    }

    /// Returns the server for the next attempt.
    pub(super) async fn next_hop(&mut self) -> Result<Hop, StoreError> {
        let (addr, asking) = match self.next_attempt.take() {
            Some(NextAttempt::Ask(addr)) => (addr, true),
            Some(NextAttempt::Moved(addr)) => (addr, false),
            Some(NextAttempt::Retry) | None => (self.owner().await?, false),
        };
        let node = self.nodes.at(&addr)?;
        self.last = Some(addr);
        Ok(Hop { node, asking })
    }

    /// Returns the server for the next attempt of a call that must not be sent to the target of a migration: a call that is not
    /// a script, or a script that needs all keys of a lock. It waits for the end of the migration, which is soon.
    pub(super) async fn next_owner_hop(&mut self) -> Result<Hop, StoreError> {
        loop {
            let hop = self.next_hop().await?;
            if !hop.asking {
                return Ok(hop);
            }
            let why = "the slot is being migrated";
            self.wait(StoreError::new(StoreErrorKind::NotReady, why))
                .await?;
        }
    }

    async fn owner(&mut self) -> Result<NodeAddr, StoreError> {
        loop {
            match self.nodes.owner(self.slot).await {
                Err(failure) if failure::is_safe_to_retry(&failure) => self.wait(failure).await?,
                owner => return owner,
            }
        }
    }

    /// Prepares the next attempt after a failure. Returns the failure if a retry is of no use.
    pub(super) async fn retry_after(&mut self, failure: StoreError) -> Result<(), StoreError> {
        let redirect = self.last.as_ref();
        let redirect = redirect.and_then(|last| NextAttempt::of(&failure, last));
        match redirect {
            None => Err(failure),
            Some(redirect @ (NextAttempt::Ask(_) | NextAttempt::Moved(_)))
                if self.redirects < MAX_REDIRECTS =>
            {
                if matches!(redirect, NextAttempt::Moved(_)) {
                    self.nodes.refresh();
                }
                self.redirects += 1;
                self.next_attempt = Some(redirect);
                Ok(())
            }
            Some(_) => self.wait(failure).await,
        }
    }

    /// Waits for the next retry signal.
    async fn wait(&mut self, failure: StoreError) -> Result<(), StoreError> {
        let late = self.begun.elapsed() >= self.limit - self.limit / 8;
        // A timer of this runtime is not used: a call that continues on another runtime may outlive this one.
        if late || !self.nodes.refreshed().await || !self.begun.is_same_runtime() {
            return Err(final_error(failure));
        }
        self.redirects = 0;
        Ok(())
    }
}

/// Returns the error for the caller. The redirect itself is an internal detail and becomes part of the message only.
fn final_error(failure: StoreError) -> StoreError {
    if failure.kind != StoreErrorKind::NotReady {
        return failure;
    }
    let said = failure.detail;
    let why = format!("no server of the cluster serves this lock at the moment ({said})");
    StoreError::new(StoreErrorKind::NotReady, why)
}
