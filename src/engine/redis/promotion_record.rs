//! Promotion record: since when a server has been known with its data. That server stores the record itself, so that
//! all clients agree.

use std::time::Duration;

use redis::Value;
use redis::aio::MultiplexedConnection;

mod owned_slot;

use self::owned_slot::first_owned_slot;
use super::failure;
use super::incarnation::Incarnation;
use super::keys::Keys;
use crate::engine::{StoreError, StoreErrorKind};

/// Minimum time for which a record is kept. It matters during the failover delay; it is kept longer, so that later
/// clients need not wait again.
const MIN_TTL: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The key of the promotion record on the server at the other end.
#[derive(Clone, Debug)]
pub(super) struct PromotionRecord {
    keys: Keys,
    /// Whether the server only stores keys of its own slots.
    in_owned_slot: bool,
}

impl PromotionRecord {
    pub(super) const fn new(keys: Keys, in_owned_slot: bool) -> Self {
        Self {
            keys,
            in_owned_slot,
        }
    }

    /// Returns how long ago a client first saw this server with these data. If none has, the time starts now.
    pub(super) async fn known_for(
        &self,
        connection: &mut MultiplexedConnection,
        incarnation: &Incarnation,
        delay: Duration,
    ) -> Result<Duration, StoreError> {
        let Some(key) = self.key(connection).await? else {
            return Ok(Duration::ZERO);
        };
        let keep = MIN_TTL.max(delay * 2).as_millis().to_string();
        let mut script = redis::cmd("EVAL");
        script
            .arg(include_str!("lua/promoted.lua"))
            .arg(1)
            .arg(key)
            .arg(incarnation.replication_id())
            .arg(keep);
        match send(connection, &script).await {
            Ok(age) => {
                let age: i64 = redis::from_redis_value(age).unwrap_or_default();
                Ok(Duration::from_millis(u64::try_from(age).unwrap_or(0)))
            }
            // The record cannot be written, so this connection waits by itself: the server is out of memory, has just
            // given the slot away, or never had the slot that all locks of this prefix are in.
            Err(failure)
                if failure.kind == StoreErrorKind::OutOfMemory
                    || failure::is_redirection(&failure) =>
            {
                Ok(Duration::ZERO)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Returns the key; `None` if the server has no slot for it, and then has none for locks, either.
    async fn key(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<Option<String>, StoreError> {
        if !self.in_owned_slot {
            return Ok(Some(self.keys.promotion_record()));
        }
        let mut query = redis::cmd("CLUSTER");
        query.arg("NODES");
        // The server itself is queried: the view of another one may be out of date, or ahead.
        let nodes = send(connection, &query).await?;
        let nodes: String = redis::from_redis_value(nodes).unwrap_or_default();
        let slot = first_owned_slot(&nodes);
        Ok(slot.map(|slot| self.keys.promotion_record_in(&slot.tag())))
    }
}

async fn send(
    connection: &mut MultiplexedConnection,
    cmd: &redis::Cmd,
) -> Result<Value, StoreError> {
    let reply = connection.send_packed_command(cmd).await;
    let reply = reply.and_then(Value::extract_error);
    reply.map_err(|error| failure::from_connect_error(&error))
}
