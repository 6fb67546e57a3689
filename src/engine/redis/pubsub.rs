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

mod channel;
mod task;

use self::channel::Ready;
use self::task::Task;
use super::door::Door;
use super::settings::Settings;
use crate::engine::in_process;
use crate::engine::{Cause, Ear, Failure, Listener};

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
        ready: Ready,
    },
    Leave {
        channel: String,
        ear: Weak<Ear>,
    },
    /// Whatever this refuses is to be heard elsewhere.
    Keep(Sieve),
}

/// Says whether a channel is still to be heard here.
struct Sieve(Box<dyn Fn(&str) -> bool + Send>);

impl fmt::Debug for Sieve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sieve").finish_non_exhaustive()
    }
}

impl PubSub {
    /// Starts the task on `runtime`; it connects when there is something to listen to.
    pub(crate) fn start(door: Door, settings: &Settings, runtime: &Handle) -> Self {
        let (orders, inbox) = mpsc::unbounded_channel();
        let task = Task::new(door, settings, inbox);
        // Ends by itself when the last `PubSub` is dropped and the inbox closes.
        runtime.spawn(in_process(task.run()));
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

    /// Sends those away who listen to anything else than this wants to be heard here.
    pub(crate) fn keep(&self, here: impl Fn(&str) -> bool + Send + 'static) {
        // Nobody left to tell means nobody who listens.
        let _ = self.orders.send(Order::Keep(Sieve(Box::new(here))));
    }
}
