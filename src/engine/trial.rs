//! A lock for the doctor to try: nobody else has its name.

use std::time::Duration;

use crate::protocol::{Action, ClientId, Entry, Kind, OwnerId, Request, Subject, Wanted};

/// If the release never comes, the lock ends by itself after this long.
pub(super) const LEASE: Duration = Duration::from_secs(1);

/// The lock's requests, in the order in which they are tried.
pub(super) struct Trial {
    pub(super) subject: Subject,
    pub(super) acquire: Request,
    pub(super) release: Request,
}

impl Trial {
    /// One for this client.
    pub(super) fn new(client: ClientId) -> Self {
        let name = format!("distlock_doctor:{}", uuid::Uuid::new_v4());
        let subject = Subject::new(Kind::Mutex, name);
        let owner = OwnerId::new(client, 1);
        let acquire = Action::Acquire {
            owner,
            entry: Entry::First,
            lease: LEASE,
            seen: None,
            waits: None,
            beside: None,
            past: false,
            permits: Wanted::ONE,
        };
        Self {
            acquire: subject.request(acquire),
            release: subject.request(Action::Release { owner, left: 0 }),
            subject,
        }
    }
}
