//! One server of a cluster, and what it says of all of them.

#![expect(clippy::disallowed_methods, reason = "engines may wait")]

use std::time::Duration;

use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{AsyncConnectionConfig, RedisError, Value};
use tokio::time::timeout;

use super::chart::{self, View};
use crate::engine::redis::door::{Address, Road};
use crate::engine::redis::failure;
use crate::engine::redis::settings::Settings;
use crate::engine::redis::site::Site;
use crate::engine::{Cause, Failure};

/// How servers are reached.
#[derive(Clone)]
pub(super) struct Inquiry {
    /// As whom, and how; each in its place.
    pub(super) address: Address,
    pub(super) settings: Settings,
}

impl Inquiry {
    /// Asks, over the connection that there is or another, for as long as that may take; it is kept while it works.
    pub(super) async fn ask(
        &self,
        site: &Site,
        line: Option<MultiplexedConnection>,
        limit: Duration,
    ) -> Result<(View, MultiplexedConnection), Failure> {
        let exchange = async {
            let mut line = match line {
                Some(line) => line,
                None => self.connect(site, limit).await?,
            };
            let mut questions = redis::pipe();
            questions.cmd("CLUSTER").arg("SLOTS");
            questions.cmd("CLUSTER").arg("NODES");
            questions.cmd("PUBSUB").arg("SHARDNUMSUB");
            let answers = line.req_packed_commands(&questions, 0, 3).await;
            let answers = answers.map_err(|error| failure::of_connecting(&error))?;
            Ok((understand(site, answers)?, line))
        };
        let answer = timeout(limit, exchange).await;
        answer.unwrap_or_else(|_| {
            let why = format!("no answer within {limit:?}");
            Err(Failure::new(Cause::Unreachable, why))
        })
    }

    async fn connect(
        &self,
        site: &Site,
        limit: Duration,
    ) -> Result<MultiplexedConnection, Failure> {
        let road = Road::new(&self.address.at(&site.host, site.port), &self.settings)?;
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        road.open(config, limit).await
    }
}

fn understand(site: &Site, answers: Vec<Value>) -> Result<View, Failure> {
    let mut answers = answers.into_iter().map(Value::extract_error);
    let slots = match answers.next() {
        Some(Ok(slots)) => slots,
        Some(Err(error)) => return Err(refusal(&error)),
        None => Value::Nil,
    };
    // Who may not ask takes the newest word for the right one.
    let nodes = answers.next().and_then(Result::ok);
    let nodes = nodes.and_then(|nodes| redis::from_redis_value::<String>(nodes).ok());
    let claims = chart::read(site, slots, &nodes.unwrap_or_default());
    let strange = || Failure::new(Cause::Unexpected, "CLUSTER SLOTS makes no sense");
    Ok(View {
        claims: claims.ok_or_else(strange)?,
        sharded: match answers.next() {
            Some(Err(error)) => failure::of_calling(&error).cause == Cause::Denied,
            Some(Ok(_)) | None => true,
        },
    })
}

fn refusal(error: &RedisError) -> Failure {
    let failure = failure::of_connecting(error);
    let disabled = "ERR This instance has cluster support disabled";
    if failure.detail.starts_with(disabled) {
        let why = "this server is in no cluster; `redis://` is its address";
        return Failure::new(Cause::Unusable, why);
    }
    failure
}
