//! For operators: who holds what, and how to take it from them.

use std::sync::Arc;
use std::time::Duration;

use crate::driver::{Core, Trouble};
use crate::engine::{Cause, Failure};
use crate::error::{Error, LostReason};
use crate::lock::check_name;
use crate::protocol::{Action, Holding, Kind, Reply, Request};

/// Looks at locks from outside, without holding them.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::connect("memory:").await?;
/// let _guard = client.lock("stock").acquire().await?;
/// for lock in client.admin().list("*").await? {
///     println!("{} is held by {}", lock.name, lock.holders[0].owner);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Admin {
    core: Arc<Core>,
}

/// A lock that is held, as the store sees it.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
/// let client = distlock::Client::builder("memory:").label("billing-7").connect().await?;
/// let guard = client.lock("stock").acquire().await?;
/// let seen = client.admin().inspect("stock").await?.expect("it is held");
/// assert_eq!(seen.holders[0].hold_count, 1);
/// assert!(seen.ttl.is_some());
/// # guard.release().await }
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct LockInfo {
    /// The lock's name.
    pub name: String,
    /// Who holds it.
    pub holders: Vec<Holder>,
    /// How long it stays taken if nobody renews it; `None` if it has no end, which no client of ours
    /// or Redisson's leaves behind.
    pub ttl: Option<Duration>,
}

/// One owner of a lock.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Holder {
    /// The owner as it stands in the store: `<client uuid>:<number>`.
    pub owner: String,
    /// How often it holds the lock.
    pub hold_count: u64,
    /// What its client calls itself
    /// ([`ClientBuilder::label`](crate::ClientBuilder::label)), if it says.
    pub label: Option<String>,
}

impl Admin {
    pub(crate) const fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// Who holds a lock; `None` if nobody does.
    ///
    /// # Errors
    ///
    /// If the store cannot say, or something else lives under that name.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any await: it only looks.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// assert!(client.admin().inspect("stock").await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn inspect(&self, name: &str) -> Result<Option<LockInfo>, Error> {
        let name: Arc<str> = name.into();
        match self.call(&name, Action::Inspect).await? {
            Reply::Inspected(None) => Ok(None),
            Reply::Inspected(Some(holding)) => self.describe(&name, holding).await.map(Some),
            other => Err(unexpected(&name, &other)),
        }
    }

    /// The held locks whose names match a pattern: `*` for any characters, `?` for one, `\` before one
    /// that is meant as it is. Sorted by name.
    ///
    /// Goes through the whole keyspace in small steps; no other client is held up.
    ///
    /// # Errors
    ///
    /// If the store cannot say.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any await: it only looks.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let _guard = client.lock("order:7").acquire().await?;
    /// assert_eq!(client.admin().list("order:*").await?.len(), 1);
    /// # Ok(()) }
    /// ```
    pub async fn list(&self, pattern: &str) -> Result<Vec<LockInfo>, Error> {
        let subject: Arc<str> = pattern.into();
        self.usable(&subject)?;
        let names = self.core.engine.clone().names(pattern.to_owned());
        let names = self.within(&subject, names).await?;
        let mut locks = Vec::new();
        for name in names {
            match self.inspect(&name).await {
                Ok(Some(lock)) => locks.push(lock),
                // Gone since it was listed, or never such a lock.
                Ok(None) | Err(Error::WrongKind { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        locks.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(locks)
    }

    /// Takes a lock from whoever holds it; says whether anyone did.
    ///
    /// The holder is told: ours at its next renewal at the latest, Redisson's at its unlock. Until then
    /// it may still be at work.
    ///
    /// # Errors
    ///
    /// If the store does not answer, or something else lives under that name.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves open whether the lock was taken.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = client.lock("stock").acquire().await?;
    /// assert!(client.admin().force_release("stock").await?);
    /// assert!(!guard.is_held());
    /// # Ok(()) }
    /// ```
    pub async fn force_release(&self, name: &str) -> Result<bool, Error> {
        let name: Arc<str> = name.into();
        // Looked up before: whoever gets the lock next is not to blame.
        let before = self.core.waiters.holder(&name);
        let forced = match self.call(&name, Action::ForceRelease).await? {
            Reply::Forced(forced) => forced,
            other => return Err(unexpected(&name, &other)),
        };
        if forced && let Some(before) = before {
            before.lose(LostReason::Removed);
            // It may have been passed on in memory meanwhile, with the same standing in the store.
            let now = self.core.waiters.holder(&name);
            if let Some(now) = now.filter(|now| now.owner == before.owner) {
                now.lose(LostReason::Removed);
            }
        }
        Ok(forced)
    }

    async fn call(&self, name: &Arc<str>, action: Action) -> Result<Reply, Error> {
        check_name(name)?;
        self.usable(name)?;
        let request = Request {
            name: name.clone(),
            kind: Kind::Mutex,
            action,
        };
        let limit = self.core.settings.command_timeout;
        let reply = self.core.call(request, limit).await;
        reply.map_err(|failure| Error::from_failure(name, failure))
    }

    async fn describe(&self, name: &Arc<str>, holding: Holding) -> Result<LockInfo, Error> {
        let client = |owner: &str| owner.split(':').next().unwrap_or(owner).to_owned();
        let clients = holding
            .owners
            .iter()
            .map(|(owner, _)| client(owner))
            .collect();
        let labels = self.core.engine.clone().labels(clients);
        let labels = self.within(name, labels).await?;
        let holders = holding.owners.into_iter().zip(labels);
        let holders = holders.map(|((owner, hold_count), label)| Holder {
            owner,
            hold_count,
            label,
        });
        Ok(LockInfo {
            name: name.to_string(),
            holders: holders.collect(),
            ttl: holding.ttl,
        })
    }

    async fn within<T: Send>(
        &self,
        name: &Arc<str>,
        answer: crate::engine::Answer<Result<T, Failure>>,
    ) -> Result<T, Error> {
        let answer = self.core.within_limit(answer).await;
        answer.map_err(|failure| Error::from_failure(name, failure))
    }

    fn usable(&self, name: &Arc<str>) -> Result<(), Error> {
        let usable = self.core.usable();
        usable.map_err(|trouble: Trouble| Error::of(name, trouble))
    }
}

fn unexpected(name: &Arc<str>, reply: &Reply) -> Error {
    let detail = format!("unexpected reply {reply:?}");
    Error::from_failure(name, Failure::new(Cause::Unexpected, detail))
}
