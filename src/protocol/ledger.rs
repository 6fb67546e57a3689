//! What has been told of which hold, so that each thing is told once and in its order.
//!
//! News of a hold comes from the store itself ([`Ledger::changed`], [`Ledger::freed`]) or from a look at everything
//! ([`Ledger::looked`]). A look takes a while, and what it shows of a lock may be older than what was heard of it
//! meanwhile: such locks are left out. So all that was heard until the look's end is entered before the look.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::change::{Change, Changed, Event};
use super::{HeldBy, Holding, Kind, LockKind, Moment, Shape};

/// The end of a lease is known no better: a look tells what was left of it some time before it is over.
const GRAIN: Duration = Duration::from_millis(50);

/// A lock that is held, and what the clients of its owners call themselves.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The lock's name.
    pub name: String,
    /// Which kind of lock it is.
    pub kind: Kind,
    /// Its owners.
    pub holding: Holding,
    /// One for each owner, in the same order.
    pub labels: Vec<Option<String>>,
}

/// Who holds what, as far as it was told, and what is to be told next.
#[derive(Debug, Default)]
pub struct Ledger {
    held: BTreeMap<String, Vec<Hold>>,
    /// Locks that the store has told us of since the look under way began.
    heard_of: BTreeSet<String>,
    /// A look has shown what was held when the watch began.
    begun: bool,
    doubt: Doubt,
    events: VecDeque<Entry>,
}

/// Whether something may have happened that nobody heard of, and how soon looks make up for it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Doubt {
    /// Everything was heard.
    #[default]
    None,
    /// The next look to end shows what was missed.
    OneLook,
    /// The look under way may have been too early; the one after it shows what was missed.
    TwoLooks,
}

/// One hold that was told.
#[derive(Clone, Debug)]
struct Hold {
    owner: String,
    kind: Option<Kind>,
    label: Option<String>,
    end: End,
}

/// When a hold ends unless it is renewed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    At(Moment),
    Never,
    Unknown,
}

/// An event that has not been told yet.
#[derive(Debug)]
struct Entry {
    event: Event,
    heard: Moment,
    /// The label has been asked for.
    final_label: bool,
}

impl Ledger {
    /// A look begins.
    pub fn begin_look(&mut self) {
        self.heard_of.clear();
    }

    /// Something may have been missed.
    pub const fn missed(&mut self) {
        // Before the first look nobody has been told anything.
        if self.begun {
            self.doubt = Doubt::TwoLooks;
        }
    }

    /// Whether it takes another look to show what may have been missed.
    pub const fn is_doubtful(&self) -> bool {
        !matches!(self.doubt, Doubt::None)
    }

    /// Something was heard of a lock: what a look under way shows of it may be older.
    pub fn heard_of(&mut self, name: &str) {
        self.heard_of.insert(name.to_owned());
    }

    /// The store has said what became of a hold.
    pub fn changed(&mut self, changed: Changed, now: Moment) {
        let Changed {
            name,
            kind,
            owner,
            label,
            change,
        } = changed;
        self.heard_of(&name);
        let known = self.take(&name, &owner);
        if self.is_doubtful() && kind.is_none_or(Kind::is_exclusive) {
            // One holds it at a time: whoever had it before has left, and nobody told us.
            for hold in self.gone(&name, None) {
                self.tell(&name, Some(hold), Change::Released, now);
            }
        }
        if change == Change::Granted {
            let new = known.is_none();
            let hold = known.unwrap_or(Hold {
                owner,
                kind,
                label,
                end: End::Unknown,
            });
            if new {
                self.tell(&name, Some(hold.clone()), change, now);
            }
            self.held.entry(name).or_default().push(hold);
            return;
        }
        // A store may notice long after a look that a lease had run out.
        if known.is_none() && change == Change::Expired {
            return;
        }
        // Who ended it may have asked as anything that it could be.
        let (kind, known) = known.map_or((None, None), |hold| (hold.kind, hold.label));
        let label = label.or(known);
        self.name_grant(&name, &owner, label.as_deref());
        let end = End::Unknown;
        let hold = Hold {
            owner,
            kind,
            label,
            end,
        };
        self.tell(&name, Some(hold), change, now);
    }

    /// A message said that holds of a lock have ended, and this is who holds it now. A message alone proves nothing: it may come
    /// from another database of the server. So only holds that were seen before can end.
    pub fn freed(&mut self, name: &str, lock: Option<&Seen>, now: Moment) {
        self.heard_of(name);
        for hold in self.gone(name, lock) {
            let change = hold.ended(now, Change::Released);
            self.tell(name, Some(hold), change, now);
        }
        self.come(name, lock, Change::Granted, now);
    }

    /// A look at everything has ended. Tells for each lock first which holds have ended, then the new ones.
    pub fn looked(&mut self, locks: &[Seen], now: Moment) {
        let locks: BTreeMap<&str, &Seen> = locks.iter().map(|lock| (&*lock.name, lock)).collect();
        let seen = locks.keys().map(|name| (*name).to_owned());
        let names: BTreeSet<String> = self.held.keys().cloned().chain(seen).collect();
        let heard_of = std::mem::take(&mut self.heard_of);
        let change = if self.begun {
            Change::Granted
        } else {
            Change::Held
        };
        for name in names.difference(&heard_of) {
            let lock = locks.get(&**name).copied();
            // What is known from the store alone: it would have told us of a release.
            let unknown = match self.doubt {
                Doubt::None => Change::Expired,
                Doubt::OneLook | Doubt::TwoLooks => Change::Released,
            };
            for hold in self.gone(name, lock) {
                let change = hold.ended(now, unknown);
                self.tell(name, Some(hold), change, now);
            }
            self.come(name, lock, change, now);
        }
        self.begun = true;
        self.doubt = match self.doubt {
            Doubt::TwoLooks => Doubt::OneLook,
            Doubt::OneLook | Doubt::None => Doubt::None,
        };
    }

    /// When the next lease runs out, unless it is renewed.
    pub fn first_end(&self) -> Option<Moment> {
        let ends = self
            .held
            .values()
            .flatten()
            .filter_map(|hold| match hold.end {
                End::At(end) => Some(end),
                End::Never | End::Unknown => None,
            });
        ends.min()
    }

    /// Since when the next event has been waiting for a label; none if it is not.
    pub fn waits_since(&self) -> Option<Moment> {
        let entry = self.events.front()?;
        entry.wants_label().then_some(entry.heard)
    }

    /// The clients whose labels are missing in events heard until then.
    pub fn unlabelled(&self, until: Moment) -> BTreeSet<String> {
        let entries = self.events.iter().filter(|entry| entry.heard <= until);
        let entries = entries.filter(|entry| entry.wants_label());
        entries.filter_map(Entry::client).collect()
    }

    /// Enters the labels of these clients. Those that have none are not asked again.
    pub fn label(&mut self, labels: &BTreeMap<String, Option<String>>) {
        let nameless = |entry: &&mut Entry| entry.event.label.is_none();
        for entry in self.events.iter_mut().filter(nameless) {
            if let Some(label) = entry.client().and_then(|client| labels.get(&client)) {
                entry.event.label.clone_from(label);
                entry.final_label = true;
            }
        }
    }

    /// The next event, if there is one.
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

    /// Takes out the holds of a lock that are not seen any more.
    fn gone(&mut self, name: &str, lock: Option<&Seen>) -> Vec<Hold> {
        let Some(holds) = self.held.get_mut(name) else {
            return Vec::new();
        };
        let there = |hold: &Hold| {
            let owners = lock.map_or(&[][..], |lock| &lock.holding.owners);
            owners.iter().any(|held| held.owner == hold.owner)
        };
        let gone = holds.extract_if(.., |hold| !there(hold)).collect();
        if holds.is_empty() {
            self.held.remove(name);
        }
        gone
    }

    /// Enters the holds that are seen of a lock, and tells of the new ones.
    fn come(&mut self, name: &str, lock: Option<&Seen>, change: Change, now: Moment) {
        let Some(lock) = lock else {
            return;
        };
        let Seen {
            kind,
            holding,
            labels,
            ..
        } = lock;
        for (HeldBy { owner, ttl, .. }, label) in holding.owners.iter().zip(labels) {
            // Who writes may read as well: it is there until the later end.
            let ttl = if holding.writes { holding.ttl } else { *ttl };
            let end = ttl.map_or(End::Never, |ttl| End::At(now + ttl));
            let known = self.take(name, owner);
            let new = known.is_none();
            let (told, known) = known.map_or((None, None), |hold| (hold.kind, hold.label));
            // A look may take a fair lock for a plain one; but who wrote may read by now.
            let told = told.filter(|told| told.shape() == Shape::Counted);
            let hold = Hold {
                owner: owner.clone(),
                kind: told.or(Some(*kind)),
                label: label.clone().or(known),
                end,
            };
            if new {
                self.tell(name, Some(hold.clone()), change, now);
            }
            self.held.entry(name.to_owned()).or_default().push(hold);
        }
    }

    fn take(&mut self, name: &str, owner: &str) -> Option<Hold> {
        let holds = self.held.get_mut(name)?;
        let place = holds.iter().position(|hold| hold.owner == owner)?;
        let hold = holds.swap_remove(place);
        if holds.is_empty() {
            self.held.remove(name);
        }
        Some(hold)
    }

    /// Gives the label that came with a hold's end to its grant, if that has not been told yet.
    fn name_grant(&mut self, name: &str, owner: &str, label: Option<&str>) {
        let mut entries = self.events.iter_mut().rev();
        let grant = entries.find(|entry| entry.event.name == name && entry.event.is_about(owner));
        if let (Some(grant), Some(label)) = (grant.filter(|entry| entry.wants_label()), label) {
            grant.event.label = Some(label.to_owned());
        }
    }

    fn tell(&mut self, name: &str, hold: Option<Hold>, change: Change, heard: Moment) {
        let kind = hold.as_ref().and_then(|hold| hold.kind);
        let (owner, label) = hold.map_or((None, None), |hold| (Some(hold.owner), hold.label));
        let event = Event {
            name: name.to_owned(),
            kind: kind.and_then(LockKind::of),
            owner,
            label,
            change,
        };
        self.events.push_back(Entry {
            event,
            heard,
            final_label: false,
        });
    }
}

impl Hold {
    /// How it has ended, where only that is seen; `unknown` if nobody has seen its lease.
    fn ended(&self, now: Moment, unknown: Change) -> Change {
        match self.end {
            // If it had been renewed, the last look would have shown a later end.
            End::At(end) if end <= now + GRAIN => Change::Expired,
            End::At(_) | End::Never => Change::Released,
            End::Unknown => unknown,
        }
    }
}

impl Entry {
    /// A new client's label reaches the store a moment after its first grant.
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
