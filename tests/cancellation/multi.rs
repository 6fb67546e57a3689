//! Several locks at once, of one store and of two: futures dropped at every poll.

use std::pin::Pin;
use std::time::Duration;

use distlock::{Error, Guard, Lease, MultiGuard, MultiLock};
use tokio::task::yield_now;

use super::drop_at::DropAt;
use super::fixture::{Fixture, Store, hold, play, release};
use super::{LEASE, PATIENCE};
use crate::support::Plain;

macro_rules! stories {
    ($stories:tt on $($place:ident: $stores:tt;)*) => {
        $(mod $place {
            stories! { @ $stores $stories }
        })*
    };
    (@ $stores:tt [$($story:ident)*]) => {
        $(
            #[test]
            fn $story() {
                use super::Store::{self, *};
                use super::{Stores, play};

                const STORES: &[Store] = &$stores;
                play(STORES, async || super::$story(&Stores::of(STORES).await).await);
            }
        )*
    };
}

stories! {
    [
        an_acquire_of_free_locks_leaves_nothing_behind
        an_acquire_of_locks_of_which_one_is_busy_leaves_nothing_behind
        a_timed_out_acquire_leaves_nothing_behind
        a_release_completes_without_its_caller
        a_run_releases_all
    ] on
    redis: [Redis];
    redis_without_scripts: [WithoutScripts];
    memory: [Memory];
    two_servers: [Redis, Redis];
    a_server_and_memory: [Redis, Memory];
    a_file_and_memory: [File, Memory];
}

/// The stores of the locks: one, or two.
struct Stores(Vec<Fixture<Plain>>);

impl Stores {
    async fn of(stores: &[Store]) -> Self {
        let mut all = Vec::new();
        for store in stores {
            all.push(Fixture::of(*store).await);
        }
        all.iter().for_each(Fixture::record_baseline);
        Self(all)
    }

    /// Returns the store of one of the three locks: the first two are in the first store, the last is in the last.
    fn at(&self, place: usize) -> &Fixture<Plain> {
        &self.0[if place < 2 { 0 } else { self.0.len() - 1 }]
    }

    /// Returns the names in the order in which they are acquired: a waiter for the last holds the others meanwhile.
    fn names(&self) -> [String; 3] {
        let name = self.0[0].name();
        ["a", "b", "c"].map(|letter| format!("{name}{letter}"))
    }

    fn lock(&self, names: &[String; 3]) -> MultiLock {
        let [a, b, c] = names.each_ref().map(|name| &**name);
        let lock = MultiLock::new([
            self.at(0).ours.lock(a).into(),
            self.at(1).ours.fenced_lock(b).into(),
            self.at(2).ours.lock(c).into(),
        ]);
        lock.with_lease(Lease::KeepAlive(LEASE))
    }

    async fn theirs(&self, names: &[String; 3]) -> Guard {
        hold(&self.at(2).theirs.lock(&*names[2])).await
    }

    /// Checks that nothing is left of any of them, and that the next caller acquires all.
    async fn are_gone(&self, names: &[String; 3]) {
        for (place, name) in names.iter().enumerate() {
            self.at(place).assert_gone(name).await;
        }
        let locks = names.iter().enumerate();
        let locks = locks.map(|(place, name)| self.at(place).theirs.lock(&**name).into());
        // A request that was under way may still arrive, and is undone then.
        let next = MultiLock::new(locks).acquire_timeout(PATIENCE).await;
        let next = next.expect("the stores answer").expect("all are free");
        next.release().await.expect("they are theirs");
    }
}

async fn an_acquire_of_free_locks_leaves_nothing_behind(stores: &Stores) {
    let acquires: [NamedAcquire; 3] = [
        ("acquire", |lock| {
            let acquiring = lock.acquire();
            Box::pin(async { acquiring.await.map(Some) })
        }),
        ("try_acquire", |lock| Box::pin(lock.try_acquire())),
        ("acquire_timeout", |lock| {
            Box::pin(lock.acquire_timeout(PATIENCE))
        }),
    ];
    for (what, acquire) in acquires {
        let story = async |at: DropAt| {
            let names = stores.names();
            let acquired = at.run_alone(acquire(&stores.lock(&names))).await;
            let finished = acquired.is_some();
            let acquired = acquired.map(|got| got.expect("the stores answer"));
            drop(acquired.map(|got| got.expect("all are free")));
            stores.are_gone(&names).await;
            finished
        };
        stores.0[0].sweep(what, 2, story).await;
    }
}

/// Drops the acquire while a request is under way, while it waits and holds the others, and as the last becomes free.
async fn an_acquire_of_locks_of_which_one_is_busy_leaves_nothing_behind(stores: &Stores) {
    let story = async |at: DropAt| {
        let names = stores.names();
        let mut theirs = Some(stores.theirs(&names).await);
        let acquiring = stores.lock(&names).acquire();
        let acquired = at.run(acquiring, async || release(&mut theirs).await).await;
        let finished = acquired.is_some();
        if let Some(theirs) = &theirs {
            stores.at(2).assert_held_by(theirs).await;
        }
        release(&mut theirs).await;
        if let Some(acquired) = acquired {
            let guard = acquired.expect("all are free");
            assert!(guard.is_held());
            guard.release().await.expect("they are ours");
        }
        stores.are_gone(&names).await;
        finished
    };
    stores.0[0].sweep("acquire, busy", 4, story).await;
}

async fn a_timed_out_acquire_leaves_nothing_behind(stores: &Stores) {
    let story = async |at: DropAt| {
        let names = stores.names();
        let theirs = stores.theirs(&names).await;
        let acquiring = stores.lock(&names).acquire_timeout(A_MOMENT);
        let acquired = at.run_alone(acquiring).await;
        let busy = matches!(acquired, None | Some(Ok(None) | Err(Error::Timeout { .. })));
        assert!(busy, "{acquired:?}");
        stores.at(2).assert_held_by(&theirs).await;
        theirs.release().await.expect("it is theirs");
        stores.are_gone(&names).await;
        acquired.is_some()
    };
    stores.0[0]
        .sweep("acquire_timeout, in vain", 3, story)
        .await;
}

async fn a_release_completes_without_its_caller(stores: &Stores) {
    let story = async |at: DropAt| {
        let names = stores.names();
        let guard = stores.lock(&names).acquire().await.expect("all are free");
        let held = guard.held();
        let released = at.run_alone(guard.release()).await;
        assert!(!held.is_held());
        stores.are_gone(&names).await;
        released.is_some()
    };
    stores.0[0].sweep("release", 2, story).await;
}

async fn a_run_releases_all(stores: &Stores) {
    let story = async |at: DropAt| {
        let names = stores.names();
        let lock = stores.lock(&names);
        let work = lock.run(async |held| {
            yield_now().await;
            assert!(held.is_held());
            yield_now().await;
        });
        let done = at.run_alone(work).await;
        stores.are_gone(&names).await;
        done.is_some()
    };
    stores.0[0].sweep("run", 4, story).await;
}

/// A way to acquire, and its name.
type NamedAcquire = (&'static str, fn(&MultiLock) -> Acquiring);
type Acquiring = Pin<Box<dyn Future<Output = Result<Option<MultiGuard>, Error>> + Send>>;

/// Enough time to send a request and to subscribe.
const A_MOMENT: Duration = Duration::from_millis(500);
