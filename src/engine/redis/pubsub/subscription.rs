//! One channel: its subscribers, and the state of its subscription at the server.

use std::sync::Weak;

use tokio::sync::oneshot;

use crate::engine::{StoreError, Subscriber};

/// A channel that has subscribers, or had them until just now.
#[derive(Debug, Default)]
pub(super) struct ChannelSubscription {
    pub(super) phase: Phase,
    entries: Vec<SubscriberEntry>,
}

/// State of the subscription at the server, on the current connection.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Phase {
    /// SUBSCRIBE is in flight. Changes in the meantime wait for its reply.
    Subscribing,
    /// The server has confirmed the subscription.
    Subscribed,
    /// UNSUBSCRIBE is in flight. Subscribers that arrive in the meantime wait for its reply.
    Unsubscribing,
    /// Nothing was sent yet.
    #[default]
    Unsubscribed,
}

/// Tells the task that waits for a subscription whether the server has confirmed it.
pub(super) type Ready = oneshot::Sender<Result<(), StoreError>>;

#[derive(Debug)]
struct SubscriberEntry {
    subscriber: Weak<Subscriber>,
    /// `Some` until the server has confirmed for the first time.
    ready: Option<Ready>,
}

impl ChannelSubscription {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn add(&mut self, subscriber: Weak<Subscriber>, ready: Ready) {
        let mut entry = SubscriberEntry {
            subscriber,
            ready: Some(ready),
        };
        if self.phase == Phase::Subscribed {
            entry.complete(Ok(()));
        }
        self.entries.push(entry);
    }

    pub(super) fn remove(&mut self, subscriber: &Weak<Subscriber>) {
        // Compared by identity, not by whether it is alive: the subscriber that sends this is about to be dropped.
        self.entries.retain(|entry| {
            !entry.subscriber.ptr_eq(subscriber) && !planted!(LeavingSilencesOthers)
        });
    }

    /// Handles the server's confirmation. From now on no message is missed; earlier subscribers may have missed one,
    /// and are notified.
    pub(super) fn confirmed(&mut self) {
        self.phase = Phase::Subscribed;
        for entry in &mut self.entries {
            if !entry.complete(Ok(()))
                && let Some(subscriber) = entry.subscriber.upgrade()
            {
                subscriber.set_disconnected(false);
                if planted!(NoWakeAfterReconnect) {
                    continue;
                }
                subscriber.notify();
            }
        }
    }

    /// Handles the end of the connection: new subscribers get the error, the others are notified when there is another
    /// connection.
    pub(super) fn disconnected(&mut self, why: &StoreError) {
        self.phase = Phase::Unsubscribed;
        self.entries.retain_mut(|entry| {
            if entry.complete(Err(why)) {
                return false;
            }
            if let Some(subscriber) = entry.subscriber.upgrade() {
                subscriber.set_disconnected(true);
            }
            true
        });
    }

    /// Handles a refused subscription: new subscribers get the error; the others are closed, so that they poll for
    /// themselves, and get the error when they subscribe again.
    pub(super) fn refused(&mut self, why: &StoreError) {
        for mut entry in std::mem::take(&mut self.entries) {
            if !entry.complete(Err(why))
                && let Some(subscriber) = entry.subscriber.upgrade()
            {
                subscriber.close();
            }
        }
    }

    /// Passes a message on to all subscribers.
    pub(super) fn notify(&self) {
        for subscriber in self
            .entries
            .iter()
            .filter_map(|entry| entry.subscriber.upgrade())
        {
            subscriber.notify();
        }
    }
}

impl SubscriberEntry {
    /// Completes a new subscriber, and returns whether this is one.
    fn complete(&mut self, result: Result<(), &StoreError>) -> bool {
        let Some(ready) = self.ready.take() else {
            return false;
        };
        // A subscriber that has gone has sent an `Unsubscribe` behind this.
        let _ = ready.send(result.map_err(Clone::clone));
        true
    }
}

/// Moves a channel from one phase to the next, and returns whether it was in the first.
pub(super) fn transition(
    channel: Option<&mut ChannelSubscription>,
    from: Phase,
    to: Phase,
) -> bool {
    let Some(channel) = channel.filter(|channel| channel.phase == from) else {
        return false;
    };
    channel.phase = to;
    true
}
