//! One connection that listens, for all names of a client.
//!
//! A task of its own owns the connection and the list of channels; it ends when the engine goes. It
//! is apart from the commands so that a listener kicked out by the server costs no command its reply.
//! After a reconnect every listener is told: a message may have been missed meanwhile.

#![expect(
    clippy::disallowed_methods,
    reason = "an engine's own task keeps its own time"
)]

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, PushInfo, PushKind, Value};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use super::failure;
use crate::engine::{Cause, Ear, Failure, Listener};

/// Between attempts to connect again.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The engine's end of the listening task.
#[derive(Debug)]
pub(crate) struct PubSub {
    orders: mpsc::UnboundedSender<Order>,
}

#[derive(Debug)]
enum Order {
    Listen {
        channel: String,
        ear: Weak<Ear>,
        ready: oneshot::Sender<Result<(), Failure>>,
    },
    Leave {
        channel: String,
        ear: Weak<Ear>,
    },
}

impl PubSub {
    /// Starts the task on `runtime`; it connects when there is something to listen to.
    pub(crate) fn start(client: Client, timeout: Duration, runtime: &Handle) -> Self {
        let (orders, inbox) = mpsc::unbounded_channel();
        let (pushes, news) = mpsc::unbounded_channel();
        let task = Task {
            client,
            timeout,
            inbox,
            pushes,
            news,
            connection: None,
            channels: HashMap::new(),
        };
        // Ends by itself when the last `PubSub` is dropped and the inbox closes.
        runtime.spawn(task.run());
        Self { orders }
    }

    /// Listens to a channel; resolves when the server has confirmed it.
    pub(crate) async fn listen(&self, channel: String) -> Result<Listener, Failure> {
        let ear = Arc::new(Ear::default());
        let (ready, confirmed) = oneshot::channel();
        let order = Order::Listen {
            channel: channel.clone(),
            ear: Arc::downgrade(&ear),
            ready,
        };
        let gone = || Failure::new(Cause::Unreachable, "the listening task has ended");
        self.orders.send(order).map_err(|_| gone())?;
        // Made before the wait: dropping this future must leave the channel, too.
        let orders = self.orders.clone();
        let gone_ear = Arc::downgrade(&ear);
        let listener = Listener::new(ear, move || {
            // Nobody left to tell means nothing left to leave.
            let ear = gone_ear;
            let _ = orders.send(Order::Leave { channel, ear });
        });
        confirmed.await.map_err(|_| gone())??;
        Ok(listener)
    }
}

struct Task {
    client: Client,
    timeout: Duration,
    inbox: mpsc::UnboundedReceiver<Order>,
    pushes: mpsc::UnboundedSender<PushInfo>,
    news: mpsc::UnboundedReceiver<PushInfo>,
    connection: Option<MultiplexedConnection>,
    channels: HashMap<String, Vec<Weak<Ear>>>,
}

impl Task {
    async fn run(mut self) {
        loop {
            if self.connection.is_none() && !self.channels.is_empty() {
                self.reconnect().await;
            }
            tokio::select! {
                order = self.inbox.recv() => match order {
                    Some(order) => self.obey(order).await,
                    None => return,
                },
                Some(push) = self.news.recv() => match push.kind {
                    PushKind::Message => self.pass_on(&push.data),
                    PushKind::Disconnection => self.connection = None,
                    _ => {}
                },
            }
        }
    }

    /// Carries out this order and all that have come meanwhile, in one command of each sort.
    async fn obey(&mut self, first: Order) {
        let mut waiting = Vec::new();
        let mut wanted = Vec::new();
        let mut order = Some(first);
        while let Some(next) = order {
            match next {
                Order::Listen {
                    channel,
                    ear,
                    ready,
                } => {
                    let ears = self.channels.entry(channel.clone()).or_default();
                    if ears.is_empty() {
                        wanted.push(channel.clone());
                    }
                    ears.push(ear);
                    waiting.push((channel, ready));
                }
                Order::Leave { channel, ear } => self.leave(channel, &ear, &mut wanted).await,
            }
            order = self.inbox.try_recv().ok();
        }
        let mut failed = HashMap::new();
        if let Err(failure) = self.subscribe(&wanted).await {
            // One refused channel refuses them all: ask for each alone, to blame the right one.
            let alone = failure.cause == Cause::Denied && wanted.len() > 1;
            for channel in wanted {
                let verdict = if alone {
                    self.subscribe(std::slice::from_ref(&channel)).await
                } else {
                    Err(failure.clone())
                };
                if let Err(failure) = verdict {
                    self.channels.remove(&channel);
                    failed.insert(channel, failure);
                }
            }
        }
        for (channel, ready) in waiting {
            // A waiter that has gone has sent a `Leave` behind this.
            let _ = ready.send(failed.get(&channel).cloned().map_or(Ok(()), Err));
        }
    }

    async fn leave(&mut self, channel: String, ear: &Weak<Ear>, wanted: &mut Vec<String>) {
        let Some(ears) = self.channels.get_mut(&channel) else {
            return;
        };
        // By name, not by whether it is still alive: the listener that sends this is about to go.
        ears.retain(|known| !known.ptr_eq(ear));
        if !ears.is_empty() {
            return;
        }
        self.channels.remove(&channel);
        if let Some(asked) = wanted.iter().position(|name| *name == channel) {
            wanted.swap_remove(asked);
        } else if let Some(connection) = &mut self.connection
            && tokio::time::timeout(self.timeout, connection.unsubscribe(&channel))
                .await
                .is_err()
        {
            self.connection = None;
        }
    }

    async fn subscribe(&mut self, channels: &[String]) -> Result<(), Failure> {
        if channels.is_empty() {
            return Ok(());
        }
        let fresh = self.connection.is_none();
        if fresh {
            self.connect().await?;
            // All of them: a new connection listens to nothing yet.
            let all: Vec<String> = self.channels.keys().cloned().collect();
            return self.send_subscribe(&all).await;
        }
        self.send_subscribe(channels).await
    }

    async fn send_subscribe(&mut self, channels: &[String]) -> Result<(), Failure> {
        let Some(connection) = &mut self.connection else {
            return Err(Failure::new(Cause::Unreachable, "not connected"));
        };
        if channels.is_empty() {
            return Ok(());
        }
        let failure = match tokio::time::timeout(self.timeout, connection.subscribe(channels)).await
        {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => failure::of_calling(&error),
            Err(_) => Failure::new(Cause::TimedOut, "no confirmation of a subscription in time"),
        };
        if failure.cause != Cause::Denied {
            self.connection = None;
        }
        Err(failure)
    }

    async fn connect(&mut self) -> Result<(), Failure> {
        // A message of the old connection would be taken for the new one's end.
        let (pushes, news) = mpsc::unbounded_channel();
        self.pushes = pushes;
        self.news = news;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(None)
            .set_push_sender(self.pushes.clone());
        let connection = self
            .client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(|error| failure::of_connecting(&error))?;
        self.connection = Some(connection);
        Ok(())
    }

    /// Until it works or nobody listens any more; then everyone is told to look for themselves.
    async fn reconnect(&mut self) {
        self.all_ears(|ear| ear.set_deaf(true));
        let mut pause = PAUSE;
        while !self.channels.is_empty() {
            let all: Vec<String> = self.channels.keys().cloned().collect();
            match self.subscribe(&all).await {
                Ok(()) => break,
                Err(failure) if failure.cause == Cause::Denied => self.drop_denied(all).await,
                Err(_) => {}
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
                order = self.inbox.recv() => match order {
                    Some(order) => Box::pin(self.obey_deaf(order)).await,
                    None => return,
                },
            }
        }
        self.all_ears(|ear| {
            ear.set_deaf(false);
            ear.tell();
        });
    }

    /// One refused channel refuses them all: those who listen to it are told to look for themselves, and
    /// hear the reason when they listen anew.
    async fn drop_denied(&mut self, all: Vec<String>) {
        for channel in all {
            let refused = self.send_subscribe(std::slice::from_ref(&channel)).await;
            if refused.is_err_and(|failure| failure.cause == Cause::Denied) {
                for ear in self.channels.remove(&channel).into_iter().flatten() {
                    if let Some(ear) = ear.upgrade() {
                        ear.dismiss();
                    }
                }
            }
        }
    }

    /// While there is no connection: newcomers are turned away at once, so that they poll meanwhile.
    async fn obey_deaf(&mut self, order: Order) {
        match order {
            Order::Listen { ready, .. } => {
                let _ = ready.send(Err(Failure::new(
                    Cause::Unreachable,
                    "the listening connection is being made anew",
                )));
            }
            Order::Leave { channel, ear } => self.leave(channel, &ear, &mut Vec::new()).await,
        }
    }

    fn pass_on(&self, data: &[Value]) {
        let Some(Value::BulkString(channel)) = data.first() else {
            return;
        };
        let channel = String::from_utf8_lossy(channel);
        for ear in self.channels.get(&*channel).into_iter().flatten() {
            if let Some(ear) = ear.upgrade() {
                ear.tell();
            }
        }
    }

    fn all_ears(&self, tell: impl Fn(&Ear)) {
        for ear in self.channels.values().flatten().filter_map(Weak::upgrade) {
            tell(&ear);
        }
    }
}
