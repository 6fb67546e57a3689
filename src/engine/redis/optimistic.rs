//! Optimistic transactions (WATCH/MULTI) for servers that forbid scripts: requests are decided here, by the rules of
//! `memory:`.
//!
//! Each request is read under WATCH and written by MULTI and EXEC, which do nothing if the lock or its tombstones have
//! changed in between; then it is read again. So a request that is delayed somewhere is as harmless as one that was
//! undone in time. One connection carries out one request at a time: that costs two round trips instead of one, and
//! nothing is batched.

#![expect(
    clippy::disallowed_methods,
    reason = "the engine owns this task and its timers"
)]

use std::pin::Pin;
use std::time::Duration;

use redis::aio::ConnectionLike as _;
use redis::{AsyncConnectionConfig, Pipeline, ServerErrorKind, Value};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use self::read_phase::ReadPhase;
use super::call_priority::CallPriority;
use super::connector::{self, CallStart, Connector, NewConnection};
use super::failure;
use super::keys::Keys;
use super::settings::RedisSettings;
use crate::engine::events::Events;
use crate::engine::supervise::{Restarts, catch_panic};
use crate::engine::tag_simulated_process;
use crate::engine::{self, StoreError, StoreErrorKind};
use crate::protocol::{Reply, Request};

mod read_phase;
mod write_plan;

type OptimisticResult = Result<Reply, StoreError>;

/// A connection that carries out requests without scripts.
#[derive(Debug)]
pub(super) struct OptimisticCalls {
    calls: mpsc::UnboundedSender<OptimisticCall>,
}

#[derive(Debug)]
struct OptimisticCall {
    request: Request,
    reply_to: oneshot::Sender<OptimisticResult>,
}

impl OptimisticCalls {
    /// Starts the task on `runtime`; it ends when this is dropped.
    pub(super) fn start(
        connector: Connector,
        keys: Keys,
        settings: &RedisSettings,
        priority: CallPriority,
        runtime: &Handle,
    ) -> Self {
        let (calls, inbox) = mpsc::unbounded_channel();
        let task = OptimisticTask {
            connector,
            keys,
            priority,
            command_timeout: settings.command_timeout,
            events: settings.events.clone(),
            connection: None,
            connecting: None,
        };
        runtime.spawn(tag_simulated_process(task.run(inbox)));
        Self { calls }
    }

    /// Carries out a request. If the future is dropped, the request may or may not be carried out.
    pub(super) fn call(&self, request: Request) -> engine::BoxFuture<OptimisticResult> {
        if request.subject.kind.needs_scripts() {
            let why = "this kind of lock needs scripts, which the url turns off (scripts=off)";
            return Box::pin(async move { Err(StoreError::new(StoreErrorKind::Denied, why)) });
        }
        let (reply_to, outcome) = oneshot::channel();
        // If the task has ended, the reply channel reports that below.
        let _ = self.calls.send(OptimisticCall { request, reply_to });
        Box::pin(async move {
            let interrupted = || {
                // The request may have been in flight when the task panicked.
                let why = "the request was interrupted";
                Err(StoreError::new(StoreErrorKind::Interrupted, why))
            };
            outcome.await.unwrap_or_else(|_| interrupted())
        })
    }
}

impl OptimisticCalls {
    /// Carries out several requests, one after the other.
    pub(super) fn call_all(
        &self,
        requests: Vec<Request>,
    ) -> engine::BoxFuture<Vec<OptimisticResult>> {
        let calls = requests.into_iter().map(|request| self.call(request));
        let calls: Vec<_> = calls.collect();
        Box::pin(async move {
            let mut all = Vec::with_capacity(calls.len());
            for call in calls {
                all.push(call.await);
            }
            all
        })
    }
}

struct OptimisticTask {
    connector: Connector,
    keys: Keys,
    priority: CallPriority,
    command_timeout: Duration,
    events: Events,
    connection: Option<NewConnection>,
    /// The attempt to connect, while there is no connection. It may take longer than any request waits, so it outlives
    /// requests that are given up in the meantime.
    connecting: Option<ConnectFuture>,
}

type ConnectFuture = Pin<Box<dyn Future<Output = Result<NewConnection, StoreError>> + Send>>;

impl OptimisticTask {
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<OptimisticCall>) {
        let events = self.events.clone();
        let mut restarts = Restarts::new("transactions", &events);
        while let Err(panicked) = catch_panic(self.work(&mut inbox)).await {
            restarts.report_and_wait(panicked).await;
            // A transaction may be half done on the connection.
            (self.connection, self.connecting) = (None, None);
        }
    }

    async fn work(&mut self, inbox: &mut mpsc::UnboundedReceiver<OptimisticCall>) {
        let is_background = self.priority == CallPriority::Background;
        while let Some(OptimisticCall {
            request,
            mut reply_to,
        }) = self.next(inbox).await
        {
            // The request of a caller that has gone is undone already.
            if reply_to.is_closed() {
                continue;
            }
            tokio::select! {
                biased;
                outcome = self.execute(&request) => {
                    let _ = reply_to.send(outcome);
                }
                // The request in flight is dropped, and its connection with it. The next request must not spend its
                // time on making one.
                () = reply_to.closed(), if is_background => {
                    if self.connection.is_none() {
                        self.connecting();
                    }
                }
            }
        }
    }

    /// Returns the next call. In the meantime, leaves a server that is no longer the master, and completes an attempt
    /// to connect.
    async fn next(
        &mut self,
        inbox: &mut mpsc::UnboundedReceiver<OptimisticCall>,
    ) -> Option<OptimisticCall> {
        loop {
            let over = async {
                match &mut self.connection {
                    Some(NewConnection { master_term, .. }) => master_term.changed().await,
                    None => std::future::pending().await,
                }
            };
            let made = async {
                match &mut self.connecting {
                    Some(connecting) => connecting.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = over => self.connection = None,
                made = made => {
                    self.connecting = None;
                    // The next request finds out for itself what is wrong.
                    self.connection = made.ok();
                }
                call = inbox.recv() => return call,
            }
        }
    }

    async fn execute(&mut self, request: &Request) -> OptimisticResult {
        let begun = CallStart::now();
        loop {
            match self.attempt(request).await {
                Err(failure) if self.connector.wait_to_retry(&failure, &begun).await => {}
                outcome => return outcome.map_err(|failure| self.connector.final_error(failure)),
            }
        }
    }

    async fn attempt(&mut self, request: &Request) -> OptimisticResult {
        let begun = Instant::now();
        while begun.elapsed() < self.command_timeout {
            let read_phase = ReadPhase::new(request, &self.keys);
            let replies = self.send(read_phase.commands()).await?;
            let (outcome, write_plan) = read_phase.decide(replies)?;
            let Some(write_plan) = write_plan else {
                return outcome;
            };
            let replies = self.send(write_plan.commands()).await?;
            if let Some(reply) = write_plan.interpret(outcome, replies)? {
                return Ok(reply);
            }
        }
        let why = "other clients changed the lock before each attempt to write it";
        Err(StoreError::new(StoreErrorKind::NotReady, why))
    }

    /// Sends some commands, each with a reply of its own. A connection that fails is given up: it is unknown which keys
    /// it watches, and which commands it has still to run. A connection to a read-only server is given up, too: another
    /// may lead to the new master.
    async fn send(&mut self, commands: &Pipeline) -> Result<Vec<Value>, StoreError> {
        let NewConnection {
            mut connection,
            mut master_term,
        } = match self.connection.take() {
            Some(opened) => opened,
            None => self.connect().await?,
        };
        let count = commands.len();
        let sent = connection.req_packed_commands(commands, 0, count);
        let replies = tokio::select! {
            biased;
            replies = timeout(self.command_timeout, sent) => replies,
            () = master_term.changed() => return Err(connector::master_changed()),
        };
        let replies = match replies {
            Ok(replies) => replies.map_err(|error| failure::from_call_error(&error))?,
            Err(_) => {
                return Err(StoreError::new(
                    StoreErrorKind::TimedOut,
                    "no reply in time",
                ));
            }
        };
        if !replies.iter().any(is_read_only) {
            self.connection = Some(NewConnection {
                connection,
                master_term,
            });
        }
        Ok(replies)
    }

    async fn connect(&mut self) -> Result<NewConnection, StoreError> {
        let made = self.connecting().await;
        self.connecting = None;
        made
    }

    /// Returns the attempt in progress, or starts a new one.
    fn connecting(&mut self) -> &mut ConnectFuture {
        self.connecting.get_or_insert_with(|| {
            let connector = self.connector.clone();
            let config = AsyncConnectionConfig::new().set_response_timeout(None);
            Box::pin(async move { connector.open(config).await })
        })
    }
}

fn is_read_only(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::ReadOnly))
}
