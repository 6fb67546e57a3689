//! One request, to whichever server has its lock.

use std::sync::Arc;
use std::time::Duration;

use super::names;
use super::nodes::Nodes;
use super::turn::Turn;
use crate::engine::redis::door::Begun;
use crate::engine::redis::site::Site;
use crate::engine::redis::slot::Slot;
use crate::engine::redis::{Redis, alone, failure, scripts};
use crate::engine::{Cause, Failure};
use crate::protocol::{Reply, Request};

/// How often a call goes straight where it is sent. Servers that send it to and fro do not agree yet.
const STRAIGHT: u32 = 3;

/// By which of a server's connections a request goes, and until when.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Track {
    /// Nobody waits for it but the driver; with others, all of which are to be answered within this.
    Apart(Duration),
    /// A caller waits for it.
    OfCallers,
}

/// Carries it out, at whichever server that takes.
pub(super) async fn carry(
    nodes: &Nodes,
    request: &Request,
    track: Track,
) -> Result<Reply, Failure> {
    let slot = names::slot(&nodes.keys, &request.subject.channel())?;
    let mut route = Route::to(nodes, slot)?;
    if let Track::Apart(limit) = track {
        route.limit = route.limit.min(limit);
    }
    loop {
        let Stop { node, asking } = match scripts::looks_further(request) {
            true => route.stop_at_rest().await?,
            false => route.stop().await?,
        };
        let connection = match track {
            Track::OfCallers => node.line(request),
            Track::Apart(_) => node.line_apart(request),
        };
        match alone::call(connection, &node.keys, request, asking).await {
            Err(failure) => route.go_on(failure).await?,
            answer => return answer,
        }
    }
}

/// The way to a slot. What has certainly done nothing is tried again where it is to be tried, until it is too late for the
/// driver, which is told before what was in the way.
pub(super) struct Route<'a> {
    nodes: &'a Nodes,
    slot: Slot,
    begun: Begun,
    /// When it is too late.
    limit: Duration,
    /// Where the last server has sent us.
    sent_to: Option<Turn>,
    /// How often in a row.
    straight: u32,
    last: Option<Site>,
}

/// Where something is to be tried.
pub(super) struct Stop {
    pub(super) node: Arc<Redis>,
    /// Whether the keys are on their way there.
    pub(super) asking: bool,
}

impl<'a> Route<'a> {
    pub(super) fn to(nodes: &'a Nodes, slot: Slot) -> Result<Self, Failure> {
        nodes.not_forked()?;
        Ok(Self {
            nodes,
            slot,
            begun: Begun::now(),
            limit: nodes.settings().command_timeout,
            sent_to: None,
            straight: 0,
            last: None,
        })
    }

    /// The next server to try it at.
    pub(super) async fn stop(&mut self) -> Result<Stop, Failure> {
        let (site, asking) = match self.sent_to.take() {
            Some(Turn::Ask(site)) => (site, true),
            Some(Turn::Moved(site)) => (site, false),
            Some(Turn::Later) | None => (self.owner().await?, false),
        };
        let node = self.nodes.at(&site)?;
        self.last = Some(site);
        Ok(Stop { node, asking })
    }

    /// The same, for what is no script, or one that needs all keys of a lock: it is not sent after a key that is on its
    /// way. All of them will have arrived soon.
    pub(super) async fn stop_at_rest(&mut self) -> Result<Stop, Failure> {
        loop {
            let stop = self.stop().await?;
            if !stop.asking {
                return Ok(stop);
            }
            let why = "its slot is on its way";
            self.wait(Failure::new(Cause::Unready, why)).await?;
        }
    }

    async fn owner(&mut self) -> Result<Site, Failure> {
        loop {
            match self.nodes.owner(self.slot).await {
                Err(failure) if failure::is_of_a_failover(&failure) => self.wait(failure).await?,
                owner => return owner,
            }
        }
    }

    /// It has failed there with this, which is returned where it is no use to go on.
    pub(super) async fn go_on(&mut self, failure: Failure) -> Result<(), Failure> {
        let turn = self.last.as_ref();
        let turn = turn.and_then(|last| Turn::of(&failure, last));
        match turn {
            None => Err(failure),
            Some(turn @ (Turn::Ask(_) | Turn::Moved(_))) if self.straight < STRAIGHT => {
                if matches!(turn, Turn::Moved(_)) {
                    self.nodes.look();
                }
                self.straight += 1;
                self.sent_to = Some(turn);
                Ok(())
            }
            Some(_) => self.wait(failure).await,
        }
    }

    /// Until something may be new.
    async fn wait(&mut self, failure: Failure) -> Result<(), Failure> {
        let late = self.begun.elapsed() >= self.limit - self.limit / 8;
        // No timer of this runtime's: a call that is heard out elsewhere may outlive it.
        if late || !self.nodes.looked().await || !self.begun.is_at_home() {
            return Err(in_the_end(failure));
        }
        self.straight = 0;
        Ok(())
    }
}

/// What a caller is told. Where a slot is on its way to is none of its concern.
fn in_the_end(failure: Failure) -> Failure {
    if failure.cause != Cause::Unready {
        return failure;
    }
    let said = failure.detail;
    let why = format!("the cluster has nobody for this lock at the moment ({said})");
    Failure::new(Cause::Unready, why)
}
