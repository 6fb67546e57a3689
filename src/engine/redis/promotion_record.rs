//! Where it is kept since when a server is known by its data: in that server itself, so that all clients agree.

use std::time::Duration;

use redis::Value;
use redis::aio::MultiplexedConnection;

mod owned_slot;

use self::owned_slot::first_owned_slot;
use super::failure;
use super::incarnation::Incarnation;
use super::keys::Keys;
use crate::engine::{StoreError, StoreErrorKind};

/// That somebody has seen it is of use for as long as the delay; longer, so that whoever comes later need not wait again.
const MIN_TTL: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// A key of the server at the other end.
#[derive(Clone, Debug)]
pub(super) struct PromotionRecord {
    keys: Keys,
    /// Whether the server keeps only what is in its slots.
    in_owned_slot: bool,
}

impl PromotionRecord {
    pub(super) const fn new(keys: Keys, in_owned_slot: bool) -> Self {
        Self {
            keys,
            in_owned_slot,
        }
    }

    /// How long ago any client has first seen this server with these data; from now on, if none has.
    pub(super) async fn first_seen(
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
        match ask(connection, &script).await {
            Ok(age) => {
                let age: i64 = redis::from_redis_value(age).unwrap_or_default();
                Ok(Duration::from_millis(u64::try_from(age).unwrap_or(0)))
            }
            // Nobody can be told: this connection waits by itself. There is no memory for it, the slot has just been given away, or
            // this server never had the one that all locks of this prefix are in.
            Err(failure)
                if failure.kind == StoreErrorKind::OutOfMemory
                    || failure::is_redirection(&failure) =>
            {
                Ok(Duration::ZERO)
            }
            Err(failure) => Err(failure),
        }
    }

    /// None if there is no place for it there: then there is none for locks, either.
    async fn key(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<Option<String>, StoreError> {
        if !self.in_owned_slot {
            return Ok(Some(self.keys.promotion_record()));
        }
        let mut question = redis::cmd("CLUSTER");
        question.arg("NODES");
        // By the server's own word: whoever asked others may be told what was, or will be.
        let nodes = ask(connection, &question).await?;
        let nodes: String = redis::from_redis_value(nodes).unwrap_or_default();
        let slot = first_owned_slot(&nodes);
        Ok(slot.map(|slot| self.keys.promotion_record_in(&slot.tag())))
    }
}

async fn ask(
    connection: &mut MultiplexedConnection,
    cmd: &redis::Cmd,
) -> Result<Value, StoreError> {
    let answer = connection.send_packed_command(cmd).await;
    let answer = answer.and_then(Value::extract_error);
    answer.map_err(|error| failure::from_connect_error(&error))
}
