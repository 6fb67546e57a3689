//! A client of another library, with a thread of its own in the peer.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::clock::Span;
use crate::failure::{Failure, Outcome};
use crate::library::Library;
use crate::party::Unlocked;
use crate::peer::{Answer, Peer};

/// A client, and the values of the locks it was granted.
pub(crate) struct TheirClient {
    peer: Arc<Peer>,
    /// The name of the thread and of the client.
    name: String,
    values: HashMap<String, String>,
}

/// The state of a lock in the store, as another library's client finds it.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct LockState {
    /// Redis' `TYPE`.
    pub(crate) kind: String,
    pub(crate) value: Option<String>,
    /// Redis' `PTTL`: -1 for a key without an end.
    pub(crate) left: i64,
    /// Whether the library itself reports the lock as held.
    pub(crate) locked: bool,
}

impl TheirClient {
    pub(crate) async fn connect(peer: &Arc<Peer>, address: &str) -> Outcome<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let client = Self {
            peer: peer.clone(),
            name: format!("t{}", NUMBER.fetch_add(1, Ordering::Relaxed)),
            values: HashMap::new(),
        };
        let connect = json!({"cmd": "connect", "address": address});
        client.call(connect).await?.value()?;
        Ok(client)
    }

    pub(crate) fn title(&self) -> String {
        self.peer.build().title()
    }

    pub(crate) fn library(&self) -> Library {
        self.peer.build().library
    }

    /// Acquires the lock. Without a lease it has no end, which is redis-py's default; the other libraries cannot.
    pub(crate) async fn lock(&mut self, name: &str, lease: Option<Duration>) -> Outcome<Span> {
        let lease = lease.map(millis);
        self.lock_by(json!({"cmd": "lock", "name": name, "lease": lease}), name)
            .await
    }

    /// Acquires the lock with a value that the application has chosen, which redis-py supports.
    pub(crate) async fn lock_with(
        &mut self,
        name: &str,
        value: &str,
        lease: Duration,
    ) -> Outcome<Span> {
        let lease = millis(lease);
        let command = json!({"cmd": "lock", "name": name, "lease": lease, "value": value});
        self.lock_by(command, name).await
    }

    async fn lock_by(&mut self, command: Value, name: &str) -> Outcome<Span> {
        let answer = self.call(command).await?;
        let span = answer.span;
        self.keep(name, &answer.value()?)?;
        Ok(span)
    }

    pub(crate) async fn try_lock(
        &mut self,
        name: &str,
        wait: Duration,
        lease: Duration,
    ) -> Outcome<(bool, Span)> {
        let wait = (!wait.is_zero()).then(|| millis(wait));
        let lease = millis(lease);
        let answer = self
            .call(json!({"cmd": "try_lock", "name": name, "wait": wait, "lease": lease}))
            .await?;
        let span = answer.span;
        let value = answer.value()?;
        if value.is_null() {
            return Ok((false, span));
        }
        self.keep(name, &value)?;
        Ok((true, span))
    }

    pub(crate) async fn unlock(&mut self, name: &str) -> Outcome<Unlocked> {
        let answer = self.call(json!({"cmd": "unlock", "name": name})).await?;
        let span = answer.span;
        Ok(match refusal(answer)? {
            None => Unlocked::Done(span),
            Some(why) => Unlocked::Refused(why),
        })
    }

    pub(crate) async fn extend(&self, name: &str, lease: Duration) -> Outcome<Option<String>> {
        let lease = millis(lease);
        let extend = json!({"cmd": "extend", "name": name, "lease": lease});
        refusal(self.call(extend).await?)
    }

    pub(crate) fn value(&self, name: &str) -> Outcome<String> {
        let value = self.values.get(name).cloned();
        value.ok_or_else(|| Failure::new(format!("they were never granted `{name}`")))
    }

    pub(crate) async fn is_held(&self, name: &str) -> Outcome<bool> {
        let answer = self.call(json!({"cmd": "is_mine", "name": name})).await?;
        let value = answer.value()?;
        let held = value.as_bool();
        held.ok_or_else(|| Failure::new(format!("is_mine is a boolean, not {value}")))
    }

    /// Returns what its client finds under this name.
    pub(crate) async fn read_state(&self, name: &str) -> Outcome<LockState> {
        let answer = self.call(json!({"cmd": "look", "name": name})).await?;
        let seen = answer.value()?;
        let read = || {
            Some(LockState {
                kind: seen["type"].as_str()?.to_owned(),
                value: seen["value"].as_str().map(str::to_owned),
                left: seen["left"].as_i64()?,
                locked: seen["locked"].as_bool()?,
            })
        };
        read().ok_or_else(|| Failure::new(format!("not what was seen: {seen}")))
    }

    pub(crate) async fn close(&self) -> Outcome {
        self.call(json!({"cmd": "close"})).await?.value()?;
        Ok(())
    }

    fn keep(&mut self, name: &str, value: &Value) -> Outcome {
        let value = value.as_str().map(str::to_owned);
        let value = value.ok_or_else(|| Failure::new("a granted lock has a value"))?;
        self.values.insert(name.to_owned(), value);
        Ok(())
    }

    /// Sends a command to this client's own thread. It is sent at once; the future only waits for the reply.
    fn call(&self, mut command: Value) -> impl Future<Output = Outcome<Answer>> + Send + use<> {
        command["thread"] = self.name.clone().into();
        command["client"] = self.name.clone().into();
        self.peer.call(command)
    }
}

/// Returns `None`, or why the command was refused.
fn refusal(answer: Answer) -> Outcome<Option<String>> {
    let value = answer.value()?;
    match value {
        Value::Null => Ok(None),
        Value::String(why) => Ok(Some(why)),
        other => Err(Failure::new(format!("neither done nor refused: {other}"))),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
