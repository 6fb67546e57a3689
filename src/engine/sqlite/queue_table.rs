//! The queue of a fair lock's waiters in a table, with a row for each waiter.

use std::time::Duration;

use rusqlite::{OptionalExtension, Result, params};

use super::rows::{Rows, nanos};
use crate::protocol::store_queue::StoreQueue;
use crate::protocol::{Channel, Moment, OwnerId};

/// One lock's queue. An error is kept until [`finish`](Self::finish): the rules know of no files.
pub(super) struct QueueTable<'a> {
    rows: &'a Rows<'a>,
    name: &'a str,
    failed: Option<rusqlite::Error>,
}

impl<'a> QueueTable<'a> {
    pub(super) const fn new(rows: &'a Rows<'a>, name: &'a str) -> Self {
        Self {
            rows,
            name,
            failed: None,
        }
    }

    /// Returns the first error, if there was one.
    pub(super) fn finish(self) -> Result<()> {
        self.failed.map_or(Ok(()), Err)
    }

    fn record_error<T: Default>(&mut self, result: Result<T>) -> T {
        result.unwrap_or_else(|error| {
            self.failed.get_or_insert(error);
            T::default()
        })
    }
}

impl StoreQueue for QueueTable<'_> {
    fn first(&mut self) -> Option<(OwnerId, Moment)> {
        // After an error the queue counts as empty, so that a loop over its heads comes to an end.
        if self.failed.is_some() {
            return None;
        }
        let first = self.rows.queue_head(self.name);
        let (owner, until) = self.record_error(first)?;
        Some((owner.parse().ok()?, until))
    }

    fn contains(&mut self, owner: &OwnerId) -> bool {
        let has = self.rows.is_queued(self.name, &owner.to_string());
        self.record_error(has)
    }

    fn enqueue(&mut self, owner: OwnerId, until: Moment) {
        let client = owner.client().to_string();
        let stands = self
            .rows
            .enqueue(self.name, &owner.to_string(), &client, until);
        self.record_error(stands);
    }

    fn remove(&mut self, owner: &OwnerId) -> bool {
        let left = self.rows.dequeue(self.name, &owner.to_string());
        self.record_error(left)
    }

    fn first_n(&mut self, most: usize) -> Vec<OwnerId> {
        let some = self.rows.queued_owners(self.name, most);
        let some = self.record_error(some).into_iter();
        some.filter_map(|owner| owner.parse().ok()).collect()
    }
}

impl Rows<'_> {
    fn queue_head(&self, name: &str) -> Result<Option<(String, Moment)>> {
        let sql = "SELECT owner, until FROM line WHERE name = ?1 ORDER BY id LIMIT 1";
        let mut first = self.0.prepare_cached(sql)?;
        let first = first.query_row([name], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?)));
        let first = first.optional()?;
        Ok(first.map(|(owner, until)| {
            (
                owner,
                Moment::at(Duration::from_nanos(until.unsigned_abs())),
            )
        }))
    }

    fn is_queued(&self, name: &str, owner: &str) -> Result<bool> {
        let sql = "SELECT 1 FROM line WHERE name = ?1 AND owner = ?2";
        self.0.prepare_cached(sql)?.exists([name, owner])
    }

    fn enqueue(&self, name: &str, owner: &str, client: &str, until: Moment) -> Result<()> {
        let sql = "INSERT INTO line (name, owner, client, until) VALUES (?1, ?2, ?3, ?4)
                   ON CONFLICT (name, owner) DO UPDATE SET until = excluded.until";
        self.execute(sql, params![name, owner, client, nanos(until)])
    }

    fn dequeue(&self, name: &str, owner: &str) -> Result<bool> {
        let sql = "DELETE FROM line WHERE name = ?1 AND owner = ?2";
        let left = self.0.prepare_cached(sql)?.execute([name, owner])?;
        Ok(left > 0)
    }

    fn queued_owners(&self, name: &str, most: usize) -> Result<Vec<String>> {
        let sql = "SELECT owner FROM line WHERE name = ?1 ORDER BY id LIMIT ?2";
        let mut some = self.0.prepare_cached(sql)?;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let some = some.query_map(params![name, most], |row| row.get(0))?;
        some.collect()
    }

    /// Returns the client of the queue's head.
    pub(super) fn queue_head_client(&self, name: &str) -> Result<Option<String>> {
        let sql = "SELECT client FROM line WHERE name = ?1 ORDER BY id LIMIT 1";
        let mut first = self.0.prepare_cached(sql)?;
        first.query_row([name], |row| row.get(0)).optional()
    }

    /// Returns the channel of the queue's head.
    pub(super) fn queue_head_channel(&self, name: &str) -> Result<Option<Channel>> {
        let first = self.queue_head(name)?;
        let owner = first.and_then(|(owner, _)| owner.parse().ok());
        Ok(owner.map(|owner| Channel::Waiter(name.into(), owner)))
    }

    /// Returns the locks in whose queues a client has a waiter.
    pub(super) fn queues_of(&self, client: &str) -> Result<Vec<String>> {
        let sql = "SELECT DISTINCT name FROM line WHERE client = ?1";
        let mut names = self.0.prepare_cached(sql)?;
        let names = names.query_map([client], |row| row.get(0))?;
        names.collect()
    }

    /// Removes a client that has gone from all queues.
    pub(super) fn leave_queues(&self, client: &str) -> Result<()> {
        self.execute("DELETE FROM line WHERE client = ?1", [client])
    }
}
