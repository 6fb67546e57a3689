//! One channel: who listens to it, and what the server knows of that.

use std::sync::Weak;

use tokio::sync::oneshot;

use crate::engine::{StoreError, Subscriber};

/// A channel that somebody listens to, or did until just now.
#[derive(Debug, Default)]
pub(super) struct ChannelSubscription {
    pub(super) phase: Phase,
    entries: Vec<SubscriberEntry>,
}

/// What was said to the server, on the connection there is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Phase {
    /// SUBSCRIBE is under way. What happens meanwhile waits for its answer.
    Subscribing,
    /// The server has confirmed.
    Subscribed,
    /// UNSUBSCRIBE is under way. Whoever comes meanwhile waits for its answer.
    Unsubscribing,
    /// Nothing yet.
    #[default]
    Unsubscribed,
}

/// Resolves a [`listen`](super::PubSub::listen).
pub(super) type Ready = oneshot::Sender<Result<(), StoreError>>;

#[derive(Debug)]
struct SubscriberEntry {
    ear: Weak<Subscriber>,
    /// Until the server has confirmed for the first time.
    ready: Option<Ready>,
}

impl ChannelSubscription {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn add(&mut self, ear: Weak<Subscriber>, ready: Ready) {
        let mut entry = SubscriberEntry {
            ear,
            ready: Some(ready),
        };
        if self.phase == Phase::Subscribed {
            entry.answer(Ok(()));
        }
        self.entries.push(entry);
    }

    pub(super) fn remove(&mut self, ear: &Weak<Subscriber>) {
        // By name, not by whether it is still alive: the listener that sends this is about to go.
        self.entries
            .retain(|entry| !entry.ear.ptr_eq(ear) && !planted!(LeavingSilencesOthers));
    }

    /// From now on no message is missed; whoever listened before may have missed one.
    pub(super) fn confirmed(&mut self) {
        self.phase = Phase::Subscribed;
        for entry in &mut self.entries {
            if !entry.answer(Ok(()))
                && let Some(ear) = entry.ear.upgrade()
            {
                ear.set_disconnected(false);
                if planted!(NoWakeAfterReconnect) {
                    continue;
                }
                ear.notify();
            }
        }
    }

    /// The connection is gone: newcomers are turned away, the others will be told when there is another.
    pub(super) fn disconnected(&mut self, why: &StoreError) {
        self.phase = Phase::Unsubscribed;
        self.entries.retain_mut(|entry| {
            if entry.answer(Err(why)) {
                return false;
            }
            if let Some(ear) = entry.ear.upgrade() {
                ear.set_disconnected(true);
            }
            true
        });
    }

    /// The server lets nobody listen here: newcomers are told why, the others to look for themselves; they
    /// hear the reason when they listen anew.
    pub(super) fn refused(&mut self, why: &StoreError) {
        for mut entry in std::mem::take(&mut self.entries) {
            if !entry.answer(Err(why))
                && let Some(ear) = entry.ear.upgrade()
            {
                ear.close();
            }
        }
    }

    /// Passes a message on.
    pub(super) fn notify(&self) {
        for ear in self.entries.iter().filter_map(|entry| entry.ear.upgrade()) {
            ear.notify();
        }
    }
}

impl SubscriberEntry {
    /// Answers a newcomer, and says whether this is one.
    fn answer(&mut self, result: Result<(), &StoreError>) -> bool {
        let Some(ready) = self.ready.take() else {
            return false;
        };
        // One that has gone has sent a `Leave` behind this.
        let _ = ready.send(result.map_err(Clone::clone));
        true
    }
}

/// Takes a channel from one phase to the next, and says whether it was there.
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
