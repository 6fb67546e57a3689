//! Changes to ownerless counters, each applied once however often its request arrives.
//!
//! A count that is lowered by one is lowered twice if the request arrives twice: the number itself
//! does not show it. So each such request carries an idempotency key with a number of its client's
//! own, and its outcome is kept beside the count until the client has acknowledged it. Every
//! request acknowledges those before it; a request below the acknowledged number is refused if it
//! still arrives, out of a connection that was given up.

use super::tombstones::TOMBSTONE_TTL;
use super::{ClientId, Moment, OwnerId, Reply};

/// Identifies one request of one client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct IdempotencyKey {
    /// The client, and the request's number: greater than the numbers of all its earlier requests.
    pub id: OwnerId,
    /// The client waits for no reply to a request with a lesser number.
    pub acked_below: i64,
}

/// Reports whether a store surely still remembers a request that was first sent at `begun`.
pub fn is_remembered(begun: Moment, now: Moment) -> bool {
    // The other half is a margin for a request that takes its time.
    now.since(begun) < TOMBSTONE_TTL / 2
}

/// The recorded outcome of a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[cfg_attr(
    feature = "sqlite",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum RecordedOutcome {
    /// The value before the change, and the value after it.
    Altered(Option<i64>, Option<i64>),
    /// The request took this many permits.
    Took(u32),
    /// The request must not be carried out.
    Undone,
}

/// The outcomes that are kept for one name.
#[derive(Clone, Debug, Default)]
#[cfg_attr(
    feature = "sqlite",
    derive(serde::Serialize, serde::Deserialize),
    serde(transparent)
)]
pub struct DedupTable(Vec<ClientKeys>);

/// The outcomes that are kept for one client.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlite", derive(serde::Serialize, serde::Deserialize))]
struct ClientKeys {
    /// The client, and the least number that is not refused.
    #[cfg_attr(feature = "sqlite", serde(rename = "least"))]
    acked_below: OwnerId,
    done: Vec<(i64, RecordedOutcome)>,
    until: Moment,
}

impl DedupTable {
    /// Reports whether no outcome is kept.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the outcome of a request, if the request has arrived before or is too late.
    pub fn recorded(&self, id: OwnerId) -> Option<RecordedOutcome> {
        let keys = self.0.iter().find(|keys| keys.is_of(id.client()))?;
        if id.number() < keys.acked_below.number() {
            return Some(RecordedOutcome::Undone);
        }
        let done = keys.done.iter().find(|(number, _)| *number == id.number());
        done.map(|(_, effect)| *effect)
    }

    /// Records the outcome of a request and forgets the acknowledged ones before it.
    pub fn record(&mut self, key: IdempotencyKey, effect: RecordedOutcome, now: Moment) {
        let keys = self.keys(key.id, now);
        let acked_below = keys.acked_below.number().max(key.acked_below);
        keys.acked_below = OwnerId::new(key.id.client(), acked_below);
        keys.done.retain(|(number, _)| *number >= acked_below);
        keys.done.push((key.id.number(), effect));
    }

    /// Marks a request as not to be carried out. Returns how many permits it had taken, if it had
    /// arrived.
    pub fn undo(&mut self, id: OwnerId, now: Moment) -> Option<u32> {
        match self.recorded(id) {
            Some(RecordedOutcome::Undone | RecordedOutcome::Altered(..)) => None,
            known => {
                let keys = self.keys(id, now);
                keys.done.retain(|(number, _)| *number != id.number());
                keys.done.push((id.number(), RecordedOutcome::Undone));
                match known {
                    Some(RecordedOutcome::Took(count)) => Some(count),
                    _ => None,
                }
            }
        }
    }

    /// Forgets the clients none of whose requests can still arrive.
    pub fn expire(&mut self, now: Moment) {
        self.0.retain(|keys| keys.until > now);
    }

    /// Forgets a client that has gone: none of its requests can still arrive.
    pub fn remove_client(&mut self, client: ClientId) {
        self.0.retain(|keys| !keys.is_of(client));
    }

    fn keys(&mut self, id: OwnerId, now: Moment) -> &mut ClientKeys {
        let place = self.0.iter().position(|keys| keys.is_of(id.client()));
        let place = place.unwrap_or_else(|| {
            self.0.push(ClientKeys {
                acked_below: OwnerId::new(id.client(), i64::MIN),
                done: Vec::new(),
                until: now,
            });
            self.0.len() - 1
        });
        let keys = &mut self.0[place];
        keys.until = now + TOMBSTONE_TTL;
        keys
    }
}

impl ClientKeys {
    fn is_of(&self, client: ClientId) -> bool {
        self.acked_below.client() == client
    }
}

impl From<RecordedOutcome> for Reply {
    fn from(effect: RecordedOutcome) -> Self {
        match effect {
            RecordedOutcome::Altered(before, after) => Self::Altered { before, after },
            RecordedOutcome::Took(_) => Self::Granted { token: None },
            RecordedOutcome::Undone => Self::Undone,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn now() -> Moment {
        Moment::at(Duration::from_secs(1))
    }

    fn id(number: i64) -> OwnerId {
        OwnerId::new(ClientId::new([7; 16]), number)
    }

    fn key(number: i64, acked_below: i64) -> IdempotencyKey {
        IdempotencyKey {
            id: id(number),
            acked_below,
        }
    }

    #[test]
    fn a_request_is_deduplicated_until_it_is_acknowledged_and_rejected_afterwards() {
        let mut dedup = DedupTable::default();
        let effect = RecordedOutcome::Altered(Some(2), Some(1));
        dedup.record(key(5, 5), effect, now());
        assert_eq!(dedup.recorded(id(5)), Some(effect));
        assert_eq!(dedup.recorded(id(6)), None, "it may come");
        dedup.record(key(7, 6), effect, now());
        assert_eq!(dedup.recorded(id(5)), Some(RecordedOutcome::Undone));
        assert_eq!(dedup.recorded(id(6)), None, "it may still come");
        assert_eq!(dedup.0[0].done.len(), 1, "what is settled is forgotten");
    }

    #[test]
    fn a_late_request_acknowledges_nothing_again() {
        let mut dedup = DedupTable::default();
        dedup.record(key(9, 8), RecordedOutcome::Took(1), now());
        dedup.record(key(8, 2), RecordedOutcome::Took(1), now());
        assert_eq!(dedup.recorded(id(7)), Some(RecordedOutcome::Undone));
    }

    #[test]
    fn an_acquire_is_undone_once() {
        let mut dedup = DedupTable::default();
        dedup.record(key(1, 1), RecordedOutcome::Took(3), now());
        assert_eq!(dedup.undo(id(1), now()), Some(3));
        assert_eq!(dedup.undo(id(1), now()), None);
        assert_eq!(dedup.undo(id(2), now()), None);
        assert_eq!(
            dedup.recorded(id(2)),
            Some(RecordedOutcome::Undone),
            "it never will be"
        );
    }

    #[test]
    fn entries_are_evicted_when_no_request_can_arrive_any_more() {
        let mut dedup = DedupTable::default();
        dedup.record(key(1, 1), RecordedOutcome::Undone, now());
        dedup.expire(now() + TOMBSTONE_TTL / 2);
        assert!(!dedup.is_empty());
        dedup.expire(now() + TOMBSTONE_TTL);
        assert!(dedup.is_empty());
    }

    #[test]
    fn retries_end_long_before_entries_are_evicted() {
        let mut dedup = DedupTable::default();
        dedup.record(key(1, 1), RecordedOutcome::Undone, now());
        let late = now() + TOMBSTONE_TTL / 2;
        assert!(is_remembered(now(), now() + TOMBSTONE_TTL / 3) && !is_remembered(now(), late));
        dedup.expire(late + TOMBSTONE_TTL / 3);
        assert!(!dedup.is_empty());
    }
}
