//! The order in which several locks are taken, each of them once.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::mem::swap;
use std::sync::Arc;

use super::Part;
use crate::protocol::Shape;

/// Each lock once, in the one order that everybody takes them in: by name, then kind, then store. What comes twice is
/// taken as the stronger of the two; permits of one semaphore are added up.
pub(crate) fn in_order(parts: Vec<Part>) -> Vec<Part> {
    let mut kept: Vec<(String, Part)> = Vec::new();
    let mut known = HashMap::new();
    for part in parts {
        let place = part.core.engine.place();
        let subject = &part.wish.subject;
        let lock = (place.clone(), subject.name.clone(), subject.kind.shape());
        match known.get(&lock) {
            Some(at) => {
                let (_, twin): &mut (String, Part) = &mut kept[*at];
                merge(twin, part);
            }
            None => {
                known.insert(lock, kept.len());
                kept.push((place, part));
            }
        }
    }
    kept.sort_by(|(place, a), (other, b)| {
        let (a, b) = (&a.wish.subject, &b.wish.subject);
        let by_name = a.name.cmp(&b.name);
        let by_kind = a.kind.rank().cmp(&b.kind.rank());
        by_name.then(by_kind).then_with(|| place.cmp(other))
    });
    kept.into_iter().map(|(_, part)| part).collect()
}

fn merge(kept: &mut Part, mut other: Part) {
    let limits = [kept.wish.terms.max_hold, other.wish.terms.max_hold];
    let limit = limits.into_iter().flatten().min();
    kept.wish.terms.max_hold = limit;
    other.wish.terms.max_hold = limit;
    if kept.wish.subject.kind.shape() == Shape::Tally {
        let (wanted, more) = (&mut kept.wish.permits, other.wish.permits);
        wanted.count = wanted.count.saturating_add(more.count);
        wanted.of = wanted.of.or(more.of);
        return;
    }
    let strengths = [&*kept, &other].map(|part| part.wish.subject.kind.strength());
    let better = match strengths[1].cmp(&strengths[0]) {
        Ordering::Greater => true,
        // Whoever may hold it already is the one to ask: the other would wait for it.
        Ordering::Equal => kept.wish.user.is_none() && other.wish.user.is_some(),
        Ordering::Less => false,
    };
    if better {
        swap(kept, &mut other);
    }
    // Whoever holds it already is to be found.
    if Arc::ptr_eq(&kept.core, &other.core) {
        kept.wish.user = kept.wish.user.or(other.wish.user);
    }
}
