//! What is done about clients that have gone.

use std::path::Path;

use super::failure::unusable;
use super::folder::Folder;
use super::journal;
use super::messenger::News;
use super::rows::Rows;
use super::store::{Store, text};
use crate::engine::Failure;
use crate::engine::boot::Boot;
use crate::protocol::change::{Change, changes};
use crate::protocol::{Channel, ClientId, Moment};

/// How many clients that have only a label a new client examines.
const SWEPT: u32 = 16;

/// Whether a file of another boot or clock can be emptied: nothing in it can be valid any more.
///
/// That is so after a restart of the machine: it has ended every process, and its clock has begun anew. Without a restart
/// it is not so, since a lease may outlive its process. A client that is alive and of another boot is on
/// another machine.
pub(super) fn may_begin_anew(
    path: &Path,
    folder: &Folder,
    there: Option<Boot>,
    here: &Boot,
    clients: &[String],
) -> Result<(), Failure> {
    let Some(there) = there else {
        return Ok(());
    };
    if there.id == here.id {
        let why = format!(
            "it is used in another time namespace, whose clock cannot be compared with this one's ({}, here {}); \
             use it from one time namespace only, or remove it and the folder beside it when nothing uses it",
            there.clock, here.clock
        );
        return Err(unusable(path, &why));
    }
    for client in clients {
        match folder.may_be_there(client) {
            Ok(false) => {}
            Ok(true) => {
                let why = "another machine uses it too, and machines share no clock; choose a local folder, or redis://";
                return Err(unusable(path, why));
            }
            Err(error) => {
                let why = format!(
                    "it is of another start of the machine, and whether a client of that start is alive cannot be found out: {error}"
                );
                return Err(unusable(path, &why));
            }
        }
    }
    Ok(())
}

impl Store {
    /// Removes the rows of some clients that have gone and left nothing but a label, which is too old by now.
    ///
    /// The row of a client that is alive stays, also if its holds do not end with it: a file is emptied after a restart
    /// of the machine only if no client in the table is alive.
    pub(super) fn forget_unlabelled(&self, rows: &Rows<'_>) -> rusqlite::Result<()> {
        for client in rows.some_unlabelled(self.clock.now(), SWEPT)? {
            let gone = self.messenger.folder.may_be_there(&client);
            if *client != *self.client && matches!(gone, Ok(false)) {
                rows.remove_client(&client)?;
            }
        }
        Ok(())
    }

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
                now,
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
