//! The order in which several locks are acquired, each of them once.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::mem::swap;
use std::sync::Arc;

use super::LockTarget;
use crate::protocol::StateKind;

/// Returns each lock once, in the one order in which all callers acquire them: by name, then kind, then store. A lock
/// that is listed twice is acquired as the stronger of the two; permits of one semaphore are added up.
pub(crate) fn in_order(targets: Vec<LockTarget>) -> Vec<LockTarget> {
    let mut kept: Vec<(String, LockTarget)> = Vec::new();
    let mut known = HashMap::new();
    for target in targets {
        let namespace = target.core.engine.namespace_id();
        let subject = &target.params.subject;
        let lock = (
            namespace.clone(),
            subject.name.clone(),
            subject.kind.state_kind(),
        );
        match known.get(&lock) {
            Some(at) => {
                let (_, twin): &mut (String, LockTarget) = &mut kept[*at];
                merge(twin, target);
            }
            None => {
                known.insert(lock, kept.len());
                kept.push((namespace, target));
            }
        }
    }
    kept.sort_by(|(namespace, a), (other, b)| {
        let (a, b) = (&a.params.subject, &b.params.subject);
        let by_name = a.name.cmp(&b.name);
        let by_kind = a.kind.rank().cmp(&b.kind.rank());
        by_name.then(by_kind).then_with(|| namespace.cmp(other))
    });
    kept.into_iter().map(|(_, target)| target).collect()
}

fn merge(kept: &mut LockTarget, mut other: LockTarget) {
    let limits = [kept.params.terms.max_hold, other.params.terms.max_hold];
    let limit = limits.into_iter().flatten().min();
    kept.params.terms.max_hold = limit;
    other.params.terms.max_hold = limit;
    if kept.params.subject.kind.state_kind() == StateKind::Semaphore {
        let (wanted, more) = (&mut kept.params.permits, other.params.permits);
        wanted.count = wanted.count.saturating_add(more.count);
        wanted.of = wanted.of.or(more.of);
        return;
    }
    let strengths = [&*kept, &other].map(|target| target.params.subject.kind.strength());
    let better = match strengths[1].cmp(&strengths[0]) {
        Ordering::Greater => true,
        // The owner that may hold the lock already has to request it: the other one would wait for it.
        Ordering::Equal => kept.params.local_owner.is_none() && other.params.local_owner.is_some(),
        Ordering::Less => false,
    };
    if better {
        swap(kept, &mut other);
    }
    // An owner that holds the lock already has to be found.
    if Arc::ptr_eq(&kept.core, &other.core) {
        kept.params.local_owner = kept.params.local_owner.or(other.params.local_owner);
    }
}
