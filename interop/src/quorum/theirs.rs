//! A client of another library with a connection to each server, on a thread of its own in the peer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::Settings;
use crate::clock::Span;
use crate::failure::{Failure, Outcome};
use crate::library::Library;
use crate::party::{Unlocked, millis};
use crate::peer::Peer;
use crate::simple::Lease;
use crate::support::RedisServer;

/// Redisson's `RedissonRedLock`, redsync with several pools, redlock with several clients.
pub(crate) struct TheirVoter {
    peer: Arc<Peer>,
    /// The name of the thread and of the client.
    name: String,
    servers: u32,
}

impl TheirVoter {
    /// Connects to the servers, in another order than our client: Redisson sends its requests one after the other.
    pub(crate) async fn connect(
        peer: &Arc<Peer>,
        servers: &[RedisServer],
        terms: Settings,
    ) -> Outcome<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let voter = Self {
            peer: peer.clone(),
            name: format!("q{}", NUMBER.fetch_add(1, Ordering::Relaxed)),
            servers: servers.len().try_into()?,
        };
        let connect = json!({
            "cmd": "connect",
            "addresses": addresses(servers.iter().rev()),
            "watchdog": millis(terms.lease),
            "patience": millis(terms.patience),
        });
        voter.ask(connect).await?;
        Ok(voter)
    }

    pub(crate) fn title(&self) -> String {
        self.peer.build().title()
    }

    pub(crate) const fn peer(&self) -> &Arc<Peer> {
        &self.peer
    }

    /// Returns the number of servers.
    pub(crate) const fn servers(&self) -> u32 {
        self.servers
    }

    /// Reports whether it renews by itself a lock that it holds without a lease.
    pub(crate) fn has_watchdog(&self) -> bool {
        self.peer.build().library == Library::Redisson
    }

    pub(crate) async fn lock(&self, name: &str, lease: Lease) -> Outcome<Span> {
        let lease = self.millis(lease);
        let lock = json!({"cmd": "lock", "name": name, "lease": lease});
        let (_, span) = self.ask(lock).await?;
        Ok(span)
    }

    pub(crate) async fn try_lock(
        &self,
        name: &str,
        wait: Duration,
        lease: Lease,
    ) -> Outcome<(bool, Span)> {
        let wait = (!wait.is_zero()).then(|| millis(wait));
        let lease = self.millis(lease);
        let (value, span) = self
            .ask(json!({"cmd": "try_lock", "name": name, "wait": wait, "lease": lease}))
            .await?;
        // The reply is the value of the key, or Java's boolean.
        let granted = value.is_string() || value == true;
        Ok((granted, span))
    }

    pub(crate) async fn unlock(&self, name: &str) -> Outcome<Unlocked> {
        let (value, span) = self.ask(json!({"cmd": "unlock", "name": name})).await?;
        Ok(match value {
            Value::String(why) => Unlocked::Refused(why),
            _ => Unlocked::Done(span),
        })
    }

    /// Extends a lease that is not renewed to this long from now.
    pub(crate) async fn extend(&self, name: &str, lease: Duration) -> Outcome {
        let extend = json!({"cmd": "extend", "name": name, "lease": millis(lease)});
        match self.ask(extend).await?.0 {
            Value::String(why) => Err(Failure::new(format!("not extended: {why}"))),
            _ => Ok(()),
        }
    }

    pub(crate) async fn close(&self) -> Outcome {
        self.ask(json!({"cmd": "close"})).await.map(drop)
    }

    fn millis(&self, lease: Lease) -> i64 {
        match lease {
            Lease::Kept(_) if self.has_watchdog() => -1,
            Lease::Fixed(time) | Lease::Kept(time) => millis(time),
        }
    }

    /// Sends a command to its own thread.
    async fn ask(&self, mut command: Value) -> Outcome<(Value, Span)> {
        command["thread"] = self.name.clone().into();
        command["client"] = self.name.clone().into();
        command["kind"] = "quorum".into();
        let answer = self.peer.call(command).await?;
        let span = answer.span;
        Ok((answer.value()?, span))
    }
}

/// Returns the addresses of the servers as the peers expect them.
pub(crate) fn addresses<'a>(servers: impl Iterator<Item = &'a RedisServer>) -> Vec<String> {
    servers
        .map(|server| format!("redis://{}", server.addr()))
        .collect()
}
