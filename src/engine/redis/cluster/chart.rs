//! Which server has which slot, made of what several of them say. Pure.
//!
//! Every change of hands has a number, the config epoch of whoever got the slot: who claims it by a later one is right.

use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;

use redis::Value;

use crate::engine::redis::site::Site;
use crate::engine::redis::slot::{SLOTS, Slot};

/// That a server has these slots.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Claim {
    pub(super) slots: RangeInclusive<u16>,
    pub(super) site: Site,
    pub(super) epoch: u64,
    /// Whether it says so itself, and was asked where it says that it is.
    pub(super) own: bool,
    /// How many servers follow it.
    pub(super) replicas: usize,
}

/// What one server says of all of them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct View {
    pub(super) claims: Vec<Claim>,
    /// Whether it knows channels that belong to a slot.
    pub(super) sharded: bool,
}

/// Which server has which slot.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Chart {
    /// Sorted.
    sites: Vec<Site>,
    /// For each slot the place of its server among those.
    owners: Vec<Option<Owner>>,
    /// Whether all of them know channels that belong to a slot.
    pub(super) sharded: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Owner {
    place: usize,
    epoch: u64,
}

impl Chart {
    /// Makes one of what several say; what only an earlier one knew stays, unless `all` who could know better were heard.
    pub(super) fn of(views: &[View], before: Option<&Self>, all: bool) -> Self {
        let claims = || views.iter().flat_map(|view| &view.claims);
        let mut sites: BTreeSet<&Site> = claims().map(|claim| &claim.site).collect();
        let before = before.filter(|_| !all);
        sites.extend(before.iter().flat_map(|before| &before.sites));
        let sites: Vec<Site> = sites.into_iter().cloned().collect();
        let place = |site: &Site| sites.binary_search(site).ok();
        let mut owners = vec![None; SLOTS];
        // One that has moved house has the epoch it had: who was there to be asked is right.
        let mut claims: Vec<&Claim> = claims().collect();
        claims.sort_by_key(|claim| (claim.epoch, claim.own));
        for claim in claims {
            let Some(place) = place(&claim.site) else {
                continue;
            };
            let epoch = claim.epoch;
            let (first, last) = (*claim.slots.start(), *claim.slots.end());
            let slots = owners.get_mut(first.into()..=last.into());
            for slot in slots.into_iter().flatten() {
                *slot = Some(Owner { place, epoch });
            }
        }
        // For the same reason what is said now outweighs what was said by the same epoch.
        for (slot, known) in owners.iter_mut().zip(before.iter().flat_map(|b| &b.owners)) {
            if let (Some(known), Some(before)) = (known, before)
                && slot.is_none_or(|said: Owner| said.epoch < known.epoch)
                && let Some(place) = place(&before.sites[known.place])
            {
                let epoch = known.epoch;
                *slot = Some(Owner { place, epoch });
            }
        }
        let sharded = !views.is_empty() && views.iter().all(|view| view.sharded);
        let mut chart = Self {
            sites,
            owners,
            sharded,
        };
        chart.forget_those_without();
        chart
    }

    /// Who has a slot, if anybody does.
    pub(super) fn owner(&self, slot: Slot) -> Option<&Site> {
        let owner = self.owners[slot.number()]?;
        Some(&self.sites[owner.place])
    }

    /// The place of a slot's server among [`sites`](Self::sites).
    pub(super) fn place(&self, slot: Slot) -> Option<usize> {
        self.owners[slot.number()].map(|owner| owner.place)
    }

    /// All who have any, sorted.
    pub(super) fn sites(&self) -> &[Site] {
        &self.sites
    }

    /// How many slots nobody has.
    pub(super) fn missing(&self) -> usize {
        self.owners.iter().filter(|owner| owner.is_none()).count()
    }

    /// Whether a slot has another server than it had: what was granted there may be forgotten. Also of the same one, where
    /// it has got the slot anew, and where nobody had it: somebody may have before that.
    pub(super) fn has_moved_from(&self, before: &Self) -> bool {
        let mut both = before.owners.iter().zip(&self.owners);
        both.any(|(old, new)| match (old, new) {
            (Some(old), Some(new)) => {
                before.sites[old.place] != self.sites[new.place] || old.epoch != new.epoch
            }
            (None, Some(_)) => true,
            (_, None) => false,
        })
    }

    fn forget_those_without(&mut self) {
        let used: BTreeSet<usize> = self.owners.iter().flatten().map(|own| own.place).collect();
        if used.len() == self.sites.len() {
            return;
        }
        let places: HashMap<usize, usize> = used.iter().copied().zip(0..).collect();
        for owner in self.owners.iter_mut().flatten() {
            owner.place = places[&owner.place];
        }
        let sites = std::mem::take(&mut self.sites).into_iter().enumerate();
        let sites = sites.filter(|(place, _)| used.contains(place));
        self.sites = sites.map(|(_, site)| site).collect();
    }
}

/// Reads `CLUSTER SLOTS` and `CLUSTER NODES` of the server at `asked`.
pub(super) fn read(asked: &Site, slots: Value, nodes: &str) -> Option<Vec<Claim>> {
    let epochs: HashMap<&str, u64> = nodes.lines().filter_map(epoch).collect();
    let Value::Array(ranges) = slots else {
        return None;
    };
    let claims = ranges.into_iter().map(|range| claim(asked, range, &epochs));
    claims.collect()
}

/// `<id> <address> <flags> <master> <ping> <pong> <epoch> <link> <slots>`
fn epoch(line: &str) -> Option<(&str, u64)> {
    let mut words = line.split(' ');
    let id = words.next()?;
    Some((id, words.nth(5)?.parse().ok()?))
}

/// From, to, the master, its replicas; of each its host, port and id.
fn claim(asked: &Site, range: Value, epochs: &HashMap<&str, u64>) -> Option<Claim> {
    let Value::Array(range) = range else {
        return None;
    };
    let [
        Value::Int(first),
        Value::Int(last),
        Value::Array(master),
        replicas @ ..,
    ] = &*range
    else {
        return None;
    };
    let [host, Value::Int(port), Value::BulkString(id), ..] = &**master else {
        return None;
    };
    let host = match host {
        Value::BulkString(host) => std::str::from_utf8(host).ok()?,
        _ => "",
    };
    let id = std::str::from_utf8(id).ok()?;
    let slot = |number: &i64| {
        let number = u16::try_from(*number).ok()?;
        (usize::from(number) < SLOTS).then_some(number)
    };
    let site = site(asked, host, u16::try_from(*port).ok()?);
    Some(Claim {
        slots: slot(first)?..=slot(last)?,
        own: site == *asked,
        site,
        epoch: epochs.get(id).copied().unwrap_or(0),
        replicas: replicas.len(),
    })
}

/// Where a server is by the word of the one at `asked`: one that does not know by which name it is reached says nothing, or
/// a question mark.
pub(super) fn site(asked: &Site, host: &str, port: u16) -> Site {
    let host = match host {
        "" | "?" => &asked.host,
        host => host,
    };
    Site {
        host: host.to_owned(),
        port,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> Site {
        Site {
            host: "h".into(),
            port,
        }
    }

    fn says(claims: &[(u16, u16, u16, u64)]) -> View {
        let claims = claims.iter().map(|(first, last, port, epoch)| Claim {
            slots: *first..=*last,
            site: at(*port),
            epoch: *epoch,
            own: false,
            replicas: 1,
        });
        View {
            claims: claims.collect(),
            sharded: true,
        }
    }

    fn owner(chart: &Chart, slot: u16) -> Option<u16> {
        chart.owner(Slot(slot)).map(|site| site.port)
    }

    #[test]
    fn who_got_a_slot_last_has_it_whoever_is_asked_first() {
        let old = says(&[(0, 99, 1, 1), (100, 16383, 2, 2)]);
        let new = says(&[(0, 49, 1, 1), (50, 99, 3, 7), (100, 16383, 2, 2)]);
        for views in [[old.clone(), new.clone()], [new, old]] {
            let chart = Chart::of(&views, None, true);
            let owners = [0, 49, 50, 99, 100].map(|slot| owner(&chart, slot));
            assert_eq!(owners, [Some(1), Some(1), Some(3), Some(3), Some(2)]);
            assert_eq!(chart.missing(), 0);
        }
    }

    #[test]
    fn one_that_was_cut_off_does_not_bring_back_what_was() {
        let new = Chart::of(&[says(&[(0, 16383, 2, 5)])], None, true);
        let old = says(&[(0, 16383, 1, 1)]);
        let alone = Chart::of(std::slice::from_ref(&old), Some(&new), false);
        assert_eq!(owner(&alone, 7), Some(2));
        assert_eq!(alone.sites(), [at(2)], "who has nothing is nobody");
        assert!(!alone.has_moved_from(&new));
        // Where everybody was heard, the cluster was made anew.
        let anew = Chart::of(&[old], Some(&new), true);
        assert_eq!(owner(&anew, 7), Some(1));
        assert!(anew.has_moved_from(&new));
    }

    /// Its old address answers nobody, so not all are ever heard.
    #[test]
    fn one_that_has_moved_house_is_followed_though_its_epoch_is_the_same() {
        let before = Chart::of(&[says(&[(0, 16383, 1, 5)])], None, true);
        let now = says(&[(0, 16383, 2, 5)]);
        let chart = Chart::of(std::slice::from_ref(&now), Some(&before), false);
        assert_eq!(owner(&chart, 7), Some(2));
        assert_eq!(chart.sites(), [at(2)]);
        assert!(chart.has_moved_from(&before));
        // Its own word counts for more than that of those who have not heard of it.
        let mut own = now;
        own.claims[0].own = true;
        let old = says(&[(0, 16383, 1, 5)]);
        for views in [[old.clone(), own.clone()], [own, old]] {
            let chart = Chart::of(&views, Some(&before), false);
            assert_eq!(owner(&chart, 7), Some(2));
        }
    }

    #[test]
    fn a_slot_that_nobody_had_may_have_been_anybodys() {
        let few = Chart::of(&[says(&[(0, 9, 1, 1)])], None, true);
        let more = Chart::of(&[says(&[(0, 9, 1, 1), (10, 19, 2, 2)])], Some(&few), true);
        assert_eq!(few.missing(), SLOTS - 10);
        assert!(!few.has_moved_from(&more), "nobody has what is gone");
        assert!(more.has_moved_from(&few));
        assert!(!few.has_moved_from(&few));
        let again = Chart::of(&[says(&[(0, 9, 1, 3)])], Some(&few), true);
        assert!(again.has_moved_from(&few), "it was another's meanwhile");
    }

    #[test]
    fn what_a_server_says_is_read() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node = |host: Value, port, id| Value::Array(vec![host, Value::Int(port), text(id)]);
        let slots = Value::Array(vec![
            Value::Array(vec![
                Value::Int(0),
                Value::Int(9),
                node(text("10.0.0.1"), 7000, "a"),
                node(text("10.0.0.2"), 7001, "c"),
            ]),
            Value::Array(vec![
                Value::Int(10),
                Value::Int(10),
                node(text(""), 7002, "b"),
            ]),
            Value::Array(vec![
                Value::Int(11),
                Value::Int(12),
                node(Value::Nil, 7003, "d"),
            ]),
        ]);
        let nodes = "a 10.0.0.1:7000@17000 master - 0 1 12 connected 0-9\n\
                     b :7002@17002,name myself,master - 0 0 3 connected 10 [11->-a]\n";
        let claims = read(&at(1), slots, nodes).expect("it makes sense");
        let read: Vec<_> = claims
            .iter()
            .map(|claim| {
                (
                    claim.slots.clone(),
                    claim.site.to_string(),
                    claim.epoch,
                    claim.replicas,
                )
            })
            .collect();
        assert_eq!(
            read,
            [
                (0..=9, "10.0.0.1:7000".to_owned(), 12, 1),
                (10..=10, "h:7002".to_owned(), 3, 0),
                (11..=12, "h:7003".to_owned(), 0, 0),
            ]
        );
        assert_eq!(read_nothing(), None);
    }

    fn read_nothing() -> Option<Vec<Claim>> {
        let beyond = vec![Value::Int(0), Value::Int(16384), Value::Array(Vec::new())];
        super::read(&at(1), Value::Array(vec![Value::Array(beyond)]), "")
    }
}
