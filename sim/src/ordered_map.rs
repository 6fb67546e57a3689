//! A map that keeps the order in which its fields were added, as a small hash does in Redis.

use std::collections::{BTreeMap, HashMap};

/// Fields and values in the order of insertion. A field that is overwritten keeps its position.
#[derive(Clone, Debug, Default)]
pub(crate) struct OrderedMap {
    places: HashMap<Vec<u8>, u64>,
    entries: BTreeMap<u64, (Vec<u8>, Vec<u8>)>,
    next: u64,
}

impl OrderedMap {
    pub(crate) fn get(&self, field: &[u8]) -> Option<&Vec<u8>> {
        let place = self.places.get(field)?;
        self.entries.get(place).map(|(_, value)| value)
    }

    /// Sets a field, and returns whether it is new.
    pub(crate) fn insert(&mut self, field: &[u8], value: Vec<u8>) -> bool {
        if let Some(place) = self.places.get(field) {
            if let Some(entry) = self.entries.get_mut(place) {
                entry.1 = value;
            }
            return false;
        }
        self.places.insert(field.to_vec(), self.next);
        self.entries.insert(self.next, (field.to_vec(), value));
        self.next += 1;
        true
    }

    pub(crate) fn remove(&mut self, field: &[u8]) -> bool {
        let Some(place) = self.places.remove(field) else {
            return false;
        };
        self.entries.remove(&place);
        true
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &(Vec<u8>, Vec<u8>)> {
        self.entries.values()
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}
