//! The kinds of locks: which was asked for, how one of each is taken, and what they are called.

use std::time::Duration;

use distlock::{
    Client, Error, Guard, Lock, LockKind, Member, MultiLock, Permit, PermitCount, Semaphore,
};

use crate::exit::{self, Failure};
use crate::out::shown;
use crate::permits;
use crate::take::TakeParams;
use crate::taken::Taken;

// At most one of them. Not a doc comment: those of flattened arguments end up in the help.
#[derive(clap::Args, Clone, Copy, Debug)]
#[group(id = "kind", multiple = false)]
pub(crate) struct Flags {
    /// First come, first served
    #[arg(long)]
    fair: bool,
    /// Together with other readers, while nobody writes
    #[arg(long)]
    read: bool,
    /// Alone: neither beside readers nor beside writers
    #[arg(long)]
    write: bool,
    /// The plain lock with a token for each grant: a number that grows
    #[arg(long)]
    fenced: bool,
    /// The lock that redis-py, redsync and redlock know, not Redisson's
    #[arg(long)]
    simple: bool,
    /// At most N at once; fails if the semaphore has another number of permits
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MOST_PERMITS))]
    permits: Option<u32>,
}

/// More are a slip of the finger.
pub(crate) const MOST_PERMITS: i64 = 1_000_000;

/// A kind that can be asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Fair,
    Fenced,
    /// One of so many.
    Permit(u32),
    Plain,
    Read,
    Simple,
    Write,
}

impl Flags {
    /// The plain lock, if nothing else was said.
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
    /// Waits for what was wished, as long as was wished; none if somebody else still holds it then, or one of them.
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

    /// One of several.
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

    /// Of how many permits one is wanted, if one is.
    pub(crate) const fn permits(self) -> Option<u32> {
        match self {
            Self::Permit(total) => Some(total),
            Self::Fair | Self::Fenced | Self::Plain | Self::Read | Self::Simple | Self::Write => {
                None
            }
        }
    }

    /// As the library calls it.
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

/// Creates the semaphores, or finds them with as many permits. If one has another number, none is created. On a server
/// a number cannot be told from an application's counter, so a different number is never changed here.
async fn agree(client: &Client, names: &[String], total: u32) -> Result<(), Failure> {
    // Before the first is created. Of one alone `create` sees the same.
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

/// Creates a semaphore if there is neither a number nor a permit of that name; otherwise returns what there is.
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

/// Whether there is neither a number nor a permit. A number that is zero looks the same, and is not replaced by
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

/// What people and programs are told of a lock's kind, in a word.
pub(crate) const fn word(kind: LockKind) -> &'static str {
    match kind {
        LockKind::Fair => "fair",
        LockKind::Fenced => "fenced",
        LockKind::Plain => "plain",
        LockKind::Read => "read",
        LockKind::Semaphore => "semaphore",
        LockKind::Simple => "simple",
        LockKind::Write => "write",
        // What a newer library may know.
        _ => "other",
    }
}
