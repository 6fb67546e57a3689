//! For how long the server behind a connection has been up: asked once for each connection, since a restart ends it.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::wait::Wait;
use super::{Connection, Live, door};
use crate::engine::redis::info::Info;
use crate::engine::{Cause, Failure, Uptime};

/// Servers count whole seconds of the clock on the wall: what they say may be almost one too many.
const GRAIN: Duration = Duration::from_secs(1);

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
                tracing::warn!(
                    why = failure.detail,
                    "this server does not say since when it is up: it counts once it has been connected for long enough"
                );
                String::new()
            }
            Err(failure) => return Err(failure),
        };
        // One that was a replica yesterday may have been up for a year, and never told of the last grants.
        let uptime = told(&text).filter(|_| !self.door.can_move());
        let started = uptime.and_then(|uptime| answered.checked_sub(uptime));
        let started = started.map_or(connected, |started| started.min(connected));
        // Whoever came first was told the same.
        let _ = live.started.told.set(started);
        Ok(())
    }
}

/// What a server says of itself, on the safe side.
pub(in crate::engine::redis) fn told(info: &str) -> Option<Duration> {
    let uptime = Info::new(info).get("uptime_in_seconds")?;
    let uptime = Duration::from_secs(uptime.parse().ok()?);
    Some(uptime.saturating_sub(GRAIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_that_may_not_have_passed_is_not_counted() {
        let info =
            "# Server\r\nredis_version:7.0.15\r\nuptime_in_seconds:31\r\nuptime_in_days:0\r\n";
        assert_eq!(told(info), Some(Duration::from_secs(30)));
        assert_eq!(told("uptime_in_seconds:0\r\n"), Some(Duration::ZERO));
        assert_eq!(told("# Server\r\n"), None);
    }
}
