//! Queries to one server of a cluster for its view of all servers.

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

/// Credentials and settings for connections to any server of the cluster.
#[derive(Clone)]
pub(super) struct ClusterNodeClient {
    /// User, password and TLS settings; the endpoint is replaced for each server.
    pub(super) address: Address,
    pub(super) settings: RedisSettings,
}

impl ClusterNodeClient {
    /// Queries a server, over the given connection or a new one, within `limit`. Returns the connection for reuse.
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
            let mut queries = redis::pipe();
            queries.cmd("CLUSTER").arg("SLOTS");
            queries.cmd("CLUSTER").arg("NODES");
            queries.cmd("PUBSUB").arg("SHARDNUMSUB");
            let replies = connection.req_packed_commands(&queries, 0, 3).await;
            let replies = replies.map_err(|error| failure::from_connect_error(&error))?;
            Ok((parse_replies(addr, replies)?, connection))
        };
        let outcome = timeout(limit, exchange).await;
        outcome.unwrap_or_else(|_| {
            let why = format!("no reply within {limit:?}");
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

fn parse_replies(addr: &NodeAddr, replies: Vec<Value>) -> Result<NodeView, StoreError> {
    let mut replies = replies.into_iter().map(Value::extract_error);
    let slots = match replies.next() {
        Some(Ok(slots)) => slots,
        Some(Err(error)) => return Err(refusal(&error)),
        None => Value::Nil,
    };
    // A user without the right to run CLUSTER NODES gets no epochs: then the latest reply wins.
    let nodes = replies.next().and_then(Result::ok);
    let nodes = nodes.and_then(|nodes| redis::from_redis_value::<String>(nodes).ok());
    let claims = slot_map::parse_slots(addr, slots, &nodes.unwrap_or_default());
    let strange = || {
        StoreError::new(
            StoreErrorKind::Unexpected,
            "the reply to CLUSTER SLOTS is malformed",
        )
    };
    Ok(NodeView {
        claims: claims.ok_or_else(strange)?,
        sharded: match replies.next() {
            Some(Err(error)) => failure::from_call_error(&error).kind == StoreErrorKind::Denied,
            Some(Ok(_)) | None => true,
        },
    })
}

fn refusal(error: &RedisError) -> StoreError {
    let failure = failure::from_connect_error(error);
    let disabled = "ERR This instance has cluster support disabled";
    if failure.detail.starts_with(disabled) {
        let why = "the server is not part of a cluster; use `redis://`";
        return StoreError::new(StoreErrorKind::Unusable, why);
    }
    failure
}
