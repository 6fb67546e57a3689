//! The open file and all operations on it, which run on one thread.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};
use tokio::runtime::Handle;

use super::SqliteSettings;
use super::client_dir::ClientDir;
use super::error::{from_io, from_sqlite};
use super::liveness::Liveness;
use super::notifier::{Notifications, Notifier};
use super::queue_table::QueueTable;
use super::reap::check_reset_allowed;
use super::replaced::{FileIdentity, file_identity};
use super::rows::Rows;
use super::wake_socket::LocalSubscribers;
use super::{file_checks, fork_check, journal, replaced, schema};
use crate::engine::boot::{Boot, BootClock};
use crate::engine::{StoreError, StoreErrorKind, Subscriber, tokens};
use crate::protocol::change::{Change, changes};
use crate::protocol::release_on::ReleaseOn;
use crate::protocol::state::ApplyContext;
use crate::protocol::{Action, Channel, ClientId, Reply, Request};

/// A longer ttl is the rest of [`NO_EXPIRY`](crate::protocol::lease::NO_EXPIRY): the hold ends with
/// its process.
const UNBOUNDED_TTL: Duration = Duration::from_secs(200 * 365 * 24 * 60 * 60);

/// How many other clients a new client examines: killed ones leave files and rows behind.
const REAP_SAMPLE: u32 = 16;

/// An open file.
#[derive(Debug)]
pub(super) struct SqliteStore {
    pub(super) db: Connection,
    pub(super) path: PathBuf,
    /// The identities of the files that were opened, in case others take their place.
    identity: FileIdentity,
    pub(super) notifier: Notifier,
    /// The client's lock file: other clients see this one alive as long as it is open.
    liveness_lock: Option<fs::File>,
    /// Whether this client's holds end with it.
    bound: bool,
    pub(super) id: ClientId,
    pub(super) client: Arc<str>,
    pub(super) prefix: Arc<str>,
    pub(super) clock: BootClock,
    /// Clients without a wake socket, whose registrations are still to be removed.
    unreachable_clients: Vec<String>,
    closed: bool,
}

impl SqliteStore {
    /// Opens the file, or creates it, and registers the client.
    pub(super) fn open(
        settings: SqliteSettings,
        subscribers: Arc<LocalSubscribers>,
        liveness: Arc<Liveness>,
        background: Handle,
    ) -> Result<Self, StoreError> {
        let SqliteSettings { path, prefix, .. } = settings;
        fork_check::refuse_forked_child(&path)?;
        // The file's real path, so that all its clients share one directory.
        let (path, made) = file_checks::prepare_file(&path)?;
        let client_dir = ClientDir::for_file(&path)?;
        if made {
            client_dir.remove_created_marker();
        }
        // Read before the file is examined: another process may just be creating it.
        let created_before = client_dir.has_created_marker();
        let db = schema::open(&path, settings.busy_timeout, || {
            created_before && client_dir.has_created_marker()
        });
        let db = db.inspect_err(|failure| {
            // The directory stays if the file is only busy: another client may just be registering
            // in it.
            if failure.kind == StoreErrorKind::Unusable {
                client_dir.remove_if_created();
            }
        })?;
        if !created_before {
            client_dir.write_created_marker()?;
        }
        let id = settings.client;
        let client: Arc<str> = id.to_string().into();
        // The lock file has to exist before this client's row is in the tables.
        let liveness_lock = client_dir.create_lock_file(&client, settings.release_on)?;
        let notifier = Notifier::new(
            client_dir,
            subscribers,
            liveness,
            client.clone(),
            background,
            settings.events,
        )
        .map_err(|error| from_io(&path, &error))?;
        let mut store = Self {
            identity: FileIdentity::default(),
            db,
            path,
            notifier,
            liveness_lock: Some(liveness_lock),
            bound: settings.release_on != ReleaseOn::Lease,
            id,
            client,
            prefix,
            clock: settings.clock,
            unreachable_clients: Vec::new(),
            closed: false,
        };
        if let Err(failure) = store.register() {
            store.notifier.client_dir.remove_files(&store.client);
            return Err(failure);
        }
        // SQLite has created all files by now.
        store.identity = file_identity(&store.path);
        Ok(store)
    }

    /// Executes one request.
    pub(super) fn call(&mut self, request: &Request) -> Result<Reply, StoreError> {
        if self.was_replaced() {
            return replaced::reply(request, &self.path);
        }
        self.transact(|store, rows, notifications| store.apply(rows, request, notifications))?
    }

    /// Executes several requests, all in one transaction.
    pub(super) fn call_all(&mut self, requests: &[Request]) -> Vec<Result<Reply, StoreError>> {
        if self.was_replaced() {
            return requests
                .iter()
                .map(|request| replaced::reply(request, &self.path))
                .collect();
        }
        let done = self.transact(|store, rows, notifications| {
            let replies = requests
                .iter()
                .map(|request| store.apply(rows, request, notifications));
            replies.collect::<rusqlite::Result<Vec<_>>>()
        });
        match done {
            Ok(replies) => replies,
            Err(failure) => vec![Err(failure); requests.len()],
        }
    }

    /// Registers this client at a channel; returns the channel's name and the subscriber that is
    /// notified of releases.
    pub(super) fn subscribe(
        &mut self,
        channel: &Channel,
    ) -> Result<(String, Arc<Subscriber>), StoreError> {
        let channel = self.channel(channel);
        let (subscriber, ()) = self.subscribe_to(&channel, |_| Ok(()))?;
        Ok((channel, subscriber))
    }

    /// Registers this client at a channel by its name; also reads from the tables in the same
    /// transaction.
    pub(super) fn subscribe_to<T>(
        &mut self,
        channel: &str,
        read: impl FnOnce(&Rows<'_>) -> rusqlite::Result<T>,
    ) -> Result<(Arc<Subscriber>, T), StoreError> {
        self.notifier.bind_socket();
        // The subscriber is added first, so that it receives a wakeup that is sent as soon as the
        // row exists.
        let subscriber = self.notifier.subscribers.add(channel);
        let listed = self.transact(|store, rows, _| {
            rows.add_subscription(channel, &store.client)?;
            read(rows)
        });
        match listed {
            Ok(read) => Ok((subscriber, read)),
            Err(failure) => {
                self.notifier
                    .subscribers
                    .remove(channel, &Arc::downgrade(&subscriber));
                Err(failure)
            }
        }
    }

    /// Removes this client's registration at a channel, unless it has a subscriber there again.
    pub(super) fn unsubscribe(&mut self, channel: &str) {
        if self.notifier.subscribers.has_subscribers(channel) {
            return;
        }
        // If this fails, other clients wake this one without need.
        let _ = self.transact(|store, rows, _| rows.remove_subscription(channel, &store.client));
    }

    /// Leaves the file. Other clients find what is still held, because they see that this client
    /// has gone.
    pub(super) fn close(&mut self) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        self.notifier.close_socket();
        if self.was_replaced() {
            return self.notifier.client_dir.remove_files(&self.client);
        }
        let liveness_lock = self.liveness_lock.take();
        let nothing_left = self.transact(|store, rows, _| {
            let now = store.clock.now();
            let mut nothing_left = true;
            for (name, mut read) in rows.of_client(&store.client)? {
                if read.state.clients().contains(&store.id) {
                    nothing_left = false;
                    continue;
                }
                // A request that this client has undone cannot arrive any more.
                read.state.remove_client(store.id);
                rows.save(&name, read, now)?;
            }
            rows.leave_queues(&store.client)?;
            if nothing_left {
                rows.remove_client(&store.client)?;
            }
            Ok(nothing_left)
        });
        if nothing_left == Ok(true) || !self.bound {
            self.notifier.client_dir.remove_files(&self.client);
        }
        if !self.bound && nothing_left != Ok(true) {
            // The current holds are to outlive this process: a checkpoint writes them to the main
            // file, since the log beside it looks as if it could be removed.
            let _ = self.db.execute_batch("PRAGMA wal_checkpoint(PASSIVE)");
        }
        // The lock file is closed last: from then on this client has gone.
        drop(liveness_lock);
    }

    /// Empties the file after a restart of the machine, registers the client, and cleans up after
    /// some that were killed.
    fn register(&mut self) -> Result<(), StoreError> {
        let here = Boot::current().map_err(|error| from_io(&self.path, &error))?;
        // Listed before the transaction, during which other clients wait.
        let old = self.notifier.client_dir.stale_clients(REAP_SAMPLE);
        let path = self.path.clone();
        self.transact(|store, rows, notifications| {
            let there = rows.boot()?;
            if there.as_ref() != Some(&here) {
                let client_dir = &store.notifier.client_dir;
                let clients = rows.all_clients()?;
                if let Err(failure) = check_reset_allowed(&path, client_dir, there, &here, &clients)
                {
                    return Ok(Err(failure));
                }
                rows.reset(&here)?;
            }
            rows.add_client(&store.client, store.bound)?;
            store.remove_unlabelled(rows)?;
            for other in rows.sample_clients(REAP_SAMPLE)? {
                if let Some(id) = ClientId::parse(&other)
                    && id != store.id
                    && store.notifier.client_dir.is_dead(&other)
                {
                    store.reap(rows, id, store.clock.now(), notifications)?;
                }
            }
            for name in &old {
                if !rows.has_client(name)? {
                    notifications.reaped.push(name.clone());
                }
            }
            Ok(Ok(()))
        })?
    }

    /// Executes one request by the rules.
    pub(super) fn apply(
        &self,
        rows: &Rows<'_>,
        request: &Request,
        notifications: &mut Notifications,
    ) -> rusqlite::Result<Result<Reply, StoreError>> {
        let now = self.clock.now();
        let name = self.key(&request.subject.name);
        let mut read = rows.state(&name)?;
        for client in read.state.clients() {
            let text = client.to_string();
            if client != self.id && rows.is_bound(&text)? && self.notifier.client_dir.is_dead(&text)
            {
                self.reap(rows, client, now, notifications)?;
                read = rows.state(&name)?;
            }
        }
        let has_queue = request.subject.kind.may_have_server_queue();
        if has_queue {
            self.reap_queue_heads(rows, &name, now, notifications)?;
        }
        let channel = self.channel(&request.subject.channel());
        let subscribed_clients = rows.subscribed_clients(&channel)?;
        let count = u32::try_from(subscribed_clients.len()).unwrap_or(u32::MAX);
        let before = read.state.holders();
        let last = match request.subject.kind.is_fenced() {
            true => rows.last_token()?,
            false => None,
        };
        let ctx = ApplyContext {
            now,
            subscribers: count,
            next_token: tokens::next_token(request, last),
        };
        let mut queue = QueueTable::new(rows, &name);
        let outcome = read.state.apply(request, &ctx, &mut queue);
        queue.finish()?;
        if let Ok(Reply::Granted { token: Some(token) }) = outcome.reply {
            rows.save_token(token)?;
        }
        let after = read.state.holders();
        let changes = changes(&before, &after, Change::by(&request.action), now);
        journal::append(
            rows,
            &name,
            Some(request.subject.kind),
            changes,
            now,
            notifications,
        )?;
        let mut reply = outcome.reply;
        if let Ok(Reply::Inspected(Some(holding))) = &mut reply {
            let own = holding.owners.iter_mut().map(|held| &mut held.ttl);
            for ttl in own.chain([&mut holding.ttl]) {
                *ttl = ttl.filter(|ttl| *ttl < UNBOUNDED_TTL);
            }
        }
        if matches!(reply, Ok(Reply::Busy { .. })) {
            let waits_at = match request.action {
                Action::Acquire { owner, .. } if request.subject.kind.has_server_queue() => {
                    let name = request.subject.name.clone();
                    self.channel(&Channel::Waiter(name, owner))
                }
                _ => channel.clone(),
            };
            for client in read.state.clients() {
                notifications
                    .busy
                    .push((client.to_string(), waits_at.clone()));
            }
            if has_queue && let Some(first) = rows.queue_head_client(&name)? {
                notifications.busy.push((first, waits_at));
            }
        }
        rows.save(&name, read, now)?;
        if let Some(freed) = outcome.notify {
            let freed = self.channel(&freed);
            let subscribed_clients = match freed == channel {
                true => subscribed_clients,
                false => rows.subscribed_clients(&freed)?,
            };
            notifications.released.push((freed, subscribed_clients));
        }
        Ok(reply.map_err(StoreError::from))
    }

    /// Runs one transaction and delivers its notifications.
    pub(super) fn transact<T>(
        &mut self,
        work: impl FnOnce(&Self, &Rows<'_>, &mut Notifications) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let mut notifications = Notifications::default();
        let done = self.in_transaction(TransactionBehavior::Immediate, |store, rows| {
            store
                .unreachable_clients
                .iter()
                .try_for_each(|client| rows.remove_subscriptions_of(client))?;
            work(store, rows, &mut notifications)
        });
        let done = done?;
        // These clients were killed; a client that is alive and has lost its wake socket retries by
        // itself.
        self.unreachable_clients = self.notifier.deliver(notifications);
        Ok(done)
    }

    /// Runs a transaction that only reads and does not block writers.
    pub(super) fn read_only<T>(
        &self,
        work: impl FnOnce(&Self, &Rows<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        if self.was_replaced() {
            return Err(replaced::error(&self.path));
        }
        self.in_transaction(TransactionBehavior::Deferred, work)
    }

    fn in_transaction<T>(
        &self,
        behavior: TransactionBehavior,
        work: impl FnOnce(&Self, &Rows<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let failed = |error: rusqlite::Error| from_sqlite(&self.path, &error);
        // Not `Connection::transaction`, which borrows the connection mutably: the rest of the
        // store is needed meanwhile.
        let transaction =
            rusqlite::Transaction::new_unchecked(&self.db, behavior).map_err(failed)?;
        // Another client may be of a newer version, and have migrated the file meanwhile.
        schema::check_version(&transaction, &self.path)?;
        let done = work(self, &Rows(&transaction)).map_err(failed)?;
        transaction.commit().map_err(failed)?;
        Ok(done)
    }

    /// Reports whether the file was moved, removed or replaced: other clients may use another file
    /// by now.
    pub(super) fn was_replaced(&self) -> bool {
        file_identity(&self.path) != self.identity
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn channel(&self, channel: &Channel) -> String {
        channel_name(&channel.of(|name| self.key(name).into()))
    }
}

/// Returns the name of a channel in the tables and in wakeups.
pub(super) fn channel_name(channel: &Channel) -> String {
    match channel {
        Channel::Lock(name) => format!("lock:{name}"),
        Channel::ReadWrite(name) => format!("rw:{name}"),
        Channel::Semaphore(name) => format!("semaphore:{name}"),
        Channel::Latch(name) => format!("latch:{name}"),
        Channel::Waiter(name, owner) => format!("wait:{owner}:{name}"),
    }
}
