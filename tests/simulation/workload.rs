//! The workloads: the locks that clients contend for, and how a task acquires, holds and releases one.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use distlock::{Client, Error, FencingToken, Guard, Held, Lease, Lock, Lost};
use distlock_sim::Random;
use tokio::time::{sleep, timeout};

use crate::judge::{Claim, Ledger};
use crate::world::World;

pub(crate) const LEASE: Duration = Duration::from_secs(3);

pub(crate) type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// How long to wait for a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    TryOnce,
    Timeout(Duration),
    Forever,
}

/// A lock of any kind, as one client sees it.
pub(crate) trait Subject: Send + Sync {
    fn acquire(&self, limit: Limit) -> Pending<Result<Option<Box<dyn Grant>>, Error>>;
}

/// A guard of any kind.
pub(crate) trait Grant: Send + Sync {
    fn view(&self) -> Arc<dyn View>;
    fn release(self: Box<Self>) -> Pending<Result<(), Error>>;
}

/// What a guard says about itself, also after it has gone.
pub(crate) trait View: Send + Sync {
    fn is_held(&self) -> bool;
    fn owner(&self) -> String;
    fn lost(&self) -> Pending<Option<Lost>>;
    fn token(&self) -> Option<FencingToken> {
        None
    }
}

/// The kind of what the clients contend for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Plain,
    Fair,
    Simple,
    Fenced,
    Read,
    Write,
    Permits,
}

impl Kind {
    /// Makes what is to be there before any client comes.
    pub(crate) fn prepare(self, world: &World) {
        if self == Self::Permits {
            world.server.call(&[b"SET", b"stock", b"2"]);
        }
    }

    pub(crate) fn claim(self) -> Claim {
        match self {
            Self::Read => Claim::Shared,
            Self::Permits => Claim::Permits { count: 1, total: 2 },
            _ => Claim::Alone,
        }
    }

    /// Whether this key may stay in the store when no client holds anything.
    pub(crate) fn may_stay(self, key: &str) -> bool {
        match self {
            Self::Fenced => key.contains("token"),
            Self::Permits => key == "stock",
            _ => false,
        }
    }

    pub(crate) fn subject(self, client: &Client, lease: Lease) -> Box<dyn Subject> {
        match self {
            Self::Plain => Box::new(client.lock("stock").with_lease(lease)),
            Self::Fair => Box::new(client.fair_lock("stock").with_lease(lease)),
            Self::Simple => Box::new(client.simple_lock("stock").with_lease(lease)),
            Self::Fenced => Box::new(client.fenced_lock("stock").with_lease(lease)),
            Self::Read => Box::new(client.rw_lock("stock").read().with_lease(lease)),
            Self::Write => Box::new(client.rw_lock("stock").write().with_lease(lease)),
            Self::Permits => Box::new(client.semaphore("stock").permit().with_lease(lease)),
        }
    }
}

impl<K> Subject for Lock<K>
where
    K: Send + Sync + 'static,
    Held<K>: View,
{
    fn acquire(&self, limit: Limit) -> Pending<Result<Option<Box<dyn Grant>>, Error>> {
        let lock = self.clone();
        Box::pin(async move {
            let guard = match limit {
                Limit::TryOnce => lock.try_acquire().await?,
                Limit::Timeout(longest) => lock.acquire_timeout(longest).await?,
                Limit::Forever => Some(lock.acquire().await?),
            };
            Ok(guard.map(|guard| Box::new(guard) as Box<dyn Grant>))
        })
    }
}

impl<K> Grant for Guard<K>
where
    K: Send + Sync + 'static,
    Held<K>: View,
{
    fn view(&self) -> Arc<dyn View> {
        Arc::new(self.held())
    }

    fn release(self: Box<Self>) -> Pending<Result<(), Error>> {
        Box::pin(Self::release(*self))
    }
}

macro_rules! views {
    ($($kind:ty $(, $token:expr)?;)*) => {$(
        impl View for Held<$kind> {
            fn is_held(&self) -> bool {
                Self::is_held(self)
            }

            fn owner(&self) -> String {
                Self::owner(self)
            }

            fn lost(&self) -> Pending<Option<Lost>> {
                Box::pin(Self::lost(self))
            }

            $(fn token(&self) -> Option<FencingToken> {
                let token: fn(&Self) -> FencingToken = $token;
                Some(token(self))
            })?
        }
    )*};
}

views! {
    distlock::Plain;
    distlock::Fair;
    distlock::Simple;
    distlock::Fenced, Self::token;
    distlock::Read;
    distlock::Write;
    distlock::Permit;
}

/// One task's turn: it acquires the lock in a random manner, holds it for a random time, and releases it or drops the guard.
pub(crate) async fn turn(
    kind: Kind,
    random: &mut Random,
    client: &Client,
    name: &str,
    ledger: &Ledger,
) {
    let subject = kind.subject(client, Lease::KeepAlive(LEASE));
    let got = match random.below(10) {
        0 => subject.acquire(Limit::TryOnce).await,
        // The caller gives up and drops the future, at whichever await it is.
        1..=3 => {
            let longest = random.up_to(Duration::from_secs(1));
            match timeout(longest, subject.acquire(Limit::Forever)).await {
                Ok(got) => got,
                Err(_) => return,
            }
        }
        4..=7 => {
            let longest = random.up_to(Duration::from_secs(8));
            subject.acquire(Limit::Timeout(longest)).await
        }
        _ => subject.acquire(Limit::Forever).await,
    };
    let guard = match got {
        Ok(Some(guard)) => guard,
        Ok(None) => return,
        Err(error) => return ledger.error(&error),
    };
    let view = guard.view();
    let entry = ledger.enter(name, kind.claim(), &view);
    let longest = if random.percent(5) { 6000 } else { 300 };
    let work = sleep(random.up_to(Duration::from_millis(longest)));
    let lost = tokio::select! {
        () = work => false,
        _ = view.lost() => true,
    };
    if lost {
        ledger.loss();
        if view.is_held() {
            ledger.violation(format!("{name} was told of a loss of what it held"));
        }
    } else if !view.is_held()
        && timeout(Duration::from_millis(100), view.lost())
            .await
            .is_err()
    {
        ledger.violation(format!("{name} was not told that its lock was lost"));
    }
    ledger.leave(entry);
    match random.percent(25) {
        true => drop(guard),
        false => {
            if let Err(error) = guard.release().await {
                ledger.error(&error);
            }
        }
    }
}
