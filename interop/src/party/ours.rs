//! A task of ours with an owner of its own, so that it may re-enter the locks it holds, as a thread in Java may.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use distlock::{
    Admin, Client, Error, Fair, Fenced, Guard, Lease, Lock, Lost, MultiGuard, MultiLock, Owner,
    Permit, Read, Write,
};

use super::{Kind, Term, Unlocked};
use crate::clock::{Span, Stamp};
use crate::failure::{Failure, Outcome, granted};
use crate::stage::Settings;

/// A task with a client of its own, and its guards.
pub(crate) struct OurTask {
    client: Client,
    kind: Kind,
    owner: Owner,
    guards: HashMap<String, Vec<AnyGuard>>,
}

/// A guard of any kind.
pub(super) enum AnyGuard {
    Fair(Guard<Fair>),
    Fenced(Guard<Fenced>),
    Multi(MultiGuard),
    Permit(Guard<Permit>),
    Plain(Guard),
    Read(Guard<Read>),
    Write(Guard<Write>),
}

/// Evaluates one expression for a guard of any kind, or another one for the guard of several locks.
macro_rules! whichever {
    ($any:expr, $guard:ident => $does:expr, $several:ident => $instead:expr) => {
        match $any {
            AnyGuard::Multi($several) => $instead,
            AnyGuard::Fair($guard) => $does,
            AnyGuard::Fenced($guard) => $does,
            AnyGuard::Permit($guard) => $does,
            AnyGuard::Plain($guard) => $does,
            AnyGuard::Read($guard) => $does,
            AnyGuard::Write($guard) => $does,
        }
    };
}

impl OurTask {
    /// Starts a task with a new client.
    pub(crate) async fn connect(url: &str, terms: Settings) -> Outcome<Self> {
        let client = Client::builder(url)
            .default_lease(Lease::KeepAlive(terms.watchdog))
            .redisson_watchdog_timeout(terms.watchdog)
            .key_prefix(terms.prefix)
            .connect()
            .await?;
        Ok(Self {
            owner: client.new_owner(),
            client,
            kind: terms.kind,
            guards: HashMap::new(),
        })
    }

    /// Returns another task with the same client.
    pub(crate) fn sibling(&self) -> Self {
        Self {
            owner: self.client.new_owner(),
            ..self.side(self.kind)
        }
    }

    /// Returns the same task, which acquires locks of this kind.
    pub(crate) fn side(&self, kind: Kind) -> Self {
        Self {
            client: self.client.clone(),
            kind,
            owner: self.owner.clone(),
            guards: HashMap::new(),
        }
    }

    pub(crate) fn admin(&self) -> Admin {
        self.client.admin()
    }

    pub(crate) async fn lock(&mut self, name: &str, term: Term) -> Outcome<Span> {
        let from = Stamp::now();
        let guard = match self.kind {
            Kind::Counting | Kind::Latch => return Err(nothing_to_hold(name)),
            Kind::Fair => {
                let lock = self.mine(self.client.fair_lock(name), term);
                AnyGuard::Fair(lock.acquire().await?)
            }
            Kind::Fenced => {
                let lock = self.mine(self.client.fenced_lock(name), term);
                AnyGuard::Fenced(lock.acquire().await?)
            }
            Kind::Multi => AnyGuard::Multi(self.several(name, term).acquire().await?),
            Kind::Permit => {
                let permit = leased(self.client.semaphore(name).permit(), term);
                AnyGuard::Permit(permit.acquire().await?)
            }
            Kind::Plain => {
                let lock = self.mine(self.client.lock(name), term);
                AnyGuard::Plain(lock.acquire().await?)
            }
            Kind::Read => {
                let lock = self.mine(self.client.rw_lock(name).read(), term);
                AnyGuard::Read(lock.acquire().await?)
            }
            Kind::Write => {
                let lock = self.mine(self.client.rw_lock(name).write(), term);
                AnyGuard::Write(lock.acquire().await?)
            }
        };
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
        let from = Stamp::now();
        let guard = match self.kind {
            Kind::Counting | Kind::Latch => return Err(nothing_to_hold(name)),
            Kind::Fair => {
                let lock = self.mine(self.client.fair_lock(name), term);
                try_lock(&lock, wait).await?.map(AnyGuard::Fair)
            }
            Kind::Fenced => {
                let lock = self.mine(self.client.fenced_lock(name), term);
                try_lock(&lock, wait).await?.map(AnyGuard::Fenced)
            }
            Kind::Multi => {
                let several = self.several(name, term);
                let guard = if wait.is_zero() {
                    several.try_acquire().await
                } else {
                    several.acquire_timeout(wait).await
                };
                granted(guard)?.map(AnyGuard::Multi)
            }
            Kind::Permit => {
                let permit = leased(self.client.semaphore(name).permit(), term);
                try_lock(&permit, wait).await?.map(AnyGuard::Permit)
            }
            Kind::Plain => {
                let lock = self.mine(self.client.lock(name), term);
                try_lock(&lock, wait).await?.map(AnyGuard::Plain)
            }
            Kind::Read => {
                let lock = self.mine(self.client.rw_lock(name).read(), term);
                try_lock(&lock, wait).await?.map(AnyGuard::Read)
            }
            Kind::Write => {
                let lock = self.mine(self.client.rw_lock(name).write(), term);
                try_lock(&lock, wait).await?.map(AnyGuard::Write)
            }
        };
        let to = Stamp::now();
        let granted = guard.is_some();
        if let Some(guard) = guard {
            self.keep(name, guard);
        }
        Ok((granted, Span { from, to }))
    }

    pub(crate) async fn unlock(&mut self, name: &str) -> Outcome<Unlocked> {
        let guard = self.take(name)?;
        let from = Stamp::now();
        let released =
            whichever!(guard, guard => guard.release().await, several => several.release().await);
        let to = Stamp::now();
        match released {
            Ok(()) => Ok(Unlocked::Done(Span { from, to })),
            Err(error @ (Error::Lost { .. } | Error::Several { .. })) => {
                Ok(Unlocked::Refused(error.to_string()))
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn hold_count(&self, name: &str) -> u64 {
        self.guard(name).map_or(
            0,
            |guard| whichever!(guard, guard => guard.hold_count().into(), several => several.is_held().into()),
        )
    }

    /// Returns the next notification of a guard: that it was lost, or `None` when it is released.
    pub(crate) async fn lost(&self, name: &str) -> Outcome<Option<Lost>> {
        Ok(whichever!(
            self.guard(name)?,
            guard => guard.lost().await,
            several => several.lost().await
        ))
    }

    pub(crate) fn is_held(&self, name: &str) -> bool {
        self.guard(name).is_ok_and(
            |guard| whichever!(guard, guard => guard.is_held(), several => several.is_held()),
        )
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
        whichever!(
            self.guard(name)?,
            guard => Ok(guard.owner()),
            _several => Err(Failure::new("several locks have several owners"))
        )
    }

    pub(crate) fn token(&self, name: &str) -> Outcome<u64> {
        match self.guard(name)? {
            AnyGuard::Fenced(guard) => Ok(guard.token().number()),
            AnyGuard::Fair(_)
            | AnyGuard::Multi(_)
            | AnyGuard::Permit(_)
            | AnyGuard::Plain(_)
            | AnyGuard::Read(_)
            | AnyGuard::Write(_) => Err(Failure::new(format!("`{name}` has no tokens"))),
        }
    }

    pub(crate) async fn close(&mut self) -> Outcome {
        self.guards.clear();
        Ok(self.client.close().await?)
    }

    pub(super) const fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the lock of all names between the pluses.
    fn several(&self, names: &str, term: Term) -> MultiLock {
        let locks = names.split('+').map(|name| self.client.lock(name));
        MultiLock::new(locks.map(|lock| self.mine(lock, term).into()))
    }

    fn mine<K>(&self, lock: Lock<K>, term: Term) -> Lock<K> {
        leased(lock.with_owner(&self.owner), term)
    }

    /// Removes the last guard of this name and returns it.
    pub(super) fn take(&mut self, name: &str) -> Outcome<AnyGuard> {
        let guard = self.guards.get_mut(name).and_then(Vec::pop);
        guard.ok_or_else(|| Failure::new(format!("we have no guard of `{name}`")))
    }

    /// Moves one of the guards to the end.
    pub(super) fn bring_up(&mut self, name: &str, which: impl Fn(&AnyGuard) -> bool) -> Outcome {
        let guards = self.guards.entry(name.to_owned()).or_default();
        let at = guards.iter().position(which);
        let at = at.ok_or_else(|| Failure::new(format!("we have no such guard of `{name}`")))?;
        let guard = guards.remove(at);
        guards.push(guard);
        Ok(())
    }

    pub(super) fn keep(&mut self, name: &str, guard: AnyGuard) {
        self.guards.entry(name.to_owned()).or_default().push(guard);
    }

    pub(super) fn guard(&self, name: &str) -> Outcome<&AnyGuard> {
        let guard = self.guards.get(name).and_then(|guards| guards.last());
        guard.ok_or_else(|| Failure::new(format!("we have no guard of `{name}`")))
    }
}

/// Returns the failure of a scenario that holds a kind of lock without owners: it has no guard.
pub(crate) fn nothing_to_hold(name: &str) -> Failure {
    Failure::new(format!("nobody holds `{name}`: it is a number"))
}

/// Runs a future, and measures when.
pub(super) async fn timed<T>(does: impl Future<Output = Result<T, Error>>) -> Outcome<(T, Span)> {
    let from = Stamp::now();
    let done = does.await?;
    let to = Stamp::now();
    Ok((done, Span { from, to }))
}

pub(super) fn leased<K>(lock: Lock<K>, term: Term) -> Lock<K> {
    match term {
        Term::Fixed(time) => lock.with_lease(Lease::Fixed(time)),
        Term::Kept => lock,
    }
}

pub(super) async fn try_lock<K>(lock: &Lock<K>, wait: Duration) -> Outcome<Option<Guard<K>>> {
    let guard = if wait.is_zero() {
        lock.try_acquire().await
    } else {
        lock.acquire_timeout(wait).await
    };
    granted(guard)
}
