//! The kinds of locks: which was asked for, how one of each is taken, and what they are called.

use std::time::Duration;

use distlock::{Client, Error, Guard, Lock, LockKind};

use crate::take::Wish;
use crate::taken::Taken;

// At most one of them. Not a doc comment: those of flattened arguments end up in the help.
#[derive(clap::Args, Clone, Copy, Debug)]
#[group(id = "kind", multiple = false)]
pub(crate) struct Flags {
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
    Fenced,
    Plain,
    Simple,
}

impl Flags {
    /// The plain lock, if nothing else was said.
    pub(crate) const fn kind(self) -> Kind {
        if self.fenced {
            Kind::Fenced
        } else if self.simple {
            Kind::Simple
        } else {
            Kind::Plain
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
        Ok(match self {
            Self::Fenced => granted(client.fenced_lock(name), wish).await?.map(|guard| {
                let token = guard.token();
                Taken::new(LockKind::Fenced, guard, Some(token))
            }),
            Self::Plain => granted(client.lock(name), wish)
                .await?
                .map(|guard| Taken::new(LockKind::Plain, guard, None)),
            Self::Simple => granted(client.simple_lock(name), wish)
                .await?
                .map(|guard| Taken::new(LockKind::Simple, guard, None)),
        })
    }
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
        LockKind::Fenced => "fenced",
        LockKind::Plain => "plain",
        LockKind::Simple => "simple",
        // What a newer library may know.
        _ => "other",
    }
}
