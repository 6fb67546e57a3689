//! The kinds of lock, for tests that are written once and run with each kind.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use distlock::{Client, Guard, Lock, LostReason};

/// A kind of lock, with the properties that a test has to know.
pub(crate) trait Family: 'static {
    type Kind: 'static;
    /// The kind that excludes it and is excluded by it.
    type Against: Family;
    /// Whether the store counts the holds of an owner.
    const COUNTS: bool = true;
    /// Whether each grant has a token.
    const FENCED: bool = false;
    /// Whether no waiter is overtaken.
    const IN_ORDER: bool = false;
    /// Whether the store can release it and grant it to the next waiter in one request.
    const PASSED_ON: bool = true;
    /// Whether several owners may hold it at once.
    const SHARED: bool = false;
    /// Whether it has one holder at a time, so that a holder that lost it to another owner learns that.
    const ALONE: bool = true;
    /// Whether its holder may acquire it again.
    const AGAIN: bool = true;
    /// The number of permits of the lock, which are all permits of its semaphore; 0 if it is not a semaphore.
    const PERMITS: u32 = 0;
    /// Whether it is one of the two sides of a lock.
    const TWO_SIDED: bool = false;

    fn lock(client: &Client, name: Arc<str>) -> Lock<Self::Kind>;

    /// Returns the token of a guard's grant, if the kind has tokens.
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

/// The writer's side of a read/write lock.
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

/// All three permits of a semaphore: a waiter for several permits joins a queue.
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

/// The kind of lock that excludes the locks of a family.
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

    /// Returns the family's lock of this name. It hides the method of `Client`, which returns plain locks only.
    pub(crate) fn lock(&self, name: impl Into<Arc<str>>) -> Lock<F::Kind> {
        F::lock(&self.client, name.into())
    }

    /// Returns a lock that excludes the family's lock of this name.
    pub(crate) fn against(&self, name: impl Into<Arc<str>>) -> Lock<Opposite<F>> {
        F::Against::lock(&self.client, name.into())
    }

    /// Returns why a holder lost a lock that another owner holds by now: `otherwise`, if the holder does not depend on who
    /// else holds it.
    pub(crate) fn taken_over(&self, otherwise: LostReason) -> LostReason {
        if F::ALONE {
            LostReason::TakenOver
        } else {
            otherwise
        }
    }

    /// Returns the count that the store has for an owner with this many holds.
    pub(crate) fn counted(&self, times: u64) -> u64 {
        match F::PERMITS {
            0 if F::COUNTS => times,
            0 => times.min(1),
            permits => times.min(1) * u64::from(permits),
        }
    }

    /// Returns whether any map of the client contains the name. The debug output shows all of its maps.
    pub(crate) fn remembers(&self, name: &str) -> bool {
        let shown = format!("{:?}", self.client);
        // The debug output does not show a map that another thread is using.
        shown.contains(name) || shown.contains("<locked>")
    }

    /// Returns the lock for a new owner, which may acquire it any number of times.
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
