//! The operations that only a read/write lock has: two sides, and ways from one to the other.

use super::ours::AnyGuard;
use super::{Kind, Party, Term};
use crate::clock::{Span, Stamp};
use crate::failure::{Failure, Outcome};

/// A party for each side of the lock, with one owner: the same thread in Java, the same owner of ours.
pub(crate) struct Sides {
    pub(crate) read: Party,
    pub(crate) write: Party,
}

impl Sides {
    pub(crate) fn of(party: &Party) -> Self {
        Self {
            read: party.side(Kind::Read),
            write: party.side(Kind::Write),
        }
    }

    /// Returns another owner with the same client.
    pub(crate) async fn sibling(&self) -> Outcome<Self> {
        Ok(Self::of(&self.write.sibling().await?))
    }

    pub(crate) const fn side(&mut self, kind: Kind) -> &mut Party {
        match kind {
            Kind::Read => &mut self.read,
            Kind::Counting
            | Kind::Fair
            | Kind::Fenced
            | Kind::Latch
            | Kind::Multi
            | Kind::Permit
            | Kind::Plain
            | Kind::Write => &mut self.write,
        }
    }

    pub(crate) const fn is_java(&self) -> bool {
        matches!(self.write, Party::Java(_))
    }

    /// Changes from writing to reading, as each side does it: Java acquires the read lock and then unlocks, our API has a call for it.
    /// Returns when it stopped writing.
    pub(crate) async fn downgrade(&mut self, name: &str) -> Outcome<Span> {
        let (Party::Ours(writer), Party::Ours(reader)) = (&mut self.write, &mut self.read) else {
            return self.read_on(name).await;
        };
        let AnyGuard::Write(guard) = writer.take(name)? else {
            return Err(Failure::new("a writer has a writer's guard"));
        };
        let from = Stamp::now();
        reader.keep(name, AnyGuard::Read(guard.downgrade().await?));
        let to = Stamp::now();
        Ok(Span { from, to })
    }

    /// Changes from writing to reading in two steps, which both sides have. Returns when it stopped writing.
    pub(crate) async fn read_on(&mut self, name: &str) -> Outcome<Span> {
        self.read.lock(name, Term::Kept).await?;
        self.write.unlock(name).await?.done()
    }

    /// Acquires the write lock as well while reading, if there is no other reader.
    pub(crate) async fn upgrade(&mut self, name: &str) -> Outcome<bool> {
        let (Party::Ours(writer), Party::Ours(reader)) = (&mut self.write, &mut self.read) else {
            return Err(Failure::new("Java knows no upgrade"));
        };
        let AnyGuard::Read(guard) = reader.guard(name)? else {
            return Err(Failure::new("a reader has a reader's guard"));
        };
        let guard = guard.try_upgrade().await?;
        let granted = guard.is_some();
        if let Some(guard) = guard {
            writer.keep(name, AnyGuard::Write(guard));
        }
        Ok(granted)
    }
}
