//! The kinds of lock, for tests that are written once and played with each.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use distlock::{Client, Guard, Lock, LostReason};

/// A kind of lock.
pub(crate) trait Family: 'static {
    type Kind: 'static;
    /// What keeps it out, and is kept out by it.
    type Against: Family;
    /// Whether the store counts how often an owner holds it.
    const COUNTS: bool = true;
    /// Whether each grant has a token.
    const FENCED: bool = false;
    /// Whether nobody overtakes those who wait.
    const IN_ORDER: bool = false;
    /// Whether the store gives it to the next in the same breath.
    const PASSED_ON: bool = true;
    /// Whether many may hold it at once.
    const SHARED: bool = false;
    /// Whether one holds it at a time, so that who has lost it to another is told so.
    const ALONE: bool = true;
    /// Whether an owner that holds it may take it once more.
    const AGAIN: bool = true;
    /// How many permits it is, if it is all that a semaphore has.
    const PERMITS: u32 = 0;
    /// Whether it is a side of a lock that has two.
    const TWO_SIDED: bool = false;

    fn lock(client: &Client, name: Arc<str>) -> Lock<Self::Kind>;

    /// Which grant a guard is of, where that is told.
    fn token(_: &Guard<Self::Kind>) -> Option<u64> {
        None
    }
}

/// The plain lock.
pub(crate) struct Plain;

impl Family for Plain {
    type Kind = distlock::Plain;
    type Against = Self;

    fn lock(client: &Client, name: Arc<str>) -> Lock {
        client.lock(name)
    }
}

/// The fenced lock.
pub(crate) struct Fenced;

impl Family for Fenced {
    type Kind = distlock::Fenced;
    type Against = Self;
    const FENCED: bool = true;

    fn lock(client: &Client, name: Arc<str>) -> Lock<distlock::Fenced> {
        client.fenced_lock(name)
    }

    fn token(guard: &Guard<distlock::Fenced>) -> Option<u64> {
        Some(guard.token().number())
    }
}

/// The fair lock.
pub(crate) struct Fair;

impl Family for Fair {
    type Kind = distlock::Fair;
    type Against = Self;
    const PASSED_ON: bool = false;
    const IN_ORDER: bool = true;

    fn lock(client: &Client, name: Arc<str>) -> Lock<distlock::Fair> {
        client.fair_lock(name)
    }
}

/// The reader's side of a read/write lock.
pub(crate) struct Read;

impl Family for Read {
    type Kind = distlock::Read;
    type Against = Write;
    const PASSED_ON: bool = false;
    const SHARED: bool = true;
    const TWO_SIDED: bool = true;

    fn lock(client: &Client, name: Arc<str>) -> Lock<distlock::Read> {
        client.rw_lock(name).read()
    }
}

/// The writer's.
pub(crate) struct Write;

impl Family for Write {
    type Kind = distlock::Write;
    type Against = Read;
    const PASSED_ON: bool = false;
    const TWO_SIDED: bool = true;

    fn lock(client: &Client, name: Arc<str>) -> Lock<distlock::Write> {
        client.rw_lock(name).write()
    }
}

/// The simple lock.
pub(crate) struct Simple;

impl Family for Simple {
    type Kind = distlock::Simple;
    type Against = Self;
    const COUNTS: bool = false;

    fn lock(client: &Client, name: Arc<str>) -> Lock<distlock::Simple> {
        client.simple_lock(name)
    }
}

/// The only permit of a semaphore.
pub(crate) struct Semaphore;

impl Family for Semaphore {
    type Kind = distlock::Permit;
    type Against = Self;
    const COUNTS: bool = false;
    const PASSED_ON: bool = false;
    const ALONE: bool = false;
    const AGAIN: bool = false;
    const PERMITS: u32 = 1;

    fn lock(client: &Client, name: Arc<str>) -> Lock<distlock::Permit> {
        client.semaphore(name).with_permits(1).permit()
    }
}

/// All three permits of a semaphore: who waits for several stands in a line.
pub(crate) struct Several;

impl Family for Several {
    type Kind = distlock::Permit;
    type Against = Self;
    const COUNTS: bool = false;
    const PASSED_ON: bool = false;
    const ALONE: bool = false;
    const AGAIN: bool = false;
    const PERMITS: u32 = 3;

    fn lock(client: &Client, name: Arc<str>) -> Lock<distlock::Permit> {
        client.semaphore(name).with_permits(3).permits(3)
    }
}

/// The kind of lock that a family's are kept out by.
pub(crate) type Opposite<F> = <<F as Family>::Against as Family>::Kind;

/// A client whose locks are of one kind.
pub(crate) struct Player<F> {
    client: Client,
    family: PhantomData<fn() -> F>,
}

impl<F: Family> Player<F> {
    pub(crate) fn new(client: Client) -> Self {
        let family = PhantomData;
        Self { client, family }
    }

    /// In place of the client's own, which is for plain locks alone.
    pub(crate) fn lock(&self, name: impl Into<Arc<str>>) -> Lock<F::Kind> {
        F::lock(&self.client, name.into())
    }

    /// One that is kept out by it.
    pub(crate) fn against(&self, name: impl Into<Arc<str>>) -> Lock<Opposite<F>> {
        F::Against::lock(&self.client, name.into())
    }

    /// Why somebody has lost a lock that another has by now; for this reason, if who has it is all the same.
    pub(crate) fn taken_over(&self, otherwise: LostReason) -> LostReason {
        if F::ALONE {
            LostReason::TakenOver
        } else {
            otherwise
        }
    }

    /// What the store says of an owner that holds a lock so often.
    pub(crate) fn counted(&self, times: u64) -> u64 {
        match F::PERMITS {
            0 if F::COUNTS => times,
            0 => times.min(1),
            permits => times.min(1) * u64::from(permits),
        }
    }

    /// Whether the client has the name in any of its maps, all of which are in its debug output.
    pub(crate) fn remembers(&self, name: &str) -> bool {
        let shown = format!("{:?}", self.client);
        // A map that another thread is using is not shown.
        shown.contains(name) || shown.contains("<locked>")
    }

    /// One that a new owner takes, as often as it likes.
    pub(crate) fn one_owners(&self, name: &str) -> Lock<F::Kind> {
        self.lock(name).with_owner(&self.client.new_owner())
    }
}

impl<F> Deref for Player<F> {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl<F> Clone for Player<F> {
    fn clone(&self) -> Self {
        Self {
            client: self.client.clone(),
            family: PhantomData,
        }
    }
}
