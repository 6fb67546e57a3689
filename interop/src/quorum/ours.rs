//! A client of ours on each server, and the guards of the locks that a majority has granted.

use std::collections::HashMap;
use std::time::Duration;

use distlock::{Client, Error, Member, QuorumGuard, QuorumLock};

use crate::clock::{Span, Stamp};
use crate::failure::{Failure, Outcome};
use crate::library::Shared;
use crate::party::Unlocked;
use crate::simple::Lease;

/// The clients of ours, and their guards by name.
pub(crate) struct OurVoter {
    clients: Vec<Client>,
    format: Format,
    guards: HashMap<String, QuorumGuard>,
}

/// The kind of lock on each server of which the quorum lock is made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Format {
    /// The lock of `RedissonRedLock`.
    Plain,
    /// The lock of redsync and redlock.
    Simple,
}

impl Format {
    pub(crate) const fn of(shared: Shared) -> Self {
        match shared {
            Shared::SimpleQuorum => Self::Simple,
            _ => Self::Plain,
        }
    }

    /// Returns the lock of this name on a majority of these clients' servers.
    pub(crate) fn lock(self, clients: &[Client], name: &str) -> QuorumLock {
        QuorumLock::new(clients.iter().map(|client| -> Member {
            match self {
                Self::Plain => client.lock(name).into(),
                Self::Simple => client.simple_lock(name).into(),
            }
        }))
    }
}

impl OurVoter {
    pub(crate) async fn connect(
        urls: impl IntoIterator<Item = String>,
        shared: Shared,
    ) -> Outcome<Self> {
        Ok(Self {
            clients: clients(urls).await?,
            format: Format::of(shared),
            guards: HashMap::new(),
        })
    }

    pub(crate) async fn lock(&mut self, name: &str, lease: Lease) -> Outcome<Span> {
        let lock = self.named(name, lease);
        let from = Stamp::now();
        let guard = loop {
            if let Some(guard) = answered(lock.acquire().await).await? {
                break guard;
            }
        };
        let to = Stamp::now();
        self.guards.insert(name.to_owned(), guard);
        Ok(Span { from, to })
    }

    pub(crate) async fn try_lock(
        &mut self,
        name: &str,
        wait: Duration,
        lease: Lease,
    ) -> Outcome<(bool, Span)> {
        let lock = self.named(name, lease);
        let from = Stamp::now();
        let guard = loop {
            let asked = if wait.is_zero() {
                lock.try_acquire().await
            } else {
                lock.acquire_timeout(wait).await
            };
            if let Some(guard) = answered(asked).await? {
                break guard;
            }
        };
        let to = Stamp::now();
        let granted = guard.is_some();
        if let Some(guard) = guard {
            self.guards.insert(name.to_owned(), guard);
        }
        Ok((granted, Span { from, to }))
    }

    pub(crate) async fn unlock(&mut self, name: &str) -> Outcome<Unlocked> {
        let guard = self.guards.remove(name);
        let guard = guard.ok_or_else(|| Failure::new(format!("we have no guard of `{name}`")))?;
        let from = Stamp::now();
        let released = guard.release().await;
        let to = Stamp::now();
        match released {
            Ok(()) => Ok(Unlocked::Done(Span { from, to })),
            Err(error @ Error::Lost { .. }) => Ok(Unlocked::Refused(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns how many servers hold the lock for us.
    pub(crate) fn votes(&self, name: &str) -> usize {
        self.guards.get(name).map_or(0, |guard| guard.votes())
    }

    pub(crate) async fn close(&mut self) -> Outcome {
        self.guards.clear();
        for client in &self.clients {
            client.close().await?;
        }
        Ok(())
    }

    fn named(&self, name: &str, lease: Lease) -> QuorumLock {
        let lock = self.format.lock(&self.clients, name);
        lock.with_lease(match lease {
            Lease::Fixed(time) => distlock::Lease::Fixed(time),
            Lease::Kept(time) => distlock::Lease::KeepAlive(time),
        })
    }
}

/// Returns a client for each server, whether it is up or not.
pub(crate) async fn clients(urls: impl IntoIterator<Item = String>) -> Outcome<Vec<Client>> {
    let mut clients = Vec::new();
    for url in urls {
        clients.push(Client::builder(&url).lazy_connect(true).connect().await?);
    }
    Ok(clients)
}

/// Returns the reply of a majority of servers, which are up in every scenario. `None`, after a pause, if too few of them replied in a
/// twentieth of the lease, as may happen on a busy machine.
async fn answered<T>(asked: Result<T, Error>) -> Outcome<Option<T>> {
    match asked {
        Err(error) if error.is_transient() => {
            tokio::time::sleep(A_MOMENT).await;
            Ok(None)
        }
        asked => Ok(Some(asked?)),
    }
}

const A_MOMENT: Duration = Duration::from_millis(50);
