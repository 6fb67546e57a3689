//! A thread in a JVM, which is the owner of Redisson's locks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Kind, Term, Unlocked};
use crate::clock::Span;
use crate::failure::{Failure, Outcome, ensure};
use crate::peer::Peer;

/// A thread with a Redisson client of its own.
pub(crate) struct JavaThread {
    peer: Arc<Peer>,
    kind: Kind,
    name: String,
    client: String,
    owner: String,
    /// The thread id for which it locks, if that is not its own.
    acts_as: Option<i64>,
    prefix_by: String,
    fair_wait: bool,
}

/// The settings of a Redisson client.
#[derive(Clone, Debug)]
pub(crate) struct Connection<'a> {
    pub(crate) kind: Kind,
    /// The address of its server, or what else it needs to connect.
    pub(crate) place: Value,
    pub(crate) watchdog: Duration,
    pub(crate) prefix: &'a str,
    pub(crate) fair_wait: Duration,
}

impl JavaThread {
    /// Starts a new thread with a new client.
    pub(crate) async fn connect(peer: &Arc<Peer>, connection: &Connection<'_>) -> Outcome<Self> {
        let name = next_name();
        let mut connect = connection.place.clone();
        connect["cmd"] = "connect".into();
        connect["thread"] = name.clone().into();
        connect["client"] = name.clone().into();
        connect["watchdog"] = millis(connection.watchdog).into();
        connect["prefix"] = connection.prefix.into();
        connect["fair_wait"] = millis(connection.fair_wait).into();
        let connected = peer.ask(connect).await?;
        let mut thread = Self {
            peer: peer.clone(),
            kind: connection.kind,
            client: name.clone(),
            name,
            owner: String::new(),
            acts_as: None,
            prefix_by: text(&connected["prefix"])?,
            fair_wait: connected["fair_wait"] == true,
        };
        thread.owner = text(&thread.ask(json!({"cmd": "owner"})).await?)?;
        Ok(thread)
    }

    /// Starts another thread with the same client.
    pub(crate) async fn sibling(&self) -> Outcome<Self> {
        let mut thread = self.side(self.kind);
        thread.name = next_name();
        thread.acts_as = None;
        thread.owner = text(&thread.ask(json!({"cmd": "owner"})).await?)?;
        Ok(thread)
    }

    /// Returns the same thread, which acquires locks of this kind.
    pub(crate) fn side(&self, kind: Kind) -> Self {
        Self {
            peer: self.peer.clone(),
            kind,
            name: self.name.clone(),
            client: self.client.clone(),
            owner: self.owner.clone(),
            acts_as: self.acts_as,
            prefix_by: self.prefix_by.clone(),
            fair_wait: self.fair_wait,
        }
    }

    /// Locks for this thread id from now on: Redisson's asynchronous calls accept any number.
    pub(crate) async fn act_as(&mut self, thread_id: i64) -> Outcome {
        self.acts_as = Some(thread_id);
        self.owner = text(&self.ask(json!({"cmd": "owner"})).await?)?;
        Ok(())
    }

    pub(crate) const fn peer(&self) -> &Arc<Peer> {
        &self.peer
    }

    /// Returns the name of its client, for commands that are sent to the peer directly.
    pub(crate) fn client(&self) -> &str {
        &self.client
    }

    pub(crate) const fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn owner(&self) -> &str {
        &self.owner
    }

    /// Returns how a prefix goes before its names: `NameMapper` or, in versions without, `name`.
    pub(crate) fn prefix_by(&self) -> &str {
        &self.prefix_by
    }

    /// Reports whether this version can configure how long a waiter for a fair lock may be silent.
    pub(crate) const fn has_fair_wait(&self) -> bool {
        self.fair_wait
    }

    pub(crate) async fn lock(&self, name: &str, term: Term) -> Outcome<Span> {
        let command = json!({"cmd": "lock", "name": name, "lease": lease(term)});
        Ok(self.ask_when(command).await?.1)
    }

    pub(crate) async fn try_lock(
        &self,
        name: &str,
        wait: Duration,
        term: Term,
    ) -> Outcome<(bool, Span)> {
        let mut command = json!({"cmd": "try_lock", "name": name, "lease": lease(term)});
        if !wait.is_zero() {
            command["wait"] = millis(wait).into();
        }
        let (granted, span) = self.ask_when(command).await?;
        Ok((yes_or_no(&granted)?, span))
    }

    pub(crate) async fn unlock(&self, name: &str) -> Outcome<Unlocked> {
        let command = json!({"cmd": "unlock", "name": name});
        let answer = self.peer.call(self.here(command)).await?;
        match answer.result {
            Ok(_) => Ok(Unlocked::Done(answer.span)),
            Err(raised) if raised.class == NOT_THE_OWNER => Ok(Unlocked::Refused(raised.message)),
            Err(raised) => Err(raised.into()),
        }
    }

    pub(crate) async fn ask_bool(&self, command: &str, name: &str) -> Outcome<bool> {
        yes_or_no(&self.ask(json!({"cmd": command, "name": name})).await?)
            .map_err(|failure| failure.during(command))
    }

    pub(crate) async fn hold_count(&self, name: &str) -> Outcome<u64> {
        let value = self.ask(json!({"cmd": "hold_count", "name": name})).await?;
        value
            .as_u64()
            .ok_or_else(|| Failure::new(format!("a hold count is a number, not {value}")))
    }

    /// Returns the token that its last acquire returned; the peer has checked that `getToken()` says the same.
    pub(crate) async fn token(&self, name: &str) -> Outcome<u64> {
        let value = self.ask(json!({"cmd": "token", "name": name})).await?;
        value
            .as_u64()
            .ok_or_else(|| Failure::new(format!("a token is a number, not {value}")))
    }

    pub(crate) async fn ttl(&self, name: &str) -> Outcome<Option<Duration>> {
        let value = self.ask(json!({"cmd": "ttl", "name": name})).await?;
        let left = value.as_i64();
        Ok(left
            .and_then(|left| u64::try_from(left).ok())
            .map(Duration::from_millis))
    }

    pub(crate) async fn holders(&self, name: &str) -> Outcome<BTreeMap<String, u64>> {
        let value = self.ask(json!({"cmd": "holders", "name": name})).await?;
        let Some(fields) = value.as_object() else {
            return Err(Failure::new(format!("holders are a map, not {value}")));
        };
        let mut holders = BTreeMap::new();
        for (owner, count) in fields {
            holders.insert(owner.clone(), text(count)?.parse()?);
        }
        Ok(holders)
    }

    pub(crate) async fn close(&self) -> Outcome {
        let closed = self.ask(json!({"cmd": "close"})).await?;
        ensure!(closed == true, "there was no client to close");
        Ok(())
    }

    pub(super) async fn ask(&self, command: Value) -> Outcome<Value> {
        self.peer.ask(self.here(command)).await
    }

    /// Sends a command and returns its value, and when the thread ran it.
    pub(super) async fn ask_when(&self, command: Value) -> Outcome<(Value, Span)> {
        let answer = self.peer.call(self.here(command)).await?;
        let span = answer.span;
        Ok((answer.value()?, span))
    }

    pub(super) fn here(&self, mut command: Value) -> Value {
        command["thread"] = self.name.clone().into();
        command["client"] = self.client.clone().into();
        command["kind"] = self.kind.word().into();
        if let Some(thread_id) = self.acts_as {
            command["as"] = thread_id.into();
        }
        command
    }
}

/// A number in the store, as a thread calls it: its name, and the prefix of its commands.
#[derive(Clone, Copy)]
pub(crate) struct JavaNumber<'a> {
    pub(super) thread: &'a JavaThread,
    pub(super) sort: &'static str,
    pub(super) name: &'a str,
}

impl JavaNumber<'_> {
    /// Sends a command and returns its value, and when the thread ran it.
    pub(super) async fn ask(self, what: &str, mut words: Value) -> Outcome<(Value, Span)> {
        words["cmd"] = format!("{}_{what}", self.sort).into();
        words["name"] = self.name.into();
        self.thread.ask_when(words).await
    }
}

fn next_name() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    format!("t{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

pub(super) fn lease(term: Term) -> i64 {
    match term {
        Term::Fixed(time) => millis(time),
        Term::Kept => -1,
    }
}

pub(crate) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

pub(super) fn yes_or_no(value: &Value) -> Outcome<bool> {
    let yes = value.as_bool();
    yes.ok_or_else(|| Failure::new(format!("a yes or a no was expected, not {value}")))
}

pub(super) fn number(value: &Value) -> Outcome<i64> {
    let number = value.as_i64();
    number.ok_or_else(|| Failure::new(format!("a number was expected, not {value}")))
}

fn text(value: &Value) -> Outcome<String> {
    let text = value.as_str().map(str::to_owned);
    text.ok_or_else(|| Failure::new(format!("a string was expected, not {value}")))
}

const NOT_THE_OWNER: &str = "java.lang.IllegalMonitorStateException";
