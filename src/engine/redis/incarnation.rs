//! Incarnation of a server. Each new connection reads it, because a server that has restarted, or that has taken
//! another's place, may have forgotten granted locks.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisError, Value};
use tokio::sync::Notify;

use super::failure;
use super::info::Info;
use crate::engine::{StoreError, StoreErrorKind};

/// Servers count whole seconds of the wall clock: a reported uptime may be almost one second too long.
const RESOLUTION: Duration = Duration::from_secs(1);

/// Distinguishes one life of a server from another.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Incarnation {
    /// Changes at each start.
    run_id: String,
    /// Identifies the data: changes at each promotion, and also when a first replica attaches.
    replication_id: String,
    /// Whether the server has had another server's data before.
    promoted: bool,
}

impl Incarnation {
    /// Parses two sections of `INFO`; `None` if they do not say enough.
    pub(super) fn parse(server: &str, replication: &str) -> Option<Self> {
        let before = field(replication, "master_replid2").unwrap_or_default();
        Some(Self {
            run_id: field(server, "run_id")?.to_owned(),
            replication_id: field(replication, "master_replid")?.to_owned(),
            promoted: before.bytes().any(|b| b != b'0'),
        })
    }

    /// Returns whether the server has had another server's data before, and was promoted.
    pub(super) const fn is_promoted(&self) -> bool {
        self.promoted
    }

    /// Returns the replication id, by which the server names its data.
    pub(super) fn replication_id(&self) -> &str {
        &self.replication_id
    }

    /// Returns whether the server with this replication section has been the same master all the while: over one
    /// connection it has not restarted.
    pub(super) fn still_matches(&self, replication: &str) -> bool {
        let now = Self::parse(&format!("run_id:{}", self.run_id), replication);
        let is_master = field(replication, "role") == Some("master");
        is_master && now.is_some_and(|now| now.continues(self))
    }

    /// Returns whether grants of the other incarnation are still known here.
    fn continues(&self, other: &Self) -> bool {
        self.run_id == other.run_id
            && (self.replication_id == other.replication_id || !self.promoted)
    }
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let value = Info::new(info).get(name);
    value.filter(|value| !value.is_empty())
}

/// Returns a lower bound for the uptime that a server reports.
pub(super) fn parse_uptime(server: &str) -> Option<Duration> {
    let uptime = Info::new(server).get("uptime_in_seconds")?;
    let uptime = Duration::from_secs(uptime.parse().ok()?);
    Some(uptime.saturating_sub(RESOLUTION))
}

/// Information about a server, read when a connection is made.
#[derive(Debug, Default)]
pub(super) struct ServerInfo {
    /// `None` if the server does not report it.
    pub(super) incarnation: Option<Incarnation>,
    /// Minimum time for which the server has been up.
    pub(super) uptime: Option<Duration>,
}

/// Queries the server at the other end. Managed services often forbid INFO: without it, every reconnect counts as a
/// change of server.
///
/// # Errors
///
/// If the connection has ended in the meantime, or the server is not ready.
pub(super) async fn query(
    connection: &mut MultiplexedConnection,
) -> Result<ServerInfo, StoreError> {
    let mut pipeline = Pipeline::with_capacity(2);
    // One section for each command: servers before 7.0 accept no more.
    pipeline.cmd("INFO").arg("server");
    pipeline.cmd("INFO").arg("replication");
    let replies = connection.send_packed_commands(&pipeline, 0, 2).await;
    let replies = replies.map_err(|error| failure::from_connect_error(&error))?;
    let mut texts = Vec::with_capacity(2);
    for reply in replies {
        // A server that is busy replies later; one that refuses never does.
        if let Value::ServerError(error) = &reply {
            let failure = failure::from_connect_error(&RedisError::from(error.clone()));
            if failure.kind == StoreErrorKind::NotReady {
                return Err(failure);
            }
        }
        texts.extend(redis::from_redis_value::<String>(reply));
    }
    Ok(match &*texts {
        [server, replication] => ServerInfo {
            incarnation: Incarnation::parse(server, replication),
            uptime: parse_uptime(server),
        },
        _ => ServerInfo::default(),
    })
}

/// Tracks the incarnations that a client's connections have observed.
#[derive(Debug, Default)]
pub(super) struct IncarnationTracker {
    last: Mutex<LastIncarnation>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct LastIncarnation {
    /// `None` before the first connection; the inner `None` if the server does not report one.
    server: Option<Option<Incarnation>>,
    /// The incarnation has changed, and that was not reported yet.
    is_unreported: bool,
}

impl IncarnationTracker {
    /// Records the incarnation that a new connection has observed.
    pub(super) fn observe(&self, server: Option<Incarnation>) {
        let mut last = self.lock();
        let same = match (&last.server, &server) {
            (None, _) => true,
            (Some(Some(before)), Some(now)) => now.continues(before),
            (Some(_), _) => false,
        };
        last.server = Some(server);
        last.is_unreported |= !same;
        drop(last);
        if !same {
            self.changed.notify_one();
        }
    }

    /// Resolves when the incarnation has changed, once for all changes since the last call.
    pub(super) async fn changed(&self) {
        while !std::mem::take(&mut self.lock().is_unreported) {
            self.changed.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, LastIncarnation> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: &str = "0000000000000000000000000000000000000000";

    fn server(run_id: &str, replication_id: &str, before: &str) -> Incarnation {
        let replication =
            format!("role:master\r\nmaster_replid:{replication_id}\r\nmaster_replid2:{before}\r\n");
        Incarnation::parse(&format!("# Server\r\nrun_id:{run_id}\r\n"), &replication)
            .expect("it is told")
    }

    #[test]
    fn restart_and_promotion_differ_from_a_first_replica() {
        let first = server("a", "1", NOBODY);
        for (now, continues, why) in [
            (server("a", "1", NOBODY), true, "nothing has happened"),
            (server("a", "2", NOBODY), true, "a first replica has come"),
            (server("b", "1", NOBODY), false, "it was started again"),
            (server("b", "2", "1"), false, "a replica was promoted"),
            (server("a", "2", "3"), false, "demoted, and promoted again"),
        ] {
            assert_eq!(now.continues(&first), continues, "{why}");
        }
    }

    #[test]
    fn demoted_master_does_not_match() {
        let first = server("a", "1", NOBODY);
        let still_matches = |role: &str, replication_id: &str, before: &str| {
            let said = format!(
                "role:{role}\r\nmaster_replid:{replication_id}\r\nmaster_replid2:{before}\r\n"
            );
            first.still_matches(&said)
        };
        assert!(still_matches("master", "1", NOBODY));
        assert!(
            still_matches("master", "2", NOBODY),
            "a first replica has come"
        );
        assert!(!still_matches("slave", "1", NOBODY), "it is a replica");
        assert!(
            !still_matches("master", "2", "3"),
            "it was one, and is none"
        );
        assert!(!first.still_matches("role:master\r\n"), "it does not say");
    }

    #[test]
    fn unknown_incarnation_counts_as_changed() {
        assert_eq!(Incarnation::parse("run_id:a\r\n", "role:master\r\n"), None);
        let tracker = IncarnationTracker::default();
        tracker.observe(None);
        assert!(!tracker.lock().is_unreported, "the first is no change");
        tracker.observe(None);
        assert!(tracker.lock().is_unreported);
    }

    #[test]
    fn uptime_is_rounded_down() {
        let info =
            "# Server\r\nredis_version:7.0.15\r\nuptime_in_seconds:31\r\nuptime_in_days:0\r\n";
        assert_eq!(parse_uptime(info), Some(Duration::from_secs(30)));
        assert_eq!(
            parse_uptime("uptime_in_seconds:0\r\n"),
            Some(Duration::ZERO)
        );
        assert_eq!(parse_uptime("# Server\r\n"), None);
    }

    #[tokio::test]
    async fn change_is_reported_once() {
        let tracker = IncarnationTracker::default();
        for run_id in ["a", "a", "b", "b"] {
            tracker.observe(Some(server(run_id, "1", NOBODY)));
        }
        tracker.changed().await;
        tracker.observe(Some(server("b", "1", NOBODY)));
        assert!(!tracker.lock().is_unreported);
    }
}
