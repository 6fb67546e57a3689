//! The holders of a read/write lock, and the end of each one's lease.

use crate::protocol::{Moment, OwnerId};

/// A held lock. A free lock is not stored at all.
#[derive(Clone, Debug)]
#[cfg_attr(
    feature = "sqlite",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
pub struct ReadWrite {
    pub(super) until: Moment,
    pub(super) writer: Option<Writer>,
    pub(super) readers: Vec<Reader>,
}

#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlite", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct Writer {
    pub(super) owner: OwnerId,
    pub(super) count: u32,
}

#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlite", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct Reader {
    pub(super) owner: OwnerId,
    pub(super) count: u32,
    pub(super) until: Moment,
}

impl ReadWrite {
    /// Reports whether a writer holds it.
    pub const fn writes(&self) -> bool {
        self.writer.is_some()
    }

    /// Returns its holders and the end of each one's lease.
    pub fn holders(&self) -> Vec<(OwnerId, Moment)> {
        let writer = self.writer.iter().map(|writer| (writer.owner, self.until));
        let readers = self
            .readers
            .iter()
            .map(|reader| (reader.owner, reader.until));
        writer.chain(readers).collect()
    }

    /// Removes expired readers and reports whether the lock is still held.
    pub fn expire(&mut self, now: Moment) -> bool {
        self.keep(|reader| reader.until > now) && self.until > now
    }

    /// Removes every holder for which `keep` is false and reports whether any is left.
    pub fn retain(&mut self, keep: impl Fn(OwnerId) -> bool) -> bool {
        self.writer.take_if(|writer| !keep(writer.owner));
        let left = self.keep(|reader| keep(reader.owner));
        if self.writer.is_none() {
            self.end_with_readers();
        }
        left
    }

    fn keep(&mut self, keep: impl Fn(&Reader) -> bool) -> bool {
        self.readers.retain(keep);
        self.writer.is_some() || !self.readers.is_empty()
    }

    pub(super) fn reader(&mut self, owner: &OwnerId) -> Option<&mut Reader> {
        self.readers
            .iter_mut()
            .find(|reader| reader.owner == *owner)
    }

    pub(super) fn is_written_by(&self, owner: &OwnerId) -> bool {
        let writer = self.writer.as_ref();
        writer.is_some_and(|writer| writer.owner == *owner)
    }

    pub(super) fn raise(&mut self, until: Moment) {
        self.until = self.until.max(until);
    }

    /// Ends the lock's lease with the last of the readers', since no writer is left.
    pub(super) fn end_with_readers(&mut self) {
        if let Some(until) = self.readers.iter().map(|reader| reader.until).max() {
            self.until = until;
        }
    }
}

impl Reader {
    pub(super) const fn new(owner: OwnerId, until: Moment) -> Self {
        let count = 1;
        Self {
            owner,
            count,
            until,
        }
    }
}
