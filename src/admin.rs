//! The operator's view: locks and their holders, and ways to release them by force.

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

/// Inspects, watches and releases locks from outside, without holding them.
///
/// # Examples
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
/// # Examples
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
    /// The kind of lock.
    pub kind: LockKind,
    /// The lock's owners.
    pub holders: Vec<Holder>,
    /// The time until the lock expires if it is not renewed. Each reader has its own, see [`Holder::ttl`]. `None` if
    /// the hold does not end by the clock: in a file, when it ends with its holder's process and children; on a server,
    /// neither this library nor Redisson leaves such a lock.
    pub ttl: Option<Duration>,
    /// The token of the last grant of a fenced lock.
    pub token: Option<FencingToken>,
    /// The owners queued for a fair lock, or to write: the first hundred.
    pub waiting: Vec<String>,
    /// The number of permits of a semaphore.
    pub permits: Option<PermitCount>,
}

/// One owner of a lock.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Holder {
    /// The owner's id in the store: `<client uuid>:<number>`. For a permit that Redisson holds, the permit's id.
    pub owner: String,
    /// How often the owner holds the lock; for a semaphore, how many permits it has.
    pub hold_count: u64,
    /// The time until the hold expires if it is not renewed: each reader has a lease of its own, and the lock's is the
    /// longest. `None` as with [`LockInfo::ttl`].
    pub ttl: Option<Duration>,
    /// The client's label ([`ClientBuilder::label`](crate::ClientBuilder::label)), if it has one.
    pub label: Option<String>,
}

impl Admin {
    pub(crate) const fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// Returns a lock with its holders; `None` if it is free.
    ///
    /// # Errors
    ///
    /// Any error of the store; [`Error::WrongKind`] if the key holds data that is no lock.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call only reads.
    ///
    /// # Examples
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

    /// Returns the held locks whose names match a pattern, sorted by name. In the pattern `*` matches any characters,
    /// `?` matches one, and `\` escapes the next one.
    ///
    /// Scans the whole keyspace in small steps, and only reads; no other client is blocked.
    ///
    /// # Errors
    ///
    /// Any error of the store.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call only reads.
    ///
    /// # Examples
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

    /// Does the same as [`list`](Self::list), and calls `report` after each step: a large keyspace takes many.
    ///
    /// # Errors
    ///
    /// Any error of the store.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call only reads.
    ///
    /// # Examples
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

    /// Releases a lock by force, whoever holds it, and reports whether it was held.
    ///
    /// The holder is notified: a client of this library at its next renewal at the latest, Redisson at its unlock.
    /// Until then it may still be at work.
    ///
    /// # Errors
    ///
    /// Any error of the store; [`Error::WrongKind`] if the key holds data that is no lock.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lock may or may not be released.
    ///
    /// # Examples
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

    /// Releases the hold of exactly this owner, and reports whether there was one.
    ///
    /// Meant for a hold whose guard is gone, such as one left to its lease by [`Guard::forget`](crate::Guard::forget)
    /// in a process that has ended: knowing the owner is enough to release it. The lock is free afterwards, however
    /// often the owner holds it. A guard that still exists is notified as by [`force_release`](Self::force_release).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for a text that is no owner id in the form of [`Holder::owner`]; any error of the
    /// store; [`Error::WrongKind`] if the key holds data that is no lock.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the hold may or may not be released.
    ///
    /// # Examples
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
            let reason = "must be an owner id, such as 71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:1";
            Error::invalid_option("owner", reason).about(name)
        })?;
        let released = lookup::release(&self.core, name, owner).await;
        released.map_err(|error| Error::of(&name.into(), error))
    }

    /// Returns a watch over the locks whose names match a pattern, as in [`list`](Self::list).
    ///
    /// # Examples
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

    /// Checks whether the store is fit for locks: returns findings, each with what to do about it.
    ///
    /// Only reads. A fact that the store does not report is a warning, not an error.
    ///
    /// # Errors
    ///
    /// An error if the store cannot be reached, or does not reply within twice the command timeout.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call only reads.
    ///
    /// # Examples
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

    /// Does the same as [`examine`](Self::examine), and also acquires and releases a lock with a name that no other
    /// client uses: on the server, on each master of a cluster, or in the file. On a server it also sets a label that
    /// expires within a second.
    ///
    /// # Errors
    ///
    /// The errors of [`examine`](Self::examine). A lock that could not be acquired is a finding, not an error.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: everything that was written expires within a second.
    ///
    /// # Examples
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
