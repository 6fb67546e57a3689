//! The handle of a simulated server, with the actions of tests.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use crate::clients::Client;
use crate::connection;
use crate::core::Core;
use crate::interpreter::Interpreter;
use crate::keyspace::{DATABASES, Data};
use crate::scripting::Scripts;
use crate::{Clock, Value, dispatch};

/// A simulated Redis server. Clones are the same server.
///
/// Its requests are executed one at a time, each at one moment of virtual time.
#[derive(Clone)]
pub struct Server {
    pub(crate) shared: Arc<Mutex<Inner>>,
}

/// The state of a server, with its interpreter of scripts.
pub(crate) struct Inner {
    /// The state; `None` while a script has it.
    pub(crate) core: Option<Box<Core>>,
    pub(crate) scripts: Scripts,
    pub(crate) is_alive: bool,
}

/// A state in which a real server refuses commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The server reads its data from the disk: `LOADING`.
    Loading,
    /// A script runs for too long: `BUSY`.
    Busy,
    /// The memory is used up: `OOM` for commands that need more.
    OutOfMemory,
    /// The server is a replica: `READONLY` for commands that write.
    ReadOnly,
    /// The user's permissions were taken away: `NOPERM`.
    NoPermission,
}

/// A key as [`Server::keyspace`] reports it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct KeyState {
    /// The type, as `TYPE` names it.
    pub kind: &'static str,
    /// The value, in the order in which the server keeps it.
    pub value: Value,
    /// The remaining milliseconds, -1 if it does not expire.
    pub pttl: i64,
}

impl Inner {
    pub(crate) fn core(&mut self) -> &mut Core {
        self.core
            .as_mut()
            .expect("a script gives it back before its request ends")
    }
}

impl Server {
    /// Starts a server. Its random values, such as the run id, come from the seed.
    pub fn new(clock: Clock, seed: u64) -> Self {
        let inner = Inner {
            core: Some(Box::new(Core::new(clock, seed))),
            scripts: Scripts::new(Interpreter::new()),
            is_alive: true,
        };
        Self {
            shared: Arc::new(Mutex::new(inner)),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves one connection until its stream ends, the server closes it, or the server is killed.
    ///
    /// # Cancel safety
    /// Cancelling ends the connection: a request that has arrived and was not executed is never executed.
    pub async fn serve<S>(&self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        connection::serve(self, stream).await;
    }

    /// Executes a command as an administrator, regardless of faults, stalls and permissions.
    pub fn call(&self, request: &[&[u8]]) -> Value {
        let request: Vec<Vec<u8>> = request.iter().map(|word| word.to_vec()).collect();
        dispatch::execute(&mut self.lock(), Client::ADMINISTRATOR, &request)
    }

    /// Has the server refuse commands, or ends that.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.lock().core().fault = fault;
    }

    /// Executes nothing for this long. Requests are read, and executed afterwards.
    pub fn stall(&self, duration: Duration) {
        let mut inner = self.lock();
        inner.core().stalled_until = Some(Instant::now() + duration);
        wake_all(&mut inner);
    }

    /// Closes all connections and starts anew, with a new run id, no scripts and no subscriptions.
    pub fn restart(&self, keep_data: bool) {
        let mut inner = self.lock();
        inner.core().restart(keep_data);
        inner.scripts.flush();
        inner.is_alive = true;
    }

    /// Kills the server: all connections end, and new ones end at once. Its data is kept, as if each write were on the disk.
    pub fn kill(&self) {
        let mut inner = self.lock();
        inner.is_alive = false;
        inner.core().restart(true);
        inner.core().cut_links(true);
        inner.scripts.flush();
    }

    /// Starts a killed server again.
    pub fn revive(&self) {
        let mut inner = self.lock();
        if !inner.is_alive {
            inner.is_alive = true;
            let core = inner.core();
            core.cut_links(false);
            core.started_us = core.clock.now_us();
            if let Some(view) = &mut core.cluster {
                view.restart();
            }
        }
    }

    /// Returns whether the server runs.
    pub fn is_alive(&self) -> bool {
        self.lock().is_alive
    }

    /// Sets the address of the server, as it and its replicas report it. Existing links keep the old one.
    pub fn set_address(&self, host: &str, port: u16) {
        self.lock().core().address = (host.to_owned(), port);
    }

    /// Returns the address of the server.
    pub fn address(&self) -> (String, u16) {
        self.lock().core().address.clone()
    }

    /// Makes a replica of this server, which has all data that the server has now.
    pub fn replica(&self, seed: u64, lag: Duration) -> Self {
        let clock = self.lock().core().clock.clone();
        let replica = Self::new(clock, seed);
        replica.follow(self, lag);
        replica
    }

    /// Becomes a replica of another server, whose data replaces its own.
    ///
    /// # Panics
    /// Panics if the server is to follow itself.
    pub fn follow(&self, master: &Self, lag: Duration) {
        assert!(!Arc::ptr_eq(&self.shared, &master.shared), "it is itself");
        let mut inner = self.lock();
        inner.core().lag = lag;
        inner.core().follow(master.lock().core(), lag);
    }

    /// Becomes a master with the data that has arrived by now. Later writes of its master are lost to it.
    pub fn promote(&self) {
        self.lock().core().promote();
    }

    /// Sets the time after which this server has a write, while it is a replica.
    pub fn set_lag(&self, lag: Duration) {
        let mut inner = self.lock();
        let core = inner.core();
        core.lag = lag;
        if let Some(link) = &core.master {
            link.set_lag(lag);
        }
    }

    /// Cuts this replica off from its master, or ends that: writes made meanwhile arrive then.
    pub fn cut_replication(&self, is_cut: bool) {
        if let Some(link) = &self.lock().core().master {
            link.set_cut(is_cut);
        }
    }

    /// Returns the master that this server follows, if the link to it is up.
    pub fn follows(&self) -> Option<(String, u16)> {
        let mut inner = self.lock();
        let link = inner.core().master.as_ref().filter(|link| link.is_up());
        link.map(|link| link.master.clone())
    }

    /// Cuts this server off from its master and its replicas, or ends that: writes made meanwhile arrive then.
    pub fn cut_links(&self, is_cut: bool) {
        self.lock().core().cut_links(is_cut);
    }

    /// Returns how many requests were executed, a script or a transaction as one.
    pub fn commands(&self) -> u64 {
        self.lock().core().commands
    }

    /// Returns the run id, which changes with each start.
    pub fn run_id(&self) -> String {
        self.lock().core().run_id.clone()
    }

    /// Returns every key of every database, with its value and its remaining time.
    pub fn keyspace(&self) -> Vec<(usize, Vec<u8>, KeyState)> {
        let mut inner = self.lock();
        let core = inner.core();
        core.catch_up();
        let now = core.clock.now_ms();
        core.keyspace.select(0, now);
        let mut found = Vec::new();
        for database in 0..DATABASES {
            for (key, entry) in core.keyspace.entries_of(database) {
                let pttl = entry.expires.map_or(-1, |expires| {
                    i64::try_from(expires.saturating_sub(now)).unwrap_or(i64::MAX)
                });
                let state = KeyState {
                    kind: entry.data.type_name(),
                    value: content(&entry.data),
                    pttl,
                };
                found.push((database, key.clone(), state));
            }
        }
        found
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Server").finish_non_exhaustive()
    }
}

fn content(data: &Data) -> Value {
    match data {
        Data::Text(text) => Value::bulk(text),
        Data::List(list) => Value::bulks(list),
        Data::Set(set) => Value::bulks(set),
        Data::Hash(hash) => {
            let pairs = hash.iter();
            let pairs = pairs.map(|(field, value)| (Value::bulk(field), Value::bulk(value)));
            Value::Map(pairs.collect())
        }
        Data::SortedSet(set) => {
            let pairs = set.iter().map(|(member, score)| (member.clone(), score));
            Value::Scored(pairs.collect())
        }
    }
}

fn wake_all(inner: &mut Inner) {
    for client in inner.core().clients.values() {
        client.outbox.wake();
    }
}
