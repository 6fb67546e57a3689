//! A task of ours with an owner of its own, so that it may re-enter what it holds, as a thread in Java may.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use distlock::{Admin, Client, Error, Guard, Lease, Lock, Lost, Owner};

use super::{Term, Unlocked};
use crate::clock::{Span, Stamp};
use crate::failure::{Failure, Outcome};

/// A task with a client of its own, and the guards it has.
pub(crate) struct OurTask {
    client: Client,
    owner: Owner,
    guards: HashMap<String, Vec<Guard>>,
}

impl OurTask {
    /// A task with a new client; `watchdog` is the lease of what it keeps alive.
    pub(crate) async fn connect(url: &str, watchdog: Duration, prefix: &str) -> Outcome<Self> {
        let client = Client::builder(url)
            .default_lease(Lease::KeepAlive(watchdog))
            .key_prefix(prefix)
            .connect()
            .await?;
        Ok(Self {
            owner: client.new_owner(),
            client,
            guards: HashMap::new(),
        })
    }

    pub(crate) fn admin(&self) -> Admin {
        self.client.admin()
    }

    pub(crate) async fn lock(&mut self, name: &str, term: Term) -> Outcome<Span> {
        let from = Stamp::now();
        let guard = self.named(name, term).acquire().await?;
        let to = Stamp::now();
        self.keep(name, guard);
        Ok(Span { from, to })
    }

    pub(crate) async fn try_lock(
        &mut self,
        name: &str,
        wait: Duration,
        term: Term,
    ) -> Outcome<(bool, Span)> {
        let lock = self.named(name, term);
        let from = Stamp::now();
        let guard = if wait.is_zero() {
            lock.try_acquire().await?
        } else {
            lock.acquire_timeout(wait).await?
        };
        let to = Stamp::now();
        let granted = guard.is_some();
        if let Some(guard) = guard {
            self.keep(name, guard);
        }
        Ok((granted, Span { from, to }))
    }

    pub(crate) async fn unlock(&mut self, name: &str) -> Outcome<Unlocked> {
        let guard = self.guards.get_mut(name).and_then(Vec::pop);
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

    pub(crate) fn hold_count(&self, name: &str) -> u64 {
        self.guard(name)
            .map_or(0, |guard| guard.hold_count().into())
    }

    /// The next news of a guard: that it was lost, or `None` when it is given back.
    pub(crate) async fn lost(&self, name: &str) -> Outcome<Option<Lost>> {
        Ok(self.guard(name)?.lost().await)
    }

    pub(crate) fn is_held(&self, name: &str) -> bool {
        self.guard(name).is_ok_and(|guard| guard.is_held())
    }

    pub(crate) async fn holders(&self, name: &str) -> Outcome<BTreeMap<String, u64>> {
        let info = self.admin().inspect(name).await?;
        let holders = info.map(|info| info.holders).unwrap_or_default();
        Ok(holders
            .into_iter()
            .map(|holder| (holder.owner, holder.hold_count))
            .collect())
    }

    pub(crate) fn owner(&self, name: &str) -> Outcome<String> {
        Ok(self.guard(name)?.owner())
    }

    pub(crate) async fn close(&mut self) -> Outcome {
        self.guards.clear();
        Ok(self.client.close().await?)
    }

    fn named(&self, name: &str, term: Term) -> Lock {
        let lock = self.client.lock(name).with_owner(&self.owner);
        match term {
            Term::Fixed(time) => lock.with_lease(Lease::Fixed(time)),
            Term::Kept => lock,
        }
    }

    fn keep(&mut self, name: &str, guard: Guard) {
        self.guards.entry(name.to_owned()).or_default().push(guard);
    }

    fn guard(&self, name: &str) -> Outcome<&Guard> {
        let guard = self.guards.get(name).and_then(|guards| guards.last());
        guard.ok_or_else(|| Failure::new(format!("we have no guard of `{name}`")))
    }
}
