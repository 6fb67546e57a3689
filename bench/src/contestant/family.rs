//! The other primitives of distlock: one cycle of each, to be compared with the plain lock's.

use std::marker::PhantomData;
use std::sync::Arc;

use distlock::{Client, CountingSemaphore, Error, Guard, MultiGuard, MultiLock};

use super::distlock::connect;
use crate::failure::Outcome;
use crate::line::Work;
use crate::serve::Locker;
use crate::spin;

/// One of the primitives: how it is acquired, and released.
pub(super) trait Sort: Send + Sync + 'static {
    type Hold: Send + 'static;

    /// Creates the state that has to exist before it can be acquired.
    fn prepare(_: &Client, _: &Arc<str>) -> impl Future<Output = Result<(), Error>> + Send {
        async { Ok(()) }
    }

    fn take(
        client: &Client,
        name: &Arc<str>,
    ) -> impl Future<Output = Result<Self::Hold, Error>> + Send;

    fn release_hold(hold: Self::Hold) -> impl Future<Output = Result<(), Error>> + Send;
}

pub(super) struct Family<S>(Client, PhantomData<S>);

impl<S> Clone for Family<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), PhantomData)
    }
}

impl<S: Sort> Locker for Family<S> {
    type Hold = S::Hold;

    fn version() -> String {
        super::distlock::Distlock::version()
    }

    async fn connect(work: &Work) -> Outcome<Self> {
        let client = connect(work).await?;
        for place in 0..work.names {
            S::prepare(&client, &spin::name(place).into()).await?;
        }
        Ok(Self(client, PhantomData))
    }

    async fn acquire(&self, name: &Arc<str>) -> Outcome<S::Hold> {
        Ok(S::take(&self.0, name).await?)
    }

    async fn release(&self, hold: S::Hold) -> Outcome {
        Ok(S::release_hold(hold).await?)
    }

    async fn close(self) -> Outcome {
        Ok(self.0.close().await?)
    }
}

macro_rules! locks {
    ($($(#[$why:meta])* $sort:ident = |$client:ident, $name:ident| $lock:expr;)*) => {$(
        $(#[$why])*
        pub(super) struct $sort;

        impl Sort for $sort {
            type Hold = Guard<distlock::$sort>;

            async fn take($client: &Client, name: &Arc<str>) -> Result<Self::Hold, Error> {
                let $name = name.clone();
                $lock.acquire().await
            }

            async fn release_hold(hold: Self::Hold) -> Result<(), Error> {
                hold.release().await
            }
        }
    )*};
}

locks! {
    Fair = |client, name| client.fair_lock(name);
    Fenced = |client, name| client.fenced_lock(name);
    Read = |client, name| client.rw_lock(name).read();
    Write = |client, name| client.rw_lock(name).write();
    Simple = |client, name| client.simple_lock(name);
    /// A semaphore's only permit.
    Permit = |client, name| client.semaphore(name).with_permits(1).permit();
}

/// Three plain locks at once.
pub(super) struct Multi;

impl Sort for Multi {
    type Hold = MultiGuard;

    async fn take(client: &Client, name: &Arc<str>) -> Result<Self::Hold, Error> {
        let members = ["a", "b", "c"].map(|one| client.lock(format!("{name}:{one}")).into());
        MultiLock::new(members).acquire().await
    }

    async fn release_hold(hold: Self::Hold) -> Result<(), Error> {
        hold.release().await
    }
}

/// The only permit of a counting semaphore.
pub(super) struct Counted;

impl Sort for Counted {
    type Hold = CountingSemaphore;

    async fn prepare(client: &Client, name: &Arc<str>) -> Result<(), Error> {
        client
            .counting_semaphore(name.clone())
            .set_available(1)
            .await
    }

    async fn take(client: &Client, name: &Arc<str>) -> Result<Self::Hold, Error> {
        let semaphore = client.counting_semaphore(name.clone());
        semaphore.acquire(1).await?;
        Ok(semaphore)
    }

    async fn release_hold(semaphore: Self::Hold) -> Result<(), Error> {
        semaphore.release(1).await
    }
}

/// A latch with a count of one: set and opened.
pub(super) struct Opened;

impl Sort for Opened {
    type Hold = distlock::Latch;

    async fn take(client: &Client, name: &Arc<str>) -> Result<Self::Hold, Error> {
        let latch = client.latch(name.clone());
        latch.try_set(1).await?;
        Ok(latch)
    }

    async fn release_hold(latch: Self::Hold) -> Result<(), Error> {
        latch.count_down().await.map(drop)
    }
}
