//! Who takes and gives back which lock, as it happens.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use crate::admin::{Admin, LockInfo};
use crate::driver::lookup;
use crate::engine::{Answer, Heard, Overheard};
use crate::error::Error;
use crate::protocol::Moment;

use self::ledger::Ledger;

mod ledger;

/// Between two looks at least: where the store tells all that clients do, and where it does not.
const LONG_PAUSE: Duration = Duration::from_secs(1);
const SHORT_PAUSE: Duration = Duration::from_millis(100);
/// And how many times as long as the look itself: the store has other things to do.
const REST: u32 = 9;

/// How long to go on by looks alone when nothing can be heard any more, and when nothing could be heard at all.
const SHORT_SILENCE: Duration = Duration::from_millis(500);
const LONG_SILENCE: Duration = Duration::from_secs(5);

/// How soon after a grant its client has said what it calls itself.
const GRACE: Duration = Duration::from_millis(50);

/// Follows the locks whose names match a pattern; see [`Admin::watch`].
///
/// In memory and in a file each grant and each end is told, however short the hold, in the order in which they happened
/// to a lock. Redis and Valkey tell of releases only: a lock that is taken and given back between two looks, of which
/// there are ten a second, is told as [`Released`](Change::Released) by nobody knows whom. A lease that has run out, or a
/// process that has ended, is seen at a look: within a second. What passes from task to task within one client
/// ([`handoff_limit`](crate::ClientBuilder::handoff_limit)) is one hold to the store, and to a watch.
///
/// Events are hints: who needs to know who holds a lock now asks [`Admin::inspect`]. If more happens than can be told,
/// or the connection is lost, a look shows what has changed since.
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
#[must_use = "a watch sees nothing until it is asked for the next event"]
pub struct Watch {
    admin: Admin,
    pattern: String,
    ledger: Ledger,
    hearing: Hearing,
    /// Locks that were freed by nobody knows whom yet, and how often.
    freed: BTreeMap<String, u32>,
    look: Look,
}

/// Whether the store tells us what happens.
enum Hearing {
    /// Not before this moment.
    Deaf(Moment),
    On(Overheard),
    Trying(Kept<Option<Overheard>>),
}

/// The look at all that is held.
enum Look {
    /// At this moment, or sooner.
    Due(Moment),
    /// It has shown this, and has taken that long; what was heard meanwhile comes first.
    Done(Vec<LockInfo>, Duration),
    UnderWay(Kept<Result<Vec<LockInfo>, Error>>, Moment),
}

/// Goes on where it was when a call is dropped and made again. Behind a mutex that is never locked: a watch may be shared
/// by threads.
type Kept<T> = Mutex<Answer<T>>;

/// Something that happened to a lock.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Event {
    /// The lock's name.
    pub name: String,
    /// Whose hold it is about: `<client uuid>:<number>`. Not known of a hold on Redis that ended before it was seen.
    pub owner: Option<String>,
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
    /// It was taken from its holder by force. Redis does not tell that from [`Released`](Self::Released).
    Forced,
    /// It is free because its holder's process has ended without giving it back; only where locks end with their process.
    Gone,
    /// Somebody took it.
    Granted,
    /// It was held already when the watch began.
    Held,
    /// It was given back.
    Released,
}

impl Watch {
    pub(crate) fn new(admin: Admin, pattern: String) -> Self {
        let now = admin.core().clock.now();
        Self {
            admin,
            pattern,
            ledger: Ledger::default(),
            hearing: Hearing::Deaf(now),
            freed: BTreeMap::new(),
            look: Look::Due(now),
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
            let ripe = self.ledger.waits_since().map(|since| since + GRACE);
            if let Some(late) = ripe.filter(|ripe| *ripe <= self.now()) {
                self.look_up_labels(self.now().since(late)).await;
            }
            if self.ledger.waits_since().is_none()
                && let Some(event) = self.ledger.next()
            {
                return Ok(event);
            }
            self.go_on(ripe).await?;
        }
    }

    /// Does what is to be done next, or waits for it, but not longer than until something to tell is `ripe`.
    async fn go_on(&mut self, ripe: Option<Moment>) -> Result<(), Error> {
        if let Some(name) = self.freed.keys().next().cloned() {
            return self.look_at(name).await;
        }
        if let Look::Done(..) = self.look {
            self.compare().await;
            return Ok(());
        }
        self.begin();
        let due = match (&self.look, &self.hearing) {
            (Look::Due(due), Hearing::Deaf(_) | Hearing::On(_)) => Some(*due),
            (Look::Due(_) | Look::Done(..) | Look::UnderWay(..), _) => None,
        };
        let wake = [due, ripe].into_iter().flatten().min();
        let Self {
            admin,
            hearing,
            look,
            ..
        } = &mut *self;
        let clock = &admin.core().clock;
        tokio::select! {
            biased;
            looked = look.end() => {
                let now = self.now();
                let Look::UnderWay(_, begun) = self.look else {
                    return Ok(());
                };
                self.look = Look::Due(now + SHORT_PAUSE);
                self.look = Look::Done(looked?, now.since(begun));
            }
            heard = hearing.next() => {
                self.hear(heard);
                // What has come with it needs no more than one look at each lock.
                while let Some(heard) = self.hearing.more() {
                    self.hear(News::Heard(heard));
                }
            }
            () = clock.sleep_until(wake) => {}
        }
        Ok(())
    }

    /// Begins what is due: to listen, and then to look.
    fn begin(&mut self) {
        let now = self.now();
        if let Hearing::Deaf(until) = self.hearing
            && until <= now
        {
            let (admin, pattern) = (self.admin.clone(), self.pattern.clone());
            let overheard = async move { lookup::overhear(admin.core(), pattern).await.ok() };
            self.hearing = Hearing::Trying(Mutex::new(Box::pin(overheard)));
        }
        // A look that begins before would miss what happens in between.
        let may_look = !matches!(self.hearing, Hearing::Trying(_));
        if let Look::Due(due) = self.look
            && due <= now
            && may_look
        {
            let (admin, pattern) = (self.admin.clone(), self.pattern.clone());
            let looking = async move { admin.list(&pattern).await };
            self.look = Look::UnderWay(Mutex::new(Box::pin(looking)), now);
            self.ledger.begin_look();
        }
    }

    fn hear(&mut self, news: News) {
        let now = self.now();
        match news {
            News::Heard(Heard::Freed(name)) => {
                self.ledger.heard_of(&name);
                *self.freed.entry(name).or_default() += 1;
            }
            News::Heard(Heard::Missed) => {
                self.ledger.missed();
                self.look.hurry(now + SHORT_PAUSE);
            }
            News::Heard(Heard::Turned(turned)) => self.ledger.turned(turned, now),
            News::Began(overheard) => {
                self.hearing = Hearing::On(overheard);
                // What has happened until now nobody has told.
                self.ledger.missed();
                self.look.hurry(now);
            }
            News::Ended => {
                self.ledger.missed();
                self.hearing = Hearing::Deaf(now + SHORT_SILENCE);
                self.look.hurry(now + SHORT_PAUSE);
            }
            News::NotHeard => self.hearing = Hearing::Deaf(now + LONG_SILENCE),
        }
    }

    /// Enters what a look has shown, after all that was heard until its end.
    async fn compare(&mut self) {
        if let Hearing::On(overheard) = &mut self.hearing {
            match overheard.all().await {
                Some(all) => all
                    .into_iter()
                    .for_each(|heard| self.hear(News::Heard(heard))),
                None => self.hear(News::Ended),
            }
        }
        let now = self.now();
        let Look::Done(locks, took) = std::mem::replace(&mut self.look, Look::Due(now)) else {
            return;
        };
        self.ledger.looked(&locks, now);
        let rest = took * REST;
        let due = match &self.hearing {
            Hearing::On(overheard) if overheard.tells_all() && !self.ledger.is_doubtful() => {
                let end = self.ledger.first_end();
                let end = end.map_or(LONG_PAUSE, |end| end.since(now) + TICK);
                end.clamp(SHORT_PAUSE, LONG_PAUSE)
            }
            Hearing::Deaf(_) | Hearing::On(_) | Hearing::Trying(_) => SHORT_PAUSE,
        };
        self.look = Look::Due(now + due.max(rest));
    }

    /// Sees who left a lock of which only that is known.
    async fn look_at(&mut self, name: String) -> Result<(), Error> {
        let lock = self.admin.inspect(&name).await;
        let ours = !matches!(
            lock,
            Err(Error::InvalidName { .. }
                | Error::PermissionDenied { .. }
                | Error::WrongKind { .. })
        );
        if ours {
            let (lock, now) = (lock?, self.now());
            let times = self.freed.get(&name).copied().unwrap_or(0);
            self.ledger.freed(&name, times, lock.as_ref(), now);
        }
        self.freed.remove(&name);
        Ok(())
    }

    /// Asks for the labels of those whose time is over: of the first since `late`, and of those so much behind it.
    async fn look_up_labels(&mut self, late: Duration) {
        let Some(first) = self.ledger.waits_since() else {
            return;
        };
        let clients = self.ledger.unlabelled(first + late);
        let clients: Vec<String> = clients.into_iter().collect();
        let labels = lookup::labels(self.admin.core(), clients.clone()).await;
        // Without a label the owner is known all the same.
        let labels = labels.unwrap_or_else(|_| vec![None; clients.len()]);
        self.ledger
            .label(&clients.into_iter().zip(labels).collect());
    }

    fn now(&self) -> Moment {
        self.admin.core().clock.now()
    }
}

/// What there is to hear.
enum News {
    Began(Overheard),
    Ended,
    Heard(Heard),
    NotHeard,
}

impl Hearing {
    /// What was heard already.
    fn more(&mut self) -> Option<Heard> {
        match self {
            Self::On(overheard) => overheard.more(),
            Self::Deaf(_) | Self::Trying(_) => None,
        }
    }

    /// The next thing to be heard. May be dropped at any await.
    async fn next(&mut self) -> News {
        match self {
            Self::Deaf(_) => std::future::pending().await,
            Self::On(overheard) => overheard.next().await.map_or(News::Ended, News::Heard),
            Self::Trying(trying) => {
                let overheard = kept(trying).await;
                overheard.map_or(News::NotHeard, News::Began)
            }
        }
    }
}

impl Look {
    /// What the look under way shows. May be dropped at any await.
    async fn end(&mut self) -> Result<Vec<LockInfo>, Error> {
        match self {
            Self::UnderWay(looking, _) => kept(looking).await,
            Self::Due(_) | Self::Done(..) => std::future::pending().await,
        }
    }

    /// Has the next look at this moment at the latest.
    fn hurry(&mut self, by: Moment) {
        if let Self::Due(due) = self {
            *due = by.min(*due);
        }
    }
}

async fn kept<T>(kept: &mut Kept<T>) -> T {
    kept.get_mut()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .as_mut()
        .await
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("pattern", &self.pattern)
            .finish_non_exhaustive()
    }
}

/// A look at the end of a lease comes just after it.
const TICK: Duration = Duration::from_millis(2);
