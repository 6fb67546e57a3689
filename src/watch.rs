//! Who takes and gives back which lock, as it happens.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::admin::{Admin, Holder, LockInfo};
use crate::driver::lookup;
use crate::error::Error;
use crate::protocol::Moment;

/// Between two looks, at least, and how many times as long as the look itself.
const PAUSE: Duration = Duration::from_millis(100);
const REST: u32 = 9;

/// Follows the locks whose names match a pattern; see [`Admin::watch`].
///
/// Looks ten times a second and compares, on every store, or as often as takes a tenth of its time: of a lock that is taken and given back between
/// two looks nothing is seen.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// use distlock::Change;
///
/// let client = distlock::Client::connect("memory:").await?;
/// let guard = client.lock("stock").acquire().await?;
/// let mut watch = client.admin().watch("*");
/// let event = watch.next().await?;
/// assert_eq!((&*event.name, event.what), ("stock", Change::Held));
/// guard.release().await?;
/// assert_eq!(watch.next().await?.what, Change::Released);
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a watch sees nothing until it is asked for the next event"]
pub struct Watch {
    admin: Admin,
    pattern: String,
    /// What the last look has shown; `None` before the first.
    seen: Option<Seen>,
    /// How long that took.
    took: Duration,
    events: VecDeque<Event>,
}

/// Something that happened to a lock.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Event {
    /// The lock's name.
    pub name: String,
    /// Whose hold it is about: `<client uuid>:<number>`.
    pub owner: String,
    /// What that owner's client calls itself, if it says.
    pub label: Option<String>,
    /// What happened.
    pub what: Change,
}

/// What happened to a lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Change {
    /// It is free because its lease has run out: nobody gave it back.
    Expired,
    /// Somebody took it.
    Granted,
    /// It was held already when the watch began.
    Held,
    /// It was given back, or taken from its holder by force.
    Released,
}

impl Watch {
    pub(crate) const fn new(admin: Admin, pattern: String) -> Self {
        Self {
            admin,
            pattern,
            seen: None,
            took: Duration::ZERO,
            events: VecDeque::new(),
        }
    }

    /// The next event, however long it takes. First come the locks that are held already.
    ///
    /// # Errors
    ///
    /// If the store cannot say what is held. Asking again goes on from the last look that succeeded.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any await; no event is lost.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// # let _guard = client.lock("order:7").acquire().await?;
    /// let mut watch = client.admin().watch("order:*");
    /// let event = watch.next().await?;
    /// println!("{}: {:?}", event.name, event.what);
    /// # Ok(()) }
    /// ```
    pub async fn next(&mut self) -> Result<Event, Error> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            if self.seen.is_some() {
                // A look at a large store takes a while; it has other things to do.
                lookup::pause(self.admin.core(), PAUSE.max(self.took * REST)).await;
            }
            let clock = &self.admin.core().clock;
            let begun = clock.now();
            let locks = self.admin.list(&self.pattern).await?;
            let now = Seen::new(locks, clock.now());
            self.took = now.at.since(begun);
            self.events.extend(match &self.seen {
                Some(before) => changes(before, &now),
                None => now.all(Change::Held),
            });
            self.seen = Some(now);
        }
    }
}

/// What one look has shown.
#[derive(Debug)]
struct Seen {
    locks: BTreeMap<String, LockInfo>,
    at: Moment,
}

impl Seen {
    fn new(locks: Vec<LockInfo>, at: Moment) -> Self {
        let locks = locks.into_iter().map(|lock| (lock.name.clone(), lock));
        let locks = locks.collect();
        Self { locks, at }
    }

    fn all(&self, what: Change) -> Vec<Event> {
        let locks = self.locks.values();
        let holders =
            locks.flat_map(|lock| lock.holders.iter().map(|holder| (&*lock.name, holder)));
        holders
            .map(|(name, holder)| Event::new(name, holder, what))
            .collect()
    }

    fn holds(&self, name: &str, owner: &str) -> bool {
        let lock = self.locks.get(name);
        lock.is_some_and(|lock| lock.holders.iter().any(|holder| holder.owner == owner))
    }
}

/// What happened between two looks: of each lock first who left it, then who took it.
fn changes(before: &Seen, now: &Seen) -> Vec<Event> {
    let mut events = Vec::new();
    for lock in before.locks.values() {
        // Renewed in time it would have had more left at that look.
        let over = lock.ttl.is_some_and(|ttl| before.at + ttl <= now.at);
        let what = if over {
            Change::Expired
        } else {
            Change::Released
        };
        let gone = |holder: &&Holder| !now.holds(&lock.name, &holder.owner);
        let gone = lock.holders.iter().filter(gone);
        events.extend(gone.map(|holder| Event::new(&lock.name, holder, what)));
    }
    for lock in now.locks.values() {
        let new = |holder: &&Holder| !before.holds(&lock.name, &holder.owner);
        let new = lock.holders.iter().filter(new);
        events.extend(new.map(|holder| Event::new(&lock.name, holder, Change::Granted)));
    }
    // Stable, so that who left comes before who took it.
    events.sort_by(|one, two| one.name.cmp(&two.name));
    events
}

impl Event {
    fn new(name: &str, holder: &Holder, what: Change) -> Self {
        Self {
            name: name.to_owned(),
            owner: holder.owner.clone(),
            label: holder.label.clone(),
            what,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A look at this millisecond: name, owner and what is left of the lease.
    fn seen(at: u64, locks: &[(&str, &str, u64)]) -> Seen {
        let lock = |(name, owner, ttl): &(&str, &str, u64)| LockInfo {
            name: (*name).to_owned(),
            holders: vec![Holder {
                owner: (*owner).to_owned(),
                hold_count: 1,
                label: None,
            }],
            ttl: Some(Duration::from_millis(*ttl)),
        };
        let at = Moment::at(Duration::from_millis(at));
        Seen::new(locks.iter().map(lock).collect(), at)
    }

    fn told(before: &Seen, now: &Seen) -> Vec<(String, String, Change)> {
        let events = changes(before, now).into_iter();
        events
            .map(|event| (event.name, event.owner, event.what))
            .collect()
    }

    #[test]
    fn a_hold_that_goes_on_is_no_event() {
        let before = seen(0, &[("a", "x", 10_000)]);
        assert_eq!(told(&before, &seen(100, &[("a", "x", 30_000)])), []);
    }

    #[test]
    fn a_holder_that_changed_is_a_release_and_a_grant() {
        let before = seen(0, &[("a", "x", 30_000), ("b", "x", 30_000)]);
        let now = seen(100, &[("a", "y", 30_000), ("c", "z", 30_000)]);
        let expected = [
            ("a", "x", Change::Released),
            ("a", "y", Change::Granted),
            ("b", "x", Change::Released),
            ("c", "z", Change::Granted),
        ];
        let expected =
            expected.map(|(name, owner, what)| (name.to_owned(), owner.to_owned(), what));
        assert_eq!(told(&before, &now), expected);
    }

    #[test]
    fn a_lease_that_ran_out_is_told_from_a_release() {
        let before = seen(0, &[("a", "x", 90), ("b", "x", 110)]);
        let told = told(&before, &seen(100, &[]));
        let what: Vec<_> = told.into_iter().map(|(_, _, what)| what).collect();
        assert_eq!(what, [Change::Expired, Change::Released]);
    }
}
