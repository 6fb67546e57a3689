//! The task that listens.
//!
//! It waits for whatever happens next and for nothing in particular: connecting, subscribing and
//! leaving go on beside it, so that a slow one keeps no message from those who listen already. For one
//! channel there is one of them at a time; its answer decides what comes next ([`Phase`]).

#![expect(
    clippy::disallowed_methods,
    reason = "an engine's own task keeps its own time"
)]

use std::collections::HashMap;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, PushKind, RedisResult, Value};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Level;

use super::channel::{Channel, Phase, step};
use super::{Order, Sieve};
use crate::engine::events::Events;
use crate::engine::in_process;
use crate::engine::redis::door::{Door, Opened};
use crate::engine::redis::failure;
use crate::engine::redis::manner::Manner;
use crate::engine::redis::pace::{LONGEST_PAUSE, PAUSE, at_random};
use crate::engine::redis::sentinel::Stay;
use crate::engine::redis::settings::Settings;
use crate::engine::supervise::{Restarts, caught};
use crate::engine::{Cause, Failure};

pub(super) struct Task {
    door: Door,
    manner: Manner,
    command_timeout: Duration,
    events: Events,
    inbox: mpsc::UnboundedReceiver<Order>,
    channels: HashMap<String, Channel>,
    link: Link,
    /// What goes on beside the task, on this connection or for the next; it ends with it.
    under_way: JoinSet<Done>,
    /// How long it will be, at most, from the next attempt to connect to the one after it.
    pause: Duration,
    /// When the next attempt may be made.
    not_before: Instant,
}

enum Link {
    Connecting,
    /// There is none, and this is why; another attempt follows the pause.
    Down(Failure),
    /// Nobody has wanted one yet, or not since it went.
    Idle,
    Up {
        connection: MultiplexedConnection,
        news: News,
        /// A server that is no longer the one to be at tells nothing.
        stay: Stay,
    },
}

type News = mpsc::UnboundedReceiver<PushInfo>;

/// Something that was under way has come to its end.
enum Done {
    Connected(Result<(Opened, News), Failure>),
    Left(Vec<String>, Result<(), Failure>),
    Subscribed(Vec<String>, Result<(), Failure>),
}

impl Task {
    pub(super) fn new(
        door: Door,
        settings: &Settings,
        inbox: mpsc::UnboundedReceiver<Order>,
    ) -> Self {
        Self {
            door,
            manner: settings.manner(),
            command_timeout: settings.command_timeout,
            events: settings.events.clone(),
            inbox,
            channels: HashMap::new(),
            link: Link::Idle,
            under_way: JoinSet::new(),
            pause: PAUSE,
            not_before: Instant::now(),
        }
    }

    pub(super) async fn run(mut self) {
        let events = self.events.clone();
        let mut restarts = Restarts::of("subscriptions", &events);
        while let Err(panicked) = caught(self.work()).await {
            restarts.after(panicked).await;
            // Listeners poll meanwhile, and are notified once they are subscribed again.
            let why = "the listening task was restarted";
            self.disconnected(Failure::new(Cause::Unreachable, why));
        }
    }

    async fn work(&mut self) {
        loop {
            let pause = tokio::time::sleep_until(self.not_before);
            tokio::select! {
                order = self.inbox.recv() => match order {
                    Some(order) => self.obey(order),
                    None => return,
                },
                push = self.link.news() => self.hear(push),
                Some(Ok(done)) = self.under_way.join_next() => self.conclude(done),
                () = pause, if matches!(self.link, Link::Down(_)) => self.retry(),
            }
        }
    }

    /// Carries out this order and all that have come meanwhile, in one command of each sort.
    fn obey(&mut self, first: Order) {
        let (mut joined, mut left) = (Vec::new(), Vec::new());
        let mut order = Some(first);
        while let Some(next) = order {
            match next {
                Order::Listen {
                    channel,
                    ear,
                    ready,
                } => {
                    if let Link::Down(why) = &self.link {
                        // At once, so that they poll meanwhile.
                        let _ = ready.send(Err(why.clone()));
                    } else {
                        let known = self.channels.entry(channel.clone()).or_default();
                        known.join(ear, ready);
                        joined.push(channel);
                    }
                }
                Order::Leave { channel, ear } => {
                    if let Some(known) = self.channels.get_mut(&channel) {
                        known.part(&ear);
                        left.push(channel);
                    }
                }
                Order::Keep(Sieve(here)) => {
                    let gone: Vec<String> = self
                        .channels
                        .keys()
                        .filter(|name| !here(name))
                        .cloned()
                        .collect();
                    self.dismiss(gone);
                }
            }
            order = self.inbox.try_recv().ok();
        }
        self.leave(left);
        if matches!(self.link, Link::Idle) {
            self.retry();
        } else {
            self.subscribe(joined);
        }
    }

    fn hear(&mut self, push: Option<PushInfo>) {
        let Some(push) = push.filter(|push| push.kind != PushKind::Disconnection) else {
            let why = "the listening connection has ended";
            return self.disconnected(Failure::new(Cause::Unreachable, why));
        };
        let Some(Value::BulkString(name)) = push.data.first() else {
            return;
        };
        let name = String::from_utf8_lossy(name);
        let Some(channel) = self.channels.get(&*name) else {
            return;
        };
        match push.kind {
            PushKind::Message | PushKind::SMessage => channel.tell(),
            // Not asked for: its slot is another server's by now.
            PushKind::SUnsubscribe if matches!(channel.phase, Phase::Asked | Phase::Heard) => {
                let name = name.into_owned();
                self.dismiss(vec![name]);
            }
            _ => {}
        }
    }

    /// Nothing is heard of these any more; whoever listens begins anew, perhaps elsewhere.
    fn dismiss(&mut self, names: Vec<String>) {
        let why = Failure::new(Cause::Unready, "it is to be heard elsewhere");
        for name in &names {
            if let Some(channel) = self.channels.get_mut(name) {
                channel.refused(&why);
            }
        }
        self.leave(names);
    }

    fn conclude(&mut self, done: Done) {
        // What the server said before it answered was of the time before.
        while let Some(push) = self.link.said_already() {
            let ended = push.kind == PushKind::Disconnection;
            self.hear(Some(push));
            if ended {
                return;
            }
        }
        match done {
            Done::Connected(Ok((opened, news))) => {
                let Opened { connection, stay } = opened;
                self.link = Link::Up {
                    connection,
                    news,
                    stay,
                };
                let all: Vec<String> = self.channels.keys().cloned().collect();
                let (server, channels) = (self.door.server(), all.len());
                self.events.emit(Level::DEBUG, move || {
                    tracing::debug!(%server, channels, "connected to listen");
                });
                self.subscribe(all);
            }
            Done::Subscribed(names, Ok(())) => {
                self.pause = PAUSE;
                for name in &names {
                    if let Some(channel) = self.channels.get_mut(name) {
                        channel.confirmed();
                    }
                }
                // Whoever asked for it may have gone meanwhile.
                self.leave(names);
            }
            Done::Subscribed(names, Err(why)) if is_of_these(&why) => self.denied(names, &why),
            Done::Left(names, Ok(())) => self.parted(names),
            // One who may not leave hears what it does not need; elsewhere there is nothing to leave.
            Done::Left(names, Err(why)) if is_of_these(&why) => self.parted(names),
            Done::Connected(Err(why)) | Done::Left(_, Err(why)) | Done::Subscribed(_, Err(why)) => {
                self.disconnected(why);
            }
        }
    }

    /// One refused channel refuses them all: ask for each alone, to blame the right one.
    fn denied(&mut self, names: Vec<String>, why: &Failure) {
        let alone = names.len() == 1;
        for name in names {
            if alone {
                self.refused(name, why);
            } else if let Some(channel) = self.channels.get_mut(&name) {
                channel.phase = Phase::Wanted;
                self.subscribe(vec![name]);
            }
        }
    }

    fn refused(&mut self, name: String, why: &Failure) {
        let Some(channel) = self.channels.get_mut(&name) else {
            return;
        };
        channel.refused(why);
        // A part of it may have been allowed.
        channel.phase = Phase::Heard;
        self.leave(vec![name]);
    }

    /// The server has let go of these; some may be wanted again.
    fn parted(&mut self, names: Vec<String>) {
        for name in &names {
            if let Some(channel) = self.channels.get_mut(name) {
                channel.phase = Phase::Wanted;
                if channel.is_empty() {
                    self.channels.remove(name);
                }
            }
        }
        self.subscribe(names);
    }

    /// Asks for those of these that nobody has asked for.
    fn subscribe(&mut self, mut names: Vec<String>) {
        let Link::Up { connection, .. } = &self.link else {
            return;
        };
        let known = &mut self.channels;
        names.retain(|name| step(known.get_mut(name), Phase::Wanted, Phase::Asked));
        if names.is_empty() {
            return;
        }
        let (manner, limit) = (self.manner, self.command_timeout);
        for names in manner.together(names) {
            let mut connection = connection.clone();
            self.under_way.spawn(in_process(async move {
                let answered = answered(limit, manner.subscribe(&mut connection, &names)).await;
                Done::Subscribed(names, answered)
            }));
        }
    }

    /// Leaves those of these that nobody listens to any more.
    fn leave(&mut self, mut names: Vec<String>) {
        let known = &mut self.channels;
        names.retain(|name| {
            let channel = known.get_mut(name).filter(|channel| channel.is_empty());
            match channel.as_ref().map(|channel| channel.phase) {
                Some(Phase::Wanted) => known.remove(name).is_none(),
                Some(Phase::Heard) => step(channel, Phase::Heard, Phase::Left),
                // What is under way leads here again.
                Some(Phase::Asked | Phase::Left) | None => false,
            }
        });
        let Link::Up { connection, .. } = &self.link else {
            return;
        };
        if names.is_empty() {
            return;
        }
        let (manner, limit) = (self.manner, self.command_timeout);
        for names in manner.together(names) {
            let mut connection = connection.clone();
            self.under_way.spawn(in_process(async move {
                let answered = answered(limit, manner.unsubscribe(&mut connection, &names)).await;
                Done::Left(names, answered)
            }));
        }
    }

    /// Connects again if anybody wants it.
    fn retry(&mut self) {
        if self.channels.is_empty() {
            self.link = Link::Idle;
            return;
        }
        self.link = Link::Connecting;
        self.not_before = Instant::now() + at_random(self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        let door = self.door.clone();
        self.under_way.spawn(in_process(async move {
            // One for each connection: an old one's messages would be taken for the new one's.
            let (pushes, news) = mpsc::unbounded_channel();
            let config = AsyncConnectionConfig::new()
                .set_response_timeout(None)
                .set_push_sender(pushes);
            let made = door.open(config).await;
            Done::Connected(made.map(|opened| (opened, news)))
        }));
    }

    /// Those who listen hear nothing until there is another connection, and are told then.
    fn disconnected(&mut self, why: Failure) {
        let (server, detail) = (self.door.server(), why.detail.clone());
        self.events.emit(Level::DEBUG, move || {
            tracing::debug!(%server, why = detail, "not connected to listen");
        });
        self.under_way = JoinSet::new();
        self.channels.retain(|_, channel| {
            channel.disconnected(&why);
            !channel.is_empty()
        });
        self.link = Link::Down(why);
        if self.not_before <= Instant::now() {
            self.retry();
        }
    }
}

impl Link {
    async fn news(&mut self) -> Option<PushInfo> {
        match self {
            Self::Up { news, stay, .. } => tokio::select! {
                push = news.recv() => push,
                () = stay.over() => None,
            },
            Self::Connecting | Self::Down(_) | Self::Idle => std::future::pending().await,
        }
    }

    /// What there is to hear without waiting.
    fn said_already(&mut self) -> Option<PushInfo> {
        match self {
            Self::Up { news, .. } => news.try_recv().ok(),
            Self::Connecting | Self::Down(_) | Self::Idle => None,
        }
    }
}

/// Whether it is about the channels alone, and not about the connection.
fn is_of_these(why: &Failure) -> bool {
    why.cause == Cause::Denied || failure::is_of_a_slot(why)
}

async fn answered(
    limit: Duration,
    answer: impl Future<Output = RedisResult<()>> + Send,
) -> Result<(), Failure> {
    match tokio::time::timeout(limit, answer).await {
        Ok(answer) => answer.map_err(|error| failure::of_calling(&error)),
        Err(_) => {
            let why = "no confirmation of a subscription in time";
            Err(Failure::new(Cause::TimedOut, why))
        }
    }
}
