//! What has been told of which hold, so that each thing is told once and in its order.
//!
//! A hold is told of by what the store says ([`Ledger::turned`], [`Ledger::freed`]) or by a look that shows it changed
//! ([`Ledger::looked`]). A look takes a while, and what it shows of a lock may be older than what was heard of it
//! meanwhile: of such locks it says nothing. All that was heard until its end has to be entered before it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Change, Event};
use crate::admin::{Holder, LockInfo};
use crate::engine::overheard::Turned;
use crate::protocol::Moment;
use crate::protocol::turn::Turn;

/// Who holds what, as far as it was told, and what is to be told next.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    held: BTreeMap<String, Vec<Hold>>,
    /// Locks of which something was heard since the look under way began.
    heard_of: BTreeSet<String>,
    /// A look has shown what was held when the watch began.
    begun: bool,
    /// How many looks show what may have been missed: the one under way, which may have been too early, and the next.
    doubtful: u8,
    events: VecDeque<Entry>,
}

/// One hold that was told.
#[derive(Debug)]
struct Hold {
    owner: String,
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

/// Something to be told.
#[derive(Debug)]
struct Entry {
    event: Event,
    heard: Moment,
    /// No better label is to be had.
    final_label: bool,
}

impl Ledger {
    /// A look begins.
    pub(super) fn begin_look(&mut self) {
        self.heard_of.clear();
    }

    /// Something may have happened that nobody heard of.
    pub(super) const fn missed(&mut self) {
        // Before the first look nobody has been told anything.
        self.doubtful = if self.begun { 2 } else { 0 };
    }

    /// Whether another look is to show what may have been missed.
    pub(super) const fn is_doubtful(&self) -> bool {
        self.doubtful > 0
    }

    /// Something was heard of a lock: what a look under way shows of it may be older.
    pub(super) fn heard_of(&mut self, name: &str) {
        self.heard_of.insert(name.to_owned());
    }

    /// The store has said what became of a hold.
    pub(super) fn turned(&mut self, turned: Turned, now: Moment) {
        let Turned {
            name,
            owner,
            label,
            turn,
        } = turned;
        self.heard_of(&name);
        let known = self.take(&name, &owner);
        let what = match turn {
            Turn::Expired => Change::Expired,
            Turn::Forced => Change::Forced,
            Turn::Gone => Change::Gone,
            Turn::Granted => Change::Granted,
            Turn::Released => Change::Released,
        };
        if turn == Turn::Granted {
            let new = known.is_none();
            let hold = known.unwrap_or_else(|| Hold {
                owner: owner.clone(),
                label: label.clone(),
                end: End::Unknown,
            });
            self.held.entry(name.clone()).or_default().push(hold);
            if new {
                self.tell(&name, Some(owner), label, what, now);
            }
            return;
        }
        // A store may notice long after a look that a lease had run out.
        if known.is_none() && turn == Turn::Expired {
            return;
        }
        let label = label.or(known.and_then(|hold| hold.label));
        self.name_grant(&name, &owner, label.as_deref());
        self.tell(&name, Some(owner), label, what, now);
    }

    /// So many holds of a lock have ended since it was last looked at, and this is what it looks like now.
    pub(super) fn freed(&mut self, name: &str, times: u32, lock: Option<&LockInfo>, now: Moment) {
        self.heard_of(name);
        let gone = self.gone(name, lock);
        let known = u32::try_from(gone.len()).unwrap_or(u32::MAX);
        for hold in gone {
            self.tell(name, Some(hold.owner), hold.label, Change::Released, now);
        }
        for _ in known..times {
            self.tell(name, None, None, Change::Released, now);
        }
        self.come(name, lock, Change::Granted, now);
    }

    /// A look at everything has come to its end: of each lock first who left it, then who took it.
    pub(super) fn looked(&mut self, locks: &[LockInfo], now: Moment) {
        let locks: BTreeMap<&str, &LockInfo> =
            locks.iter().map(|lock| (&*lock.name, lock)).collect();
        let seen = locks.keys().map(|name| (*name).to_owned());
        let names: BTreeSet<String> = self.held.keys().cloned().chain(seen).collect();
        let heard_of = std::mem::take(&mut self.heard_of);
        let what = if self.begun {
            Change::Granted
        } else {
            Change::Held
        };
        for name in names.difference(&heard_of) {
            let lock = locks.get(&**name).copied();
            for hold in self.gone(name, lock) {
                let over = match hold.end {
                    // Renewed in time it would have had more left at the last look.
                    End::At(end) => end <= now,
                    End::Never => false,
                    // A store that says all that clients do has said nothing.
                    End::Unknown => self.doubtful == 0,
                };
                let what = if over {
                    Change::Expired
                } else {
                    Change::Released
                };
                self.tell(name, Some(hold.owner), hold.label, what, now);
            }
            self.come(name, lock, what, now);
        }
        self.begun = true;
        self.doubtful = self.doubtful.saturating_sub(1);
    }

    /// When the first lease runs out that nobody renews.
    pub(super) fn first_end(&self) -> Option<Moment> {
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

    /// Since when the next thing to be told waits for a label; none if it does not.
    pub(super) fn waits_since(&self) -> Option<Moment> {
        let entry = self.events.front()?;
        entry.wants_label().then_some(entry.heard)
    }

    /// Whose labels are wanted, of what was heard until then.
    pub(super) fn unlabelled(&self, until: Moment) -> BTreeSet<String> {
        let entries = self.events.iter().filter(|entry| entry.heard <= until);
        let entries = entries.filter(|entry| entry.wants_label());
        entries.filter_map(Entry::client).collect()
    }

    /// These are the labels of those who have one; nobody asks again.
    pub(super) fn label(&mut self, labels: &BTreeMap<String, Option<String>>) {
        let nameless = |entry: &&mut Entry| entry.event.label.is_none();
        for entry in self.events.iter_mut().filter(nameless) {
            if let Some(label) = entry.client().and_then(|client| labels.get(&client)) {
                entry.event.label.clone_from(label);
                entry.final_label = true;
            }
        }
    }

    /// What is to be told next, if anything.
    pub(super) fn next(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?.event;
        // Those that come later of the same hold know it then.
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

    /// Takes out those who are not seen to hold a lock any more.
    fn gone(&mut self, name: &str, lock: Option<&LockInfo>) -> Vec<Hold> {
        let Some(holds) = self.held.get_mut(name) else {
            return Vec::new();
        };
        let there = |hold: &Hold| {
            let holders = lock.map_or(&[][..], |lock| &lock.holders);
            holders.iter().any(|holder| holder.owner == hold.owner)
        };
        let gone = holds.extract_if(.., |hold| !there(hold)).collect();
        if holds.is_empty() {
            self.held.remove(name);
        }
        gone
    }

    /// Enters those who are seen to hold a lock, and tells of the new ones.
    fn come(&mut self, name: &str, lock: Option<&LockInfo>, what: Change, now: Moment) {
        let Some(lock) = lock else {
            return;
        };
        let end = lock.ttl.map_or(End::Never, |ttl| End::At(now + ttl));
        for Holder { owner, label, .. } in &lock.holders {
            let known = self.take(name, owner);
            let new = known.is_none();
            let label = label.clone().or(known.and_then(|hold| hold.label));
            let hold = Hold {
                owner: owner.clone(),
                label: label.clone(),
                end,
            };
            self.held.entry(name.to_owned()).or_default().push(hold);
            if new {
                self.tell(name, Some(owner.clone()), label, what, now);
            }
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

    /// Who is known by name at the end was the same at the beginning.
    fn name_grant(&mut self, name: &str, owner: &str, label: Option<&str>) {
        let mut entries = self.events.iter_mut().rev();
        let grant = entries.find(|entry| entry.event.name == name && entry.event.is_about(owner));
        if let (Some(grant), Some(label)) = (grant.filter(|entry| entry.wants_label()), label) {
            grant.event.label = Some(label.to_owned());
        }
    }

    fn tell(
        &mut self,
        name: &str,
        owner: Option<String>,
        label: Option<String>,
        what: Change,
        heard: Moment,
    ) {
        let event = Event {
            name: name.to_owned(),
            owner,
            label,
            what,
        };
        self.events.push_back(Entry {
            event,
            heard,
            final_label: false,
        });
    }
}

impl Entry {
    /// A client says what it calls itself a moment after it was granted the lock.
    fn wants_label(&self) -> bool {
        let event = &self.event;
        event.what == Change::Granted && event.label.is_none() && !self.final_label
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
