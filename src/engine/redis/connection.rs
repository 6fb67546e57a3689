//! One multiplexed connection that is made when it is needed and replaced when it has failed.
//!
//! The crate's own connection manager retries behind our back (nine seconds in an outage, measured);
//! here a call either goes out on a live connection or fails at once, and the caller's deadline rules.

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
mod send;
mod server;
mod uptime;
mod wait;
mod work;

use self::current::Current;
use self::server::Server;
pub(crate) use self::server::Terms;
use self::uptime::Started;
use self::wait::Wait;
use self::work::{Answers, Work};
use super::assurance::{Ran, Said};
use super::door::{self, Begun, Door, Opened};
use super::failure;
use super::sentinel::{Follower, Stay};
use super::silence::Silence;
use crate::engine::in_process;
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
    door: Door,
    patience: Duration,
    process: Process,
    current: Arc<Current>,
    terms: Terms,
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
    /// Until when it leads to the right server.
    stay: Stay,
    _follower: Option<Arc<Follower>>,
    runtime: Handle,
    silence: Arc<Mutex<Silence>>,
    started: Arc<Started>,
    server: Arc<Server>,
}

impl Connection {
    /// A call that is abandoned when the server has been silent for too long costs the connection its
    /// place: the next call makes another.
    pub(crate) fn new(door: Door, patience: Duration, terms: Terms) -> Self {
        Self {
            door,
            patience,
            process: Process::current(),
            current: Arc::default(),
            terms,
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
        self.current.bury(generation);
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
            self.current.bury(generation);
        }
    }

    /// Resolves when there is none.
    pub(crate) async fn gone(&self) {
        self.current.emptied().await;
    }

    /// Makes the connection if there is none.
    pub(crate) async fn ready(&self) -> Result<(), Failure> {
        let begun = Begun::now();
        loop {
            match self.live().await {
                Ok(_) => return Ok(()),
                Err(failure) if self.door.may_try_again(&failure, &begun).await => {}
                Err(failure) => return Err(self.door.in_the_end(failure)),
            }
        }
    }

    /// Where the master may have moved, what has certainly done nothing is tried again. Whoever asked decides for how
    /// long at most, by letting go of this.
    async fn carry_out(&self, work: &Work<'_>) -> Result<Ran, Failure> {
        self.not_forked(Cause::Unreachable)?;
        if !self.door.can_move() {
            let outcome = self.attempt_at(work).await;
            return outcome.map_err(|failure| self.door.in_the_end(failure));
        }
        let begun = Begun::now();
        loop {
            match self.attempt_at(work).await {
                Err(failure) if Box::pin(self.door.may_try_again(&failure, &begun)).await => {
                    self.not_forked(Cause::Unreachable)?;
                }
                outcome => return outcome.map_err(|failure| self.door.in_the_end(failure)),
            }
        }
    }

    async fn attempt_at(&self, work: &Work<'_>) -> Result<Ran, Failure> {
        let mut live = self.live().await?;
        if work.takes()
            && let Some(left) = live.server.held_back()
        {
            return Ok(Ran::HeldBack(left));
        }
        let assurance = &self.terms.assurance;
        let wait = Wait::begin(self, &live);
        let mut stay = live.stay.clone();
        let result = tokio::select! {
            biased;
            result = work.send(&mut live.connection, assurance, &live.server) => result,
            () = stay.over() => {
                self.current.bury(live.generation);
                return Err(door::left());
            }
        };
        wait.end();
        let (first, behind) = match result {
            Ok(Answers { first, behind }) => (Ok(first), behind),
            Err(error) => (Err(error), Vec::new()),
        };
        let value = match (work, first) {
            // Each error is the caller's.
            (Work::Commands(_), Ok(answers)) => {
                self.not_forked(Cause::Interrupted)?;
                answers
            }
            (_, first) => self.settle(&live, first)?,
        };
        if work.has_item_results()
            && self.door.can_move()
            && let Some(failure) = failure::of_read_only(&value)
        {
            self.left(&live);
            return Err(failure);
        }
        let kept = assurance.kept(behind, live.server.identity.as_ref());
        if kept.is_anothers() {
            self.left(&live);
        }
        Ok(Ran::Said(Said { value, kept }))
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
                let failure = failure::of_calling(&error);
                if io || failure::is_read_only(&failure) {
                    self.left(live);
                }
                Err(failure)
            }
        }
    }

    fn left(&self, live: &Live) {
        self.current.bury(live.generation);
        self.door.look();
    }

    async fn live(&self) -> Result<Live, Failure> {
        loop {
            if let Some(live) = self.lock().clone() {
                return Ok(live);
            }
            let Attempt { mut end, over_at } = self.attempt()?;
            let ended = tokio::time::timeout_at(over_at, end.wait_for(Option::is_some)).await;
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
            .set_response_timeout(None)
            .set_pipeline_buffer_size(PIPELINE)
            .set_push_sender(self.obituary(generation));
        let (door, current, terms) = (self.door.clone(), self.current.clone(), self.terms.clone());
        let (ended, end) = watch::channel(None);
        let met_by = Instant::now() + self.door.connect_timeout().min(LONGEST) + SLACK / 2;
        let over_at = met_by + SLACK / 2;
        let home = runtime.clone();
        runtime.spawn(in_process(async move {
            let made = door.open(config).await;
            let server = door.server();
            let failure = made.as_ref().err().map(|failure| failure.detail.clone());
            terms.events.emit(Level::DEBUG, move || match failure {
                None => tracing::debug!(%server, again = generation.0 > 1, "connected"),
                Some(why) => tracing::debug!(%server, why, "cannot connect"),
            });
            let met = match made {
                Ok(mut opened) => {
                    let server = terms.meet(&mut opened.connection, met_by).await;
                    server.map(|server| (opened, Arc::new(server)))
                }
                Err(failure) => Err(failure),
            };
            let result = met.and_then(|(Opened { connection, stay }, server)| {
                let mine = Arc::downgrade(&current);
                current.keep(generation, || {
                    // Also while nobody uses it. It waits for the lock of `current` if it comes at once.
                    let follower = stay.follow(move || {
                        if let Some(current) = mine.upgrade() {
                            current.bury(generation);
                        }
                    });
                    Live {
                        generation,
                        connection,
                        stay,
                        _follower: follower.map(Arc::new),
                        runtime: home,
                        silence: Arc::new(Mutex::new(Silence::new(Instant::now()))),
                        started: Arc::new(Started::new(Instant::now())),
                        server,
                    }
                })
            });
            // Whoever waited may have gone.
            let _ = ended.send(Some(result));
        }));
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
        let current = Arc::downgrade(&self.current);
        move |push| {
            if push.kind == PushKind::Disconnection
                && let Some(current) = current.upgrade()
            {
                current.bury(generation);
            }
            Ok(())
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Live>> {
        self.current.lock()
    }
}

fn no_runtime() -> Failure {
    Failure::new(
        Cause::Unreachable,
        "a Redis connection needs a running tokio runtime",
    )
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
