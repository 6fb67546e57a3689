//! The requests of this client that must not be carried out twice, while it waits for their answers.
//!
//! The store keeps the outcome of every request from the oldest on that is not settled. One that is never polled would let
//! that grow with every other request, so the requests after it get a new lane: another id under which the store keeps
//! their outcomes. The old lane stays as it is and expires, so that the abandoned request is still not carried out twice.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use super::Core;
use crate::protocol::{ClientId, IdempotencyKey, Moment, OwnerId, Subject};

/// How many outcomes a lane may keep behind a request that is not settled in the time of a command.
const MAX_LANE_LENGTH: u32 = 1000;

/// The lane of each subject that has requests under way.
#[derive(Debug, Default)]
pub(super) struct PendingKeys(Mutex<HashMap<Subject, KeyLane>>);

/// Requests whose outcomes the store keeps together.
#[derive(Debug)]
struct KeyLane {
    id: ClientId,
    /// The numbers of those that are not settled.
    open: BTreeSet<i64>,
    /// Unsettled requests of earlier lanes. While there is one, the id of the first lane is not used again: a new request would settle it.
    abandoned: BTreeSet<i64>,
    /// The least open number, as of the last look.
    oldest: i64,
    /// When `oldest` was first seen as the least.
    since: Moment,
    /// How many requests were begun since then.
    behind: u32,
}

/// One of them; settled when this goes, be it answered or given up.
#[derive(Debug)]
pub(super) struct PendingKey<'a> {
    core: &'a Core,
    subject: &'a Subject,
    pub(super) key: IdempotencyKey,
}

impl Core {
    /// A new request about this, which is to be settled once its outcome is of no concern any more.
    pub(super) fn new_idempotency_key(&self, subject: &Subject) -> IdempotencyKey {
        let now = self.clock.now();
        let mut lanes = self.pending_keys.lock();
        // Under the lock: no lesser number is ever begun later, so that what is said to be settled is.
        let number = self.fresh_number();
        let lane = lanes
            .entry(subject.clone())
            .or_insert_with(|| KeyLane::new(self.client, number, now));
        if lane.is_stuck(now, self.settings.command_timeout) {
            lane.abandon(number, now);
        }
        let acked_below = lane.begin(number, now);
        IdempotencyKey {
            id: OwnerId::new(lane.id, number),
            acked_below,
        }
    }

    /// The same, until what is returned goes.
    pub(super) fn pending_key<'a>(&'a self, subject: &'a Subject) -> PendingKey<'a> {
        PendingKey {
            core: self,
            subject,
            key: self.new_idempotency_key(subject),
        }
    }

    /// Its outcome is known, or given up: the store need not remember it, and refuses it if it still comes.
    pub(super) fn acknowledge_key(&self, subject: &Subject, id: OwnerId) {
        let mut lanes = self.pending_keys.lock();
        if let Some(lane) = lanes.get_mut(subject) {
            lane.open.remove(&id.number());
            lane.abandoned.remove(&id.number());
            if lane.open.is_empty() && lane.abandoned.is_empty() {
                lanes.remove(subject);
            }
        }
    }
}

impl KeyLane {
    const fn new(id: ClientId, oldest: i64, since: Moment) -> Self {
        Self {
            id,
            open: BTreeSet::new(),
            abandoned: BTreeSet::new(),
            oldest,
            since,
            behind: 0,
        }
    }

    /// Whether its oldest request has not been settled for longer than a command may take, and many were begun behind it.
    fn is_stuck(&self, now: Moment, command_timeout: Duration) -> bool {
        self.behind >= MAX_LANE_LENGTH && now.since(self.since) > command_timeout
    }

    /// Begins a new lane with this request. The old one is not written to any more, and expires.
    fn abandon(&mut self, number: i64, now: Moment) {
        let id = ClientId::new(Uuid::new_v4().into_bytes());
        let mut old = std::mem::replace(self, Self::new(id, number, now));
        self.abandoned = old.abandoned;
        self.abandoned.append(&mut old.open);
    }

    /// Notes a request that begins; returns the least that is not settled.
    fn begin(&mut self, number: i64, now: Moment) -> i64 {
        self.open.insert(number);
        let oldest = self.open.first().copied().unwrap_or(number);
        if oldest == self.oldest {
            self.behind = self.behind.saturating_add(1);
        } else {
            (self.oldest, self.since, self.behind) = (oldest, now, 0);
        }
        oldest
    }
}

impl PendingKeys {
    fn lock(&self) -> MutexGuard<'_, HashMap<Subject, KeyLane>> {
        // No code of a user's runs under this lock, so a poisoned one is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PendingKey<'_> {
    fn drop(&mut self) {
        // A forked child has its parent's lock as it was, perhaps held by a thread it does not have.
        if !self.core.is_forked() {
            self.core.acknowledge_key(self.subject, self.key.id);
        }
    }
}
