//! What happens to locks, written down while anybody watches.
//!
//! A watch is listed like a waiter, at a channel of its own, and is rung like one. Each row is written in the transaction
//! that changes who holds a lock, so none is missing and none too many. Readers leave no trace: only the newest rows are
//! kept, a gap in the numbers shows a reader what it has missed, and all rows go with the last watch. A watch that was
//! killed is taken off the list by the first client that rings for it in vain.

use std::sync::Arc;

use rusqlite::types::Type;
use rusqlite::{OptionalExtension, Result, params};

use super::Sqlite;
use super::messenger::News;
use super::rows::Rows;
use super::store::Store;
use super::worker::Priority;
use crate::engine::feed::{Batch, Notice, Source};
use crate::engine::names::Names;
use crate::engine::{Answer, Cause, Ear, Failure};
use crate::protocol::change::{Change, Changed};
use crate::protocol::{Kind, Moment, OwnerId};

/// The channel of all watches.
const CHANNEL: &str = "watch";

/// How many rows are kept. A reader that is further behind has missed some.
const KEPT: i64 = 4096;

/// Reads the journal for one watch.
pub(super) struct Reader {
    pub(super) engine: Arc<Sqlite>,
    pub(super) names: Names,
}

impl Source for Reader {
    fn tells_all(&self) -> bool {
        true
    }

    fn read(&self, cursor: i64, _all: bool) -> Answer<Result<Batch, Failure>> {
        let names = self.names.clone();
        self.engine.worker.ask(Priority::Foreground, move |store| {
            store.read_journal(cursor, &names)
        })
    }
}

impl Store {
    /// Registers a watch; returns its channel, the ear that is rung, and the cursor to read from.
    pub(super) fn overhear(&mut self) -> Result<(String, Arc<Ear>, i64), Failure> {
        let channel = CHANNEL.to_owned();
        let (ear, newest) = self.listen_at(&channel, |rows| rows.newest())?;
        Ok((channel, ear, newest))
    }

    /// What was written behind the cursor.
    fn read_journal(&self, cursor: i64, names: &Names) -> Result<Batch, Failure> {
        let (listed, rows, newest) = self.look(|store, rows| {
            let listed = rows
                .listeners(CHANNEL)?
                .iter()
                .any(|us| **us == *store.client);
            Ok((listed, rows.behind(cursor)?, rows.newest()?))
        })?;
        if !listed {
            // Somebody could not ring for us and took us off the list. What is written now may not be all.
            let why = "taken off the list of those who watch";
            return Err(Failure::new(Cause::Unreachable, why));
        }
        let mut notices = Vec::new();
        if rows.first().map_or(newest, |(id, _)| id - 1) > cursor {
            notices.push(Notice::Missed);
        }
        for (_, mut row) in rows {
            if let Some(name) = names.of_key(&row.name).map(str::to_owned) {
                row.name = name;
                notices.push(Notice::Changed(row));
            }
        }
        let cursor = newest;
        Ok(Batch { notices, cursor })
    }
}

/// Writes down what happened to holds under this key, if anybody watches.
pub(super) fn tell(
    rows: &Rows<'_>,
    key: &str,
    kind: Option<Kind>,
    changes: impl Iterator<Item = (OwnerId, Change)>,
    now: Moment,
    news: &mut News,
) -> Result<()> {
    let mut changes = changes.peekable();
    if changes.peek().is_none() {
        return Ok(());
    }
    let watchers = rows.listeners(CHANNEL)?;
    if watchers.is_empty() {
        return Ok(());
    }
    for (owner, change) in changes {
        rows.write_down(key, kind, owner, change, now)?;
    }
    // Once, however many rows there are.
    if !news.freed.iter().any(|(channel, _)| channel == CHANNEL) {
        news.freed.push((CHANNEL.to_owned(), watchers));
    }
    Ok(())
}

impl Rows<'_> {
    /// Removes all rows if nobody watches any more.
    pub(super) fn tidy_journal(&self) -> Result<()> {
        let sql = "DELETE FROM journal
                   WHERE NOT EXISTS (SELECT 1 FROM listeners WHERE channel = ?1)";
        self.execute(sql, [CHANNEL])
    }

    fn write_down(
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
        let kind = kind.map(kind_word);
        self.execute(
            sql,
            params![key, owner.to_string(), label, word(change), kind],
        )?;
        let oldest = self.0.last_insert_rowid() - KEPT;
        self.execute("DELETE FROM journal WHERE id <= ?1", [oldest])
    }

    /// The number of the newest row ever written, even if it is gone.
    fn newest(&self) -> Result<i64> {
        let mut newest = self
            .0
            .prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = 'journal'")?;
        let newest: Option<i64> = newest.query_row([], |row| row.get(0)).optional()?;
        Ok(newest.unwrap_or(0))
    }

    /// The rows behind the cursor, with their numbers.
    fn behind(&self, cursor: i64) -> Result<Vec<(i64, Changed)>> {
        let mut rows = self.0.prepare_cached(
            "SELECT id, name, owner, label, turn, kind FROM journal WHERE id > ?1 ORDER BY id",
        )?;
        let rows = rows.query_map([cursor], |row| {
            let changed = Changed {
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

/// A change as the file has it.
const fn word(change: Change) -> &'static str {
    match change {
        Change::Expired => "expired",
        Change::Forced => "forced",
        Change::Gone => "gone",
        Change::Granted => "granted",
        Change::Held => "held",
        Change::Released => "released",
    }
}

/// A kind of lock as the file has it.
const fn kind_word(kind: Kind) -> &'static str {
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

/// One that a later version may know is not known here.
fn kind(word: &str) -> Option<Kind> {
    Kind::ALL.into_iter().find(|kind| kind_word(*kind) == word)
}

fn change(word: &str) -> Result<Change> {
    let change = ALL.into_iter().find(|change| self::word(*change) == word);
    change.ok_or_else(|| {
        let why = format!("`{word}` is nothing that happens to a lock");
        rusqlite::Error::FromSqlConversionFailure(4, Type::Text, why.into())
    })
}

const ALL: [Change; 6] = [
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
    use crate::engine::sqlite::failure::of_sqlite;

    #[test]
    fn a_word_that_nobody_knows_is_a_failure() {
        for known in ALL {
            assert_eq!(change(word(known)), Ok(known));
        }
        let error = change("stolen").expect_err("nobody writes that");
        let failure = of_sqlite("locks.db".as_ref(), &error);
        assert_eq!(failure.cause, Cause::Unusable);
    }
}
