//! A client of ours on each server, and the guards of the locks that most of them have granted.

use std::collections::HashMap;
use std::time::Duration;

use distlock::{Client, Error, Member, QuorumGuard, QuorumLock};

use crate::clock::{Span, Stamp};
use crate::failure::{Failure, Outcome};
use crate::library::Shared;
use crate::party::Unlocked;
use crate::simple::Lease;

/// Clients, and their guards by name.
pub(crate) struct OurVoter {
    clients: Vec<Client>,
    format: Format,
    guards: HashMap<String, QuorumGuard>,
}

/// Of which locks the one on most servers is made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Format {
    /// `RedissonRedLock`'s.
    Plain,
    /// redsync's and redlock's.
    Simple,
}

impl Format {
    pub(crate) const fn of(shared: Shared) -> Self {
        match shared {
            Shared::SimpleQuorum => Self::Simple,
            _ => Self::Plain,
        }
    }

    /// The lock of this name on most of these.
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
        let from = Stamp::now();
        let guard = self.named(name, lease).acquire().await.map_err(unheard)?;
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
        let guard = if wait.is_zero() {
            lock.try_acquire().await
        } else {
            lock.acquire_timeout(wait).await
        };
        let to = Stamp::now();
        let guard = guard.map_err(unheard)?;
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
            Err(error) => Err(unheard(error)),
        }
    }

    /// How many servers hold it for us.
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

/// One for each server, be it up or not.
pub(crate) async fn clients(urls: impl IntoIterator<Item = String>) -> Outcome<Vec<Client>> {
    let mut clients = Vec::new();
    for url in urls {
        clients.push(Client::builder(&url).may_be_down(true).connect().await?);
    }
    Ok(clients)
}

/// Most servers are up in every scenario. They have a twentieth of the lease to answer, which is little where a machine
/// stands still; who is not answered at all has failed every time.
fn unheard(error: Error) -> Failure {
    Failure::late(error.to_string())
}
