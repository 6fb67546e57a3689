//! The file and all that is done with it, on one thread.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};
use tokio::runtime::Handle;

use super::Settings;
use super::bell::Ears;
use super::failure::{of_io, of_sqlite};
use super::folder::Folder;
use super::gone::may_begin_anew;
use super::line::Table;
use super::liveness::Liveness;
use super::messenger::{Messenger, News};
use super::removed::{Identity, identity};
use super::rows::Rows;
use super::{forked, journal, removed, schema, trust};
use crate::engine::boot::{Boot, BootClock};
use crate::engine::{Cause, Ear, Failure, tokens};
use crate::protocol::change::{Change, changes};
use crate::protocol::holds_end_with::HoldsEndWith;
use crate::protocol::state::Surroundings;
use crate::protocol::{Action, Channel, ClientId, Reply, Request};

/// A ttl that is longer is what is left of [`ENDLESS`](crate::protocol::lease::ENDLESS): the hold ends with its process.
const FOR_EVER: Duration = Duration::from_secs(200 * 365 * 24 * 60 * 60);

/// How many other clients a new one looks at: those that were killed leave files and rows behind.
const SWEPT: u32 = 16;

/// An open file.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) db: Connection,
    pub(super) path: PathBuf,
    /// Which files were opened, in case others take their place.
    identity: Identity,
    pub(super) messenger: Messenger,
    /// Others see us alive as long as it is open.
    presence: Option<fs::File>,
    /// Whether our holds end when we do.
    bound: bool,
    pub(super) id: ClientId,
    pub(super) client: Arc<str>,
    pub(super) prefix: Arc<str>,
    pub(super) clock: BootClock,
    /// Clients without a bell, still to be removed from the lists of listeners.
    deaf: Vec<String>,
    has_left: bool,
}

impl Store {
    /// Opens the file, or makes it, and enters.
    pub(super) fn open(
        settings: Settings,
        ears: Arc<Ears>,
        liveness: Arc<Liveness>,
        background: Handle,
    ) -> Result<Self, Failure> {
        let Settings { path, prefix, .. } = settings;
        forked::refuse(&path)?;
        // The file's real path, so that all its users share one folder.
        let (path, made) = trust::file(&path)?;
        let folder = Folder::beside(&path)?;
        if made {
            folder.forget_made();
        }
        // Asked before the file is looked at: others may just be making it.
        let made_before = folder.is_of_a_made_file();
        let db = schema::open(&path, settings.patience, || {
            made_before && folder.is_of_a_made_file()
        });
        let db = db.inspect_err(|failure| {
            // Not if the file is only busy: somebody else may just be entering the folder.
            if failure.cause == Cause::Unusable {
                folder.take_back();
            }
        })?;
        if !made_before {
            folder.note_made()?;
        }
        let id = settings.client;
        let client: Arc<str> = id.to_string().into();
        // Before our row is in the tables.
        let presence = folder.enter(&client, settings.holds_end_with)?;
        let messenger = Messenger::new(
            folder,
            ears,
            liveness,
            client.clone(),
            background,
            settings.events,
        )
        .map_err(|error| of_io(&path, &error))?;
        let mut store = Self {
            identity: Identity::default(),
            db,
            path,
            messenger,
            presence: Some(presence),
            bound: settings.holds_end_with != HoldsEndWith::Lease,
            id,
            client,
            prefix,
            clock: settings.clock,
            deaf: Vec::new(),
            has_left: false,
        };
        if let Err(failure) = store.enter() {
            store.messenger.folder.clear(&store.client);
            return Err(failure);
        }
        // SQLite has made them all by now.
        store.identity = identity(&store.path);
        Ok(store)
    }

    /// Carries out one request.
    pub(super) fn call(&mut self, request: &Request) -> Result<Reply, Failure> {
        if self.was_replaced() {
            return removed::answer(request, &self.path);
        }
        self.transact(|store, rows, news| store.apply(rows, request, news))?
    }

    /// Carries out several, all in one transaction.
    pub(super) fn call_all(&mut self, requests: &[Request]) -> Vec<Result<Reply, Failure>> {
        if self.was_replaced() {
            return requests
                .iter()
                .map(|request| removed::answer(request, &self.path))
                .collect();
        }
        let done = self.transact(|store, rows, news| {
            let replies = requests
                .iter()
                .map(|request| store.apply(rows, request, news));
            replies.collect::<rusqlite::Result<Vec<_>>>()
        });
        match done {
            Ok(replies) => replies,
            Err(failure) => vec![Err(failure); requests.len()],
        }
    }

    /// Registers us at a channel; returns the ear that hears of releases there.
    pub(super) fn listen(&mut self, channel: &Channel) -> Result<(String, Arc<Ear>), Failure> {
        let channel = self.channel(channel);
        let (ear, ()) = self.listen_at(&channel, |_| Ok(()))?;
        Ok((channel, ear))
    }

    /// The same by the channel's name; also reads from the tables in the same transaction.
    pub(super) fn listen_at<T>(
        &mut self,
        channel: &str,
        read: impl FnOnce(&Rows<'_>) -> rusqlite::Result<T>,
    ) -> Result<(Arc<Ear>, T), Failure> {
        self.messenger.hang_bell();
        // First, so that we hear a bell rung as soon as the row is there.
        let ear = self.messenger.ears.add(channel);
        let listed = self.transact(|store, rows, _| {
            rows.listen(channel, &store.client)?;
            read(rows)
        });
        match listed {
            Ok(read) => Ok((ear, read)),
            Err(failure) => {
                self.messenger.ears.remove(channel, &Arc::downgrade(&ear));
                Err(failure)
            }
        }
    }

    /// Nobody here listens there any more, unless somebody has begun to since.
    pub(super) fn stop_listening(&mut self, channel: &str) {
        if self.messenger.ears.any(channel) {
            return;
        }
        // If this fails, our bell is rung without need.
        let _ = self.transact(|store, rows, _| rows.stop_listening(channel, &store.client));
    }

    /// Leaves. Others find what is still held, because they see that we have gone.
    pub(super) fn leave(&mut self) {
        if std::mem::replace(&mut self.has_left, true) {
            return;
        }
        self.messenger.take_bell_down();
        if self.was_replaced() {
            return self.messenger.folder.clear(&self.client);
        }
        let presence = self.presence.take();
        let nothing_left = self.transact(|store, rows, _| {
            let now = store.clock.now();
            let mut nothing_left = true;
            for (name, mut read) in rows.of_client(&store.client)? {
                if read.state.clients().contains(&store.id) {
                    nothing_left = false;
                    continue;
                }
                // What we have undone cannot come any more.
                read.state.leave(store.id);
                rows.keep(&name, read, now)?;
            }
            rows.leave_lines(&store.client)?;
            if nothing_left {
                rows.remove_client(&store.client)?;
            }
            Ok(nothing_left)
        });
        if nothing_left == Ok(true) || !self.bound {
            self.messenger.folder.clear(&self.client);
        }
        if !self.bound && nothing_left != Ok(true) {
            // What is held now is to outlive this process: not only in a file that looks as if it could be removed.
            let _ = self.db.execute_batch("PRAGMA wal_checkpoint(PASSIVE)");
        }
        // Last: from now on we have gone.
        drop(presence);
    }

    /// Begins anew after a restart of the machine, enters, and sees to some that were killed.
    fn enter(&mut self) -> Result<(), Failure> {
        let here = Boot::current().map_err(|error| of_io(&self.path, &error))?;
        // Before anybody has to wait for us.
        let old = self.messenger.folder.old_names(SWEPT);
        let path = self.path.clone();
        self.transact(|store, rows, news| {
            let there = rows.boot()?;
            if there.as_ref() != Some(&here) {
                let folder = &store.messenger.folder;
                let clients = rows.all_clients()?;
                if let Err(failure) = may_begin_anew(&path, folder, there, &here, &clients) {
                    return Ok(Err(failure));
                }
                rows.begin(&here)?;
            }
            rows.add_client(&store.client, store.bound)?;
            store.forget_unlabelled(rows)?;
            for other in rows.some_clients(SWEPT)? {
                if let Some(id) = ClientId::parse(&other)
                    && id != store.id
                    && store.messenger.folder.is_gone(&other)
                {
                    store.bury(rows, id, store.clock.now(), news)?;
                }
            }
            for name in &old {
                if !rows.knows(name)? {
                    news.gone.push(name.clone());
                }
            }
            Ok(Ok(()))
        })?
    }

    /// One request, by the rules.
    pub(super) fn apply(
        &self,
        rows: &Rows<'_>,
        request: &Request,
        news: &mut News,
    ) -> rusqlite::Result<Result<Reply, Failure>> {
        let now = self.clock.now();
        let name = self.key(&request.subject.name);
        let mut read = rows.state(&name)?;
        for client in read.state.clients() {
            let text = client.to_string();
            if client != self.id && rows.is_bound(&text)? && self.messenger.folder.is_gone(&text) {
                self.bury(rows, client, now, news)?;
                read = rows.state(&name)?;
            }
        }
        let has_line = request.subject.kind.may_have_line();
        if has_line {
            self.bury_first(rows, &name, now, news)?;
        }
        let channel = self.channel(&request.subject.channel());
        let listeners = rows.listeners(&channel)?;
        let count = u32::try_from(listeners.len()).unwrap_or(u32::MAX);
        let before = read.state.holders();
        let last = match request.subject.kind.is_fenced() {
            true => rows.last_token()?,
            false => None,
        };
        let around = Surroundings {
            now,
            listeners: count,
            next_token: tokens::next(request, last),
        };
        let mut line = Table::new(rows, &name);
        let outcome = read.state.apply(request, &around, &mut line);
        line.end()?;
        if let Ok(Reply::Granted { token: Some(token) }) = outcome.reply {
            rows.note_token(token)?;
        }
        let after = read.state.holders();
        let changes = changes(&before, &after, Change::by(&request.action), now);
        journal::tell(rows, &name, Some(request.subject.kind), changes, now, news)?;
        let mut reply = outcome.reply;
        if let Ok(Reply::Inspected(Some(holding))) = &mut reply {
            let own = holding.owners.iter_mut().map(|held| &mut held.ttl);
            for ttl in own.chain([&mut holding.ttl]) {
                *ttl = ttl.filter(|ttl| *ttl < FOR_EVER);
            }
        }
        if matches!(reply, Ok(Reply::Busy { .. })) {
            let waits_at = match request.action {
                Action::Acquire { owner, .. } if request.subject.kind.has_line() => {
                    let name = request.subject.name.clone();
                    self.channel(&Channel::Waiter(name, owner))
                }
                _ => channel.clone(),
            };
            for client in read.state.clients() {
                news.busy.push((client.to_string(), waits_at.clone()));
            }
            if has_line && let Some(first) = rows.first_client(&name)? {
                news.busy.push((first, waits_at));
            }
        }
        rows.keep(&name, read, now)?;
        if let Some(freed) = outcome.news {
            let freed = self.channel(&freed);
            let listeners = match freed == channel {
                true => listeners,
                false => rows.listeners(&freed)?,
            };
            news.freed.push((freed, listeners));
        }
        Ok(reply.map_err(Failure::from))
    }

    /// One transaction, and what follows from it.
    pub(super) fn transact<T>(
        &mut self,
        work: impl FnOnce(&Self, &Rows<'_>, &mut News) -> rusqlite::Result<T>,
    ) -> Result<T, Failure> {
        let mut news = News::default();
        let done = self.in_one(TransactionBehavior::Immediate, |store, rows| {
            store
                .deaf
                .iter()
                .try_for_each(|client| rows.is_deaf(client))?;
            work(store, rows, &mut news)
        });
        let done = done?;
        // They were killed; who is there and has lost its bell asks by itself.
        self.deaf = self.messenger.spread(news);
        Ok(done)
    }

    /// A look that changes nothing, and keeps nobody from writing.
    pub(super) fn look<T>(
        &self,
        look: impl FnOnce(&Self, &Rows<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, Failure> {
        if self.was_replaced() {
            return Err(removed::failure(&self.path));
        }
        self.in_one(TransactionBehavior::Deferred, look)
    }

    fn in_one<T>(
        &self,
        behavior: TransactionBehavior,
        work: impl FnOnce(&Self, &Rows<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, Failure> {
        let failed = |error: rusqlite::Error| of_sqlite(&self.path, &error);
        // Begun and ended by hand, because the rest of the store is needed meanwhile.
        let whole = rusqlite::Transaction::new_unchecked(&self.db, behavior).map_err(failed)?;
        // Others may be newer than we are, and have brought the file up to date meanwhile.
        schema::is_known(&whole, &self.path)?;
        let done = work(self, &Rows(&whole)).map_err(failed)?;
        whole.commit().map_err(failed)?;
        Ok(done)
    }

    /// Whether somebody has moved, removed or replaced the file: others may use another by now.
    pub(super) fn was_replaced(&self) -> bool {
        identity(&self.path) != self.identity
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn channel(&self, channel: &Channel) -> String {
        text(&channel.of(|name| self.key(name).into()))
    }
}

/// A channel as it stands in the tables and is rung.
pub(super) fn text(channel: &Channel) -> String {
    match channel {
        Channel::Lock(name) => format!("lock:{name}"),
        Channel::ReadWrite(name) => format!("rw:{name}"),
        Channel::Semaphore(name) => format!("semaphore:{name}"),
        Channel::Latch(name) => format!("latch:{name}"),
        Channel::Waiter(name, owner) => format!("wait:{owner}:{name}"),
    }
}
