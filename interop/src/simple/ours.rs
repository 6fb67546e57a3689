//! A client of ours, and the guards of the simple locks it holds.

use std::collections::HashMap;
use std::time::Duration;

use distlock::{Admin, Client, Error, Guard, Lock, Lost, Simple};

use super::{Lease, Scripts};
use crate::clock::{Span, Stamp};
use crate::failure::{Failure, Outcome, granted};
use crate::party::Unlocked;

/// A client, and its guards by name.
pub(crate) struct OurClient {
    client: Client,
    guards: HashMap<String, Guard<Simple>>,
}

impl OurClient {
    pub(crate) async fn connect(url: &str, scripts: Scripts, prefix: &str) -> Outcome<Self> {
        let url = match scripts {
            Scripts::Off => format!("{url}?scripts=off"),
            Scripts::On => url.to_owned(),
        };
        Ok(Self {
            client: Client::builder(&url).key_prefix(prefix).connect().await?,
            guards: HashMap::new(),
        })
    }

    pub(crate) fn admin(&self) -> Admin {
        self.client.admin()
    }

    pub(crate) async fn lock(&mut self, name: &str, lease: Lease) -> Outcome<Span> {
        let from = Stamp::now();
        let guard = self.named(name, lease).acquire().await?;
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
        let guard = granted(guard)?;
        let got = guard.is_some();
        if let Some(guard) = guard {
            self.guards.insert(name.to_owned(), guard);
        }
        Ok((got, Span { from, to }))
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

    pub(crate) async fn extend(&self, name: &str, lease: Duration) -> Outcome<Option<String>> {
        match self.guard(name)?.extend(lease).await {
            Ok(()) => Ok(None),
            Err(error @ Error::Lost { .. }) => Ok(Some(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the next notification of a guard: that it was lost, or `None` when it is released.
    pub(crate) async fn lost(&self, name: &str) -> Outcome<Option<Lost>> {
        Ok(self.guard(name)?.lost().await)
    }

    pub(crate) fn is_held(&self, name: &str) -> bool {
        self.guard(name).is_ok_and(|guard| guard.is_held())
    }

    pub(crate) fn value(&self, name: &str) -> Outcome<String> {
        Ok(self.guard(name)?.owner())
    }

    pub(crate) async fn close(&mut self) -> Outcome {
        self.guards.clear();
        Ok(self.client.close().await?)
    }

    fn named(&self, name: &str, lease: Lease) -> Lock<Simple> {
        self.client.simple_lock(name).with_lease(match lease {
            Lease::Fixed(time) => distlock::Lease::Fixed(time),
            Lease::Kept(time) => distlock::Lease::KeepAlive(time),
        })
    }

    fn guard(&self, name: &str) -> Outcome<&Guard<Simple>> {
        let guard = self.guards.get(name);
        guard.ok_or_else(|| Failure::new(format!("we have no guard of `{name}`")))
    }
}
