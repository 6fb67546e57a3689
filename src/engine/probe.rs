//! A lock with a unique name, by which the doctor tests a store.

use std::time::Duration;

use crate::protocol::{Action, ClientId, Entry, Kind, OwnerId, PermitRequest, Request, Subject};

/// The lock expires after this long if its release never arrives.
pub(super) const LEASE: Duration = Duration::from_secs(1);

/// The lock and its requests, which are sent in this order.
pub(super) struct ProbeLock {
    pub(super) subject: Subject,
    pub(super) acquire: Request,
    pub(super) release: Request,
}

impl ProbeLock {
    /// Creates a probe lock for this client.
    pub(super) fn new(client: ClientId) -> Self {
        let name = format!("distlock_doctor:{}", uuid::Uuid::new_v4());
        let subject = Subject::new(Kind::Mutex, name);
        let owner = OwnerId::new(client, 1);
        let acquire = Action::Acquire {
            owner,
            entry: Entry::Fresh,
            lease: LEASE,
            min_token: None,
            waiter_ttl: None,
            other_side: None,
            bypass_writers: false,
            permits: PermitRequest::ONE,
        };
        Self {
            acquire: subject.request(acquire),
            release: subject.request(Action::Release { owner, left: 0 }),
            subject,
        }
    }
}
