//! Follows locks: by what the store tells, and by a look at everything now and then.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::lookup::{self, is_foreign_or_denied};
use super::{Core, TroubleWith};
use crate::engine::{Answer, Feed, Notice};
use crate::protocol::Moment;
use crate::protocol::change::Event;
use crate::protocol::ledger::{Ledger, Seen};
use crate::protocol::request::flaw_of;

/// The shortest pause between two looks: where the store tells all that clients do, and where it does not.
const LONG_PAUSE: Duration = Duration::from_secs(1);
const SHORT_PAUSE: Duration = Duration::from_millis(100);
/// A pause is at least this many times as long as the look before it, to spare the store.
const REST: u32 = 9;
/// A look at the end of a lease comes just after it.
const TICK: Duration = Duration::from_millis(2);

/// How long to go on by looks alone: after the store stopped telling us things, and after it refused to.
const SHORT_SILENCE: Duration = Duration::from_millis(500);
const LONG_SILENCE: Duration = Duration::from_secs(5);

/// How soon after a client's first grant its label is in the store.
const GRACE: Duration = Duration::from_millis(50);

/// One watch. Its requests under way go on when a call is dropped and made again.
pub(crate) struct Watching {
    pattern: String,
    /// The way to the next event. The mutex is never locked: it makes a watch `Sync`.
    step: Mutex<Answer<(Follower, Result<Event, TroubleWith>)>>,
}

/// The state of a watch, and its requests under way.
struct Follower {
    core: Arc<Core>,
    pattern: String,
    ledger: Ledger,
    hearing: Hearing,
    /// Locks that may have been freed, by a message that may be about another database.
    freed: BTreeSet<String>,
    look: Look,
}

/// Whether the store tells us what happens.
enum Hearing {
    /// Not before this moment.
    Deaf(Moment),
    On(Feed),
    /// From this moment on, looks do without it.
    Trying(Answer<Option<Feed>>, Moment),
}

/// The look at all that is held.
enum Look {
    /// At this moment, or sooner.
    Due(Moment),
    /// It has shown this, and has taken that long; what was heard meanwhile comes first.
    Done(Vec<Seen>, Duration),
    UnderWay(Answer<Result<Vec<Seen>, TroubleWith>>, Moment),
}

impl Watching {
    pub(crate) fn new(core: Arc<Core>, pattern: String) -> Self {
        let now = core.clock.now();
        let follower = Follower {
            core,
            pattern: pattern.clone(),
            ledger: Ledger::default(),
            hearing: Hearing::Deaf(now),
            freed: BTreeSet::new(),
            look: Look::Due(now),
        };
        let step = Mutex::new(follower.step());
        Self { pattern, step }
    }

    pub(crate) fn pattern(&self) -> &str {
        &self.pattern
    }

    /// The next event. May be dropped at any await: no event is lost, and nothing begins anew.
    pub(crate) async fn next(&mut self) -> Result<Event, TroubleWith> {
        let step = self.step.get_mut();
        let step = step.unwrap_or_else(PoisonError::into_inner);
        let (follower, event) = step.as_mut().await;
        *step = follower.step();
        event
    }
}

impl Follower {
    /// The way to the next event, which begins when it is polled.
    fn step(mut self) -> Answer<(Self, Result<Event, TroubleWith>)> {
        Box::pin(async move {
            let event = self.next().await;
            (self, event)
        })
    }

    async fn next(&mut self) -> Result<Event, TroubleWith> {
        loop {
            let ripe = self.ledger.waits_since().map(|since| since + GRACE);
            if let Some(late) = ripe.filter(|ripe| *ripe <= self.now()) {
                self.look_up_labels(self.now().since(late)).await;
            }
            if self.ledger.waits_since().is_none()
                && let Some(event) = self.ledger.pop()
            {
                return Ok(event);
            }
            self.go_on(ripe).await?;
        }
    }

    /// Takes the next step, or waits for it; at the latest until an event is `ripe` for telling.
    async fn go_on(&mut self, ripe: Option<Moment>) -> Result<(), TroubleWith> {
        if let Some(name) = self.freed.first().cloned() {
            return self.look_at(name).await;
        }
        if let Look::Done(..) = self.look {
            self.compare().await;
            return Ok(());
        }
        self.begin();
        let due = match (&self.look, &self.hearing) {
            (Look::Due(due), Hearing::Deaf(_) | Hearing::On(_)) => Some(*due),
            (Look::Due(due), Hearing::Trying(_, long)) => Some((*due).max(*long)),
            (Look::Done(..) | Look::UnderWay(..), _) => None,
        };
        let wake = [due, ripe].into_iter().flatten().min();
        tokio::select! {
            biased;
            (looked, begun) = self.look.end() => {
                let now = self.now();
                match looked {
                    Ok(locks) => self.look = Look::Done(locks, now.since(begun)),
                    Err(trouble) => {
                        self.look = Look::Due(now + SHORT_PAUSE);
                        return Err(trouble);
                    }
                }
            }
            news = self.core.wakeups.shielded(self.hearing.next()) => {
                self.hear(news);
                // All messages of one lock that have come together need only one look at it.
                while let Some(notice) = self.hearing.more() {
                    self.hear(News::Notice(notice));
                }
            }
            () = self.core.clock.sleep_until(wake) => {}
        }
        Ok(())
    }

    /// Begins what is due: to listen, and then to look.
    fn begin(&mut self) {
        let now = self.now();
        if let Hearing::Deaf(until) = self.hearing
            && until <= now
        {
            let (core, pattern) = (self.core.clone(), self.pattern.clone());
            let feed = async move { lookup::overhear(&core, pattern).await.ok() };
            let long = now + self.core.settings.command_timeout;
            self.hearing = Hearing::Trying(Box::pin(feed), long);
        }
        // A look that begins before we listen would miss what happens in between. It is made up for then.
        let may_look = match &self.hearing {
            Hearing::Trying(_, long) => *long <= now,
            Hearing::Deaf(_) | Hearing::On(_) => true,
        };
        if let Look::Due(due) = self.look
            && due <= now
            && may_look
        {
            let (core, pattern) = (self.core.clone(), self.pattern.clone());
            let looking = async move { lookup::list(&core, &pattern, |_| {}).await };
            self.look = Look::UnderWay(Box::pin(looking), now);
            self.ledger.begin_look();
        }
    }

    fn hear(&mut self, news: News) {
        let now = self.now();
        match news {
            News::Notice(Notice::Freed(name)) => {
                self.ledger.heard_of(&name);
                self.freed.insert(name);
            }
            News::Notice(Notice::Missed) => {
                self.ledger.missed();
                self.look.hurry(now + SHORT_PAUSE);
            }
            News::Notice(Notice::Changed(changed)) => self.ledger.changed(changed, now),
            News::Began(feed) => {
                self.hearing = Hearing::On(feed);
                // We did not hear what has happened until now.
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
        if let Hearing::On(feed) = &mut self.hearing {
            let all = self.core.wakeups.shielded(feed.all()).await;
            match all {
                Some(all) => all
                    .into_iter()
                    .for_each(|notice| self.hear(News::Notice(notice))),
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
            Hearing::On(feed) if feed.tells_all() && !self.ledger.is_doubtful() => {
                let end = self.ledger.first_end();
                let end = end.map_or(LONG_PAUSE, |end| end.since(now) + TICK);
                end.clamp(SHORT_PAUSE, LONG_PAUSE)
            }
            Hearing::Deaf(_) | Hearing::On(_) | Hearing::Trying(..) => SHORT_PAUSE,
        };
        self.look = Look::Due(now + due.max(rest));
    }

    /// Finds out which holds of a lock have ended, where the store said only that some have.
    async fn look_at(&mut self, name: String) -> Result<(), TroubleWith> {
        if flaw_of(&name).is_none() {
            match lookup::inspect(&self.core, &name).await {
                Ok(lock) => {
                    let now = self.now();
                    self.ledger.freed(&name, lock.as_ref(), now);
                }
                Err(trouble) if is_foreign_or_denied(&trouble) => {}
                Err(trouble) => return Err(trouble.with(&name.into())),
            }
        }
        self.freed.remove(&name);
        Ok(())
    }

    /// Asks for the labels of events whose grace is over: the first was ripe this `late` ago, and so were all that came
    /// at most that much behind it.
    async fn look_up_labels(&mut self, late: Duration) {
        let Some(first) = self.ledger.waits_since() else {
            return;
        };
        let clients = self.ledger.unlabelled(first + late);
        let clients: Vec<String> = clients.into_iter().collect();
        let labels = lookup::labels(&self.core, clients.clone()).await;
        // Without a label the owner is known all the same.
        let labels = labels.unwrap_or_else(|_| vec![None; clients.len()]);
        self.ledger
            .label(&clients.into_iter().zip(labels).collect());
    }

    fn now(&self) -> Moment {
        self.core.clock.now()
    }
}

/// What came of listening.
enum News {
    Began(Feed),
    Ended,
    Notice(Notice),
    NotHeard,
}

impl Hearing {
    /// What was heard already.
    fn more(&mut self) -> Option<Notice> {
        match self {
            Self::On(feed) => feed.more(),
            Self::Deaf(_) | Self::Trying(..) => None,
        }
    }

    /// The next thing to be heard. May be dropped at any await.
    async fn next(&mut self) -> News {
        match self {
            Self::Deaf(_) => std::future::pending().await,
            Self::On(feed) => feed.next().await.map_or(News::Ended, News::Notice),
            Self::Trying(trying, _) => {
                let feed = trying.as_mut().await;
                feed.map_or(News::NotHeard, News::Began)
            }
        }
    }
}

impl Look {
    /// What the look under way shows, and when it began. May be dropped at any await.
    async fn end(&mut self) -> (Result<Vec<Seen>, TroubleWith>, Moment) {
        match self {
            Self::UnderWay(looking, begun) => (looking.as_mut().await, *begun),
            Self::Due(_) | Self::Done(..) => std::future::pending().await,
        }
    }

    /// Makes the next look begin by this moment.
    fn hurry(&mut self, by: Moment) {
        if let Self::Due(due) = self {
            *due = by.min(*due);
        }
    }
}
