//! The read/write lock, Redisson's `RReadWriteLock`: many readers, or one writer, which may read as
//! well.
//!
//! Every reader has a lease of its own. The lock has one, too, as long as the longest of them; a
//! writer has no other lease.

use std::time::Duration;

mod held;

pub use self::held::ReadWrite;
use self::held::{Reader, Writer};
use super::state::{ApplyContext, Outcome};
use super::tombstones::Tombstones;
use super::writers::WaitingWriters;
use super::{Action, Entry, HolderSnapshot, Kind, LockSnapshot, Moment, OwnerId, Reply, Request};

/// How often one owner may hold the read lock at once: in Redis each of these holds has a key of
/// its own.
pub const MAX_READ_HOLDS: u32 = 300;

/// Decides one request of a reader or a writer.
pub fn apply(
    held: &mut Option<ReadWrite>,
    tombstones: &mut Tombstones,
    writers: &mut WaitingWriters,
    request: &Request,
    ctx: &ApplyContext,
) -> Outcome {
    let mut lock = ReadWriteApply {
        held,
        tombstones,
        writers,
        writes: request.subject.kind == Kind::Write,
        now: ctx.now,
        notify: false,
    };
    let mut reply = lock.decide(&request.action);
    let notify = lock.notify;
    if let Reply::Released { subscribers } = &mut reply
        && notify
    {
        *subscribers = ctx.subscribers;
    }
    Outcome {
        reply: Ok(reply),
        notify: notify.then(|| request.subject.channel()),
    }
}

struct ReadWriteApply<'a> {
    held: &'a mut Option<ReadWrite>,
    tombstones: &'a mut Tombstones,
    writers: &'a mut WaitingWriters,
    /// Whether it is a writer's request.
    writes: bool,
    now: Moment,
    /// Whether a retry may succeed for waiters.
    notify: bool,
}

/// A reply before the number of notified subscribers is known.
const RELEASED: Reply = Reply::Released { subscribers: 0 };
const GRANTED: Reply = Reply::Granted { token: None };

impl ReadWriteApply<'_> {
    fn decide(&mut self, action: &Action) -> Reply {
        match action {
            Action::Acquire { owner, entry, .. } if self.tombstones.contains(owner, *entry) => {
                Reply::Undone
            }
            Action::Acquire {
                owner,
                entry,
                lease,
                other_side,
                bypass_writers,
                ..
            } if !self.writes => self.read(*owner, *entry, *lease, *other_side, *bypass_writers),
            Action::Acquire {
                owner,
                entry,
                lease,
                other_side,
                waiter_ttl,
                ..
            } => {
                let reply = self.write(*owner, *entry, *lease, *other_side);
                match (&reply, waiter_ttl) {
                    (Reply::Granted { .. }, _) => {
                        self.writers.remove(owner);
                    }
                    (Reply::Busy { .. }, Some(waiter_ttl)) if *entry == Entry::Fresh => {
                        self.writers
                            .register(*owner, self.now + *waiter_ttl, self.now);
                    }
                    _ => {}
                }
                reply
            }
            Action::CounterOp { .. } => Reply::NOT_A_COUNTER,
            Action::SemaphoreOp(_) => Reply::NOT_A_SEMAPHORE,
            Action::ForceRelease => {
                self.notify = self.held.take().is_some();
                Reply::Forced(self.notify)
            }
            Action::Inspect => Reply::Inspected(self.inspect()),
            // The first request gets the lock, not the waiter that its holder would choose.
            Action::Transfer { from, .. } => self.release(from, 0),
            Action::Release { owner, left } => self.release(owner, *left),
            Action::Renew { owner, lease } => self.renew(owner, self.now + *lease),
            Action::Undo { owner, entry } => self.undo(owner, *entry),
        }
    }

    fn read(
        &mut self,
        owner: OwnerId,
        entry: Entry,
        lease: Duration,
        own_writer: Option<OwnerId>,
        bypass_writers: bool,
    ) -> Reply {
        let until = self.now + lease;
        let writer_waits = !bypass_writers && self.writers.any_waiting(self.now);
        let Some(held) = self.held.as_mut() else {
            return match entry {
                // A grant would make up the hold that the request is to enter.
                Entry::Reentry { .. } => Reply::Gone,
                Entry::Fresh if writer_waits => Reply::Busy { ttl: None },
                Entry::Fresh => {
                    *self.held = Some(ReadWrite {
                        until,
                        writer: None,
                        readers: vec![Reader::new(owner, until)],
                    });
                    GRANTED
                }
            };
        };
        let busy = Reply::Busy {
            ttl: Some(held.until.since(self.now)),
        };
        if let Some(reader) = held.reader(&owner) {
            if let Entry::Reentry { count, .. } = entry {
                reader.count = reader.count.max(count);
            }
            reader.until = reader.until.max(until);
        } else if entry != Entry::Fresh {
            return busy;
        } else if held.writes() {
            if !own_writer.is_some_and(|writer| held.is_written_by(&writer)) {
                return busy;
            }
            held.readers.push(Reader::new(owner, until));
        } else if writer_waits {
            return Reply::Busy { ttl: None };
        } else {
            held.readers.push(Reader::new(owner, until));
        }
        held.raise(until);
        GRANTED
    }

    fn write(
        &mut self,
        owner: OwnerId,
        entry: Entry,
        lease: Duration,
        own_reader: Option<OwnerId>,
    ) -> Reply {
        let until = self.now + lease;
        let Some(held) = self.held.as_mut() else {
            if entry != Entry::Fresh {
                return Reply::Gone;
            }
            *self.held = Some(ReadWrite {
                until,
                writer: Some(Writer { owner, count: 1 }),
                readers: Vec::new(),
            });
            return GRANTED;
        };
        match &mut held.writer {
            Some(writer) if writer.owner == owner => {
                if let Entry::Reentry { count, .. } = entry {
                    writer.count = writer.count.max(count);
                }
            }
            None if entry == Entry::Fresh
                && own_reader.is_some()
                && held.readers.len() == 1
                && own_reader == held.readers.first().map(|reader| reader.owner) =>
            {
                held.writer = Some(Writer { owner, count: 1 });
            }
            Some(_) | None => {
                return Reply::Busy {
                    ttl: Some(held.until.since(self.now)),
                };
            }
        }
        held.raise(until);
        GRANTED
    }

    /// Removes every trace of an owner, or lowers its count.
    fn release(&mut self, owner: &OwnerId, left: u32) -> Reply {
        let Some(count) = self.count(owner) else {
            if self.writes && left == 0 {
                self.stop_waiting(owner);
            }
            return self.refusal();
        };
        if left > 0 {
            *count = (*count).min(left);
            return Reply::Kept;
        }
        let Some(held) = self.held.as_mut() else {
            return self.refusal();
        };
        if self.writes {
            held.writer = None;
            // Other readers may be granted the lock beside the writer's own read hold.
            self.notify = true;
        } else {
            held.readers.retain(|reader| reader.owner != *owner);
        }
        if held.writes() {
            return RELEASED;
        }
        held.end_with_readers();
        if held.readers.is_empty() {
            *self.held = None;
            self.notify = true;
        }
        RELEASED
    }

    fn renew(&mut self, owner: &OwnerId, until: Moment) -> Reply {
        if self.count(owner).is_none() {
            return self.refusal();
        }
        if let Some(held) = self.held.as_mut() {
            if !self.writes
                && let Some(reader) = held.reader(owner)
            {
                reader.until = reader.until.max(until);
            }
            held.raise(until);
        }
        Reply::Renewed
    }

    fn undo(&mut self, owner: &OwnerId, entry: Entry) -> Reply {
        let count = self.count(owner).map(|count| *count);
        let left = match entry {
            // The acquire was carried out and cannot arrive again: no tombstone is needed.
            Entry::Fresh if count.is_some() => return self.release(owner, 0),
            Entry::Fresh => 0,
            Entry::Reentry { count, .. } => count,
        };
        // The count of a hold that goes on does not show whether the acquire was carried out: other
        // guards may have left meanwhile.
        self.tombstones.insert(owner, entry, self.now);
        if count.is_some_and(|count| count > left) {
            return self.release(owner, left);
        }
        if self.writes && entry == Entry::Fresh {
            self.stop_waiting(owner);
        }
        Reply::Tombstoned
    }

    /// Removes a waiting writer; readers that waited behind it alone can be granted the lock then.
    fn stop_waiting(&mut self, owner: &OwnerId) {
        if self.writers.remove(owner) {
            let written = self.held.as_ref().is_some_and(ReadWrite::writes);
            self.notify = !written && !self.writers.any_waiting(self.now);
        }
    }

    fn inspect(&self) -> Option<LockSnapshot> {
        let held = self.held.as_ref()?;
        let held_by = |owner: OwnerId, count: u32, until: Moment| HolderSnapshot {
            owner: owner.to_string(),
            count: u64::from(count),
            ttl: Some(until.since(self.now)),
        };
        let writer = held.writer.iter();
        let writer = writer.map(|writer| held_by(writer.owner, writer.count, held.until));
        let readers = held.readers.iter();
        let readers = readers.map(|reader| held_by(reader.owner, reader.count, reader.until));
        let mut owners: Vec<_> = writer.chain(readers).collect();
        owners.sort();
        Some(LockSnapshot {
            owners,
            ttl: Some(held.until.since(self.now)),
            token: None,
            waiting: self.writers.waiting(self.now),
            writes: held.writes(),
            permits: None,
        })
    }

    /// Returns how often the owner holds it, on the side of the request.
    fn count(&mut self, owner: &OwnerId) -> Option<&mut u32> {
        let held = self.held.as_mut()?;
        if !self.writes {
            return held.reader(owner).map(|reader| &mut reader.count);
        }
        let writer = held.writer.as_mut()?;
        (writer.owner == *owner).then_some(&mut writer.count)
    }

    const fn refusal(&self) -> Reply {
        match self.held {
            Some(_) => Reply::Taken,
            None => Reply::Gone,
        }
    }
}
