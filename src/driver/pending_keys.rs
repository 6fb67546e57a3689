//! The idempotency keys of requests that must not be carried out twice, while this client waits for their replies.
//!
//! The store keeps the outcome of every request from the oldest unacknowledged one on. A request that is never polled
//! would let these grow with every other request, so the requests after it get a new dedup session: another id under which the
//! store keeps their outcomes. The old session stays as it is and expires, so that the abandoned request is still not
//! carried out twice.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use super::Core;
use crate::protocol::{ClientId, IdempotencyKey, Moment, OwnerId, Subject};

/// How many outcomes a session may keep behind a request that is not acknowledged within the command timeout.
const MAX_SESSION_LENGTH: u32 = 1000;

/// The dedup session of each subject that has requests in flight.
#[derive(Debug, Default)]
pub(super) struct PendingKeys(Mutex<HashMap<Subject, DedupSession>>);

/// Requests whose outcomes the store keeps together.
#[derive(Debug)]
struct DedupSession {
    id: ClientId,
    /// The numbers of the unacknowledged requests.
    open: BTreeSet<i64>,
    /// Unacknowledged requests of earlier sessions. While there is one, the id of the first session is not used again: a new
    /// request would acknowledge it.
    abandoned: BTreeSet<i64>,
    /// The smallest open number, as of the last request.
    oldest: i64,
    /// When `oldest` was first seen as the smallest.
    since: Moment,
    /// How many requests were begun since then.
    behind: u32,
}

/// The key of one request; acknowledged when this is dropped, whether the request got a reply or was given up.
#[derive(Debug)]
pub(super) struct PendingKey<'a> {
    core: &'a Core,
    subject: &'a Subject,
    pub(super) key: IdempotencyKey,
}

impl Core {
    /// Returns the key of a new request about this subject. It has to be acknowledged once the outcome is of no concern
    /// any more.
    pub(super) fn new_idempotency_key(&self, subject: &Subject) -> IdempotencyKey {
        let now = self.clock.now();
        let mut sessions = self.pending_keys.lock();
        // Drawn under the lock: no smaller number is begun later, so that every request below `acked_below` is
        // acknowledged.
        let number = self.fresh_number();
        let session = sessions
            .entry(subject.clone())
            .or_insert_with(|| DedupSession::new(self.client, number, now));
        if session.is_stuck(now, self.settings.command_timeout) {
            session.abandon(number, now);
        }
        let acked_below = session.begin(number, now);
        IdempotencyKey {
            id: OwnerId::new(session.id, number),
            acked_below,
        }
    }

    /// Returns such a key, acknowledged when it is dropped.
    pub(super) fn pending_key<'a>(&'a self, subject: &'a Subject) -> PendingKey<'a> {
        PendingKey {
            core: self,
            subject,
            key: self.new_idempotency_key(subject),
        }
    }

    /// Acknowledges a request whose outcome is known, or given up: the store need not remember it, and refuses the
    /// request if it still arrives.
    pub(super) fn acknowledge_key(&self, subject: &Subject, id: OwnerId) {
        let mut sessions = self.pending_keys.lock();
        if let Some(session) = sessions.get_mut(subject) {
            session.open.remove(&id.number());
            session.abandoned.remove(&id.number());
            if session.open.is_empty() && session.abandoned.is_empty() {
                sessions.remove(subject);
            }
        }
    }
}

impl DedupSession {
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

    /// Returns whether the oldest request has been unacknowledged for longer than the command timeout, and many were
    /// begun behind it.
    fn is_stuck(&self, now: Moment, command_timeout: Duration) -> bool {
        self.behind >= MAX_SESSION_LENGTH && now.since(self.since) > command_timeout
    }

    /// Begins a new session with this request. The old session is not written to any more, and expires.
    fn abandon(&mut self, number: i64, now: Moment) {
        let id = ClientId::new(Uuid::new_v4().into_bytes());
        let mut old = std::mem::replace(self, Self::new(id, number, now));
        self.abandoned = old.abandoned;
        self.abandoned.append(&mut old.open);
    }

    /// Notes a request that begins; returns the smallest unacknowledged number.
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
    fn lock(&self) -> MutexGuard<'_, HashMap<Subject, DedupSession>> {
        // No user code runs under this lock, so the data of a poisoned one is consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PendingKey<'_> {
    fn drop(&mut self) {
        // A forked child has a copy of its parent's mutex, perhaps locked by a thread that does not exist in the child.
        if !self.core.is_forked() {
            self.core.acknowledge_key(self.subject, self.key.id);
        }
    }
}
