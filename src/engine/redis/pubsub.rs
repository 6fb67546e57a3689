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
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

mod channel;
mod manner;
mod task;

use self::channel::Ready;
pub use self::manner::Manner;
use self::task::Task;
use super::Settings;
use super::door::Door;
use crate::engine::{Cause, Ear, Failure, Listener};

/// Between the beginnings of two attempts to connect; doubled until one leads to a subscription.
pub(super) const PAUSE: Duration = Duration::from_millis(20);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_millis(500);

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

    /// Sends those away who listen to anything else than this wants to be heard here.
    pub(crate) fn keep(&self, here: impl Fn(&str) -> bool + Send + 'static) {
        // Nobody left to tell means nobody who listens.
        let _ = self.orders.send(Order::Keep(Sieve(Box::new(here))));
    }
}

/// Half of it to all of it, so that a crowd of clients does not come back all at once.
pub(super) fn at_random(pause: Duration) -> Duration {
    let random = RandomState::new().hash_one(()) % 1024;
    pause / 2 + pause.mul_f64(f64::from(u16::try_from(random).unwrap_or(0)) / 2048.0)
}
