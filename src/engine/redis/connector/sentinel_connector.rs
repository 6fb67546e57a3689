//! Connector to the current master, as its sentinels report it.

#![expect(
    clippy::disallowed_methods,
    reason = "engines may read the clock and wait"
)]

use std::time::Duration;

use redis::{AsyncConnectionConfig, Value};
use tokio::runtime::{self, Handle};
use tokio::time::{Instant, timeout};

use super::{Address, NewConnection, Transport};
use crate::engine::redis::failure;
use crate::engine::redis::node_addr::NodeAddr;
use crate::engine::redis::sentinel::{SentinelDetails, Sentinels, WatchedMaster};
use crate::engine::redis::settings::RedisSettings;
use crate::engine::{StoreError, StoreErrorKind};

const MOVED: &str = "the sentinels report another master";

/// Start time of a call, and the runtime that it started on.
pub(crate) struct CallStart {
    at: Instant,
    runtime: Option<runtime::Id>,
}

impl CallStart {
    pub(crate) fn now() -> Self {
        Self {
            at: Instant::now(),
            runtime: current_runtime(),
        }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.at.elapsed()
    }

    /// Returns whether the call is still polled on the runtime where it began. A call whose caller has dropped it is
    /// finished by cleanup, on the driver's runtime, and not retried there: a retry might connect, and later callers would
    /// share a connection that runs on the driver's runtime.
    pub(crate) fn is_same_runtime(&self) -> bool {
        self.runtime.is_some() && self.runtime == current_runtime()
    }
}

fn current_runtime() -> Option<runtime::Id> {
    Handle::try_current().ok().map(|runtime| runtime.id())
}

pub(super) struct SentinelConnector {
    master: WatchedMaster,
    /// User, database and security of the connections to the master.
    address: Address,
    settings: RedisSettings,
}

impl SentinelConnector {
    pub(super) fn new(
        address: &Address,
        sentinels: &Sentinels,
        settings: &RedisSettings,
        runtime: &Handle,
    ) -> Self {
        Self {
            master: WatchedMaster::watch(address, sentinels, settings, runtime),
            address: address.clone(),
            settings: settings.clone(),
        }
    }

    /// Makes a connection to the master, within `limit`.
    pub(super) async fn open(
        &self,
        config: AsyncConnectionConfig,
        limit: Duration,
    ) -> Result<NewConnection, StoreError> {
        let opened = timeout(limit, self.open_master(config, limit)).await;
        opened.unwrap_or_else(|_| {
            self.master.refresh();
            let why = format!("no connection within {limit:?}");
            Err(StoreError::new(StoreErrorKind::Unreachable, why))
        })
    }

    /// Connects to the reported address of the master, and checks that the server is one: a sentinel's report may be
    /// out of date.
    async fn open_master(
        &self,
        config: AsyncConnectionConfig,
        limit: Duration,
    ) -> Result<NewConnection, StoreError> {
        let (addr, mut master_term) = self.master.addr().await?;
        let transport = Transport::new(&self.address.at(&addr.host, addr.port), &self.settings)?;
        let made = async {
            let mut connection = transport.open(config, limit).await?;
            let role = redis::cmd("ROLE");
            let is_master = match role.query_async(&mut connection).await {
                Ok(role) => is_master(&role),
                // A user that may not run ROLE relies on the sentinels.
                Err(error) if failure::from_call_error(&error).kind == StoreErrorKind::Denied => {
                    true
                }
                Err(error) => return Err(failure::from_connect_error(&error)),
            };
            Ok((connection, is_master))
        };
        let made = tokio::select! {
            biased;
            made = made => made,
            () = master_term.changed() => return Err(StoreError::new(StoreErrorKind::Unreachable, MOVED)),
        };
        let at_addr = |failure: StoreError| {
            let why = format!("`{}` at {addr}: {}", self.master.name(), failure.detail);
            StoreError::new(failure.kind, why)
        };
        match made {
            Ok((connection, true)) => {
                self.master.found(addr, true);
                Ok(NewConnection {
                    connection,
                    master_term,
                })
            }
            Ok((_, false)) => {
                let why = "the server is a replica, although a sentinel reports it as the master";
                let refused = at_addr(StoreError::new(StoreErrorKind::NotReady, why));
                self.master.found(addr, false);
                Err(refused)
            }
            Err(failure) => {
                self.master.refresh();
                Err(at_addr(failure))
            }
        }
    }

    /// Waits until the master may have moved, and returns whether a failed call is worth a retry.
    pub(super) async fn wait_to_retry(
        &self,
        failure: &StoreError,
        begun: &CallStart,
        give_up: Duration,
    ) -> bool {
        if !failure::is_safe_to_retry(failure) || begun.at.elapsed() >= give_up {
            return false;
        }
        // No timer of this runtime is used: a call that is completed elsewhere may outlive the runtime.
        self.master.refreshed().await && begun.is_same_runtime()
    }

    /// Requests a refresh from the sentinels soon.
    pub(super) fn refresh(&self) {
        self.master.refresh();
    }

    pub(super) fn name(&self) -> &str {
        self.master.name()
    }

    pub(super) async fn details(&self) -> Vec<(NodeAddr, Result<SentinelDetails, StoreError>)> {
        self.master.details().await
    }
}

/// Returns the error of a call that was in flight when its server was left: the server may have carried it out.
pub(crate) fn master_changed() -> StoreError {
    StoreError::new(StoreErrorKind::Interrupted, MOVED)
}

fn is_master(role: &Value) -> bool {
    let word = match role {
        Value::Array(role) => role.first(),
        _ => None,
    };
    matches!(word, Some(Value::BulkString(word)) if word == b"master")
}
