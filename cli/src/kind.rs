//! The kinds of locks: their options, how one of each is acquired, and their names.

use std::time::Duration;

use distlock::{
    Client, Error, Guard, Lock, LockKind, Member, MultiLock, Permit, PermitCount, Semaphore,
};

use crate::exit::{self, Failure};
use crate::out::shown;
use crate::permits;
use crate::take::TakeParams;
use crate::taken::Taken;

// At most one of these options. Not a doc comment: doc comments of flattened arguments end up in the help.
#[derive(clap::Args, Clone, Copy, Debug)]
#[group(id = "kind", multiple = false)]
pub(crate) struct Flags {
    /// Use a fair lock: first come, first served
    #[arg(long)]
    fair: bool,
    /// Acquire to read: together with other readers, while no owner writes
    #[arg(long)]
    read: bool,
    /// Acquire to write: excludes readers and other writers
    #[arg(long)]
    write: bool,
    /// Use a fenced lock: a plain lock with an increasing token per grant
    #[arg(long)]
    fenced: bool,
    /// Use the lock of redis-py, redsync and node-redlock instead of Redisson's
    #[arg(long)]
    simple: bool,
    /// Up to N holders at once; fails if the semaphore has another number of permits
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MOST_PERMITS))]
    permits: Option<u32>,
}

/// Upper bound of `--permits`: a higher number is probably a typing error.
pub(crate) const MOST_PERMITS: i64 = 1_000_000;

/// A kind of lock that can be requested.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Fair,
    Fenced,
    /// One of this many permits.
    Permit(u32),
    Plain,
    Read,
    Simple,
    Write,
}

impl Flags {
    /// Returns the requested kind; the plain lock by default.
    pub(crate) const fn kind(self) -> Kind {
        match self {
            Self { fair: true, .. } => Kind::Fair,
            Self { fenced: true, .. } => Kind::Fenced,
            Self { read: true, .. } => Kind::Read,
            Self { simple: true, .. } => Kind::Simple,
            Self { write: true, .. } => Kind::Write,
            Self {
                permits: Some(total),
                ..
            } => Kind::Permit(total),
            Self { .. } => Kind::Plain,
        }
    }
}

impl Kind {
    /// Acquires the requested locks, waiting for at most the requested time; returns `None` if another owner still
    /// holds one of them then.
    pub(crate) async fn take(
        self,
        client: &Client,
        params: &TakeParams<'_>,
    ) -> Result<Option<Taken>, Failure> {
        if let Self::Permit(total) = self {
            agree(client, params.names, total).await?;
        }
        if let [name] = params.names {
            return Ok(self.take_one(client, name, params).await?);
        }
        let members = params
            .names
            .iter()
            .map(|name| self.member(client, name, params));
        let mut several = MultiLock::new(members);
        if let Some(lease) = params.lease {
            several = several.with_lease(lease);
        }
        let guard = match params.wait {
            None => several.acquire().await.map(Some),
            Some(Duration::ZERO) => several.try_acquire().await,
            Some(wait) => several.acquire_timeout(wait).await,
        };
        Ok(guard?.map(|guard| Taken::several(self.sort(), params.names, guard)))
    }

    async fn take_one(
        self,
        client: &Client,
        name: &str,
        params: &TakeParams<'_>,
    ) -> Result<Option<Taken>, Error> {
        let kind = self.sort();
        match self {
            Self::Fair => taken(client.fair_lock(name), kind, params).await,
            Self::Fenced => Ok(granted(client.fenced_lock(name), params)
                .await?
                .map(|guard| {
                    let token = guard.token();
                    Taken::new(kind, guard, Some(token))
                })),
            Self::Permit(total) => taken(permit(client, name, total), kind, params).await,
            Self::Plain => taken(client.lock(name), kind, params).await,
            Self::Read => taken(client.rw_lock(name).read(), kind, params).await,
            Self::Simple => taken(client.simple_lock(name), kind, params).await,
            Self::Write => taken(client.rw_lock(name).write(), kind, params).await,
        }
    }

    /// Returns one lock as a member of several.
    fn member(self, client: &Client, name: &str, params: &TakeParams<'_>) -> Member {
        match self {
            Self::Fair => limited(client.fair_lock(name), params).into(),
            Self::Fenced => limited(client.fenced_lock(name), params).into(),
            Self::Permit(total) => limited(permit(client, name, total), params).into(),
            Self::Plain => limited(client.lock(name), params).into(),
            Self::Read => limited(client.rw_lock(name).read(), params).into(),
            Self::Simple => limited(client.simple_lock(name), params).into(),
            Self::Write => limited(client.rw_lock(name).write(), params).into(),
        }
    }

    /// Returns the total number of permits, for a semaphore.
    pub(crate) const fn permits(self) -> Option<u32> {
        match self {
            Self::Permit(total) => Some(total),
            Self::Fair | Self::Fenced | Self::Plain | Self::Read | Self::Simple | Self::Write => {
                None
            }
        }
    }

    /// Returns the library's name of the kind.
    const fn sort(self) -> LockKind {
        match self {
            Self::Fair => LockKind::Fair,
            Self::Fenced => LockKind::Fenced,
            Self::Permit(_) => LockKind::Semaphore,
            Self::Plain => LockKind::Plain,
            Self::Read => LockKind::Read,
            Self::Simple => LockKind::Simple,
            Self::Write => LockKind::Write,
        }
    }
}

fn permit(client: &Client, name: &str, total: u32) -> Lock<Permit> {
    client.semaphore(name).with_permits(total).permit()
}

/// Creates the semaphores, or finds them with the same total. If one has another total, none is created. On a server a
/// total cannot be told from an application's counter, so a different number is never changed here.
async fn agree(client: &Client, names: &[String], total: u32) -> Result<(), Failure> {
    // All are checked before the first is created. For a single one `create` checks the same.
    let checked = if names.len() > 1 { names } else { &[] };
    for name in checked {
        let semaphore = client.semaphore(&**name);
        let count = semaphore.count().await?;
        if !is_nothing(count) {
            has_as_many(semaphore.name(), count, total)?;
        }
    }
    for name in names {
        let semaphore = client.semaphore(&**name);
        if let Some(count) = create(&semaphore, total).await? {
            has_as_many(semaphore.name(), count, total)?;
        }
    }
    Ok(())
}

fn has_as_many(name: &str, count: PermitCount, total: u32) -> Result<(), Failure> {
    let name = shown(name);
    let there = permits::total(count);
    if there == i64::from(total) {
        return Ok(());
    }
    let message = format!(
        "`{name}` has {there} permits ({} available, {} in use), not {total}; if it is a semaphore, `distlock permits \
         set {name} {total}` in the same store changes the number; if it is not, choose another name",
        count.available, count.out
    );
    Err(Failure::new(exit::USAGE, message))
}

/// Creates a semaphore if there is neither a number nor a permit of that name; otherwise returns the existing one's
/// count.
pub(crate) async fn create(
    semaphore: &Semaphore,
    total: u32,
) -> Result<Option<PermitCount>, Error> {
    let count = semaphore.count().await?;
    if !is_nothing(count) {
        return Ok(Some(count));
    }
    if semaphore.try_set(total).await? {
        return Ok(None);
    }
    semaphore.count().await.map(Some)
}

/// Returns whether there is neither a number nor a permit. A number that is zero looks the same, and is not replaced by
/// `try_set`.
const fn is_nothing(count: PermitCount) -> bool {
    count.available == 0 && count.out == 0
}

async fn taken<K: 'static>(
    lock: Lock<K>,
    kind: LockKind,
    params: &TakeParams<'_>,
) -> Result<Option<Taken>, Error> {
    let guard = granted(lock, params).await?;
    Ok(guard.map(|guard| Taken::new(kind, guard, None)))
}

async fn granted<K>(lock: Lock<K>, params: &TakeParams<'_>) -> Result<Option<Guard<K>>, Error> {
    let mut lock = limited(lock, params);
    if let Some(lease) = params.lease {
        lock = lock.with_lease(lease);
    }
    match params.wait {
        None => lock.acquire().await.map(Some),
        Some(Duration::ZERO) => lock.try_acquire().await,
        Some(wait) => lock.acquire_timeout(wait).await,
    }
}

fn limited<K>(lock: Lock<K>, params: &TakeParams<'_>) -> Lock<K> {
    match params.max_hold {
        Some(longest) => lock.with_max_hold(longest),
        None => lock,
    }
}

/// Returns the one-word name of a lock's kind, for users and for programs.
pub(crate) const fn word(kind: LockKind) -> &'static str {
    match kind {
        LockKind::Fair => "fair",
        LockKind::Fenced => "fenced",
        LockKind::Plain => "plain",
        LockKind::Read => "read",
        LockKind::Semaphore => "semaphore",
        LockKind::Simple => "simple",
        LockKind::Write => "write",
        // A newer library may know more kinds.
        _ => "other",
    }
}
