//! Those in one process who listen, by channel.

use std::borrow::Borrow;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use foldhash::HashMap;

use super::Ear;

/// The ears at each channel. None is kept alive by it.
#[derive(Debug)]
pub(super) struct Ears<C>(HashMap<C, Vec<Weak<Ear>>>);

impl<C: Eq + Hash> Ears<C> {
    /// Another ear at this channel.
    pub(super) fn add(&mut self, channel: C) -> Arc<Ear> {
        let ear = Arc::new(Ear::default());
        let ears = self.0.entry(channel).or_default();
        ears.push(Arc::downgrade(&ear));
        ear
    }

    /// Takes one away; says whether it was the channel's last.
    pub(super) fn remove<Q: Eq + Hash + ?Sized>(&mut self, channel: &Q, gone: &Weak<Ear>) -> bool
    where
        C: Borrow<Q>,
    {
        let Some(ears) = self.0.get_mut(channel) else {
            return false;
        };
        ears.retain(|ear| !ear.ptr_eq(gone));
        let last = ears.is_empty();
        if last {
            self.0.remove(channel);
        }
        last
    }

    /// Whether nobody listens anywhere.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those at a channel.
    pub(super) fn at<Q: Eq + Hash + ?Sized>(&self, channel: &Q) -> &[Weak<Ear>]
    where
        C: Borrow<Q>,
    {
        self.0.get(channel).map_or(&[], |ears| ears)
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = (&C, &[Weak<Ear>])> {
        self.0.iter().map(|(channel, ears)| (channel, &**ears))
    }
}

impl<C> Default for Ears<C> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

/// Tells these. Not under a lock: whoever hears it may come for that lock at once.
pub(super) fn wake(ears: &[Weak<Ear>]) {
    for ear in ears.iter().filter_map(Weak::upgrade) {
        ear.tell();
    }
}
