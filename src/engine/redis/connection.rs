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
use crate::engine::process::Process;
use crate::engine::{Cause, Failure};

/// How many calls may wait to be written; the crate's 50 costs a third of the speed at 4096 callers.
const PIPELINE: usize = 8192;

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

/// One attempt after another. Each is a task of its own: one that only its caller drove would hold up
/// everyone when that caller is not polled.
#[derive(Debug, Default)]
struct Connecting {
    generation: u64,
    attempt: Option<watch::Receiver<Attempt>>,
}

/// How it ended, once it has.
type Attempt = Option<Result<(), Failure>>;

#[derive(Clone, Debug)]
struct Live {
    generation: u64,
    connection: MultiplexedConnection,
    runtime: Handle,
    silence: Arc<Mutex<Silence>>,
}

/// How long a connection that owes answers has given none.
#[derive(Debug)]
struct Silence {
    waiting: u64,
    /// A call has given up since the last answer, so one is still owed.
    abandoned: bool,
    since: Instant,
}

impl Connection {
    /// A call that is abandoned when the server has not said a word for `patience`, and for half of the
    /// time that call has waited, costs the connection its place: the next call makes another. One that
    /// answers, however slowly, is better than none yet.
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

    /// The runtime that the connection lives on, if there is one.
    pub(crate) fn runtime(&self) -> Option<Handle> {
        self.lock().as_ref().map(|live| live.runtime.clone())
    }

    /// Which one it is, if there is one.
    pub(crate) fn generation(&self) -> Option<u64> {
        self.lock().as_ref().map(|live| live.generation)
    }

    /// This one is of no use any more.
    pub(crate) fn give_up(&self, generation: u64) {
        bury(&self.live, generation);
    }

    /// A call that went with others was abandoned. The call they share may never be: what holds it up may
    /// be the runtime it lives on.
    pub(crate) fn doubt(&self, begun: Instant) {
        let waited = begun.elapsed();
        if waited < self.patience {
            return;
        }
        let Some(live) = self.lock().clone() else {
            return;
        };
        let silent = lock(&live.silence).since.elapsed();
        if silent >= self.patience.max(waited / 2) {
            bury(&self.live, live.generation);
        }
    }

    /// Makes the connection if there is none.
    pub(crate) async fn ready(&self) -> Result<(), Failure> {
        self.live().await.map(|_| ())
    }

    /// Runs a script, by its hash or, where the server does not know it, by its text.
    pub(crate) async fn run(&self, call: &Call<'_>) -> Result<Value, Failure> {
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
        let mut live = self.live().await?;
        let wait = Wait::begin(self, &live);
        let result = live.connection.send_packed_command(cmd).await;
        wait.end();
        self.settle(&live, result)
    }

    fn settle(
        &self,
        live: &Live,
        result: Result<Value, redis::RedisError>,
    ) -> Result<Value, Failure> {
        if self.process.has_forked() {
            // Read by a forked child from a connection it shares: the answer was its parent's.
            return Err(Failure::new(Cause::Interrupted, "this process was forked"));
        }
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
            let mut attempt = self.attempt()?;
            let ended = attempt.wait_for(Option::is_some).await;
            match ended.as_deref() {
                Ok(Some(Err(failure))) => return Err(failure.clone()),
                Ok(Some(Ok(())) | None) => {}
                Err(_) => return Err(no_runtime()),
            }
        }
    }

    /// The attempt under way, or a new one. Ends by itself, after the time-out for connecting at the
    /// latest, or with the runtime it was begun on.
    fn attempt(&self) -> Result<watch::Receiver<Attempt>, Failure> {
        let mut connecting = lock(&self.connecting);
        if let Some(attempt) = &connecting.attempt
            && attempt.has_changed().is_ok()
            && attempt.borrow().is_none()
        {
            return Ok(attempt.clone());
        }
        let runtime = Handle::try_current().map_err(|_| no_runtime())?;
        connecting.generation += 1;
        let generation = connecting.generation;
        // Time-outs of replies are the driver's: it knows the caller's deadline.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(PIPELINE)
            .set_push_sender(self.obituary(generation));
        let (client, live) = (self.client.clone(), self.live.clone());
        let (end, attempt) = watch::channel(None);
        let home = runtime.clone();
        runtime.spawn(async move {
            let made = client
                .get_multiplexed_async_connection_with_config(&config)
                .await;
            let made = made.map_err(|error| failure::of_connecting(&error));
            // The address only: what else it takes to connect is nobody's business.
            let server = client.get_connection_info().addr();
            match &made {
                Ok(_) => tracing::debug!(%server, again = generation > 1, "connected"),
                Err(failure) => tracing::debug!(%server, why = failure.detail, "cannot connect"),
            }
            let result = made.map(|connection| {
                *lock(&live) = Some(Live {
                    generation,
                    connection,
                    runtime: home,
                    silence: Arc::new(Mutex::new(Silence {
                        waiting: 0,
                        abandoned: false,
                        since: Instant::now(),
                    })),
                });
            });
            // Whoever waited may have gone.
            let _ = end.send(Some(result));
        });
        connecting.attempt = Some(attempt.clone());
        Ok(attempt)
    }

    /// Hears of a connection's death at once, also while nobody uses it: a call that went out on a dead
    /// one would be in doubt for nothing.
    fn obituary(
        &self,
        generation: u64,
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
    generation: u64,
    silence: Arc<Mutex<Silence>>,
    begun: Instant,
    answered: bool,
}

impl<'a> Wait<'a> {
    fn begin(connection: &'a Connection, live: &Live) -> Self {
        let silence = live.silence.clone();
        let begun = Instant::now();
        {
            let mut silence = lock(&silence);
            if silence.waiting == 0 && !silence.abandoned {
                silence.since = begun;
            }
            silence.waiting += 1;
        }
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
        let mut silence = lock(&self.silence);
        silence.waiting -= 1;
        // Answers come in order: whatever was owed before has come, too.
        silence.abandoned = false;
        silence.since = Instant::now();
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let mut silence = lock(&self.silence);
        silence.waiting -= 1;
        silence.abandoned = true;
        let too_long = self.connection.patience.max(self.begun.elapsed() / 2);
        if silence.since.elapsed() >= too_long {
            bury(&self.connection.live, self.generation);
        }
    }
}

fn no_runtime() -> Failure {
    Failure::new(
        Cause::Unreachable,
        "a Redis connection needs a running tokio runtime",
    )
}

fn bury(live: &Mutex<Option<Live>>, generation: u64) {
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
