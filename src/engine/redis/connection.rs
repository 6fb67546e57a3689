//! One multiplexed connection that is made when it is needed and replaced when it has failed.
//!
//! The crate's own connection manager retries behind our back (nine seconds in an outage, measured);
//! here a call either goes out on a live connection or fails at once, and the caller's deadline rules.

#![expect(
    clippy::disallowed_methods,
    reason = "engines may read the clock and start tasks"
)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, PushInfo, PushKind, ServerErrorKind, Value,
};

use tokio::runtime::Handle;
use tokio::sync::watch;

use super::failure;
use super::scripts::Call;
use super::silence::Silence;
use crate::engine::process::Process;
use crate::engine::{Cause, Failure};

/// How many calls may wait to be written; the crate's 50 costs a third of the speed at 4096 callers.
const PIPELINE: usize = 8192;

/// How much longer than it may take an attempt to connect is waited for: it says itself why it failed.
const SLACK: Duration = Duration::from_millis(200);
/// And however long it may take: clocks do not reach as far as durations do.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// A connection to one server.
#[derive(Debug)]
pub(crate) struct Connection {
    client: Client,
    connect_timeout: Duration,
    patience: Duration,
    process: Process,
    live: Arc<Mutex<Option<Live>>>,
    /// The latest attempt to connect, so that a hundred callers make one connection.
    connecting: Mutex<Connecting>,
}

/// Which of a client's connections to one server: each is greater than those before it.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Generation(pub(super) u64);

/// One attempt after another. Each is a task of its own: one that only its caller drove would hold up
/// everyone when that caller is not polled.
#[derive(Debug, Default)]
struct Connecting {
    generation: Generation,
    attempt: Option<Attempt>,
}

#[derive(Clone, Debug)]
struct Attempt {
    /// How it ended, once it has.
    end: watch::Receiver<Option<Result<(), Failure>>>,
    /// When it has ended, unless its runtime stands still.
    over_at: Instant,
}

#[derive(Clone, Debug)]
struct Live {
    generation: Generation,
    connection: MultiplexedConnection,
    runtime: Handle,
    silence: Arc<Mutex<Silence>>,
}

impl Connection {
    /// A call that is abandoned when the server has been silent for too long costs the connection its
    /// place: the next call makes another.
    pub(crate) fn new(client: Client, connect_timeout: Duration, patience: Duration) -> Self {
        Self {
            client,
            connect_timeout,
            patience,
            process: Process::current(),
            live: Arc::default(),
            connecting: Mutex::default(),
        }
    }

    /// The runtime that this connection lives on, if it is still the one.
    pub(crate) fn runtime_of(&self, generation: Generation) -> Option<Handle> {
        let live = self.lock();
        let live = live.as_ref().filter(|live| live.generation == generation);
        live.map(|live| live.runtime.clone())
    }

    /// Which one it is, if there is one.
    pub(crate) fn generation(&self) -> Option<Generation> {
        self.lock().as_ref().map(|live| live.generation)
    }

    /// This one is of no use any more.
    pub(crate) fn give_up(&self, generation: Generation) {
        bury(&self.live, generation);
    }

    /// Whether the caller is a forked child: its locks may be held by threads it does not have.
    pub(crate) fn is_forked(&self) -> bool {
        self.process.has_forked()
    }

    /// A call that went with others was abandoned after this long. The call they share may never be: what
    /// holds it up may be the runtime it lives on.
    pub(crate) fn doubt(&self, waited: Duration) {
        if self.is_forked() {
            return;
        }
        let Some(live) = self.lock().clone() else {
            return;
        };
        self.judge(&live.silence, live.generation, waited);
    }

    /// Who was abandoned after this long decides whether the next call makes another connection.
    fn judge(&self, silence: &Mutex<Silence>, generation: Generation, waited: Duration) {
        let over = lock(silence).is_too_long(Instant::now(), waited, self.patience);
        if over {
            bury(&self.live, generation);
        }
    }

    /// Makes the connection if there is none.
    pub(crate) async fn ready(&self) -> Result<(), Failure> {
        self.live().await.map(|_| ())
    }

    /// Runs a script, by its hash or, where the server does not know it, by its text.
    pub(crate) async fn run(&self, call: &Call<'_>) -> Result<Value, Failure> {
        self.not_forked(Cause::Unreachable)?;
        let mut live = self.live().await?;
        let wait = Wait::begin(self, &live);
        let mut result = live.connection.send_packed_command(&call.by_hash()).await;
        if let Ok(Value::ServerError(error)) = &result
            && error.kind() == Some(ServerErrorKind::NoScript)
        {
            result = live.connection.send_packed_command(&call.by_text()).await;
        }
        wait.end();
        self.settle(&live, result)
    }

    /// Sends one command.
    pub(crate) async fn send(&self, cmd: &Cmd) -> Result<Value, Failure> {
        self.not_forked(Cause::Unreachable)?;
        let mut live = self.live().await?;
        let wait = Wait::begin(self, &live);
        let result = live.connection.send_packed_command(cmd).await;
        wait.end();
        self.settle(&live, result)
    }

    /// A forked child must neither write to its parent's connection nor read from it.
    fn not_forked(&self, cause: Cause) -> Result<(), Failure> {
        if self.is_forked() {
            return Err(Failure::new(cause, "this process was forked"));
        }
        Ok(())
    }

    fn settle(
        &self,
        live: &Live,
        result: Result<Value, redis::RedisError>,
    ) -> Result<Value, Failure> {
        // Read by a forked child from a connection it shares: the answer was its parent's.
        self.not_forked(Cause::Interrupted)?;
        match result.and_then(Value::extract_error) {
            Ok(value) => Ok(value),
            Err(error) => {
                let io = error.kind() == ErrorKind::Io || error.is_unrecoverable_error();
                let read_only = error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly);
                if io || read_only {
                    bury(&self.live, live.generation);
                }
                Err(failure::of_calling(&error))
            }
        }
    }

    async fn live(&self) -> Result<Live, Failure> {
        loop {
            if let Some(live) = self.lock().clone() {
                return Ok(live);
            }
            let Attempt { mut end, over_at } = self.attempt()?;
            let ended =
                tokio::time::timeout_at(over_at.into(), end.wait_for(Option::is_some)).await;
            match ended.as_ref().map(|end| end.as_deref()) {
                Ok(Ok(Some(Err(failure)))) => return Err(failure.clone()),
                Ok(Err(_)) => return Err(no_runtime()),
                // Connected, or not to be waited for: look again.
                Ok(Ok(Some(Ok(())) | None)) | Err(_) => {}
            }
        }
    }

    /// The attempt under way, or a new one. Ends by itself, after the time-out for connecting at the
    /// latest, or with the runtime it was begun on; if that stands still, it is no longer the one to wait for.
    fn attempt(&self) -> Result<Attempt, Failure> {
        let mut connecting = lock(&self.connecting);
        if let Some(attempt) = &connecting.attempt
            && attempt.end.has_changed().is_ok()
            && attempt.end.borrow().is_none()
            && Instant::now() < attempt.over_at
        {
            return Ok(attempt.clone());
        }
        let runtime = Handle::try_current().map_err(|_| no_runtime())?;
        connecting.generation.0 += 1;
        let generation = connecting.generation;
        // Time-outs of replies are the driver's: it knows the caller's deadline.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(PIPELINE)
            .set_push_sender(self.obituary(generation));
        let (client, live) = (self.client.clone(), self.live.clone());
        let (ended, end) = watch::channel(None);
        let over_at = Instant::now() + self.connect_timeout.min(LONGEST) + SLACK;
        let home = runtime.clone();
        runtime.spawn(async move {
            let made = client
                .get_multiplexed_async_connection_with_config(&config)
                .await;
            let made = made.map_err(|error| failure::of_connecting(&error));
            // The address only: what else it takes to connect is nobody's business.
            let server = client.get_connection_info().addr();
            match &made {
                Ok(_) => tracing::debug!(%server, again = generation.0 > 1, "connected"),
                Err(failure) => tracing::debug!(%server, why = failure.detail, "cannot connect"),
            }
            let result = made.map(|connection| {
                let mut live = lock(&live);
                // One that took so long that another was made meanwhile is not needed.
                if live
                    .as_ref()
                    .is_some_and(|live| live.generation > generation)
                {
                    return;
                }
                *live = Some(Live {
                    generation,
                    connection,
                    runtime: home,
                    silence: Arc::new(Mutex::new(Silence::new(Instant::now()))),
                });
            });
            // Whoever waited may have gone.
            let _ = ended.send(Some(result));
        });
        let attempt = Attempt { end, over_at };
        connecting.attempt = Some(attempt.clone());
        Ok(attempt)
    }

    /// Hears of a connection's death at once, also while nobody uses it: a call that went out on a dead
    /// one would be in doubt for nothing.
    fn obituary(
        &self,
        generation: Generation,
    ) -> impl Fn(PushInfo) -> Result<(), std::convert::Infallible> + Send + Sync + 'static {
        // Weak: the connection's own task keeps this.
        let live = Arc::downgrade(&self.live);
        move |push| {
            if push.kind == PushKind::Disconnection
                && let Some(live) = live.upgrade()
            {
                bury(&live, generation);
            }
            Ok(())
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Live>> {
        lock(&self.live)
    }
}

/// One call that waits for its answer. Dropped without one, it may be the last straw for a connection
/// that has fallen silent; calls under way keep that until they are done.
struct Wait<'a> {
    connection: &'a Connection,
    generation: Generation,
    silence: Arc<Mutex<Silence>>,
    begun: Instant,
    answered: bool,
}

impl<'a> Wait<'a> {
    fn begin(connection: &'a Connection, live: &Live) -> Self {
        let silence = live.silence.clone();
        let begun = Instant::now();
        lock(&silence).asked(begun);
        Self {
            connection,
            generation: live.generation,
            silence,
            begun,
            answered: false,
        }
    }

    fn end(mut self) {
        self.answered = true;
        lock(&self.silence).answered(Instant::now());
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let connection = self.connection;
        if self.answered || connection.is_forked() {
            return;
        }
        let waited = self.begun.elapsed();
        connection.judge(&self.silence, self.generation, waited);
        lock(&self.silence).abandoned();
    }
}

fn no_runtime() -> Failure {
    Failure::new(
        Cause::Unreachable,
        "a Redis connection needs a running tokio runtime",
    )
}

fn bury(live: &Mutex<Option<Live>>, generation: Generation) {
    let mut current = lock(live);
    if current
        .as_ref()
        .is_some_and(|now| now.generation == generation)
    {
        current.take();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
