//! Queries to one sentinel, and its messages about failovers.

#![expect(clippy::disallowed_methods, reason = "engines may wait")]

use std::collections::HashMap;
use std::time::Duration;

use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{AsyncConnectionConfig, FromRedisValue, Pipeline, PushInfo, PushKind, Value};
use tokio::sync::mpsc::WeakUnboundedSender;
use tokio::time::timeout;
use tracing::Level;

use super::SentinelWatcherCommand;
use super::master_choice::{NamedMaster, SentinelReport};
use crate::engine::redis::connector::{Address, Transport};
use crate::engine::redis::failure;
use crate::engine::redis::node_addr::NodeAddr;
use crate::engine::redis::settings::RedisSettings;
use crate::engine::{StoreError, StoreErrorKind};

/// Channels on which sentinels announce a new master: `+promoted-slave` as soon as this sentinel knows of it, `+switch-master`
/// once the sentinels have told each other.
const CHANNELS: [&str; 2] = ["+promoted-slave", "+switch-master"];

/// Credentials and settings for connections to any sentinel, and the master to ask about.
#[derive(Clone)]
pub(super) struct SentinelClient {
    /// User, password and TLS settings; the endpoint is replaced for each sentinel.
    pub(super) address: Address,
    pub(super) settings: RedisSettings,
    /// Name of the master.
    pub(super) name: String,
    /// Time limit for connecting to one sentinel.
    pub(super) connect_timeout: Duration,
    /// Time limit for the reply of a connected sentinel. For a diagnosis it includes connecting.
    pub(super) limit: Duration,
    /// Receives a command when a master has changed.
    pub(super) commands: WeakUnboundedSender<SentinelWatcherCommand>,
}

/// Reply of one sentinel.
#[derive(Clone, Debug)]
pub(super) enum SentinelReply {
    /// The sentinel knows no master of that name.
    NoSuchMaster,
    Report {
        report: SentinelReport,
        others: Vec<NodeAddr>,
    },
}

impl SentinelClient {
    /// Queries a sentinel, over the given connection or a new one. Returns the connection for reuse.
    pub(super) async fn query(
        &self,
        addr: &NodeAddr,
        connection: Option<MultiplexedConnection>,
    ) -> Result<(SentinelReply, MultiplexedConnection), StoreError> {
        let mut connection = match connection {
            Some(connection) => connection,
            None => self.connect(addr).await?,
        };
        let exchange = async {
            let name = &self.name;
            let mut queries = redis::pipe();
            // The epoch is requested before the address: an old epoch with a new address is corrected soon, but with a new
            // epoch and an old address a demoted master would be trusted for ever.
            for commands in [
                ["MASTER", name].as_slice(),
                &["GET-MASTER-ADDR-BY-NAME", name],
                &["SENTINELS", name],
                &["MYID"],
            ] {
                queries.cmd("SENTINEL").arg(commands);
            }
            let replies = send_all(&mut connection, &queries).await?;
            Ok((parse_replies(addr, replies)?, connection))
        };
        in_time(self.limit, exchange).await
    }

    /// Queries the details that only a diagnosis needs.
    pub(super) async fn details(&self, addr: &NodeAddr) -> Result<SentinelDetails, StoreError> {
        let exchange = async {
            let mut connection = self.connect(addr).await?;
            let mut queries = redis::pipe();
            for command in ["MASTER", "REPLICAS"] {
                queries.cmd("SENTINEL").arg(&[command, &self.name]);
            }
            let mut replies = send_all(&mut connection, &queries).await?.into_iter();
            let mut next = || replies.next().unwrap_or(Value::Nil);
            let master: Fields = value(next())?;
            let replicas: Vec<Fields> = value(next())?;
            let number = |field| master.get(field).and_then(|text| text.parse().ok());
            let following = |replica: &&Fields| {
                let flags = replica.get("flags").map_or("", String::as_str);
                let link = replica.get("master-link-status").map_or("", String::as_str);
                !flags.contains("down") && !flags.contains("disconnected") && link == "ok"
            };
            Ok(SentinelDetails {
                quorum: number("quorum").unwrap_or(0),
                sentinels: number("num-other-sentinels").unwrap_or(0) + 1,
                following: replicas.iter().filter(following).count(),
                replicas: replicas.len(),
            })
        };
        in_time(self.limit, exchange).await
    }

    /// Connects, and subscribes to the announcements of failovers.
    async fn connect(&self, addr: &NodeAddr) -> Result<MultiplexedConnection, StoreError> {
        let transport = Transport::new(&self.address.at(&addr.host, addr.port), &self.settings)?;
        let (commands, name) = (self.commands.clone(), self.name.clone());
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(Some(self.limit))
            .set_push_sender(move |push: PushInfo| {
                if let Some(command) = parse_push(&push, &name)
                    && let Some(commands) = commands.upgrade()
                {
                    let _ = commands.send(command);
                }
                Ok::<(), std::convert::Infallible>(())
            });
        let made = transport.open(config, self.connect_timeout).await;
        let mut connection = made.map_err(of_a_sentinel)?;
        match connection.subscribe(&CHANNELS).await {
            Ok(()) => Ok(connection),
            Err(error) => match of_a_sentinel(failure::from_call_error(&error)) {
                // Without a subscription the periodic query has to do.
                failure if failure.kind == StoreErrorKind::Denied => {
                    let (sentinel, why) = (addr.clone(), failure.detail);
                    self.settings.events.emit(Level::DEBUG, move || {
                        tracing::debug!(target: "distlock::topology", %sentinel, error = why, "cannot subscribe to a sentinel");
                    });
                    Ok(connection)
                }
                failure => Err(failure),
            },
        }
    }
}

/// Details of a master, its replicas and sentinels for a diagnosis, as one sentinel sees them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct SentinelDetails {
    /// Number of sentinels that have to agree that a master is down.
    pub(crate) quorum: usize,
    /// Number of sentinels, the queried one included.
    pub(crate) sentinels: usize,
    /// Number of replicas that follow the master.
    pub(crate) following: usize,
    /// Number of replicas that the sentinel knows.
    pub(crate) replicas: usize,
}

type Fields = HashMap<String, String>;

fn parse_push(push: &PushInfo, name: &str) -> Option<SentinelWatcherCommand> {
    match push.kind {
        PushKind::Disconnection => Some(SentinelWatcherCommand::Refresh),
        PushKind::Message => {
            let Some(Value::BulkString(message)) = push.data.get(1) else {
                return None;
            };
            is_about(&String::from_utf8_lossy(message), name)
                .then_some(SentinelWatcherCommand::Switched)
        }
        _ => None,
    }
}

/// Returns whether a message is about this master. It has the form `name old-ip old-port new-ip new-port`, or `slave its-name
/// ip port @ name ip port`. Neither contains the epoch, so that it has to be queried.
fn is_about(message: &str, name: &str) -> bool {
    let subject = message
        .split_once(" @ ")
        .map_or(message, |(_, master)| master);
    subject.split(' ').next() == Some(name)
}

fn parse_replies(addr: &NodeAddr, replies: Vec<Value>) -> Result<SentinelReply, StoreError> {
    let mut replies = replies.into_iter();
    let mut next = || replies.next().unwrap_or(Value::Nil);
    let (master, address, others, id) = (next(), next(), next(), next());
    let Some((host, port)) = value::<Option<(String, u16)>>(address)? else {
        return Ok(SentinelReply::NoSuchMaster);
    };
    let master: Fields = value(master)?;
    let epoch = master
        .get("config-epoch")
        .and_then(|epoch| epoch.parse().ok());
    // A user may lack the right to list the other sentinels and to read the sentinel's own id.
    let others: Vec<Fields> = value(others).unwrap_or_default();
    let others = others.iter().filter_map(|other| {
        let host = other.get("ip").filter(|host| !host.is_empty())?.clone();
        let port = other.get("port")?.parse().ok()?;
        Some(NodeAddr { host, port })
    });
    let others: Vec<NodeAddr> = others.collect();
    Ok(SentinelReply::Report {
        report: SentinelReport {
            sentinel_id: value(id).unwrap_or_else(|_| addr.to_string()),
            master: NamedMaster {
                addr: NodeAddr { host, port },
                config_epoch: epoch.unwrap_or(0),
            },
            sentinels: others.len() + 1,
        },
        others,
    })
}

async fn send_all(
    connection: &mut MultiplexedConnection,
    queries: &Pipeline,
) -> Result<Vec<Value>, StoreError> {
    let pending = connection.req_packed_commands(queries, 0, queries.len());
    pending
        .await
        .map_err(|error| of_a_sentinel(failure::from_call_error(&error)))
}

fn value<T: FromRedisValue>(reply: Value) -> Result<T, StoreError> {
    let reply = reply.extract_error();
    let reply = reply.map_err(|error| of_a_sentinel(failure::from_call_error(&error)))?;
    redis::from_redis_value(reply).map_err(|_| {
        let why = "the server is not a sentinel";
        StoreError::new(StoreErrorKind::Unexpected, why)
    })
}

/// Rewords errors whose usual wording would be wrong for a sentinel: its password is not that of the server.
fn of_a_sentinel(mut failure: StoreError) -> StoreError {
    let detail = &mut failure.detail;
    if detail.starts_with("NOAUTH") || detail.starts_with("the server requires a password") {
        *detail = "the sentinel requires a password of its own: ?sentinel_pass=…".into();
    } else if detail.starts_with("ERR unknown command") {
        failure.kind = StoreErrorKind::Unexpected;
        *detail = "the server is not a sentinel".into();
    }
    failure
}

async fn in_time<T>(
    limit: Duration,
    exchange: impl Future<Output = Result<T, StoreError>> + Send,
) -> Result<T, StoreError> {
    let exchange = timeout(limit, exchange).await;
    exchange.unwrap_or_else(|_| {
        let why = format!("no reply within {limit:?}");
        Err(StoreError::new(StoreErrorKind::Unreachable, why))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages as Redis 7 words them.
    #[test]
    fn messages_about_other_masters_are_ignored() {
        let switched = "mine 127.0.0.1 1 127.0.0.1 2";
        let promoted = "slave 127.0.0.1:2 127.0.0.1 2 @ mine 127.0.0.1 1";
        for message in [switched, promoted] {
            assert!(is_about(message, "mine"), "{message}");
            assert!(!is_about(message, "min"), "{message}");
            assert!(!is_about(message, "127.0.0.1"), "{message}");
        }
    }
}
