//! The journal of changes to locks, which is written only while a watch exists.
//!
//! A watch is registered like a waiter, at a channel of its own, and is notified like one. Each row
//! is written in the transaction that changes the holders of a lock, so that no row is missing or
//! superfluous. Readers leave no trace: only the newest rows are kept, a gap in the ids shows a
//! reader that it has missed some, and all rows are removed with the last watch. A watch that was
//! killed is unregistered by the first client that fails to notify it.

use std::sync::Arc;

use rusqlite::types::Type;
use rusqlite::{OptionalExtension, Result, params};

use super::Sqlite;
use super::notifier::Notifications;
use super::rows::Rows;
use super::store::SqliteStore;
use super::worker::Priority;
use crate::engine::change_feed::{FeedBatch, FeedItem, FeedSource};
use crate::engine::name_filter::NameFilter;
use crate::engine::{BoxFuture, StoreError, StoreErrorKind, Subscriber};
use crate::protocol::change::{Change, HoldChange};
use crate::protocol::{Kind, Moment, OwnerId};

/// The channel of all watches.
const CHANNEL: &str = "watch";

/// How many rows are kept. A reader that is further behind has missed some.
const MAX_ROWS: i64 = 4096;

/// Reads the journal for one watch.
pub(super) struct JournalSource {
    pub(super) engine: Arc<Sqlite>,
    pub(super) names: NameFilter,
}

impl FeedSource for JournalSource {
    fn is_complete(&self) -> bool {
        true
    }

    fn read(&self, cursor: i64, _all: bool) -> BoxFuture<Result<FeedBatch, StoreError>> {
        let names = self.names.clone();
        self.engine.worker.run(Priority::Foreground, move |store| {
            store.read_journal(cursor, &names)
        })
    }
}

impl SqliteStore {
    /// Registers a watch; returns its channel, its subscriber, and the cursor to read from.
    pub(super) fn monitor(&mut self) -> Result<(String, Arc<Subscriber>, i64), StoreError> {
        let channel = CHANNEL.to_owned();
        let (subscriber, newest_id) = self.subscribe_to(&channel, |rows| rows.newest_id())?;
        Ok((channel, subscriber, newest_id))
    }

    /// Returns the changes behind the cursor.
    fn read_journal(&self, cursor: i64, names: &NameFilter) -> Result<FeedBatch, StoreError> {
        let (listed, rows, newest_id) = self.read_only(|store, rows| {
            let listed = rows
                .subscribed_clients(CHANNEL)?
                .iter()
                .any(|us| **us == *store.client);
            Ok((listed, rows.changes_after(cursor)?, rows.newest_id()?))
        })?;
        if !listed {
            // Another client could not notify this one and has unregistered it. The journal may
            // have lacked rows since then.
            let why = "taken off the list of those who watch";
            return Err(StoreError::new(StoreErrorKind::Unreachable, why));
        }
        let mut items = Vec::new();
        if rows.first().map_or(newest_id, |(id, _)| id - 1) > cursor {
            items.push(FeedItem::Lagged);
        }
        for (_, mut row) in rows {
            if let Some(name) = names.name_of(&row.name).map(str::to_owned) {
                row.name = name;
                items.push(FeedItem::HoldChange(row));
            }
        }
        let cursor = newest_id;
        Ok(FeedBatch { items, cursor })
    }
}

/// Writes changes to holds under this key to the journal, if a watch exists.
pub(super) fn append(
    rows: &Rows<'_>,
    key: &str,
    kind: Option<Kind>,
    changes: impl Iterator<Item = (OwnerId, Change)>,
    now: Moment,
    notifications: &mut Notifications,
) -> Result<()> {
    let mut changes = changes.peekable();
    if changes.peek().is_none() {
        return Ok(());
    }
    let watchers = rows.subscribed_clients(CHANNEL)?;
    if watchers.is_empty() {
        return Ok(());
    }
    for (owner, change) in changes {
        rows.insert_change(key, kind, owner, change, now)?;
    }
    // One notification is enough, however many rows there are.
    if !notifications
        .released
        .iter()
        .any(|(channel, _)| channel == CHANNEL)
    {
        notifications.released.push((CHANNEL.to_owned(), watchers));
    }
    Ok(())
}

impl Rows<'_> {
    /// Removes all rows if no watch exists any more.
    pub(super) fn trim_journal(&self) -> Result<()> {
        let sql = "DELETE FROM journal
                   WHERE NOT EXISTS (SELECT 1 FROM listeners WHERE channel = ?1)";
        self.execute(sql, [CHANNEL])
    }

    fn insert_change(
        &self,
        key: &str,
        kind: Option<Kind>,
        owner: OwnerId,
        change: Change,
        now: Moment,
    ) -> Result<()> {
        let label = self.label_of(&owner.client().to_string(), now)?;
        let sql =
            "INSERT INTO journal (name, owner, label, turn, kind) VALUES (?1, ?2, ?3, ?4, ?5)";
        let kind = kind.map(kind_name);
        self.execute(
            sql,
            params![key, owner.to_string(), label, change_name(change), kind],
        )?;
        let oldest = self.0.last_insert_rowid() - MAX_ROWS;
        self.execute("DELETE FROM journal WHERE id <= ?1", [oldest])
    }

    /// Returns the id of the newest row ever written, even if the row is gone.
    fn newest_id(&self) -> Result<i64> {
        let mut newest_id = self
            .0
            .prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = 'journal'")?;
        let newest_id: Option<i64> = newest_id.query_row([], |row| row.get(0)).optional()?;
        Ok(newest_id.unwrap_or(0))
    }

    /// Returns the rows behind the cursor, with their ids.
    fn changes_after(&self, cursor: i64) -> Result<Vec<(i64, HoldChange)>> {
        let mut rows = self.0.prepare_cached(
            "SELECT id, name, owner, label, turn, kind FROM journal WHERE id > ?1 ORDER BY id",
        )?;
        let rows = rows.query_map([cursor], |row| {
            let changed = HoldChange {
                name: row.get(1)?,
                kind: row.get_ref(5)?.as_str_or_null()?.and_then(kind),
                owner: row.get(2)?,
                label: row.get(3)?,
                change: change(row.get_ref(4)?.as_str()?)?,
            };
            Ok((row.get(0)?, changed))
        })?;
        rows.collect()
    }
}

/// Returns the name of a change in the file.
const fn change_name(change: Change) -> &'static str {
    match change {
        Change::Expired => "expired",
        Change::Forced => "forced",
        Change::Gone => "gone",
        Change::Granted => "granted",
        Change::Held => "held",
        Change::Released => "released",
    }
}

/// Returns the name of a kind of lock in the file.
const fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Mutex => "plain",
        Kind::Fenced => "fenced",
        Kind::Fair => "fair",
        Kind::Read => "read",
        Kind::Write => "write",
        Kind::Simple => "simple",
        Kind::Semaphore => "semaphore",
        Kind::Counting => "counting",
        Kind::Latch => "latch",
    }
}

/// Parses the name of a kind; `None` for a kind that only a later version knows.
fn kind(word: &str) -> Option<Kind> {
    Kind::ALL.into_iter().find(|kind| kind_name(*kind) == word)
}

fn change(word: &str) -> Result<Change> {
    let change = ALL_CHANGES
        .into_iter()
        .find(|change| self::change_name(*change) == word);
    change.ok_or_else(|| {
        let why = format!("`{word}` is not a known change of a lock");
        rusqlite::Error::FromSqlConversionFailure(4, Type::Text, why.into())
    })
}

const ALL_CHANGES: [Change; 6] = [
    Change::Expired,
    Change::Forced,
    Change::Gone,
    Change::Granted,
    Change::Held,
    Change::Released,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::sqlite::error::from_sqlite;

    #[test]
    fn unknown_change_name_is_an_error() {
        for known in ALL_CHANGES {
            assert_eq!(change(change_name(known)), Ok(known));
        }
        let error = change("stolen").expect_err("nobody writes that");
        let failure = from_sqlite("locks.db".as_ref(), &error);
        assert_eq!(failure.kind, StoreErrorKind::Unusable);
    }
}
