//! One request, to whichever server has its lock.

use std::sync::Arc;
use std::time::Duration;

use super::lock_slot;
use super::nodes::Nodes;
use super::redirect::Redirect;
use crate::engine::redis::connector::CallStart;
use crate::engine::redis::node_addr::NodeAddr;
use crate::engine::redis::slot::Slot;
use crate::engine::redis::{Redis, failure, scripts, single};
use crate::engine::{StoreError, StoreErrorKind};
use crate::protocol::{Reply, Request};

/// How often a call goes straight where it is sent. Servers that send it to and fro do not agree yet.
const MAX_REDIRECTS: u32 = 3;

/// By which of a server's connections a request goes, and until when.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum CallLane {
    /// Nobody waits for it but the driver; with others, all of which are to be answered within this.
    Background(Duration),
    /// A caller waits for it.
    Foreground,
}

/// Carries it out, at whichever server that takes.
pub(super) async fn send_request(
    nodes: &Nodes,
    request: &Request,
    lane: CallLane,
) -> Result<Reply, StoreError> {
    let slot = lock_slot::slot(&nodes.keys, &request.subject.channel())?;
    let mut router = Router::to(nodes, slot)?;
    if let CallLane::Background(limit) = lane {
        router.limit = router.limit.min(limit);
    }
    loop {
        let Hop { node, asking } = match scripts::reads_other_keys(request) {
            true => router.next_stable_hop().await?,
            false => router.next_hop().await?,
        };
        let connection = match lane {
            CallLane::Foreground => node.connection_for(request),
            CallLane::Background(_) => node.background_connection_for(request),
        };
        match single::call(connection, &node.keys, request, asking).await {
            Err(failure) => router.retry_after(failure).await?,
            answer => return answer,
        }
    }
}

/// The way to a slot. What has certainly done nothing is tried again where it is to be tried, until it is too late for the
/// driver, which is told before what was in the way.
pub(super) struct Router<'a> {
    nodes: &'a Nodes,
    slot: Slot,
    begun: CallStart,
    /// When it is too late.
    limit: Duration,
    /// Where the last server has sent us.
    redirect_to: Option<Redirect>,
    /// How often in a row.
    redirects: u32,
    last: Option<NodeAddr>,
}

/// Where something is to be tried.
pub(super) struct Hop {
    pub(super) node: Arc<Redis>,
    /// Whether the keys are on their way there.
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
            redirect_to: None,
            redirects: 0,
            last: None,
        })
    }

    /// The next server to try it at.
    pub(super) async fn next_hop(&mut self) -> Result<Hop, StoreError> {
        let (addr, asking) = match self.redirect_to.take() {
            Some(Redirect::Ask(addr)) => (addr, true),
            Some(Redirect::Moved(addr)) => (addr, false),
            Some(Redirect::Retry) | None => (self.owner().await?, false),
        };
        let node = self.nodes.at(&addr)?;
        self.last = Some(addr);
        Ok(Hop { node, asking })
    }

    /// The same, for what is no script, or one that needs all keys of a lock: it is not sent after a key that is on its
    /// way. All of them will have arrived soon.
    pub(super) async fn next_stable_hop(&mut self) -> Result<Hop, StoreError> {
        loop {
            let hop = self.next_hop().await?;
            if !hop.asking {
                return Ok(hop);
            }
            let why = "its slot is on its way";
            self.wait(StoreError::new(StoreErrorKind::NotReady, why))
                .await?;
        }
    }

    async fn owner(&mut self) -> Result<NodeAddr, StoreError> {
        loop {
            match self.nodes.owner(self.slot).await {
                Err(failure) if failure::is_failover(&failure) => self.wait(failure).await?,
                owner => return owner,
            }
        }
    }

    /// It has failed there with this, which is returned where it is no use to go on.
    pub(super) async fn retry_after(&mut self, failure: StoreError) -> Result<(), StoreError> {
        let redirect = self.last.as_ref();
        let redirect = redirect.and_then(|last| Redirect::of(&failure, last));
        match redirect {
            None => Err(failure),
            Some(redirect @ (Redirect::Ask(_) | Redirect::Moved(_)))
                if self.redirects < MAX_REDIRECTS =>
            {
                if matches!(redirect, Redirect::Moved(_)) {
                    self.nodes.refresh();
                }
                self.redirects += 1;
                self.redirect_to = Some(redirect);
                Ok(())
            }
            Some(_) => self.wait(failure).await,
        }
    }

    /// Until something may be new.
    async fn wait(&mut self, failure: StoreError) -> Result<(), StoreError> {
        let late = self.begun.elapsed() >= self.limit - self.limit / 8;
        // No timer of this runtime's: a call that is heard out elsewhere may outlive it.
        if late || !self.nodes.refreshed().await || !self.begun.is_same_runtime() {
            return Err(final_error(failure));
        }
        self.redirects = 0;
        Ok(())
    }
}

/// What a caller is told. Where a slot is on its way to is none of its concern.
fn final_error(failure: StoreError) -> StoreError {
    if failure.kind != StoreErrorKind::NotReady {
        return failure;
    }
    let said = failure.detail;
    let why = format!("the cluster has nobody for this lock at the moment ({said})");
    StoreError::new(StoreErrorKind::NotReady, why)
}
