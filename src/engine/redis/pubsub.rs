//! Pub/sub: one connection for all subscriptions of a client.
//!
//! A task owns the connection and the map of channels; it ends when the engine is dropped. It is separate from the
//! command connections, so that no command loses its reply when the server disconnects a subscriber. After a reconnect
//! every subscriber is notified: a message may have been missed in the meantime.

#![expect(
    clippy::disallowed_methods,
    reason = "the engine owns this task and its timers"
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
use crate::engine::tag_simulated_process;
use crate::engine::{StoreError, StoreErrorKind, Subscriber, Subscription};

/// The engine's handle to the pub/sub task.
#[derive(Debug)]
pub(crate) struct PubSub {
    commands: mpsc::UnboundedSender<PubSubCommand>,
}

#[derive(Debug)]
enum PubSubCommand {
    Subscribe {
        channel: String,
        subscriber: Weak<Subscriber>,
        ready: Ready,
    },
    Unsubscribe {
        channel: String,
        subscriber: Weak<Subscriber>,
    },
    /// Closes the channels that the filter rejects: they are served elsewhere.
    Retain(ChannelFilter),
}

/// A filter for the channels that are still served here.
struct ChannelFilter(Box<dyn Fn(&str) -> bool + Send>);

impl fmt::Debug for ChannelFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChannelFilter").finish_non_exhaustive()
    }
}

impl PubSub {
    /// Starts the task on `runtime`; it connects when there is a channel to subscribe to.
    pub(crate) fn start(connector: Connector, settings: &RedisSettings, runtime: &Handle) -> Self {
        let (commands, inbox) = mpsc::unbounded_channel();
        let task = PubSubTask::new(connector, settings, inbox);
        // The task ends when the last `PubSub` is dropped and the inbox closes.
        runtime.spawn(tag_simulated_process(task.run()));
        Self { commands }
    }

    /// Subscribes to a channel; resolves when the server has confirmed it.
    pub(crate) async fn subscribe(&self, channel: String) -> Result<Subscription, StoreError> {
        let subscriber = Arc::new(Subscriber::default());
        let (ready, confirmed) = oneshot::channel();
        let command = PubSubCommand::Subscribe {
            channel: channel.clone(),
            subscriber: Arc::downgrade(&subscriber),
            ready,
        };
        let task_ended =
            || StoreError::new(StoreErrorKind::Unreachable, "the subscriber task has ended");
        self.commands.send(command).map_err(|_| task_ended())?;
        // The subscription exists before the wait: dropping this future must unsubscribe, too.
        let commands = self.commands.clone();
        let weak_subscriber = Arc::downgrade(&subscriber);
        let subscription = Subscription::new(subscriber, move || {
            // If the task has ended, there is nothing to unsubscribe from.
            let subscriber = weak_subscriber;
            let _ = commands.send(PubSubCommand::Unsubscribe {
                channel,
                subscriber,
            });
        });
        confirmed.await.map_err(|_| task_ended())??;
        Ok(subscription)
    }

    /// Closes the subscriptions to all channels that `here` rejects.
    pub(crate) fn retain_channels(&self, here: impl Fn(&str) -> bool + Send + 'static) {
        // If the task has ended, there are no subscribers.
        let _ = self
            .commands
            .send(PubSubCommand::Retain(ChannelFilter(Box::new(here))));
    }
}
