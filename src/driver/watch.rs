//! Follows locks: by the store's change feed, and by a scan of all locks from time to time.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::lookup::{self, is_foreign_or_denied};
use super::{Core, NamedDriverError};
use crate::engine::{BoxFuture, ChangeFeed, FeedItem};
use crate::protocol::Moment;
use crate::protocol::change::Event;
use crate::protocol::event_diff::{EventDiff, LabeledSnapshot};
use crate::protocol::request::validate_name;

/// The shortest pause between two scans where the store reports every change that a client makes.
const LONG_PAUSE: Duration = Duration::from_secs(1);
/// The shortest pause between two scans where it does not.
const SHORT_PAUSE: Duration = Duration::from_millis(100);
/// A pause is at least this many times as long as the scan before it, to spare the store.
const SCAN_PAUSE_FACTOR: u32 = 9;
/// A scan for the end of a lease starts this long after it.
const END_MARGIN: Duration = Duration::from_millis(2);

/// How long a watch relies on scans alone: after its change feed ended, and after the store refused one.
const SHORT_RETRY: Duration = Duration::from_millis(500);
const LONG_RETRY: Duration = Duration::from_secs(5);

/// How soon after a client's first grant its label is in the store.
const LABEL_GRACE: Duration = Duration::from_millis(50);

/// One watch. Its requests in flight continue when a call is dropped and made again.
pub(crate) struct LockWatch {
    pattern: String,
    /// The future of the next event. The mutex is never locked: it makes a watch `Sync`.
    step: Mutex<BoxFuture<(WatchState, Result<Event, NamedDriverError>)>>,
}

/// The state of a watch, and its requests in flight.
struct WatchState {
    core: Arc<Core>,
    pattern: String,
    events: EventDiff,
    feed_state: FeedState,
    /// Locks that may have been released, according to a message that may be about another database.
    freed: BTreeSet<String>,
    scan: ScanState,
}

/// The state of the change feed.
enum FeedState {
    /// There is no feed, and no attempt to connect one before this moment.
    Disconnected(Moment),
    Live(ChangeFeed),
    /// A feed is being connected; from this moment on scans do not wait for it.
    Connecting(BoxFuture<Option<ChangeFeed>>, Moment),
}

/// The state of the scan of all held locks.
enum ScanState {
    /// The next scan starts at this moment, or sooner.
    Due(Moment),
    /// The scan has returned these locks, and has taken that long; notifications that arrived meanwhile are applied
    /// first.
    Done(Vec<LabeledSnapshot>, Duration),
    Running(
        BoxFuture<Result<Vec<LabeledSnapshot>, NamedDriverError>>,
        Moment,
    ),
}

impl LockWatch {
    pub(crate) fn new(core: Arc<Core>, pattern: String) -> Self {
        let now = core.clock.now();
        let state = WatchState {
            core,
            pattern: pattern.clone(),
            events: EventDiff::default(),
            feed_state: FeedState::Disconnected(now),
            freed: BTreeSet::new(),
            scan: ScanState::Due(now),
        };
        let step = Mutex::new(state.step());
        Self { pattern, step }
    }

    pub(crate) fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Returns the next event. May be dropped at any await: no event is lost, and nothing starts over.
    pub(crate) async fn next(&mut self) -> Result<Event, NamedDriverError> {
        let step = self.step.get_mut();
        let step = step.unwrap_or_else(PoisonError::into_inner);
        let (state, event) = step.as_mut().await;
        *step = state.step();
        event
    }
}

impl WatchState {
    /// Returns the future of the next event, which starts when it is polled.
    fn step(mut self) -> BoxFuture<(Self, Result<Event, NamedDriverError>)> {
        Box::pin(async move {
            let event = self.next().await;
            (self, event)
        })
    }

    async fn next(&mut self) -> Result<Event, NamedDriverError> {
        loop {
            let labels_due = self
                .events
                .waiting_for_label_since()
                .map(|since| since + LABEL_GRACE);
            if let Some(late) = labels_due.filter(|labels_due| *labels_due <= self.now()) {
                self.look_up_labels(self.now().since(late)).await;
            }
            if self.events.waiting_for_label_since().is_none()
                && let Some(event) = self.events.pop()
            {
                return Ok(event);
            }
            self.advance(labels_due).await?;
        }
    }

    /// Takes the next step, or waits for it; at the latest until the label of an event is due (`labels_due`).
    async fn advance(&mut self, labels_due: Option<Moment>) -> Result<(), NamedDriverError> {
        if let Some(name) = self.freed.first().cloned() {
            return self.inspect_freed(name).await;
        }
        if let ScanState::Done(..) = self.scan {
            self.apply_scan().await;
            return Ok(());
        }
        self.begin();
        let due = match (&self.scan, &self.feed_state) {
            (ScanState::Due(due), FeedState::Disconnected(_) | FeedState::Live(_)) => Some(*due),
            (ScanState::Due(due), FeedState::Connecting(_, long)) => Some((*due).max(*long)),
            (ScanState::Done(..) | ScanState::Running(..), _) => None,
        };
        let wake = [due, labels_due].into_iter().flatten().min();
        tokio::select! {
            biased;
            (scanned, begun) = self.scan.end() => {
                let now = self.now();
                match scanned {
                    Ok(locks) => self.scan = ScanState::Done(locks, now.since(begun)),
                    Err(error) => {
                        self.scan = ScanState::Due(now + SHORT_PAUSE);
                        return Err(error);
                    }
                }
            }
            event = self.core.waker_executor.with_waker_proxy(self.feed_state.next()) => {
                self.on_feed_event(event);
                // Messages about one lock that have arrived together need only one inspection of it.
                while let Some(notice) = self.feed_state.more() {
                    self.on_feed_event(FeedEvent::FeedItem(notice));
                }
            }
            () = self.core.clock.sleep_until(wake) => {}
        }
        Ok(())
    }

    /// Starts what is due: the change feed, and then a scan.
    fn begin(&mut self) {
        let now = self.now();
        if let FeedState::Disconnected(until) = self.feed_state
            && until <= now
        {
            let (core, pattern) = (self.core.clone(), self.pattern.clone());
            let feed = async move { lookup::monitor(&core, pattern).await.ok() };
            let long = now + self.core.settings.command_timeout;
            self.feed_state = FeedState::Connecting(Box::pin(feed), long);
        }
        // A scan that starts before the feed is connected would miss the changes in between. A scan after the
        // connection makes up for it.
        let may_scan = match &self.feed_state {
            FeedState::Connecting(_, long) => *long <= now,
            FeedState::Disconnected(_) | FeedState::Live(_) => true,
        };
        if let ScanState::Due(due) = self.scan
            && due <= now
            && may_scan
        {
            let (core, pattern) = (self.core.clone(), self.pattern.clone());
            let scanning = async move { lookup::list(&core, &pattern, |_| {}).await };
            self.scan = ScanState::Running(Box::pin(scanning), now);
            self.events.begin_scan();
        }
    }

    fn on_feed_event(&mut self, event: FeedEvent) {
        let now = self.now();
        match event {
            FeedEvent::FeedItem(FeedItem::MaybeReleased(name)) => {
                self.events.note_change(&name);
                self.freed.insert(name);
            }
            FeedEvent::FeedItem(FeedItem::Lagged) => {
                self.events.missed_notifications();
                self.scan.due_by(now + SHORT_PAUSE);
            }
            FeedEvent::FeedItem(FeedItem::HoldChange(changed)) => self.events.changed(changed, now),
            FeedEvent::Connected(feed) => {
                self.feed_state = FeedState::Live(feed);
                // The changes until now were not received.
                self.events.missed_notifications();
                self.scan.due_by(now);
            }
            FeedEvent::Ended => {
                self.events.missed_notifications();
                self.feed_state = FeedState::Disconnected(now + SHORT_RETRY);
                self.scan.due_by(now + SHORT_PAUSE);
            }
            FeedEvent::Unavailable => self.feed_state = FeedState::Disconnected(now + LONG_RETRY),
        }
    }

    /// Applies the result of a scan, after all notifications until its end.
    async fn apply_scan(&mut self) {
        if let FeedState::Live(feed) = &mut self.feed_state {
            let all = self
                .core
                .waker_executor
                .with_waker_proxy(feed.drain())
                .await;
            match all {
                Some(all) => all
                    .into_iter()
                    .for_each(|notice| self.on_feed_event(FeedEvent::FeedItem(notice))),
                None => self.on_feed_event(FeedEvent::Ended),
            }
        }
        let now = self.now();
        let ScanState::Done(locks, took) = std::mem::replace(&mut self.scan, ScanState::Due(now))
        else {
            return;
        };
        self.events.scan_finished(&locks, now);
        let min_pause = took * SCAN_PAUSE_FACTOR;
        let due = match &self.feed_state {
            FeedState::Live(feed) if feed.is_complete() && !self.events.may_have_missed() => {
                let end = self.events.next_expiry();
                let end = end.map_or(LONG_PAUSE, |end| end.since(now) + END_MARGIN);
                end.clamp(SHORT_PAUSE, LONG_PAUSE)
            }
            FeedState::Disconnected(_) | FeedState::Live(_) | FeedState::Connecting(..) => {
                SHORT_PAUSE
            }
        };
        self.scan = ScanState::Due(now + due.max(min_pause));
    }

    /// Finds out which holds of a lock have ended, where the store reported only that some may have.
    async fn inspect_freed(&mut self, name: String) -> Result<(), NamedDriverError> {
        if validate_name(&name).is_none() {
            match lookup::inspect(&self.core, &name).await {
                Ok(lock) => {
                    let now = self.now();
                    self.events.freed(&name, lock.as_ref(), now);
                }
                Err(error) if is_foreign_or_denied(&error) => {}
                Err(error) => return Err(error.with(&name.into())),
            }
        }
        self.freed.remove(&name);
        Ok(())
    }

    /// Requests the labels of events whose grace period is over: the first event's label was due this `late` ago, and
    /// so were those of all events that came at most that much behind it.
    async fn look_up_labels(&mut self, late: Duration) {
        let Some(first) = self.events.waiting_for_label_since() else {
            return;
        };
        let clients = self.events.unlabelled(first + late);
        let clients: Vec<String> = clients.into_iter().collect();
        let labels = lookup::labels(&self.core, clients.clone()).await;
        // Without a label the owner is still known.
        let labels = labels.unwrap_or_else(|_| vec![None; clients.len()]);
        self.events
            .apply_labels(&clients.into_iter().zip(labels).collect());
    }

    fn now(&self) -> Moment {
        self.core.clock.now()
    }
}

/// An event of the change feed.
enum FeedEvent {
    Connected(ChangeFeed),
    Ended,
    FeedItem(FeedItem),
    Unavailable,
}

impl FeedState {
    /// Returns a feed item that has arrived already.
    fn more(&mut self) -> Option<FeedItem> {
        match self {
            Self::Live(feed) => feed.try_next(),
            Self::Disconnected(_) | Self::Connecting(..) => None,
        }
    }

    /// Returns the next feed event. May be dropped at any await.
    async fn next(&mut self) -> FeedEvent {
        match self {
            Self::Disconnected(_) => std::future::pending().await,
            Self::Live(feed) => feed
                .next()
                .await
                .map_or(FeedEvent::Ended, FeedEvent::FeedItem),
            Self::Connecting(connecting, _) => {
                let feed = connecting.as_mut().await;
                feed.map_or(FeedEvent::Unavailable, FeedEvent::Connected)
            }
        }
    }
}

impl ScanState {
    /// Returns the result of the running scan, and when it started. May be dropped at any await.
    async fn end(&mut self) -> (Result<Vec<LabeledSnapshot>, NamedDriverError>, Moment) {
        match self {
            Self::Running(scanning, begun) => (scanning.as_mut().await, *begun),
            Self::Due(_) | Self::Done(..) => std::future::pending().await,
        }
    }

    /// Makes the next scan start by this moment.
    fn due_by(&mut self, by: Moment) {
        if let Self::Due(due) = self {
            *due = by.min(*due);
        }
    }
}
