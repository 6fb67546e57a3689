//! One multiplexed connection, which is made when it is needed and replaced when it has failed.
//!
//! The crate's own connection manager retries behind our back (nine seconds in an outage, measured). Here a call is
//! either sent on a live connection or fails at once, and the caller's deadline decides.

#![expect(
    clippy::disallowed_methods,
    reason = "engines may read the clock and start tasks"
)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ErrorKind, PushInfo, PushKind, Value};

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::Level;

mod current;
mod payload;
mod pending_reply;
mod send;
mod server;
mod uptime;

use self::current::CurrentConnection;
use self::payload::{Payload, RawReplies};
use self::pending_reply::PendingReply;
pub(crate) use self::server::ConnectionContext;
use self::server::ServerState;
use self::uptime::StartTime;
use super::connector::{self, CallStart, Connector, NewConnection};
use super::durability::{ScriptOutcome, ScriptReply};
use super::failure;
use super::sentinel::{AbortOnDrop, MasterTerm};
use super::stall_detector::StallDetector;
use crate::engine::fork_detector::ForkDetector;
use crate::engine::tag_simulated_process;
use crate::engine::{StoreError, StoreErrorKind};

/// Number of calls that may wait to be written. The crate's default of 50 costs a third of the throughput at 4096
/// callers.
const PIPELINE_BUFFER: usize = 8192;

/// Callers wait this much longer than an attempt to connect may take: the attempt itself reports why it failed.
const HANDSHAKE_SLACK: Duration = Duration::from_millis(200);
/// Upper bound for the time to connect: an `Instant` cannot represent every deadline that a `Duration` allows.
const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// A connection to one server.
#[derive(Debug)]
pub(crate) struct Connection {
    connector: Connector,
    stall_timeout: Duration,
    fork_detector: ForkDetector,
    current: Arc<CurrentConnection>,
    context: ConnectionContext,
    /// The latest attempt to connect, so that a hundred callers make one connection.
    connecting: Mutex<ConnectState>,
}

/// Counts a client's connections to one server: each is greater than those before it.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Generation(pub(super) u64);

/// The attempts to connect, one after another. Each is a task of its own: an attempt that its caller drives would delay
/// all other callers while that caller is not polled.
#[derive(Debug, Default)]
struct ConnectState {
    generation: Generation,
    attempt: Option<ConnectAttempt>,
}

#[derive(Clone, Debug)]
struct ConnectAttempt {
    /// The result of the attempt, once it has ended.
    end: watch::Receiver<Option<Result<(), StoreError>>>,
    /// By this time the attempt has ended, unless its runtime is stalled.
    deadline: Instant,
}

#[derive(Clone, Debug)]
struct LiveConnection {
    generation: Generation,
    connection: MultiplexedConnection,
    /// The period in which the connection leads to the right server.
    master_term: MasterTerm,
    _term_watcher: Option<Arc<AbortOnDrop>>,
    runtime: Handle,
    stall_detector: Arc<Mutex<StallDetector>>,
    started: Arc<StartTime>,
    server: Arc<ServerState>,
}

impl Connection {
    /// Creates a connection, which is made when it is needed. If a call is abandoned after the server has been silent
    /// for `stall_timeout`, the connection is given up: the next call makes another.
    pub(crate) fn new(
        connector: Connector,
        stall_timeout: Duration,
        context: ConnectionContext,
    ) -> Self {
        Self {
            connector,
            stall_timeout,
            fork_detector: ForkDetector::current(),
            current: Arc::default(),
            context,
            connecting: Mutex::default(),
        }
    }

    /// Returns the runtime that this connection runs on, if it is still the current one.
    pub(crate) fn runtime_of(&self, generation: Generation) -> Option<Handle> {
        let live = self.lock();
        let live = live.as_ref().filter(|live| live.generation == generation);
        live.map(|live| live.runtime.clone())
    }

    /// Returns the generation of the current connection, if there is one.
    pub(crate) fn generation(&self) -> Option<Generation> {
        self.lock().as_ref().map(|live| live.generation)
    }

    /// Gives up this connection: the next call makes another.
    pub(crate) fn mark_dead(&self, generation: Generation) {
        self.current.mark_dead(generation);
    }

    /// Returns whether the caller is a forked child: its locks may be held by threads that it does not have.
    pub(crate) fn is_forked(&self) -> bool {
        self.fork_detector.has_forked()
    }

    /// Checks for a stall after a batched call was abandoned. The batch task may never drop its call if its own runtime is
    /// stalled, so each caller checks as well.
    pub(crate) fn check_stalled(&self, waited: Duration) {
        if self.is_forked() {
            return;
        }
        let Some(live) = self.lock().clone() else {
            return;
        };
        self.close_if_stalled(&live.stall_detector, live.generation, waited);
    }

    /// Gives up a connection that has stalled, judged by how long an abandoned call has waited.
    fn close_if_stalled(
        &self,
        stall_detector: &Mutex<StallDetector>,
        generation: Generation,
        waited: Duration,
    ) {
        let over = lock(stall_detector).is_stalled(Instant::now(), waited, self.stall_timeout);
        if over {
            self.current.mark_dead(generation);
        }
    }

    /// Resolves when there is no connection.
    pub(crate) async fn disconnected(&self) {
        self.current.disconnected().await;
    }

    /// Makes the connection if there is none.
    pub(crate) async fn ready(&self) -> Result<(), StoreError> {
        let begun = CallStart::now();
        loop {
            match self.live().await {
                Ok(_) => return Ok(()),
                Err(failure) if self.connector.wait_to_retry(&failure, &begun).await => {}
                Err(failure) => return Err(self.connector.final_error(failure)),
            }
        }
    }

    /// Carries out a call. If the master may have moved, a call that has certainly done nothing is retried; the caller
    /// can end the retries by dropping this future.
    async fn execute(&self, payload: &Payload<'_>) -> Result<ScriptOutcome, StoreError> {
        self.not_forked(StoreErrorKind::Unreachable)?;
        if !self.connector.can_fail_over() {
            let outcome = self.execute_once(payload).await;
            return outcome.map_err(|failure| self.connector.final_error(failure));
        }
        let begun = CallStart::now();
        loop {
            match self.execute_once(payload).await {
                Err(failure) if Box::pin(self.connector.wait_to_retry(&failure, &begun)).await => {
                    self.not_forked(StoreErrorKind::Unreachable)?;
                }
                outcome => return outcome.map_err(|failure| self.connector.final_error(failure)),
            }
        }
    }

    async fn execute_once(&self, payload: &Payload<'_>) -> Result<ScriptOutcome, StoreError> {
        let mut live = self.live().await?;
        if payload.is_fresh_acquire()
            && let Some(left) = live.server.grant_delay_left()
        {
            return Ok(ScriptOutcome::Delayed(left));
        }
        let durability = &self.context.durability;
        let pending = PendingReply::begin(self, &live);
        let mut master_term = live.master_term.clone();
        let result = tokio::select! {
            biased;
            result = payload.send(&mut live.connection, durability, &live.server) => result,
            () = master_term.changed() => {
                self.current.mark_dead(live.generation);
                return Err(connector::master_changed());
            }
        };
        pending.complete();
        let (first, trailing) = match result {
            Ok(RawReplies { first, trailing }) => (Ok(first), trailing),
            Err(error) => (Err(error), Vec::new()),
        };
        let value = match (payload, first) {
            // Each command has its own error, which the caller handles.
            (Payload::Commands(_), Ok(replies)) => {
                self.not_forked(StoreErrorKind::Interrupted)?;
                replies
            }
            (_, first) => self.check_reply(&live, first)?,
        };
        if payload.has_item_results()
            && self.connector.can_fail_over()
            && let Some(failure) = failure::find_read_only(&value)
        {
            self.discard(&live);
            return Err(failure);
        }
        let durable = durability.check(trailing, live.server.incarnation.as_ref());
        if durable.is_from_another_master() {
            self.discard(&live);
        }
        Ok(ScriptOutcome::Executed(ScriptReply { value, durable }))
    }

    /// Fails in a forked child, which must neither write to its parent's connection nor read from it.
    fn not_forked(&self, cause: StoreErrorKind) -> Result<(), StoreError> {
        if self.is_forked() {
            return Err(StoreError::new(
                cause,
                "this process was forked; create a new client",
            ));
        }
        Ok(())
    }

    fn check_reply(
        &self,
        live: &LiveConnection,
        result: Result<Value, redis::RedisError>,
    ) -> Result<Value, StoreError> {
        // A forked child may have read this reply from a connection that it shares: the reply was its parent's.
        self.not_forked(StoreErrorKind::Interrupted)?;
        match result.and_then(Value::extract_error) {
            Ok(value) => Ok(value),
            Err(error) => {
                let io = error.kind() == ErrorKind::Io || error.is_unrecoverable_error();
                let failure = failure::from_call_error(&error);
                if io || failure::is_read_only(&failure) {
                    self.discard(live);
                }
                Err(failure)
            }
        }
    }

    fn discard(&self, live: &LiveConnection) {
        self.current.mark_dead(live.generation);
        self.connector.refresh();
    }

    async fn live(&self) -> Result<LiveConnection, StoreError> {
        loop {
            if let Some(live) = self.lock().clone() {
                return Ok(live);
            }
            let ConnectAttempt { mut end, deadline } = self.connect_attempt()?;
            let ended = tokio::time::timeout_at(deadline, end.wait_for(Option::is_some)).await;
            match ended.as_ref().map(|end| end.as_deref()) {
                Ok(Ok(Some(Err(failure)))) => return Err(failure.clone()),
                Ok(Err(_)) => return Err(no_runtime()),
                // Connected, or the attempt is no longer worth waiting for: check again.
                Ok(Ok(Some(Ok(())) | None)) | Err(_) => {}
            }
        }
    }

    /// Returns the attempt in progress, or starts a new one. An attempt ends by itself, after the connect timeout at
    /// the latest, or with the runtime it was started on; if that runtime is stalled, a new attempt replaces it.
    fn connect_attempt(&self) -> Result<ConnectAttempt, StoreError> {
        let mut connecting = lock(&self.connecting);
        if let Some(attempt) = &connecting.attempt
            && attempt.end.has_changed().is_ok()
            && attempt.end.borrow().is_none()
            && Instant::now() < attempt.deadline
        {
            return Ok(attempt.clone());
        }
        let runtime = Handle::try_current().map_err(|_| no_runtime())?;
        connecting.generation.0 += 1;
        let generation = connecting.generation;
        // The driver times out replies: it knows the caller's deadline.
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(PIPELINE_BUFFER)
            .set_push_sender(self.on_disconnect(generation));
        let (connector, current, context) = (
            self.connector.clone(),
            self.current.clone(),
            self.context.clone(),
        );
        let (ended, end) = watch::channel(None);
        let handshake_deadline = Instant::now()
            + self.connector.connect_timeout().min(MAX_TIMEOUT)
            + HANDSHAKE_SLACK / 2;
        let deadline = handshake_deadline + HANDSHAKE_SLACK / 2;
        let home = runtime.clone();
        runtime.spawn(tag_simulated_process(async move {
            let made = connector.open(config).await;
            let server = connector.server();
            let failure = made.as_ref().err().map(|failure| failure.detail.clone());
            context.events.emit(Level::DEBUG, move || match failure {
                None => tracing::debug!(target: "distlock::connection", %server, again = generation.0 > 1, "connected"),
                Some(why) => tracing::debug!(target: "distlock::connection", %server, error = why, "cannot connect"),
            });
            let connected = match made {
                Ok(mut opened) => {
                    let server = context
                        .handshake(&mut opened.connection, handshake_deadline)
                        .await;
                    server.map(|server| (opened, Arc::new(server)))
                }
                Err(failure) => Err(failure),
            };
            let result = connected.and_then(
                |(
                    NewConnection {
                        connection,
                        master_term,
                    },
                    server,
                )| {
                    let mine = Arc::downgrade(&current);
                    current.install(generation, || {
                        // The watcher also ends an idle connection. If it runs at once, it waits for the lock of
                        // `current`.
                        let term_watcher = master_term.on_change(move || {
                            if let Some(current) = mine.upgrade() {
                                current.mark_dead(generation);
                            }
                        });
                        LiveConnection {
                            generation,
                            connection,
                            master_term,
                            _term_watcher: term_watcher.map(Arc::new),
                            runtime: home,
                            stall_detector: Arc::new(Mutex::new(
                                StallDetector::new(Instant::now()),
                            )),
                            started: Arc::new(StartTime::new(Instant::now())),
                            server,
                        }
                    })
                },
            );
            // The callers that waited may have gone.
            let _ = ended.send(Some(result));
        }));
        let attempt = ConnectAttempt { end, deadline };
        connecting.attempt = Some(attempt.clone());
        Ok(attempt)
    }

    /// Returns a handler that gives up a connection as soon as it ends, even while idle: the outcome of a call sent on
    /// a dead connection would be unknown for nothing.
    fn on_disconnect(
        &self,
        generation: Generation,
    ) -> impl Fn(PushInfo) -> Result<(), std::convert::Infallible> + Send + Sync + 'static {
        // The reference is weak because the connection's own task keeps this handler.
        let current = Arc::downgrade(&self.current);
        move |push| {
            if push.kind == PushKind::Disconnection
                && let Some(current) = current.upgrade()
            {
                current.mark_dead(generation);
            }
            Ok(())
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<LiveConnection>> {
        self.current.lock()
    }
}

fn no_runtime() -> StoreError {
    StoreError::new(
        StoreErrorKind::Unreachable,
        "a Redis connection needs a running tokio runtime",
    )
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
