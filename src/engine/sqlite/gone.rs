//! What is done about clients that have gone.

use super::journal;
use super::messenger::News;
use super::rows::Rows;
use super::store::{Store, text};
use crate::protocol::change::{Change, changes};
use crate::protocol::{Channel, ClientId, Moment};

impl Store {
    /// Takes out those who are first in line and have gone.
    pub(super) fn bury_first(
        &self,
        rows: &Rows<'_>,
        name: &str,
        now: Moment,
        news: &mut News,
    ) -> rusqlite::Result<()> {
        while let Some(first) = rows.first_client(name)?
            && *first != *self.client
            && rows.is_bound(&first)?
            && self.messenger.folder.is_gone(&first)
            && let Some(client) = ClientId::parse(&first)
        {
            self.bury(rows, client, now, news)?;
        }
        Ok(())
    }

    /// Takes out whatever a client has left that has gone.
    pub(super) fn bury(
        &self,
        rows: &Rows<'_>,
        client: ClientId,
        now: Moment,
        news: &mut News,
    ) -> rusqlite::Result<()> {
        let id = client.to_string();
        let lines = rows.lines_of(&id)?;
        rows.leave_lines(&id)?;
        for name in lines {
            // Perhaps somebody else is first now, or nobody has to wait for it any more.
            self.tell_first(rows, &name, news)?;
            let channel = text(&Channel::Semaphore(name.into()));
            let listeners = rows.listeners(&channel)?;
            news.freed.push((channel, listeners));
        }
        for (name, mut read) in rows.of_client(&id)? {
            let before = read.state.holders();
            let there = read.state.there(&name, now);
            read.state.leave(client);
            let after = read.state.holders();
            journal::tell(
                rows,
                &name,
                there.as_ref().map(|there| there.kind),
                changes(&before, &after, Change::Gone, now),
                news,
            )?;
            rows.keep(&name, read, now)?;
            if let Some(there) = there {
                let channel = text(&there.channel());
                let listeners = rows.listeners(&channel)?;
                news.freed.push((channel, listeners));
                self.tell_first(rows, &name, news)?;
            }
        }
        rows.remove_client(&id)?;
        news.gone.push(id);
        Ok(())
    }

    /// Tells whoever is first in line to ask again.
    fn tell_first(&self, rows: &Rows<'_>, name: &str, news: &mut News) -> rusqlite::Result<()> {
        if let Some(channel) = rows.first_channel(name)? {
            let channel = text(&channel);
            let listeners = rows.listeners(&channel)?;
            news.freed.push((channel, listeners));
        }
        Ok(())
    }
}
