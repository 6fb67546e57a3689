//! Cleans up after clients that have gone.

use std::path::Path;

use super::client_dir::ClientDir;
use super::error::unusable;
use super::journal;
use super::notifier::Notifications;
use super::rows::Rows;
use super::store::{SqliteStore, channel_name};
use crate::engine::StoreError;
use crate::engine::boot::Boot;
use crate::protocol::change::{Change, changes};
use crate::protocol::{Channel, ClientId, Moment};

/// How many clients that have only a label a new client examines.
const LABEL_SAMPLE: u32 = 16;

/// Checks that a file of another boot or clock can be emptied: nothing in it can be valid any more.
///
/// That is so after a restart of the machine: it has ended every process, and its clock has begun
/// anew. Without a restart it is not so, since a lease may outlive its process. A client that is
/// alive and of another boot is on another machine.
pub(super) fn check_reset_allowed(
    path: &Path,
    client_dir: &ClientDir,
    there: Option<Boot>,
    here: &Boot,
    clients: &[String],
) -> Result<(), StoreError> {
    let Some(there) = there else {
        return Ok(());
    };
    if there.id == here.id {
        let why = format!(
            "the file is used in another time namespace, whose clock cannot be compared with this one ({}, here {}); \
             use the file in one time namespace only, or remove it and the folder beside it when no process uses it",
            there.clock, here.clock
        );
        return Err(unusable(path, &why));
    }
    for client in clients {
        match client_dir.may_be_alive(client) {
            Ok(false) => {}
            Ok(true) => {
                let why = "another machine uses the file as well, and machines share no clock; choose a local folder, or redis://";
                return Err(unusable(path, why));
            }
            Err(error) => {
                let why = format!(
                    "the file is from another boot of the machine, and it is unknown whether a client of that boot is alive: {error}"
                );
                return Err(unusable(path, &why));
            }
        }
    }
    Ok(())
}

impl SqliteStore {
    /// Removes the rows of some clients that have gone and left nothing but a label, which is too
    /// old by now.
    ///
    /// The row of a client that is alive stays, also if its holds do not end with it: a file is
    /// emptied after a restart of the machine only if no client in the table is alive.
    pub(super) fn remove_unlabelled(&self, rows: &Rows<'_>) -> rusqlite::Result<()> {
        for client in rows.sample_unlabelled(self.clock.now(), LABEL_SAMPLE)? {
            let may_be_alive = self.notifier.client_dir.may_be_alive(&client);
            if *client != *self.client && matches!(may_be_alive, Ok(false)) {
                rows.remove_client(&client)?;
            }
        }
        Ok(())
    }

    /// Removes heads of the queue whose clients have gone.
    pub(super) fn reap_queue_heads(
        &self,
        rows: &Rows<'_>,
        name: &str,
        now: Moment,
        notifications: &mut Notifications,
    ) -> rusqlite::Result<()> {
        while let Some(first) = rows.queue_head_client(name)?
            && *first != *self.client
            && rows.is_bound(&first)?
            && self.notifier.client_dir.is_dead(&first)
            && let Some(client) = ClientId::parse(&first)
        {
            self.reap(rows, client, now, notifications)?;
        }
        Ok(())
    }

    /// Removes everything that a client has left that has gone.
    pub(super) fn reap(
        &self,
        rows: &Rows<'_>,
        client: ClientId,
        now: Moment,
        notifications: &mut Notifications,
    ) -> rusqlite::Result<()> {
        let id = client.to_string();
        let queues = rows.queues_of(&id)?;
        rows.leave_queues(&id)?;
        for name in queues {
            // Another waiter may be the head now, or waiters for a semaphore need not wait behind
            // this one any more.
            self.notify_queue_head(rows, &name, notifications)?;
            let channel = channel_name(&Channel::Semaphore(name.into()));
            let subscribed_clients = rows.subscribed_clients(&channel)?;
            notifications.released.push((channel, subscribed_clients));
        }
        for (name, mut read) in rows.of_client(&id)? {
            let before = read.state.holders();
            let there = read.state.there(&name, now);
            read.state.remove_client(client);
            let after = read.state.holders();
            journal::append(
                rows,
                &name,
                there.as_ref().map(|there| there.kind),
                changes(&before, &after, Change::Gone, now),
                now,
                notifications,
            )?;
            rows.save(&name, read, now)?;
            if let Some(there) = there {
                let channel = channel_name(&there.channel());
                let subscribed_clients = rows.subscribed_clients(&channel)?;
                notifications.released.push((channel, subscribed_clients));
                self.notify_queue_head(rows, &name, notifications)?;
            }
        }
        rows.remove_client(&id)?;
        notifications.reaped.push(id);
        Ok(())
    }

    /// Notifies the queue's head to retry.
    fn notify_queue_head(
        &self,
        rows: &Rows<'_>,
        name: &str,
        notifications: &mut Notifications,
    ) -> rusqlite::Result<()> {
        if let Some(channel) = rows.queue_head_channel(name)? {
            let channel = channel_name(&channel);
            let subscribed_clients = rows.subscribed_clients(&channel)?;
            notifications.released.push((channel, subscribed_clients));
        }
        Ok(())
    }
}
