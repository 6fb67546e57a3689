//! Uptime of the server behind a connection. It is queried once for each connection, since a restart ends the
//! connection.

use std::sync::OnceLock;

use tokio::time::Instant;
use tracing::Level;

use super::pending_reply::PendingReply;
use super::{Connection, LiveConnection, connector};
use crate::engine::redis::incarnation;
use crate::engine::{StoreError, StoreErrorKind, Uptime};

/// A time at which the server was up already, for one connection.
#[derive(Debug)]
pub(super) struct StartTime {
    connected: Instant,
    reported: OnceLock<Instant>,
}

impl StartTime {
    pub(super) const fn new(connected: Instant) -> Self {
        Self {
            connected,
            reported: OnceLock::new(),
        }
    }
}

impl Connection {
    /// Returns the server's uptime, and makes the connection if there is none. With `refresh`, the server is asked again,
    /// so that it has replied over that very connection a moment ago.
    pub(crate) async fn uptime(&self, refresh: bool) -> Result<Uptime, StoreError> {
        self.not_forked(StoreErrorKind::Unreachable)?;
        let mut live = self.live().await?;
        if refresh || live.started.reported.get().is_none() {
            self.query_uptime(&mut live).await?;
        }
        let started = &live.started;
        let since = started.reported.get().unwrap_or(&started.connected);
        Ok(Uptime {
            at_least: since.elapsed(),
            connection: live.generation.0,
        })
    }

    async fn query_uptime(&self, live: &mut LiveConnection) -> Result<(), StoreError> {
        let mut info = redis::cmd("INFO");
        info.arg("server");
        let pending = PendingReply::begin(self, live);
        let mut master_term = live.master_term.clone();
        let result = tokio::select! {
            biased;
            result = live.connection.send_packed_command(&info) => result,
            () = master_term.changed() => return Err(connector::master_changed()),
        };
        pending.complete();
        let replied_at = Instant::now();
        let connected = live.started.connected;
        let text: String = match self.check_reply(live, result) {
            Ok(reply) => redis::from_redis_value(reply).unwrap_or_default(),
            // Managed services often forbid INFO: then the uptime is only as long as this connection has existed.
            Err(failure) if failure.kind == StoreErrorKind::Denied => {
                let why = failure.detail;
                self.context.events.emit(Level::WARN, move || {
                    tracing::warn!(
                        target: "distlock::connection",
                        error = why,
                        "the server does not report its uptime: it has a vote after it has been connected for long enough"
                    );
                });
                String::new()
            }
            Err(failure) => return Err(failure),
        };
        // A server that was a replica yesterday may have been up for a year, and may never have received the last
        // grants.
        let uptime = incarnation::parse_uptime(&text).filter(|_| !self.connector.can_fail_over());
        let started = uptime.and_then(|uptime| replied_at.checked_sub(uptime));
        let started = started.map_or(connected, |started| started.min(connected));
        // Another call may have stored the same value already.
        let _ = live.started.reported.set(started);
        Ok(())
    }
}
