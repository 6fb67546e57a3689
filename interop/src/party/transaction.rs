//! A transaction of Redisson's, which locks the objects it changes until it ends.

use serde_json::json;

use super::JavaThread;
use crate::clock::Span;
use crate::failure::Outcome;

/// How a transaction ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Commit,
    Rollback,
}

/// A thread has one transaction at a time, which its first change begins.
impl JavaThread {
    /// Sets a bucket, under a plain lock of the name [`transaction_lock`].
    pub(crate) async fn set_in_transaction(&self, bucket: &str, value: &str) -> Outcome<Span> {
        let command = json!({"cmd": "transaction_set", "name": bucket, "value": value});
        Ok(self.ask_when(command).await?.1)
    }

    /// Deletes a map, as a writer of the read/write lock with that name; versions without it take no lock.
    pub(crate) async fn delete_map_in_transaction(&self, map: &str) -> Outcome<Span> {
        let command = json!({"cmd": "transaction_delete_map", "name": map});
        Ok(self.ask_when(command).await?.1)
    }

    pub(crate) async fn end_transaction(&self, end: End) -> Outcome<Span> {
        let command = match end {
            End::Commit => "transaction_commit",
            End::Rollback => "transaction_rollback",
        };
        Ok(self.ask_when(json!({"cmd": command})).await?.1)
    }
}

/// Returns Redisson's name for the lock of an object that a transaction changes.
pub(crate) fn transaction_lock(name: &str) -> String {
    format!("{name}:transaction_lock")
}
