//! Which server it is: told by each connection when it is made, because a server that has restarted, or one that took
//! another's place, may have forgotten what was granted.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisError, Value};
use tokio::sync::Notify;

use super::failure;
use super::info::Info;
use crate::engine::{Cause, Failure};

/// Servers count whole seconds of the clock on the wall: what they say may be almost one too many.
const GRAIN: Duration = Duration::from_secs(1);

/// What tells one life of a server from another.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Identity {
    /// Another after each start.
    run: String,
    /// Whose data it has: another after each promotion, and also when a first replica attaches.
    data: String,
    /// Whether it has had somebody else's.
    promoted: bool,
}

impl Identity {
    /// What a server says of itself; nothing if that is not enough.
    pub(super) fn told(server: &str, replication: &str) -> Option<Self> {
        let before = field(replication, "master_replid2").unwrap_or_default();
        Some(Self {
            run: field(server, "run_id")?.to_owned(),
            data: field(replication, "master_replid")?.to_owned(),
            promoted: before.bytes().any(|b| b != b'0'),
        })
    }

    /// Whether it has had somebody else's data, and been promoted.
    pub(super) const fn is_promoted(&self) -> bool {
        self.promoted
    }

    /// Whose data it has, in its own words.
    pub(super) fn data(&self) -> &str {
        &self.data
    }

    /// Whether the server that says this of its replication has been the same all the while: over one connection it has not
    /// restarted.
    pub(super) fn is_still(&self, replication: &str) -> bool {
        let now = Self::told(&format!("run_id:{}", self.run), replication);
        let is_master = field(replication, "role") == Some("master");
        is_master && now.is_some_and(|now| now.follows(self))
    }

    /// Whether what the other has granted is still known here.
    fn follows(&self, other: &Self) -> bool {
        self.run == other.run && (self.data == other.data || !self.promoted)
    }
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let value = Info::new(info).get(name);
    value.filter(|value| !value.is_empty())
}

/// For how long a server says that it has been up, on the safe side.
pub(super) fn uptime(server: &str) -> Option<Duration> {
    let uptime = Info::new(server).get("uptime_in_seconds")?;
    let uptime = Duration::from_secs(uptime.parse().ok()?);
    Some(uptime.saturating_sub(GRAIN))
}

/// What a server says when it is met.
#[derive(Debug, Default)]
pub(super) struct Introduction {
    /// None if it does not say.
    pub(super) identity: Option<Identity>,
    /// For how long it has been up, at least.
    pub(super) up: Option<Duration>,
}

/// Asks the server at the other end. Servers for rent often do not say: then any may be another.
///
/// # Errors
///
/// If the connection has ended meanwhile, or the server is not ready.
pub(super) async fn ask(connection: &mut MultiplexedConnection) -> Result<Introduction, Failure> {
    let mut pipeline = Pipeline::with_capacity(2);
    // Of one section each: servers before 7.0 know no more.
    pipeline.cmd("INFO").arg("server");
    pipeline.cmd("INFO").arg("replication");
    let answers = connection.send_packed_commands(&pipeline, 0, 2).await;
    let answers = answers.map_err(|error| failure::of_connecting(&error))?;
    let mut texts = Vec::with_capacity(2);
    for answer in answers {
        // A server that is busy says it later; one that refuses never does.
        if let Value::ServerError(error) = &answer {
            let failure = failure::of_connecting(&RedisError::from(error.clone()));
            if failure.cause == Cause::Unready {
                return Err(failure);
            }
        }
        texts.extend(redis::from_redis_value::<String>(answer));
    }
    Ok(match &*texts {
        [server, replication] => Introduction {
            identity: Identity::told(server, replication),
            up: uptime(server),
        },
        _ => Introduction::default(),
    })
}

/// Whom a client's connections have met.
#[derive(Debug, Default)]
pub(super) struct Met {
    last: Mutex<Last>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Last {
    /// None before the first; the inner one where it does not say.
    server: Option<Option<Identity>>,
    /// It is another than the one before, and nobody has been told.
    news: bool,
}

impl Met {
    /// A connection has been made to this one.
    pub(super) fn meet(&self, server: Option<Identity>) {
        let mut last = self.lock();
        let same = match (&last.server, &server) {
            (None, _) => true,
            (Some(Some(before)), Some(now)) => now.follows(before),
            (Some(_), _) => false,
        };
        last.server = Some(server);
        last.news |= !same;
        drop(last);
        if !same {
            self.changed.notify_one();
        }
    }

    /// Resolves once for all that came since the last time: the server is another.
    pub(super) async fn changed(&self) {
        while !std::mem::take(&mut self.lock().news) {
            self.changed.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: &str = "0000000000000000000000000000000000000000";

    fn server(run: &str, data: &str, before: &str) -> Identity {
        let replication =
            format!("role:master\r\nmaster_replid:{data}\r\nmaster_replid2:{before}\r\n");
        Identity::told(&format!("# Server\r\nrun_id:{run}\r\n"), &replication).expect("it is told")
    }

    #[test]
    fn a_restart_and_a_promotion_are_told_from_a_first_replica() {
        let first = server("a", "1", NOBODY);
        for (now, follows, why) in [
            (server("a", "1", NOBODY), true, "nothing has happened"),
            (server("a", "2", NOBODY), true, "a first replica has come"),
            (server("b", "1", NOBODY), false, "it was started again"),
            (server("b", "2", "1"), false, "a replica was promoted"),
            (server("a", "2", "3"), false, "demoted, and promoted again"),
        ] {
            assert_eq!(now.follows(&first), follows, "{why}");
        }
    }

    #[test]
    fn one_that_was_demoted_meanwhile_is_not_the_same() {
        let first = server("a", "1", NOBODY);
        let says = |role: &str, data: &str, before: &str| {
            let said =
                format!("role:{role}\r\nmaster_replid:{data}\r\nmaster_replid2:{before}\r\n");
            first.is_still(&said)
        };
        assert!(says("master", "1", NOBODY));
        assert!(says("master", "2", NOBODY), "a first replica has come");
        assert!(!says("slave", "1", NOBODY), "it is a replica");
        assert!(!says("master", "2", "3"), "it was one, and is none");
        assert!(!first.is_still("role:master\r\n"), "it does not say");
    }

    #[test]
    fn one_that_does_not_say_may_be_any() {
        assert_eq!(Identity::told("run_id:a\r\n", "role:master\r\n"), None);
        let met = Met::default();
        met.meet(None);
        assert!(!met.lock().news, "the first is no change");
        met.meet(None);
        assert!(met.lock().news);
    }

    #[test]
    fn a_second_that_may_not_have_passed_is_not_counted() {
        let info =
            "# Server\r\nredis_version:7.0.15\r\nuptime_in_seconds:31\r\nuptime_in_days:0\r\n";
        assert_eq!(uptime(info), Some(Duration::from_secs(30)));
        assert_eq!(uptime("uptime_in_seconds:0\r\n"), Some(Duration::ZERO));
        assert_eq!(uptime("# Server\r\n"), None);
    }

    #[tokio::test]
    async fn a_change_is_told_once() {
        let met = Met::default();
        for run in ["a", "a", "b", "b"] {
            met.meet(Some(server(run, "1", NOBODY)));
        }
        met.changed().await;
        met.meet(Some(server("b", "1", NOBODY)));
        assert!(!met.lock().news);
    }
}
