//! Several locks at once, of one store and of two: futures dropped at every poll.

use std::pin::Pin;
use std::time::Duration;

use distlock::{Error, Guard, Lease, MultiGuard, MultiLock};
use tokio::task::yield_now;

use super::acquiring::{hold, release};
use super::polls::{At, never_mind};
use super::stage::Stage;
use super::support::Plain;
use super::{LEASE, SOON};

macro_rules! of {
    ($($(#[cfg($on:meta)])? $stores:ident, #[$test:meta], [$first:ident $($second:ident)?];)*) => {
        $(
            $(#[cfg($on)])?
            of! { @ $stores, #[$test], [$first $($second)?]:
                an_acquire_of_free_locks_leaves_nothing_behind
                an_acquire_of_locks_of_which_one_is_theirs_leaves_nothing_behind
                an_acquire_that_runs_out_of_time_leaves_nothing_behind
                a_release_goes_on_without_its_caller
                a_run_gives_all_back
            }
        )*
    };
    (@ $stores:ident, #[$test:meta], [$first:ident $($second:ident)?]: $($story:ident)*) => {
        mod $stores {
            use super::{Stage, Stores};

            async fn stores() -> Stores {
                Stores(vec![Stage::$first().await $(, Stage::$second().await)?])
            }

            $(
                #[$test]
                async fn $story() {
                    super::$story(&stores().await).await;
                }
            )*
        }
    };
}

of! {
    redis, #[tokio::test], [redis];
    redis_without_scripts, #[tokio::test], [redis_without_scripts];
    memory, #[tokio::test(start_paused = true)], [memory];
    #[cfg(feature = "sqlite")] sqlite, #[tokio::test], [sqlite];
    two_servers, #[tokio::test], [redis redis];
    a_server_and_memory, #[tokio::test], [redis memory];
    #[cfg(feature = "sqlite")] a_file_and_a_server, #[tokio::test], [sqlite redis];
}

/// One store, or two.
struct Stores(Vec<Stage<Plain>>);

impl Stores {
    /// The first two are of the first store, the last of the last.
    fn of(&self, place: usize) -> &Stage<Plain> {
        match place {
            0 | 1 => &self.0[0],
            _ => &self.0[self.0.len() - 1],
        }
    }

    /// Taken in this order: whoever waits for the last has the others meanwhile.
    fn names(&self) -> [String; 3] {
        let name = self.0[0].name();
        ["a", "b", "c"].map(|letter| format!("{name}{letter}"))
    }

    fn lock(&self, names: &[String; 3]) -> MultiLock {
        let [a, b, c] = names.each_ref().map(|name| &**name);
        let lock = MultiLock::new([
            self.of(0).ours.lock(a).into(),
            self.of(1).ours.fenced_lock(b).into(),
            self.of(2).ours.lock(c).into(),
        ]);
        lock.with_lease(Lease::KeepAlive(LEASE))
    }

    async fn theirs(&self, names: &[String; 3]) -> Guard {
        hold(&self.of(2).theirs.lock(&*names[2])).await
    }

    /// Nothing is left of any of them, and whoever comes next gets all.
    async fn are_gone(&self, names: &[String; 3]) {
        for (place, name) in names.iter().enumerate() {
            self.of(place).is_gone(name).await;
        }
        let [a, b, c] = names.each_ref().map(|name| &**name);
        let next = MultiLock::new([
            self.of(0).theirs.lock(a).into(),
            self.of(1).theirs.lock(b).into(),
            self.of(2).theirs.lock(c).into(),
        ]);
        // A request that was under way may still come, and is undone then.
        let next = next.acquire_timeout(SOON).await;
        let next = next.expect("the stores answer");
        let Some(next) = next else {
            let by = &self.of(2).theirs;
            panic!("not all are free: {:?}", by.admin().list("*").await);
        };
        next.release().await.expect("they are theirs");
    }

    async fn sweep(&self, what: &str, at_least: usize, story: impl AsyncFnMut(At) -> bool) {
        for stage in &self.0 {
            stage.is_at_rest();
        }
        let stage = &self.0[0];
        let places = self.0.iter().map(|stage| stage.if_redis(at_least));
        let places = places.max().expect("one at least");
        stage
            .sweep(&format!("several: {what}"), places, story)
            .await;
    }
}

async fn an_acquire_of_free_locks_leaves_nothing_behind(stores: &Stores) {
    let free = async |what, acquire: fn(&MultiLock) -> Acquiring| {
        let story = async |at: At| {
            let names = stores.names();
            let acquired = at.hit(acquire(&stores.lock(&names)), never_mind).await;
            let finished = acquired.is_some();
            let acquired = acquired.map(|got| got.expect("the stores answer"));
            drop(acquired.map(|got| got.expect("all are free")));
            stores.are_gone(&names).await;
            finished
        };
        stores.sweep(what, 2, story).await;
    };
    free("acquire", |lock| {
        let acquiring = lock.acquire();
        Box::pin(async { acquiring.await.map(Some) })
    })
    .await;
    free("try_acquire", |lock| Box::pin(lock.try_acquire())).await;
    free("acquire_timeout", |lock| {
        Box::pin(lock.acquire_timeout(SOON))
    })
    .await;
}

/// Dropped while asking, while it waits and has the others, and as the last becomes free.
async fn an_acquire_of_locks_of_which_one_is_theirs_leaves_nothing_behind(stores: &Stores) {
    let story = async |at: At| {
        let names = stores.names();
        let mut theirs = Some(stores.theirs(&names).await);
        let acquiring = stores.lock(&names).acquire();
        let acquired = at.hit(acquiring, async || release(&mut theirs).await).await;
        let finished = acquired.is_some();
        if let Some(theirs) = &theirs {
            stores.of(2).held_by(theirs).await;
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
    stores.sweep("acquire, busy", 4, story).await;
}

async fn an_acquire_that_runs_out_of_time_leaves_nothing_behind(stores: &Stores) {
    let story = async |at: At| {
        let names = stores.names();
        let theirs = stores.theirs(&names).await;
        let acquiring = stores.lock(&names).acquire_timeout(A_MOMENT);
        let acquired = at.hit(acquiring, never_mind).await;
        let finished = acquired.is_some();
        if let Some(acquired) = acquired {
            let busy = matches!(acquired, Ok(None) | Err(Error::Timeout { .. }));
            assert!(busy, "{acquired:?}");
        }
        stores.of(2).held_by(&theirs).await;
        theirs.release().await.expect("it is theirs");
        stores.are_gone(&names).await;
        finished
    };
    stores.sweep("acquire_timeout, in vain", 3, story).await;
}

async fn a_release_goes_on_without_its_caller(stores: &Stores) {
    let story = async |at: At| {
        let names = stores.names();
        let guard = stores.lock(&names).acquire().await.expect("all are free");
        let held = guard.held();
        let released = at.hit(guard.release(), never_mind).await;
        assert!(!held.is_held());
        stores.are_gone(&names).await;
        released.is_some()
    };
    stores.sweep("release", 2, story).await;
}

async fn a_run_gives_all_back(stores: &Stores) {
    let story = async |at: At| {
        let names = stores.names();
        let lock = stores.lock(&names);
        let work = lock.run(async |held| {
            yield_now().await;
            assert!(held.is_held());
            yield_now().await;
        });
        let done = at.hit(work, never_mind).await;
        stores.are_gone(&names).await;
        done.is_some()
    };
    stores.sweep("run", 4, story).await;
}

type Acquiring = Pin<Box<dyn Future<Output = Result<Option<MultiGuard>, Error>> + Send>>;

/// Long enough to ask and to listen.
const A_MOMENT: Duration = Duration::from_millis(100);
