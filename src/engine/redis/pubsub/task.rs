//! The pub/sub task, which owns the connection.
//!
//! The task waits for the next event of any sort: connecting, subscribing and unsubscribing run beside it, so that a
//! slow operation delays no message to the existing subscribers. Each channel has one operation at a time, whose reply
//! decides what comes next ([`Phase`]).

#![expect(
    clippy::disallowed_methods,
    reason = "the engine owns this task and its timers"
)]

use std::collections::HashMap;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, PushKind, RedisResult, Value};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Level;

use super::subscription::{ChannelSubscription, Phase, transition};
use super::{ChannelFilter, PubSubCommand};
use crate::engine::events::Events;
use crate::engine::redis::backoff::{INITIAL_BACKOFF, MAX_BACKOFF, jittered};
use crate::engine::redis::connector::{Connector, NewConnection};
use crate::engine::redis::failure;
use crate::engine::redis::pubsub_mode::PubSubMode;
use crate::engine::redis::sentinel::MasterTerm;
use crate::engine::redis::settings::RedisSettings;
use crate::engine::supervise::{Restarts, catch_panic};
use crate::engine::tag_simulated_process;
use crate::engine::{StoreError, StoreErrorKind};

pub(super) struct PubSubTask {
    connector: Connector,
    pubsub_mode: PubSubMode,
    command_timeout: Duration,
    events: Events,
    inbox: mpsc::UnboundedReceiver<PubSubCommand>,
    channels: HashMap<String, ChannelSubscription>,
    link: Link,
    /// Operations that run beside the task, on this connection or for the next; they end with the connection or the
    /// task.
    in_flight: JoinSet<PubSubEvent>,
    /// Maximum time from the next attempt to connect to the one after it.
    backoff: Duration,
    /// When the next attempt may be made.
    not_before: Instant,
}

enum Link {
    Connecting,
    /// There is no connection, for this reason; another attempt follows the backoff.
    Down(StoreError),
    /// No subscriber has needed a connection yet, or none since the last one ended.
    Idle,
    Up {
        connection: MultiplexedConnection,
        pushes: PushReceiver,
        /// Ends the link when the server is no longer the master: such a server sends no notifications.
        master_term: MasterTerm,
    },
}

type PushReceiver = mpsc::UnboundedReceiver<PushInfo>;

/// The end of an operation.
enum PubSubEvent {
    Connected(Result<(NewConnection, PushReceiver), StoreError>),
    Unsubscribed(Vec<String>, Result<(), StoreError>),
    Subscribed(Vec<String>, Result<(), StoreError>),
}

impl PubSubTask {
    pub(super) fn new(
        connector: Connector,
        settings: &RedisSettings,
        inbox: mpsc::UnboundedReceiver<PubSubCommand>,
    ) -> Self {
        Self {
            connector,
            pubsub_mode: settings.pubsub_mode(),
            command_timeout: settings.command_timeout,
            events: settings.events.clone(),
            inbox,
            channels: HashMap::new(),
            link: Link::Idle,
            in_flight: JoinSet::new(),
            backoff: INITIAL_BACKOFF,
            not_before: Instant::now(),
        }
    }

    pub(super) async fn run(mut self) {
        let events = self.events.clone();
        let mut restarts = Restarts::new("subscriptions", &events);
        while let Err(panicked) = catch_panic(self.work()).await {
            restarts.report_and_wait(panicked).await;
            // Subscribers poll meanwhile, and are notified once they are subscribed again.
            let why = "the subscriber task was restarted";
            self.on_disconnected(StoreError::new(StoreErrorKind::Unreachable, why));
        }
    }

    async fn work(&mut self) {
        loop {
            let backoff = tokio::time::sleep_until(self.not_before);
            tokio::select! {
                command = self.inbox.recv() => match command {
                    Some(command) => self.on_command(command),
                    None => return,
                },
                push = self.link.next_push() => self.on_push(push),
                Some(Ok(done)) = self.in_flight.join_next() => self.on_done(done),
                () = backoff, if matches!(self.link, Link::Down(_)) => self.connect(),
            }
        }
    }

    /// Carries out this command and all that have arrived in the meantime, in one Redis command of each sort.
    fn on_command(&mut self, first: PubSubCommand) {
        let (mut joined, mut left) = (Vec::new(), Vec::new());
        let mut command = Some(first);
        while let Some(next) = command {
            match next {
                PubSubCommand::Subscribe {
                    channel,
                    subscriber,
                    ready,
                } => {
                    if let Link::Down(why) = &self.link {
                        // The reply is sent at once, so that the subscribers poll in the meantime.
                        let _ = ready.send(Err(why.clone()));
                    } else {
                        let known = self.channels.entry(channel.clone()).or_default();
                        known.add(subscriber, ready);
                        joined.push(channel);
                    }
                }
                PubSubCommand::Unsubscribe {
                    channel,
                    subscriber,
                } => {
                    if let Some(known) = self.channels.get_mut(&channel) {
                        known.remove(&subscriber);
                        left.push(channel);
                    }
                }
                PubSubCommand::Retain(ChannelFilter(here)) => {
                    let rejected: Vec<String> = self
                        .channels
                        .keys()
                        .filter(|name| !here(name))
                        .cloned()
                        .collect();
                    self.close_channels(rejected);
                }
            }
            command = self.inbox.try_recv().ok();
        }
        self.unsubscribe(left);
        if matches!(self.link, Link::Idle) {
            self.connect();
        } else {
            self.subscribe(joined);
        }
    }

    fn on_push(&mut self, push: Option<PushInfo>) {
        let Some(push) = push.filter(|push| push.kind != PushKind::Disconnection) else {
            let why = "the connection of the subscriber has ended";
            return self.on_disconnected(StoreError::new(StoreErrorKind::Unreachable, why));
        };
        let Some(Value::BulkString(name)) = push.data.first() else {
            return;
        };
        let name = String::from_utf8_lossy(name);
        let Some(channel) = self.channels.get(&*name) else {
            return;
        };
        match push.kind {
            PushKind::Message | PushKind::SMessage => channel.notify(),
            // This end was not requested: the slot belongs to another server by now.
            PushKind::SUnsubscribe
                if matches!(channel.phase, Phase::Subscribing | Phase::Subscribed) =>
            {
                let name = name.into_owned();
                self.close_channels(vec![name]);
            }
            _ => {}
        }
    }

    /// Closes channels that get no more messages here; their subscribers subscribe again, perhaps elsewhere.
    fn close_channels(&mut self, names: Vec<String>) {
        let why = StoreError::new(
            StoreErrorKind::NotReady,
            "another server serves the channel now",
        );
        for name in &names {
            if let Some(channel) = self.channels.get_mut(name) {
                channel.refused(&why);
            }
        }
        self.unsubscribe(names);
    }

    fn on_done(&mut self, done: PubSubEvent) {
        // Messages that the server sent before this reply belong to the time before it.
        while let Some(push) = self.link.try_next_push() {
            let ended = push.kind == PushKind::Disconnection;
            self.on_push(Some(push));
            if ended {
                return;
            }
        }
        match done {
            PubSubEvent::Connected(Ok((opened, pushes))) => {
                let NewConnection {
                    connection,
                    master_term,
                } = opened;
                self.link = Link::Up {
                    connection,
                    pushes,
                    master_term,
                };
                let all: Vec<String> = self.channels.keys().cloned().collect();
                let (server, channels) = (self.connector.server(), all.len());
                self.events.emit(Level::DEBUG, move || {
                    tracing::debug!(target: "distlock::connection", %server, channels, "subscriber connected");
                });
                self.subscribe(all);
            }
            PubSubEvent::Subscribed(names, Ok(())) => {
                self.backoff = INITIAL_BACKOFF;
                for name in &names {
                    if let Some(channel) = self.channels.get_mut(name) {
                        channel.confirmed();
                    }
                }
                // The subscribers may have gone in the meantime.
                self.unsubscribe(names);
            }
            PubSubEvent::Subscribed(names, Err(why)) if is_of_these_channels(&why) => {
                self.on_denied(names, &why)
            }
            PubSubEvent::Unsubscribed(names, Ok(())) => self.on_unsubscribed(names),
            // A user that may not unsubscribe receives messages that it does not need; on another server there is
            // nothing to unsubscribe from.
            PubSubEvent::Unsubscribed(names, Err(why)) if is_of_these_channels(&why) => {
                self.on_unsubscribed(names)
            }
            PubSubEvent::Connected(Err(why))
            | PubSubEvent::Unsubscribed(_, Err(why))
            | PubSubEvent::Subscribed(_, Err(why)) => {
                self.on_disconnected(why);
            }
        }
    }

    /// Handles a denied command: one refused channel refuses them all, so each is requested alone, to blame the right
    /// one.
    fn on_denied(&mut self, names: Vec<String>, why: &StoreError) {
        let alone = names.len() == 1;
        for name in names {
            if alone {
                self.on_refused(name, why);
            } else if let Some(channel) = self.channels.get_mut(&name) {
                channel.phase = Phase::Unsubscribed;
                self.subscribe(vec![name]);
            }
        }
    }

    fn on_refused(&mut self, name: String, why: &StoreError) {
        let Some(channel) = self.channels.get_mut(&name) else {
            return;
        };
        channel.refused(why);
        // A part of the subscription may have been allowed.
        channel.phase = Phase::Subscribed;
        self.unsubscribe(vec![name]);
    }

    /// Handles the server's confirmation that these subscriptions have ended; some may be needed again.
    fn on_unsubscribed(&mut self, names: Vec<String>) {
        for name in &names {
            if let Some(channel) = self.channels.get_mut(name) {
                channel.phase = Phase::Unsubscribed;
                if channel.is_empty() {
                    self.channels.remove(name);
                }
            }
        }
        self.subscribe(names);
    }

    /// Subscribes to those of these channels for which nothing is in flight or confirmed.
    fn subscribe(&mut self, mut names: Vec<String>) {
        let Link::Up { connection, .. } = &self.link else {
            return;
        };
        let known = &mut self.channels;
        names.retain(|name| {
            transition(known.get_mut(name), Phase::Unsubscribed, Phase::Subscribing)
        });
        if names.is_empty() {
            return;
        }
        let (pubsub_mode, limit) = (self.pubsub_mode, self.command_timeout);
        for names in pubsub_mode.group(names) {
            let mut connection = connection.clone();
            self.in_flight.spawn(tag_simulated_process(async move {
                let outcome =
                    reply_within(limit, pubsub_mode.subscribe(&mut connection, &names)).await;
                PubSubEvent::Subscribed(names, outcome)
            }));
        }
    }

    /// Unsubscribes from those of these channels that have no subscribers any more.
    fn unsubscribe(&mut self, mut names: Vec<String>) {
        let known = &mut self.channels;
        names.retain(|name| {
            let channel = known.get_mut(name).filter(|channel| channel.is_empty());
            match channel.as_ref().map(|channel| channel.phase) {
                Some(Phase::Unsubscribed) => known.remove(name).is_none(),
                Some(Phase::Subscribed) => {
                    transition(channel, Phase::Subscribed, Phase::Unsubscribing)
                }
                // The reply to the command in flight leads here again.
                Some(Phase::Subscribing | Phase::Unsubscribing) | None => false,
            }
        });
        let Link::Up { connection, .. } = &self.link else {
            return;
        };
        if names.is_empty() {
            return;
        }
        let (pubsub_mode, limit) = (self.pubsub_mode, self.command_timeout);
        for names in pubsub_mode.group(names) {
            let mut connection = connection.clone();
            self.in_flight.spawn(tag_simulated_process(async move {
                let outcome =
                    reply_within(limit, pubsub_mode.unsubscribe(&mut connection, &names)).await;
                PubSubEvent::Unsubscribed(names, outcome)
            }));
        }
    }

    /// Connects again if there are channels.
    fn connect(&mut self) {
        if self.channels.is_empty() {
            self.link = Link::Idle;
            return;
        }
        self.link = Link::Connecting;
        self.not_before = Instant::now() + jittered(self.backoff);
        self.backoff = (self.backoff * 2).min(MAX_BACKOFF);
        let connector = self.connector.clone();
        self.in_flight.spawn(tag_simulated_process(async move {
            // Each connection has a queue of its own: an old connection's messages would be taken for the new one's.
            let (push_tx, pushes) = mpsc::unbounded_channel();
            let config = AsyncConnectionConfig::new()
                .set_response_timeout(None)
                .set_push_sender(push_tx);
            let made = connector.open(config).await;
            PubSubEvent::Connected(made.map(|opened| (opened, pushes)))
        }));
    }

    /// Handles the end of the connection: subscribers get no messages until there is another one, and are notified
    /// then.
    fn on_disconnected(&mut self, why: StoreError) {
        let (server, detail) = (self.connector.server(), why.detail.clone());
        self.events.emit(Level::DEBUG, move || {
            tracing::debug!(target: "distlock::connection", %server, error = detail, "subscriber disconnected");
        });
        self.in_flight = JoinSet::new();
        self.channels.retain(|_, channel| {
            channel.disconnected(&why);
            !channel.is_empty()
        });
        self.link = Link::Down(why);
        if self.not_before <= Instant::now() {
            self.connect();
        }
    }
}

impl Link {
    async fn next_push(&mut self) -> Option<PushInfo> {
        match self {
            Self::Up {
                pushes,
                master_term,
                ..
            } => tokio::select! {
                push = pushes.recv() => push,
                () = master_term.changed() => None,
            },
            Self::Connecting | Self::Down(_) | Self::Idle => std::future::pending().await,
        }
    }

    /// Returns the next message that can be read without waiting.
    fn try_next_push(&mut self) -> Option<PushInfo> {
        match self {
            Self::Up { pushes, .. } => pushes.try_recv().ok(),
            Self::Connecting | Self::Down(_) | Self::Idle => None,
        }
    }
}

/// Returns whether the error is about the channels alone, and not about the connection.
fn is_of_these_channels(why: &StoreError) -> bool {
    why.kind == StoreErrorKind::Denied || failure::is_slot_error(why)
}

async fn reply_within(
    limit: Duration,
    reply: impl Future<Output = RedisResult<()>> + Send,
) -> Result<(), StoreError> {
    match tokio::time::timeout(limit, reply).await {
        Ok(reply) => reply.map_err(|error| failure::from_call_error(&error)),
        Err(_) => {
            let why = "the server did not confirm the subscription in time";
            Err(StoreError::new(StoreErrorKind::TimedOut, why))
        }
    }
}
