//! For operators: who holds what, and how to take it from them.

use std::sync::Arc;
use std::time::Duration;

use crate::driver::Core;
use crate::driver::lookup::{self, ListProgress};
use crate::engine::Diagnostic;
use crate::error::Error;
use crate::lock::check_name;
use crate::protocol::event_diff::LabeledSnapshot;
use crate::protocol::{FencingToken, LockKind, LockSnapshot, OwnerId};
use crate::semaphore::PermitCount;
use crate::watch::Watch;

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
    /// Which kind of lock it is.
    pub kind: LockKind,
    /// Who holds it.
    pub holders: Vec<Holder>,
    /// How long it stays taken if nobody renews it. Of readers each has its own, see [`Holder::ttl`]. `None` if it does not end by the clock: in a file, when it ends with
    /// its holder's process and children; on a server no client of ours or Redisson's leaves such a lock.
    pub ttl: Option<Duration>,
    /// The last grant's token, of a fenced lock.
    pub token: Option<FencingToken>,
    /// Who waits in line for a fair lock, or to write, by owner: the first hundred.
    pub waiting: Vec<String>,
    /// How many permits there are, of a semaphore.
    pub permits: Option<PermitCount>,
}

/// One owner of a lock.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Holder {
    /// The owner as it stands in the store: `<client uuid>:<number>`. Of a permit that Redisson has, its id.
    pub owner: String,
    /// How often it holds the lock; how many permits it has, of a semaphore's.
    pub hold_count: u64,
    /// How long it holds it if it does not renew it: each reader has a lease of its own, and the lock's is the longest.
    /// `None` as with [`LockInfo::ttl`].
    pub ttl: Option<Duration>,
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
        check_name(name)?;
        let seen = lookup::inspect(&self.core, name).await;
        let seen = seen.map_err(|error| Error::of(&name.into(), error))?;
        Ok(seen.map(LockInfo::new))
    }

    /// The held locks whose names match a pattern: `*` for any characters, `?` for one, `\` before one
    /// that is meant as it is. Sorted by name.
    ///
    /// Goes through the whole keyspace in small steps, and only reads; no other client is held up.
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
        self.list_with_progress(pattern, |_| {}).await
    }

    /// The same as [`list`](Self::list), and calls `report` after each step: a large keyspace takes many.
    ///
    /// # Errors
    ///
    /// If the store cannot say.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any await: it only reads.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let report = |progress: distlock::ListProgress| eprintln!("scanned {} keys", progress.scanned);
    /// let locks = client.admin().list_with_progress("order:*", report).await?;
    /// assert!(locks.is_empty());
    /// # Ok(()) }
    /// ```
    pub async fn list_with_progress(
        &self,
        pattern: &str,
        report: impl FnMut(ListProgress) + Send,
    ) -> Result<Vec<LockInfo>, Error> {
        let locks = lookup::list(&self.core, pattern, report).await?;
        Ok(locks.into_iter().map(LockInfo::new).collect())
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
        check_name(name)?;
        let forced = lookup::force_release(&self.core, name).await;
        forced.map_err(|error| Error::of(&name.into(), error))
    }

    /// Gives back what exactly this owner holds; says whether it held anything.
    ///
    /// For a hold whose guard is gone, such as one left to its lease by [`Guard::forget`](crate::Guard::forget)
    /// in a process that has ended: who knows the owner may end it. However often the owner holds the
    /// lock, it is free afterwards. A guard that is still there is told as by
    /// [`force_release`](Self::force_release).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for a text that is no owner as [`Holder::owner`] shows them; otherwise if
    /// the store does not answer, or something else lives under that name.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves open whether the lock was given back.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let guard = client.lock("deploy").acquire().await?;
    /// let owner = guard.owner();
    /// guard.forget();
    /// assert!(client.admin().release("deploy", &owner).await?);
    /// assert!(!client.admin().release("deploy", &owner).await?, "it holds it no longer");
    /// # Ok(()) }
    /// ```
    pub async fn release(&self, name: &str, owner: &str) -> Result<bool, Error> {
        check_name(name)?;
        let owner: OwnerId = owner.parse().map_err(|_| {
            let reason = "not an owner, such as 71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1";
            Error::invalid_option("owner", reason).about(name)
        })?;
        let released = lookup::release(&self.core, name, owner).await;
        released.map_err(|error| Error::of(&name.into(), error))
    }

    /// Follows the locks whose names match a pattern, as in [`list`](Self::list).
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// # let _guard = client.lock("order:7").acquire().await?;
    /// let mut watch = client.admin().watch("order:*");
    /// let event = watch.next().await?;
    /// println!("{}: {:?}", event.name, event.change);
    /// # Ok(()) }
    /// ```
    pub fn watch(&self, pattern: impl Into<String>) -> Watch {
        Watch::new(self.core.clone(), pattern.into())
    }

    /// Looks whether the store is fit for locks: what was found, and what to do about it.
    ///
    /// Only reads. A fact that the store does not report is a warning, not an error.
    ///
    /// # Errors
    ///
    /// If the store cannot be reached, or does not answer in time: twice the command time-out.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any await: it only reads.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// for finding in client.admin().examine().await? {
    ///     println!("{:?} {}: {}", finding.severity, finding.subject, finding.found);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn examine(&self) -> Result<Vec<Diagnostic>, Error> {
        let findings = lookup::diagnose(&self.core, false).await;
        findings.map_err(|error| Error::of(&"all locks".into(), error))
    }

    /// The same as [`examine`](Self::examine), and acquires and releases a lock that nobody else has the name of: on the
    /// server, on each master of a cluster, or in the file. On a server it also sets a label that ends within a second.
    ///
    /// # Errors
    ///
    /// As [`examine`](Self::examine). A lock that could not be acquired is a finding, not an error.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any await; what was written ends by itself within a second.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), distlock::Error> {
    /// # let client = distlock::Client::connect("memory:").await?;
    /// let findings = client.admin().examine_with_probe().await?;
    /// assert!(findings.iter().all(|finding| finding.severity == distlock::Severity::Ok));
    /// # Ok(()) }
    /// ```
    pub async fn examine_with_probe(&self) -> Result<Vec<Diagnostic>, Error> {
        let findings = lookup::diagnose(&self.core, true).await;
        findings.map_err(|error| Error::of(&"all locks".into(), error))
    }
}

impl LockInfo {
    fn new(seen: LabeledSnapshot) -> Self {
        let LabeledSnapshot {
            name,
            kind,
            holding:
                LockSnapshot {
                    owners,
                    ttl,
                    token,
                    waiting,
                    permits,
                    ..
                },
            labels,
        } = seen;
        let holders = owners.into_iter().zip(labels);
        let holders = holders.map(|(held, label)| Holder {
            owner: held.owner,
            hold_count: held.count,
            ttl: held.ttl,
            label,
        });
        Self {
            name,
            kind: LockKind::of(kind).unwrap_or(LockKind::Plain),
            holders: holders.collect(),
            ttl,
            token,
            waiting,
            permits: permits.map(PermitCount::from),
        }
    }
}
