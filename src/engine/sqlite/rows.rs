//! The rows of the tables, read and written within one transaction.

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Params, Result, params};

use crate::engine::boot::Boot;
use crate::protocol::state::State;
use crate::protocol::{FencingToken, Moment};

/// The tables within a transaction.
pub(super) struct Rows<'a>(pub(super) &'a Connection);

/// A state with the text that it was read from, so that only a state that has changed is written.
#[derive(Debug, Default)]
pub(super) struct StoredState {
    pub(super) state: State,
    text: Option<String>,
}

type NamedState = (String, StoredState);

impl Rows<'_> {
    /// Returns the state under a name.
    pub(super) fn state(&self, name: &str) -> Result<StoredState> {
        let mut found = self
            .0
            .prepare_cached("SELECT state FROM states WHERE name = ?1")?;
        let text: Option<String> = found.query_row([name], |row| row.get(0)).optional()?;
        match text {
            Some(text) => StoredState::of(text),
            None => Ok(StoredState::default()),
        }
    }

    /// Writes a state if it has changed, or deletes it if nothing is left of it.
    pub(super) fn save(&self, name: &str, mut read: StoredState, now: Moment) -> Result<()> {
        if read.state.is_empty(now) {
            if read.text.is_some() {
                self.execute("DELETE FROM states WHERE name = ?1", [name])?;
            }
            return Ok(());
        }
        let text = serde_json::to_string(&read.state)
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
        if read.text.as_ref() != Some(&text) {
            let sql = "INSERT INTO states (name, state) VALUES (?1, ?2)
                       ON CONFLICT (name) DO UPDATE SET state = excluded.state";
            self.execute(sql, [name, &text])?;
        }
        Ok(())
    }

    /// Returns some states, from this row on, and where to go on.
    pub(super) fn page(&self, from: i64, most: u32) -> Result<(Vec<NamedState>, Option<i64>)> {
        let mut page = self.0.prepare_cached(
            "SELECT id, name, state FROM states WHERE id > ?1 ORDER BY id LIMIT ?2",
        )?;
        let rows = page.query_map(params![from, most], |row| {
            Ok((row.get(0)?, row.get(1)?, StoredState::of(row.get(2)?)?))
        })?;
        let rows: Vec<(i64, String, StoredState)> = rows.collect::<Result<_>>()?;
        let last = rows.last().map(|(id, ..)| *id);
        let next = last.filter(|_| rows.len() == most as usize);
        let rows = rows.into_iter().map(|(_, name, read)| (name, read));
        Ok((rows.collect(), next))
    }

    /// Returns the states that a client has a part in.
    pub(super) fn of_client(&self, client: &str) -> Result<Vec<NamedState>> {
        // A search in the text of all states: it happens seldom, and there are never many.
        let mut all = self
            .0
            .prepare_cached("SELECT name, state FROM states WHERE instr(state, ?1) > 0")?;
        let rows = all.query_map([client], |row| {
            Ok((row.get(0)?, StoredState::of(row.get(1)?)?))
        })?;
        rows.collect()
    }

    /// Adds a client; `bound` if its holds end with it.
    pub(super) fn add_client(&self, client: &str, bound: bool) -> Result<()> {
        let sql = "INSERT OR REPLACE INTO clients (client, bound, label_until) VALUES (?1, ?2, 0)";
        self.execute(sql, params![client, bound])
    }

    /// Reports whether a client has a row.
    pub(super) fn has_client(&self, client: &str) -> Result<bool> {
        let mut known = self
            .0
            .prepare_cached("SELECT 1 FROM clients WHERE client = ?1")?;
        known.exists([client])
    }

    /// Reports whether a client's holds end with it.
    pub(super) fn is_bound(&self, client: &str) -> Result<bool> {
        let mut bound = self
            .0
            .prepare_cached("SELECT bound FROM clients WHERE client = ?1")?;
        let bound = bound.query_row([client], |row| row.get(0)).optional()?;
        Ok(bound.unwrap_or(false))
    }

    /// Returns some clients whose holds end with them, others each time.
    pub(super) fn sample_clients(&self, most: u32) -> Result<Vec<String>> {
        let mut some = self
            .0
            .prepare_cached("SELECT client FROM clients WHERE bound ORDER BY random() LIMIT ?1")?;
        let some = some.query_map([most], |row| row.get(0))?;
        some.collect()
    }

    /// Removes a client and its registrations.
    pub(super) fn remove_client(&self, client: &str) -> Result<()> {
        self.execute("DELETE FROM clients WHERE client = ?1", [client])?;
        self.remove_subscriptions_of(client)
    }

    /// Sets the label of a client until then.
    pub(super) fn set_label(&self, client: &str, label: Option<&str>, until: Moment) -> Result<()> {
        let sql = "INSERT INTO clients (client, bound, label, label_until) VALUES (?1, 0, ?2, ?3)
                   ON CONFLICT (client) DO UPDATE SET label = ?2, label_until = ?3";
        self.execute(sql, params![client, label, nanos(until)])
    }

    /// Returns the label of a client.
    pub(super) fn label_of(&self, client: &str, now: Moment) -> Result<Option<String>> {
        let mut label = self.0.prepare_cached(
            "SELECT label FROM clients WHERE client = ?1 AND (bound OR label_until > ?2)",
        )?;
        let label = label.query_row(params![client, nanos(now)], |row| row.get(0));
        Ok(label.optional()?.flatten())
    }

    /// Returns some clients whose holds do not end with them and whose label is too old, others
    /// each time.
    pub(super) fn sample_unlabelled(&self, now: Moment, most: u32) -> Result<Vec<String>> {
        let mut some = self.0.prepare_cached(
            "SELECT client FROM clients WHERE NOT bound AND label_until <= ?1 ORDER BY random() LIMIT ?2",
        )?;
        let some = some.query_map(params![nanos(now), most], |row| row.get(0))?;
        some.collect()
    }

    /// Returns all clients that have registered and are not known to have gone.
    pub(super) fn all_clients(&self) -> Result<Vec<String>> {
        let mut all = self.0.prepare_cached("SELECT client FROM clients")?;
        let all = all.query_map([], |row| row.get(0))?;
        all.collect()
    }

    /// Returns the clients that are registered at a channel.
    pub(super) fn subscribed_clients(&self, channel: &str) -> Result<Vec<String>> {
        let mut all = self
            .0
            .prepare_cached("SELECT client FROM listeners WHERE channel = ?1")?;
        let all = all.query_map([channel], |row| row.get(0))?;
        all.collect()
    }

    /// Registers a client at a channel.
    pub(super) fn add_subscription(&self, channel: &str, client: &str) -> Result<()> {
        let sql = "INSERT OR IGNORE INTO listeners (channel, client) VALUES (?1, ?2)";
        self.execute(sql, [channel, client])
    }

    /// Removes a client's registration at a channel.
    pub(super) fn remove_subscription(&self, channel: &str, client: &str) -> Result<()> {
        let sql = "DELETE FROM listeners WHERE channel = ?1 AND client = ?2";
        self.execute(sql, [channel, client])?;
        self.trim_journal()
    }

    /// Removes all registrations of a client, since it has no wake socket.
    pub(super) fn remove_subscriptions_of(&self, client: &str) -> Result<()> {
        self.execute("DELETE FROM listeners WHERE client = ?1", [client])?;
        self.trim_journal()
    }

    /// Returns the boot of the machine that the rows belong to.
    pub(super) fn boot(&self) -> Result<Option<Boot>> {
        let sql = "SELECT boot, clock FROM machine";
        let boot = self.0.query_row(sql, [], |row| {
            let (id, clock) = (row.get(0)?, row.get(1)?);
            Ok(Boot { id, clock })
        });
        boot.optional()
    }

    /// Returns the greatest token that was ever granted from this file.
    pub(super) fn last_token(&self) -> Result<Option<FencingToken>> {
        let mut last = self.0.prepare_cached("SELECT last FROM tokens")?;
        let last: Option<i64> = last.query_row([], |row| row.get(0)).optional()?;
        Ok(last.map(|last| FencingToken::new(last.unsigned_abs())))
    }

    /// Records that this token was granted.
    pub(super) fn save_token(&self, token: FencingToken) -> Result<()> {
        let sql = "INSERT INTO tokens (id, last) VALUES (1, ?1)
                   ON CONFLICT (id) DO UPDATE SET last = max(last, excluded.last)";
        self.execute(sql, [i64::from(token)])
    }

    /// Empties the file: no lock is held, no client is registered. Tokens go on.
    pub(super) fn reset(&self, boot: &Boot) -> Result<()> {
        for table in [
            "states",
            "clients",
            "listeners",
            "journal",
            "line",
            "machine",
        ] {
            self.execute(&format!("DELETE FROM {table}"), [])?;
        }
        let sql = "INSERT INTO machine (boot, clock) VALUES (?1, ?2)";
        self.execute(sql, [&boot.id, &boot.clock])
    }

    pub(super) fn execute(&self, sql: &str, values: impl Params) -> Result<()> {
        self.0.prepare_cached(sql)?.execute(values).map(drop)
    }
}

impl StoredState {
    fn of(text: String) -> Result<Self> {
        let state = serde_json::from_str(&text).map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(error))
        })?;
        let text = Some(text);
        Ok(Self { state, text })
    }
}

pub(super) fn nanos(moment: Moment) -> i64 {
    i64::try_from(moment.as_nanos()).unwrap_or(i64::MAX)
}
