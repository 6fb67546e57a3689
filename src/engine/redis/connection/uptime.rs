//! For how long the server behind a connection has been up: asked once for each connection, since a restart ends it.

use std::sync::OnceLock;

use tokio::time::Instant;
use tracing::Level;

use super::wait::Wait;
use super::{Connection, Live, door};
use crate::engine::redis::identity;
use crate::engine::{Cause, Failure, Uptime};

/// When the server was up already, for one connection.
#[derive(Debug)]
pub(super) struct Started {
    connected: Instant,
    told: OnceLock<Instant>,
}

impl Started {
    pub(super) const fn new(connected: Instant) -> Self {
        Self {
            connected,
            told: OnceLock::new(),
        }
    }
}

impl Connection {
    /// Makes the connection if there is none. Asked `anew`, the server has answered over that very connection a moment ago.
    pub(crate) async fn uptime(&self, anew: bool) -> Result<Uptime, Failure> {
        self.not_forked(Cause::Unreachable)?;
        let mut live = self.live().await?;
        if anew || live.started.told.get().is_none() {
            self.ask_uptime(&mut live).await?;
        }
        let started = &live.started;
        let since = started.told.get().unwrap_or(&started.connected);
        Ok(Uptime {
            at_least: since.elapsed(),
            connection: live.generation.0,
        })
    }

    async fn ask_uptime(&self, live: &mut Live) -> Result<(), Failure> {
        let mut info = redis::cmd("INFO");
        info.arg("server");
        let wait = Wait::begin(self, live);
        let mut stay = live.stay.clone();
        let result = tokio::select! {
            biased;
            result = live.connection.send_packed_command(&info) => result,
            () = stay.over() => return Err(door::left()),
        };
        wait.end();
        let answered = Instant::now();
        let connected = live.started.connected;
        let text: String = match self.settle(live, result) {
            Ok(answer) => redis::from_redis_value(answer).unwrap_or_default(),
            // Servers for rent often forbid it: then it has been up for as long as this connection, and that is all.
            Err(failure) if failure.cause == Cause::Denied => {
                let why = failure.detail;
                self.terms.events.emit(Level::WARN, move || {
                    tracing::warn!(
                        why,
                        "this server does not say since when it is up: it counts once it has been connected for long enough"
                    );
                });
                String::new()
            }
            Err(failure) => return Err(failure),
        };
        // One that was a replica yesterday may have been up for a year, and never told of the last grants.
        let uptime = identity::uptime(&text).filter(|_| !self.door.can_move());
        let started = uptime.and_then(|uptime| answered.checked_sub(uptime));
        let started = started.map_or(connected, |started| started.min(connected));
        // Whoever came first was told the same.
        let _ = live.started.told.set(started);
        Ok(())
    }
}
