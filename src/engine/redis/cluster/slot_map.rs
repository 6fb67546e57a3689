//! The slot map: the server that owns each slot, merged from the views of several servers. Pure.
//!
//! Every change of ownership has a number, the config epoch of the new owner. The claim with the highest epoch wins.

use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;

use redis::Value;

use crate::engine::redis::node_addr::NodeAddr;
use crate::engine::redis::slot::{SLOTS, Slot};

/// A claim that a server owns a range of slots.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct SlotClaim {
    pub(super) slots: RangeInclusive<u16>,
    pub(super) addr: NodeAddr,
    pub(super) epoch: u64,
    /// Whether the server makes the claim about itself, and was queried at the address that it claims.
    pub(super) own: bool,
    /// Number of replicas that follow the server.
    pub(super) replicas: usize,
}

/// The reply of one server about all servers of the cluster.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct NodeView {
    pub(super) claims: Vec<SlotClaim>,
    /// Whether the server supports sharded channels.
    pub(super) sharded: bool,
}

/// The server that owns each slot.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct SlotMap {
    /// Sorted.
    addrs: Vec<NodeAddr>,
    /// For each slot, the index of its server in `addrs`.
    owners: Vec<Option<SlotOwner>>,
    /// Whether all servers support sharded channels.
    pub(super) sharded: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct SlotOwner {
    index: usize,
    epoch: u64,
}

impl SlotMap {
    /// Merges the views of several servers. Slots that only `before` knows are kept, unless `all` servers that could know
    /// better have replied.
    pub(super) fn of(views: &[NodeView], before: Option<&Self>, all: bool) -> Self {
        let claims = || views.iter().flat_map(|view| &view.claims);
        let mut addrs: BTreeSet<&NodeAddr> = claims().map(|claim| &claim.addr).collect();
        let before = before.filter(|_| !all);
        addrs.extend(before.iter().flat_map(|before| &before.addrs));
        let addrs: Vec<NodeAddr> = addrs.into_iter().cloned().collect();
        let index = |addr: &NodeAddr| addrs.binary_search(addr).ok();
        let mut owners = vec![None; SLOTS];
        // A server whose address has changed keeps its epoch. At equal epochs the claim of a server that was reached at the
        // address wins.
        let mut claims: Vec<&SlotClaim> = claims().collect();
        claims.sort_by_key(|claim| (claim.epoch, claim.own));
        for claim in claims {
            let Some(index) = index(&claim.addr) else {
                continue;
            };
            let epoch = claim.epoch;
            let (first, last) = (*claim.slots.start(), *claim.slots.end());
            let slots = owners.get_mut(first.into()..=last.into());
            for slot in slots.into_iter().flatten() {
                *slot = Some(SlotOwner { index, epoch });
            }
        }
        // A slot keeps its known owner only if no view names one with an epoch that is at least as high.
        for (slot, known) in owners.iter_mut().zip(before.iter().flat_map(|b| &b.owners)) {
            if let (Some(known), Some(before)) = (known, before)
                && slot.is_none_or(|said: SlotOwner| said.epoch < known.epoch)
                && let Some(index) = index(&before.addrs[known.index])
            {
                let epoch = known.epoch;
                *slot = Some(SlotOwner { index, epoch });
            }
        }
        let sharded = !views.is_empty() && views.iter().all(|view| view.sharded);
        let mut slot_map = Self {
            addrs,
            owners,
            sharded,
        };
        slot_map.remove_unused_addrs();
        slot_map
    }

    /// Returns the server that owns a slot, if there is one.
    pub(super) fn owner(&self, slot: Slot) -> Option<&NodeAddr> {
        let owner = self.owners[slot.number()]?;
        Some(&self.addrs[owner.index])
    }

    /// Returns the index in [`addrs`](Self::addrs) of the server that owns a slot.
    pub(super) fn node_index(&self, slot: Slot) -> Option<usize> {
        self.owners[slot.number()].map(|owner| owner.index)
    }

    /// Returns all servers that own slots, sorted.
    pub(super) fn addrs(&self) -> &[NodeAddr] {
        &self.addrs
    }

    /// Returns the number of slots without a server.
    pub(super) fn missing(&self) -> usize {
        self.owners.iter().filter(|owner| owner.is_none()).count()
    }

    /// Returns whether a slot has another owner than before, whose data may lack what was granted there. That includes a server
    /// that was given the same slot again, and a slot that had no owner in `before`: it may have had one earlier.
    pub(super) fn has_moved_from(&self, before: &Self) -> bool {
        let mut both = before.owners.iter().zip(&self.owners);
        both.any(|(old, new)| match (old, new) {
            (Some(old), Some(new)) => {
                before.addrs[old.index] != self.addrs[new.index] || old.epoch != new.epoch
            }
            (None, Some(_)) => true,
            (_, None) => false,
        })
    }

    fn remove_unused_addrs(&mut self) {
        let used: BTreeSet<usize> = self.owners.iter().flatten().map(|own| own.index).collect();
        if used.len() == self.addrs.len() {
            return;
        }
        let indexes: HashMap<usize, usize> = used.iter().copied().zip(0..).collect();
        for owner in self.owners.iter_mut().flatten() {
            owner.index = indexes[&owner.index];
        }
        let addrs = std::mem::take(&mut self.addrs).into_iter().enumerate();
        let addrs = addrs.filter(|(index, _)| used.contains(index));
        self.addrs = addrs.map(|(_, addr)| addr).collect();
    }
}

/// Parses `CLUSTER SLOTS` and `CLUSTER NODES` of the server at `queried`.
pub(super) fn parse_slots(queried: &NodeAddr, slots: Value, nodes: &str) -> Option<Vec<SlotClaim>> {
    let epochs: HashMap<&str, u64> = nodes.lines().filter_map(epoch).collect();
    let Value::Array(ranges) = slots else {
        return None;
    };
    let claims = ranges
        .into_iter()
        .map(|range| claim(queried, range, &epochs));
    claims.collect()
}

/// Parses `<id> <address> <flags> <master> <ping> <pong> <epoch> <link> <slots>`.
fn epoch(text: &str) -> Option<(&str, u64)> {
    let mut words = text.split(' ');
    let id = words.next()?;
    Some((id, words.nth(5)?.parse().ok()?))
}

/// Parses a range: first slot, last slot, the master and its replicas, each of these with host, port and id.
fn claim(queried: &NodeAddr, range: Value, epochs: &HashMap<&str, u64>) -> Option<SlotClaim> {
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
    let addr = resolve_addr(queried, host, u16::try_from(*port).ok()?);
    Some(SlotClaim {
        slots: slot(first)?..=slot(last)?,
        own: addr == *queried,
        addr,
        epoch: epochs.get(id).copied().unwrap_or(0),
        replicas: replicas.len(),
    })
}

/// Returns the address of a server as named by the server at `queried`. A server that does not know the name it is reached by
/// sends an empty host or a question mark; then the host of `queried` is used.
pub(super) fn resolve_addr(queried: &NodeAddr, host: &str, port: u16) -> NodeAddr {
    let host = match host {
        "" | "?" => &queried.host,
        host => host,
    };
    NodeAddr {
        host: host.to_owned(),
        port,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> NodeAddr {
        NodeAddr {
            host: "h".into(),
            port,
        }
    }

    fn view(claims: &[(u16, u16, u16, u64)]) -> NodeView {
        let claims = claims.iter().map(|(first, last, port, epoch)| SlotClaim {
            slots: *first..=*last,
            addr: at(*port),
            epoch: *epoch,
            own: false,
            replicas: 1,
        });
        NodeView {
            claims: claims.collect(),
            sharded: true,
        }
    }

    fn owner(slot_map: &SlotMap, slot: u16) -> Option<u16> {
        slot_map.owner(Slot(slot)).map(|addr| addr.port)
    }

    #[test]
    fn highest_epoch_owns_the_slot_in_any_order() {
        let old = view(&[(0, 99, 1, 1), (100, 16383, 2, 2)]);
        let new = view(&[(0, 49, 1, 1), (50, 99, 3, 7), (100, 16383, 2, 2)]);
        for views in [[old.clone(), new.clone()], [new, old]] {
            let slot_map = SlotMap::of(&views, None, true);
            let owners = [0, 49, 50, 99, 100].map(|slot| owner(&slot_map, slot));
            assert_eq!(owners, [Some(1), Some(1), Some(3), Some(3), Some(2)]);
            assert_eq!(slot_map.missing(), 0);
        }
    }

    #[test]
    fn partitioned_node_does_not_revert_the_slot_map() {
        let new = SlotMap::of(&[view(&[(0, 16383, 2, 5)])], None, true);
        let old = view(&[(0, 16383, 1, 1)]);
        let alone = SlotMap::of(std::slice::from_ref(&old), Some(&new), false);
        assert_eq!(owner(&alone, 7), Some(2));
        assert_eq!(alone.addrs(), [at(2)], "who has nothing is nobody");
        assert!(!alone.has_moved_from(&new));
        // All servers have replied with the lower epoch: the cluster was created anew.
        let anew = SlotMap::of(&[old], Some(&new), true);
        assert_eq!(owner(&anew, 7), Some(1));
        assert!(anew.has_moved_from(&new));
    }

    /// The old address does not reply, so that `all` is never true.
    #[test]
    fn node_with_a_new_address_is_followed_at_the_same_epoch() {
        let before = SlotMap::of(&[view(&[(0, 16383, 1, 5)])], None, true);
        let now = view(&[(0, 16383, 2, 5)]);
        let slot_map = SlotMap::of(std::slice::from_ref(&now), Some(&before), false);
        assert_eq!(owner(&slot_map, 7), Some(2));
        assert_eq!(slot_map.addrs(), [at(2)]);
        assert!(slot_map.has_moved_from(&before));
        // The claim of the server itself wins over those of servers that do not know its new address yet.
        let mut own = now;
        own.claims[0].own = true;
        let old = view(&[(0, 16383, 1, 5)]);
        for views in [[old.clone(), own.clone()], [own, old]] {
            let slot_map = SlotMap::of(&views, Some(&before), false);
            assert_eq!(owner(&slot_map, 7), Some(2));
        }
    }

    #[test]
    fn newly_owned_slot_counts_as_moved() {
        let few = SlotMap::of(&[view(&[(0, 9, 1, 1)])], None, true);
        let more = SlotMap::of(&[view(&[(0, 9, 1, 1), (10, 19, 2, 2)])], Some(&few), true);
        assert_eq!(few.missing(), SLOTS - 10);
        assert!(!few.has_moved_from(&more), "nobody has what is gone");
        assert!(more.has_moved_from(&few));
        assert!(!few.has_moved_from(&few));
        let again = SlotMap::of(&[view(&[(0, 9, 1, 3)])], Some(&few), true);
        assert!(again.has_moved_from(&few), "it was another's meanwhile");
    }

    #[test]
    fn cluster_slots_reply_is_parsed() {
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
        let claims = parse_slots(&at(1), slots, nodes).expect("it makes sense");
        let read: Vec<_> = claims
            .iter()
            .map(|claim| {
                (
                    claim.slots.clone(),
                    claim.addr.to_string(),
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

    fn read_nothing() -> Option<Vec<SlotClaim>> {
        let beyond = vec![Value::Int(0), Value::Int(16384), Value::Array(Vec::new())];
        super::parse_slots(&at(1), Value::Array(vec![Value::Array(beyond)]), "")
    }
}
