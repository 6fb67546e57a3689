//! A longer lease for a hold, at the request of its user.

use std::sync::Arc;
use std::time::Duration;

use super::DriverError;
use super::hold::Hold;
use crate::protocol::{Action, Reply};

impl Hold {
    /// Extends the lease to end `lease` from now at the earliest.
    pub(crate) async fn extend(self: &Arc<Self>, lease: Duration) -> Result<(), DriverError> {
        let core = &self.core;
        core.ensure_usable()?;
        core.check_lease(lease)?;
        if let Some(reason) = self.lost() {
            return Err(DriverError::Lost(reason));
        }
        let owner = self.owner;
        let sent = self.now();
        let request = self.request(Action::Renew { owner, lease });
        // A lost reply leaves nothing to undo: a lease that is longer than this client knows does no harm.
        let reply = core.call(request).await;
        match reply.map_err(DriverError::StoreError)? {
            Reply::Renewed => self.extended(lease, sent),
            reply => return Err(self.refused(&reply)),
        }
        self.lost()
            .map_or(Ok(()), |reason| Err(DriverError::Lost(reason)))
    }
}
