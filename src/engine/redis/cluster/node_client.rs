//! One server of a cluster, and what it says of all of them.

#![expect(clippy::disallowed_methods, reason = "engines may wait")]

use std::time::Duration;

use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{AsyncConnectionConfig, RedisError, Value};
use tokio::time::timeout;

use super::slot_map::{self, NodeView};
use crate::engine::redis::connector::{Address, Transport};
use crate::engine::redis::failure;
use crate::engine::redis::node_addr::NodeAddr;
use crate::engine::redis::settings::RedisSettings;
use crate::engine::{StoreError, StoreErrorKind};

/// How servers are reached.
#[derive(Clone)]
pub(super) struct ClusterNodeClient {
    /// As whom, and how; each in its place.
    pub(super) address: Address,
    pub(super) settings: RedisSettings,
}

impl ClusterNodeClient {
    /// Asks, over the connection that there is or another, for as long as that may take; it is kept while it works.
    pub(super) async fn query(
        &self,
        addr: &NodeAddr,
        connection: Option<MultiplexedConnection>,
        limit: Duration,
    ) -> Result<(NodeView, MultiplexedConnection), StoreError> {
        let exchange = async {
            let mut connection = match connection {
                Some(connection) => connection,
                None => self.connect(addr, limit).await?,
            };
            let mut questions = redis::pipe();
            questions.cmd("CLUSTER").arg("SLOTS");
            questions.cmd("CLUSTER").arg("NODES");
            questions.cmd("PUBSUB").arg("SHARDNUMSUB");
            let answers = connection.req_packed_commands(&questions, 0, 3).await;
            let answers = answers.map_err(|error| failure::from_connect_error(&error))?;
            Ok((parse_answers(addr, answers)?, connection))
        };
        let answer = timeout(limit, exchange).await;
        answer.unwrap_or_else(|_| {
            let why = format!("no answer within {limit:?}");
            Err(StoreError::new(StoreErrorKind::Unreachable, why))
        })
    }

    async fn connect(
        &self,
        addr: &NodeAddr,
        limit: Duration,
    ) -> Result<MultiplexedConnection, StoreError> {
        let transport = Transport::new(&self.address.at(&addr.host, addr.port), &self.settings)?;
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        transport.open(config, limit).await
    }
}

fn parse_answers(addr: &NodeAddr, answers: Vec<Value>) -> Result<NodeView, StoreError> {
    let mut answers = answers.into_iter().map(Value::extract_error);
    let slots = match answers.next() {
        Some(Ok(slots)) => slots,
        Some(Err(error)) => return Err(refusal(&error)),
        None => Value::Nil,
    };
    // Who may not ask takes the newest word for the right one.
    let nodes = answers.next().and_then(Result::ok);
    let nodes = nodes.and_then(|nodes| redis::from_redis_value::<String>(nodes).ok());
    let claims = slot_map::parse_slots(addr, slots, &nodes.unwrap_or_default());
    let strange = || StoreError::new(StoreErrorKind::Unexpected, "CLUSTER SLOTS makes no sense");
    Ok(NodeView {
        claims: claims.ok_or_else(strange)?,
        sharded: match answers.next() {
            Some(Err(error)) => failure::from_call_error(&error).kind == StoreErrorKind::Denied,
            Some(Ok(_)) | None => true,
        },
    })
}

fn refusal(error: &RedisError) -> StoreError {
    let failure = failure::from_connect_error(error);
    let disabled = "ERR This instance has cluster support disabled";
    if failure.detail.starts_with(disabled) {
        let why = "this server is in no cluster; `redis://` is its address";
        return StoreError::new(StoreErrorKind::Unusable, why);
    }
    failure
}
