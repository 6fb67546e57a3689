//! One connection that listens, for all names of a client.
//!
//! A task of its own owns the connection and the list of channels; it ends when the engine goes. It
//! is apart from the commands so that a listener kicked out by the server costs no command its reply.
//! After a reconnect every listener is told: a message may have been missed meanwhile.

#![expect(
    clippy::disallowed_methods,
    reason = "an engine's own task keeps its own time"
)]

use std::fmt;
use std::sync::{Arc, Weak};

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

mod subscription;
mod task;

use self::subscription::Ready;
use self::task::PubSubTask;
use super::connector::Connector;
use super::settings::RedisSettings;
use crate::engine::in_process;
use crate::engine::{StoreError, StoreErrorKind, Subscriber, Subscription};

/// The engine's end of the listening task.
#[derive(Debug)]
pub(crate) struct PubSub {
    commands: mpsc::UnboundedSender<PubSubCommand>,
}

#[derive(Debug)]
enum PubSubCommand {
    Subscribe {
        channel: String,
        ear: Weak<Subscriber>,
        ready: Ready,
    },
    Unsubscribe {
        channel: String,
        ear: Weak<Subscriber>,
    },
    /// Whatever this refuses is to be heard elsewhere.
    Retain(ChannelFilter),
}

/// Says whether a channel is still to be heard here.
struct ChannelFilter(Box<dyn Fn(&str) -> bool + Send>);

impl fmt::Debug for ChannelFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sieve").finish_non_exhaustive()
    }
}

impl PubSub {
    /// Starts the task on `runtime`; it connects when there is something to listen to.
    pub(crate) fn start(connector: Connector, settings: &RedisSettings, runtime: &Handle) -> Self {
        let (commands, inbox) = mpsc::unbounded_channel();
        let task = PubSubTask::new(connector, settings, inbox);
        // Ends by itself when the last `PubSub` is dropped and the inbox closes.
        runtime.spawn(in_process(task.run()));
        Self { commands }
    }

    /// Listens to a channel; resolves when the server has confirmed it.
    pub(crate) async fn listen(&self, channel: String) -> Result<Subscription, StoreError> {
        let ear = Arc::new(Subscriber::default());
        let (ready, confirmed) = oneshot::channel();
        let command = PubSubCommand::Subscribe {
            channel: channel.clone(),
            ear: Arc::downgrade(&ear),
            ready,
        };
        let gone = || StoreError::new(StoreErrorKind::Unreachable, "the listening task has ended");
        self.commands.send(command).map_err(|_| gone())?;
        // Made before the wait: dropping this future must leave the channel, too.
        let commands = self.commands.clone();
        let gone_ear = Arc::downgrade(&ear);
        let listener = Subscription::new(ear, move || {
            // Nobody left to tell means nothing left to leave.
            let ear = gone_ear;
            let _ = commands.send(PubSubCommand::Unsubscribe { channel, ear });
        });
        confirmed.await.map_err(|_| gone())??;
        Ok(listener)
    }

    /// Sends those away who listen to anything else than this wants to be heard here.
    pub(crate) fn retain_channels(&self, here: impl Fn(&str) -> bool + Send + 'static) {
        // Nobody left to tell means nobody who listens.
        let _ = self
            .commands
            .send(PubSubCommand::Retain(ChannelFilter(Box::new(here))));
    }
}
