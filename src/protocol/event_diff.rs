//! The events of a watch: each change to a hold is reported once and in its order.
//!
//! A change is learned from the store itself ([`EventDiff::changed`], [`EventDiff::freed`]) or from
//! a scan of everything ([`EventDiff::scan_finished`]). A scan takes a while, and its snapshot of a
//! lock may be older than a notification that arrived meanwhile: such locks are left out. So all
//! notifications up to the scan's end are entered before the scan.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::change::{Change, Event, HoldChange};
use super::{HolderSnapshot, Kind, LockKind, LockSnapshot, Moment, StateKind};

/// The precision of a lease's end: a snapshot has the time that was left some time before the scan
/// finished.
const EXPIRY_TOLERANCE: Duration = Duration::from_millis(50);

/// A lock that is held, with the labels of its owners' clients.
#[derive(Clone, Debug)]
pub struct LabeledSnapshot {
    /// The lock's name.
    pub name: String,
    /// The kind of lock.
    pub kind: Kind,
    /// The lock's owners.
    pub holding: LockSnapshot,
    /// One label for each owner, in the same order.
    pub labels: Vec<Option<String>>,
}

/// The holds as far as they were reported, and the events that are to be reported next.
#[derive(Debug, Default)]
pub struct EventDiff {
    held: BTreeMap<String, Vec<ObservedHold>>,
    /// Locks about which a notification came since the scan under way began.
    changed_since_scan: BTreeSet<String>,
    /// Whether a scan has shown what was held when the watch began.
    initialized: bool,
    scans_needed: ScansNeeded,
    events: VecDeque<PendingEvent>,
}

/// Whether a notification may have been missed, and how many scans make up for it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum ScansNeeded {
    /// No notification was missed.
    #[default]
    None,
    /// The next scan to finish shows what was missed.
    One,
    /// The scan under way may have been too early; the one after it shows what was missed.
    Two,
}

/// One hold that was reported.
#[derive(Clone, Debug)]
struct ObservedHold {
    owner: String,
    kind: Option<Kind>,
    label: Option<String>,
    end: LeaseEnd,
}

/// The end of a hold unless it is renewed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum LeaseEnd {
    At(Moment),
    Never,
    Unknown,
}

/// An event that has not been reported yet.
#[derive(Debug)]
struct PendingEvent {
    event: Event,
    observed_at: Moment,
    /// Whether the label has been requested already.
    final_label: bool,
}

impl EventDiff {
    /// Begins a scan.
    pub fn begin_scan(&mut self) {
        self.changed_since_scan.clear();
    }

    /// Records that notifications may have been missed.
    pub const fn missed_notifications(&mut self) {
        // Before the first scan nothing has been reported.
        if self.initialized {
            self.scans_needed = ScansNeeded::Two;
        }
    }

    /// Reports whether another scan has to show what may have been missed.
    pub const fn may_have_missed(&self) -> bool {
        !matches!(self.scans_needed, ScansNeeded::None)
    }

    /// Records a notification about a lock: the snapshot of a scan under way may be older.
    pub fn note_change(&mut self, name: &str) {
        self.changed_since_scan.insert(name.to_owned());
    }

    /// Enters a change to a hold that the store has reported.
    pub fn changed(&mut self, changed: HoldChange, now: Moment) {
        let HoldChange {
            name,
            kind,
            owner,
            label,
            change,
        } = changed;
        self.note_change(&name);
        let known = self.take(&name, &owner);
        if self.may_have_missed() && kind.is_none_or(Kind::is_exclusive) {
            // The lock has one holder at a time: an earlier holder has left, and its notification
            // was missed.
            for hold in self.take_ended(&name, None) {
                self.push_event(&name, Some(hold), Change::Released, now);
            }
        }
        if change == Change::Granted {
            let new = known.is_none();
            let hold = known.unwrap_or(ObservedHold {
                owner,
                kind,
                label,
                end: LeaseEnd::Unknown,
            });
            if new {
                self.push_event(&name, Some(hold.clone()), change, now);
            }
            self.held.entry(name).or_default().push(hold);
            return;
        }
        // A store may notice long after a scan that a lease had expired.
        if known.is_none() && change == Change::Expired {
            return;
        }
        // The action that ended the hold may have named any kind that the lock could be; the
        // recorded kind is better.
        let (kind, known) = known.map_or((None, None), |hold| (hold.kind, hold.label));
        let label = label.or(known);
        self.label_grant(&name, &owner, label.as_deref());
        let end = LeaseEnd::Unknown;
        let hold = ObservedHold {
            owner,
            kind,
            label,
            end,
        };
        self.push_event(&name, Some(hold), change, now);
    }

    /// Enters a message that holds of a lock have ended, with a snapshot of its holders now. A
    /// message alone proves nothing: it may come from another database of the server. So only holds
    /// that were seen before can end.
    pub fn freed(&mut self, name: &str, lock: Option<&LabeledSnapshot>, now: Moment) {
        self.note_change(name);
        for hold in self.take_ended(name, lock) {
            let change = hold.ended(now, Change::Released);
            self.push_event(name, Some(hold), change, now);
        }
        self.add_observed(name, lock, Change::Granted, now);
    }

    /// Ends a scan. Reports for each lock first the holds that have ended, then the new ones.
    pub fn scan_finished(&mut self, locks: &[LabeledSnapshot], now: Moment) {
        let locks: BTreeMap<&str, &LabeledSnapshot> =
            locks.iter().map(|lock| (&*lock.name, lock)).collect();
        let seen = locks.keys().map(|name| (*name).to_owned());
        let names: BTreeSet<String> = self.held.keys().cloned().chain(seen).collect();
        let changed = std::mem::take(&mut self.changed_since_scan);
        let change = if self.initialized {
            Change::Granted
        } else {
            Change::Held
        };
        for name in names.difference(&changed) {
            let lock = locks.get(&**name).copied();
            // For holds known only by the store's reports: the store would have reported a release.
            let unknown = match self.scans_needed {
                ScansNeeded::None => Change::Expired,
                ScansNeeded::One | ScansNeeded::Two => Change::Released,
            };
            for hold in self.take_ended(name, lock) {
                let change = hold.ended(now, unknown);
                self.push_event(name, Some(hold), change, now);
            }
            self.add_observed(name, lock, change, now);
        }
        self.initialized = true;
        self.scans_needed = match self.scans_needed {
            ScansNeeded::Two => ScansNeeded::One,
            ScansNeeded::One | ScansNeeded::None => ScansNeeded::None,
        };
    }

    /// Returns when the next lease expires, unless it is renewed.
    pub fn next_expiry(&self) -> Option<Moment> {
        let ends = self
            .held
            .values()
            .flatten()
            .filter_map(|hold| match hold.end {
                LeaseEnd::At(end) => Some(end),
                LeaseEnd::Never | LeaseEnd::Unknown => None,
            });
        ends.min()
    }

    /// Returns since when the next event has been waiting for a label; `None` if it is not waiting.
    pub fn waiting_for_label_since(&self) -> Option<Moment> {
        let entry = self.events.front()?;
        entry.wants_label().then_some(entry.observed_at)
    }

    /// Returns the clients whose labels are missing in events observed until then.
    pub fn unlabelled(&self, until: Moment) -> BTreeSet<String> {
        let entries = self
            .events
            .iter()
            .filter(|entry| entry.observed_at <= until);
        let entries = entries.filter(|entry| entry.wants_label());
        entries.filter_map(PendingEvent::client).collect()
    }

    /// Enters the labels of these clients. Clients without a label are not queried again.
    pub fn apply_labels(&mut self, labels: &BTreeMap<String, Option<String>>) {
        let nameless = |entry: &&mut PendingEvent| entry.event.label.is_none();
        for entry in self.events.iter_mut().filter(nameless) {
            if let Some(label) = entry.client().and_then(|client| labels.get(&client)) {
                entry.event.label.clone_from(label);
                entry.final_label = true;
            }
        }
    }

    /// Returns the next event, if there is one.
    pub fn pop(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?.event;
        // Later events of the same hold carry the label, too.
        if let Some(label) = &event.label
            && let Some(holds) = self.held.get_mut(&event.name)
        {
            let hold = holds.iter_mut().find(|hold| event.is_about(&hold.owner));
            if let Some(hold) = hold.filter(|hold| hold.label.is_none()) {
                hold.label = Some(label.clone());
            }
        }
        Some(event)
    }

    /// Removes and returns the holds of a lock that are not in its snapshot any more.
    fn take_ended(&mut self, name: &str, lock: Option<&LabeledSnapshot>) -> Vec<ObservedHold> {
        let Some(holds) = self.held.get_mut(name) else {
            return Vec::new();
        };
        let is_held = |hold: &ObservedHold| {
            let owners = lock.map_or(&[][..], |lock| &lock.holding.owners);
            owners.iter().any(|held| held.owner == hold.owner)
        };
        let ended = holds.extract_if(.., |hold| !is_held(hold)).collect();
        if holds.is_empty() {
            self.held.remove(name);
        }
        ended
    }

    /// Enters the holds in a lock's snapshot, and reports the new ones.
    fn add_observed(
        &mut self,
        name: &str,
        lock: Option<&LabeledSnapshot>,
        change: Change,
        now: Moment,
    ) {
        let Some(lock) = lock else {
            return;
        };
        let LabeledSnapshot {
            kind,
            holding,
            labels,
            ..
        } = lock;
        for (HolderSnapshot { owner, ttl, .. }, label) in holding.owners.iter().zip(labels) {
            // A writer may read as well: its hold lasts until the later end.
            let ttl = if holding.writes { holding.ttl } else { *ttl };
            let end = ttl.map_or(LeaseEnd::Never, |ttl| LeaseEnd::At(now + ttl));
            let known = self.take(name, owner);
            let new = known.is_none();
            let (known_kind, known) = known.map_or((None, None), |hold| (hold.kind, hold.label));
            // A scan may take a fair lock for a plain one; but the holder of a write lock may be a
            // reader by now.
            let known_kind = known_kind.filter(|kind| kind.state_kind() == StateKind::Mutex);
            let hold = ObservedHold {
                owner: owner.clone(),
                kind: known_kind.or(Some(*kind)),
                label: label.clone().or(known),
                end,
            };
            if new {
                self.push_event(name, Some(hold.clone()), change, now);
            }
            self.held.entry(name.to_owned()).or_default().push(hold);
        }
    }

    fn take(&mut self, name: &str, owner: &str) -> Option<ObservedHold> {
        let holds = self.held.get_mut(name)?;
        let place = holds.iter().position(|hold| hold.owner == owner)?;
        let hold = holds.swap_remove(place);
        if holds.is_empty() {
            self.held.remove(name);
        }
        Some(hold)
    }

    /// Adds the label that came with a hold's end to its grant, if that event has not been reported
    /// yet.
    fn label_grant(&mut self, name: &str, owner: &str, label: Option<&str>) {
        let mut entries = self.events.iter_mut().rev();
        let grant = entries.find(|entry| entry.event.name == name && entry.event.is_about(owner));
        if let (Some(grant), Some(label)) = (grant.filter(|entry| entry.wants_label()), label) {
            grant.event.label = Some(label.to_owned());
        }
    }

    fn push_event(
        &mut self,
        name: &str,
        hold: Option<ObservedHold>,
        change: Change,
        observed_at: Moment,
    ) {
        let kind = hold.as_ref().and_then(|hold| hold.kind);
        let (owner, label) = hold.map_or((None, None), |hold| (Some(hold.owner), hold.label));
        let event = Event {
            name: name.to_owned(),
            kind: kind.and_then(LockKind::of),
            owner,
            label,
            change,
        };
        self.events.push_back(PendingEvent {
            event,
            observed_at,
            final_label: false,
        });
    }
}

impl ObservedHold {
    /// Returns how the hold has ended if only its absence is seen; `unknown` if its lease was never
    /// seen.
    fn ended(&self, now: Moment, unknown: Change) -> Change {
        match self.end {
            // If it had been renewed, the last scan would have shown a later end.
            LeaseEnd::At(end) if end <= now + EXPIRY_TOLERANCE => Change::Expired,
            LeaseEnd::At(_) | LeaseEnd::Never => Change::Released,
            LeaseEnd::Unknown => unknown,
        }
    }
}

impl PendingEvent {
    /// Reports whether a label may still come: a new client's label reaches the store a moment
    /// after its first grant.
    fn wants_label(&self) -> bool {
        let event = &self.event;
        event.change == Change::Granted && event.label.is_none() && !self.final_label
    }

    fn client(&self) -> Option<String> {
        let owner = self.event.owner.as_ref()?;
        owner.split(':').next().map(str::to_owned)
    }
}

impl Event {
    fn is_about(&self, owner: &str) -> bool {
        self.owner.as_deref() == Some(owner)
    }
}

#[cfg(test)]
mod tests;
