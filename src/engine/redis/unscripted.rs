//! For servers that forbid scripts: what a request does is decided here, by the rules that memory goes by.
//!
//! Each request is read under WATCH and written by MULTI and EXEC, which do nothing if the lock or its marks have changed
//! in between; then it is read again. So a request that is held up somewhere is as harmless as one that was undone in time.
//! One connection carries out one request at a time: it costs two round trips instead of one, and nobody travels together.

#![expect(
    clippy::disallowed_methods,
    reason = "an engine's own task keeps its own time"
)]

use std::pin::Pin;
use std::time::Duration;

use redis::aio::ConnectionLike as _;
use redis::{AsyncConnectionConfig, Pipeline, ServerErrorKind, Value};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use self::reading::Reading;
use super::door::{self, Begun, Door, Opened};
use super::failure;
use super::keys::Keys;
use super::settings::Settings;
use crate::engine::events::Events;
use crate::engine::in_process;
use crate::engine::supervise::{Restarts, caught};
use crate::engine::{self, Cause, Failure};
use crate::protocol::{Reply, Request};

mod reading;
mod writing;

type Answer = Result<Reply, Failure>;

/// Who waits for the answers on a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum WaitedFor {
    /// Callers, who may lose interest at any time: that says nothing about the connection.
    ByCallers,
    /// The driver alone, which gives up only what took too long: another connection may do.
    ByTheDriver,
}

/// A connection without scripts.
#[derive(Debug)]
pub(super) struct Unscripted {
    orders: mpsc::UnboundedSender<Order>,
}

#[derive(Debug)]
struct Order {
    request: Request,
    answer: oneshot::Sender<Answer>,
}

impl Unscripted {
    /// Starts the task on `runtime`; it ends when this is dropped.
    pub(super) fn start(
        door: Door,
        keys: Keys,
        settings: &Settings,
        waited_for: WaitedFor,
        runtime: &Handle,
    ) -> Self {
        let (orders, inbox) = mpsc::unbounded_channel();
        let task = Task {
            door,
            keys,
            waited_for,
            command_timeout: settings.command_timeout,
            events: settings.events.clone(),
            connection: None,
            connecting: None,
        };
        runtime.spawn(in_process(task.run(inbox)));
        Self { orders }
    }

    /// Carries out a request. Dropping this leaves open whether it was.
    pub(super) fn call(&self, request: Request) -> engine::Answer<Answer> {
        if request.subject.kind.needs_scripts() {
            let why = "this kind of lock needs scripts, which the address turns off (scripts=off)";
            return Box::pin(async move { Err(Failure::new(Cause::Denied, why)) });
        }
        let (answer, outcome) = oneshot::channel();
        // If nobody is there to obey it, that is heard below.
        let _ = self.orders.send(Order { request, answer });
        Box::pin(async move {
            let gone = || {
                // It may have been under way when its task panicked.
                let why = "the request was given up";
                Err(Failure::new(Cause::Interrupted, why))
            };
            outcome.await.unwrap_or_else(|_| gone())
        })
    }
}

impl Unscripted {
    /// Carries out several, one after the other.
    pub(super) fn call_all(&self, requests: Vec<Request>) -> engine::Answer<Vec<Answer>> {
        let answers = requests.into_iter().map(|request| self.call(request));
        let answers: Vec<_> = answers.collect();
        Box::pin(async move {
            let mut all = Vec::with_capacity(answers.len());
            for answer in answers {
                all.push(answer.await);
            }
            all
        })
    }
}

struct Task {
    door: Door,
    keys: Keys,
    waited_for: WaitedFor,
    command_timeout: Duration,
    events: Events,
    connection: Option<Opened>,
    /// How one is made, while there is none. It may take longer than any request is waited for, so it outlives those that
    /// are given up meanwhile.
    connecting: Option<Connecting>,
}

type Connecting = Pin<Box<dyn Future<Output = Result<Opened, Failure>> + Send>>;

impl Task {
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Order>) {
        let events = self.events.clone();
        let mut restarts = Restarts::of("transactions", &events);
        while let Err(panicked) = caught(self.work(&mut inbox)).await {
            restarts.after(panicked).await;
            // What was under way on it may be half done.
            (self.connection, self.connecting) = (None, None);
        }
    }

    async fn work(&mut self, inbox: &mut mpsc::UnboundedReceiver<Order>) {
        let by_the_driver = self.waited_for == WaitedFor::ByTheDriver;
        while let Some(Order {
            request,
            mut answer,
        }) = self.next(inbox).await
        {
            // Whoever has gone has undone it already.
            if answer.is_closed() {
                continue;
            }
            tokio::select! {
                biased;
                outcome = self.carry_out(&request) => {
                    let _ = answer.send(outcome);
                }
                // What is under way goes, and its connection with it. The next request is not to spend its time on making one.
                () = answer.closed(), if by_the_driver => {
                    if self.connection.is_none() {
                        self.connecting();
                    }
                }
            }
        }
    }

    /// The next order. A server that is no longer the one to be at is left meanwhile, and a connection made that was begun.
    async fn next(&mut self, inbox: &mut mpsc::UnboundedReceiver<Order>) -> Option<Order> {
        loop {
            let over = async {
                match &mut self.connection {
                    Some(Opened { stay, .. }) => stay.over().await,
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
                order = inbox.recv() => return order,
            }
        }
    }

    async fn carry_out(&mut self, request: &Request) -> Answer {
        let begun = Begun::now();
        loop {
            match self.attempt(request).await {
                Err(failure) if self.door.may_try_again(&failure, &begun).await => {}
                outcome => return outcome.map_err(|failure| self.door.in_the_end(failure)),
            }
        }
    }

    async fn attempt(&mut self, request: &Request) -> Answer {
        let begun = Instant::now();
        while begun.elapsed() < self.command_timeout {
            let reading = Reading::new(request, &self.keys);
            let answers = self.send(reading.commands()).await?;
            let (outcome, writing) = reading.decide(answers)?;
            let Some(writing) = writing else {
                return outcome;
            };
            let answers = self.send(writing.commands()).await?;
            if let Some(reply) = writing.done(outcome, answers)? {
                return Ok(reply);
            }
        }
        let why = "others have changed the lock each time before it could be written";
        Err(Failure::new(Cause::Unready, why))
    }

    /// Sends some commands, each with its own answer. A connection that fails is given up: what it watches, and what it has
    /// still to do, nobody knows. So is one to a server that may not be written to: another may lead to the new master.
    async fn send(&mut self, commands: &Pipeline) -> Result<Vec<Value>, Failure> {
        let Opened {
            mut connection,
            mut stay,
        } = match self.connection.take() {
            Some(opened) => opened,
            None => self.connect().await?,
        };
        let count = commands.len();
        let sent = connection.req_packed_commands(commands, 0, count);
        let answers = tokio::select! {
            biased;
            answers = timeout(self.command_timeout, sent) => answers,
            () = stay.over() => return Err(door::left()),
        };
        let answers = match answers {
            Ok(answers) => answers.map_err(|error| failure::of_calling(&error))?,
            Err(_) => return Err(Failure::new(Cause::TimedOut, "no answer in time")),
        };
        if !answers.iter().any(is_read_only) {
            self.connection = Some(Opened { connection, stay });
        }
        Ok(answers)
    }

    async fn connect(&mut self) -> Result<Opened, Failure> {
        let made = self.connecting().await;
        self.connecting = None;
        made
    }

    /// The attempt under way, or a new one.
    fn connecting(&mut self) -> &mut Connecting {
        self.connecting.get_or_insert_with(|| {
            let door = self.door.clone();
            let config = AsyncConnectionConfig::new().set_response_timeout(None);
            Box::pin(async move { door.open(config).await })
        })
    }
}

fn is_read_only(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::ReadOnly))
}
