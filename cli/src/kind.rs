//! The kinds of locks: which was asked for, how one of each is taken, and what they are called.

use std::time::Duration;

use distlock::{Client, Error, Guard, Lock, LockKind};

use crate::take::Wish;
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
}

/// A kind that can be asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Fair,
    Fenced,
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
            Self { .. } => Kind::Plain,
        }
    }
}

impl Kind {
    /// Waits for a lock of this kind as long as was wished; none if somebody else still holds it then.
    pub(crate) async fn take(
        self,
        client: &Client,
        wish: &Wish<'_>,
    ) -> Result<Option<Taken>, Error> {
        let name = wish.name;
        match self {
            Self::Fair => taken(client.fair_lock(name), LockKind::Fair, wish).await,
            Self::Fenced => Ok(granted(client.fenced_lock(name), wish).await?.map(|guard| {
                let token = guard.token();
                Taken::new(LockKind::Fenced, guard, Some(token))
            })),
            Self::Plain => taken(client.lock(name), LockKind::Plain, wish).await,
            Self::Read => taken(client.rw_lock(name).read(), LockKind::Read, wish).await,
            Self::Simple => taken(client.simple_lock(name), LockKind::Simple, wish).await,
            Self::Write => taken(client.rw_lock(name).write(), LockKind::Write, wish).await,
        }
    }
}

async fn taken<K: 'static>(
    lock: Lock<K>,
    kind: LockKind,
    wish: &Wish<'_>,
) -> Result<Option<Taken>, Error> {
    let guard = granted(lock, wish).await?;
    Ok(guard.map(|guard| Taken::new(kind, guard, None)))
}

async fn granted<K>(mut lock: Lock<K>, wish: &Wish<'_>) -> Result<Option<Guard<K>>, Error> {
    if let Some(lease) = wish.lease {
        lock = lock.with_lease(lease);
    }
    if let Some(longest) = wish.max_hold {
        lock = lock.with_max_hold(longest);
    }
    match wish.wait {
        None => lock.acquire().await.map(Some),
        Some(Duration::ZERO) => lock.try_acquire().await,
        Some(wait) => lock.acquire_timeout(wait).await,
    }
}

/// What people and programs are told of a lock's kind, in a word.
pub(crate) const fn word(kind: LockKind) -> &'static str {
    match kind {
        LockKind::Fair => "fair",
        LockKind::Fenced => "fenced",
        LockKind::Plain => "plain",
        LockKind::Read => "read",
        LockKind::Simple => "simple",
        LockKind::Write => "write",
        // What a newer library may know.
        _ => "other",
    }
}
