//! The subscribers in one process, by channel.

use std::borrow::Borrow;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use foldhash::HashMap;

use super::Subscriber;

/// The subscribers of each channel. The map keeps none of them alive.
#[derive(Debug)]
pub(super) struct SubscriberMap<C>(HashMap<C, Vec<Weak<Subscriber>>>);

impl<C: Eq + Hash> SubscriberMap<C> {
    /// Adds a subscriber to this channel.
    pub(super) fn add(&mut self, channel: C) -> Arc<Subscriber> {
        let subscriber = Arc::new(Subscriber::default());
        let subscribers = self.0.entry(channel).or_default();
        subscribers.push(Arc::downgrade(&subscriber));
        subscriber
    }

    /// Removes a subscriber; reports whether it was the channel's last.
    pub(super) fn remove<Q: Eq + Hash + ?Sized>(
        &mut self,
        channel: &Q,
        removed: &Weak<Subscriber>,
    ) -> bool
    where
        C: Borrow<Q>,
    {
        let Some(subscribers) = self.0.get_mut(channel) else {
            return false;
        };
        subscribers.retain(|subscriber| !subscriber.ptr_eq(removed));
        let last = subscribers.is_empty();
        if last {
            self.0.remove(channel);
        }
        last
    }

    /// Reports whether no channel has a subscriber.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the subscribers of a channel.
    pub(super) fn of_channel<Q: Eq + Hash + ?Sized>(&self, channel: &Q) -> &[Weak<Subscriber>]
    where
        C: Borrow<Q>,
    {
        self.0.get(channel).map_or(&[], |subscribers| subscribers)
    }

    /// Returns all channels with their subscribers.
    pub(super) fn all(&self) -> impl Iterator<Item = (&C, &[Weak<Subscriber>])> {
        self.0
            .iter()
            .map(|(channel, subscribers)| (channel, &**subscribers))
    }
}

impl<C> Default for SubscriberMap<C> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

/// Notifies these subscribers. Must not be called under a lock: a woken task may need that lock at
/// once.
pub(super) fn notify_all(subscribers: &[Weak<Subscriber>]) {
    for subscriber in subscribers.iter().filter_map(Weak::upgrade) {
        subscriber.notify();
    }
}
