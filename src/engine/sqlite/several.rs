//! Several locks in one step.

use super::removed;
use super::store::Store;
use crate::engine::{Before, Failure};
use crate::protocol::{Reply, Request};

impl Store {
    /// Takes several, all in one transaction: up to the first that is no grant, or none of them.
    pub(super) fn take_all(
        &mut self,
        requests: &[Request],
        before: Before,
    ) -> Result<Vec<Result<Reply, Failure>>, Failure> {
        if self.was_replaced() {
            return Err(removed::failure(&self.path));
        }
        let mut replies = Vec::new();
        let done = self.transact(|store, rows, news| {
            for request in requests {
                let reply = store.apply(rows, request, news)?;
                let granted = matches!(reply, Ok(Reply::Granted { .. }));
                replies.push(reply);
                if !granted && before == Before::RolledBack {
                    // Any error would do: it ends the transaction.
                    return Err(rusqlite::Error::QueryReturnedNoRows);
                }
                if !granted {
                    break;
                }
            }
            Ok(())
        });
        let refused = !matches!(replies.last(), None | Some(Ok(Reply::Granted { .. })));
        match done {
            Err(failure) if !refused || before == Before::Kept => Err(failure),
            Ok(()) | Err(_) => Ok(replies),
        }
    }
}
