//! Numbers that are nobody's: futures dropped at every poll, after which no permit is lost or made up and nothing counts twice.

use std::time::Duration;

use distlock::{Client, CountingSemaphore, Error};

use super::SOON;
use super::polls::{At, never_mind};
use super::support::{RedisServer, eventually};

/// What there is to begin with.
const MANY: u32 = 5;

macro_rules! on_every_store {
    ($($story:ident)*) => {
        mod redis {
            $(
                #[tokio::test]
                async fn $story() {
                    let server = super::RedisServer::start();
                    super::$story(&super::Pair::of(&server.url()).await).await;
                }
            )*
        }
        mod memory {
            $(
                #[tokio::test(start_paused = true)]
                async fn $story() {
                    let url = concat!("memory:", stringify!($story));
                    super::$story(&super::Pair::of(url).await).await;
                }
            )*
        }
        #[cfg(feature = "sqlite")]
        mod sqlite {
            $(
                #[tokio::test]
                async fn $story() {
                    let folder = tempfile::tempdir().expect("there is room");
                    let url = format!("sqlite:{}/locks.db", folder.path().display());
                    super::$story(&super::Pair::of(&url).await).await;
                }
            )*
        }
    };
}

on_every_store! {
    an_acquire_of_free_permits_takes_them_or_leaves_them
    an_acquire_that_waits_for_permits_leaves_them_and_the_line
    a_release_that_is_dropped_counts_once_or_not_at_all
    a_count_down_that_is_dropped_counts_once_or_not_at_all
    a_wait_for_a_latch_leaves_nothing_behind
}

/// Two clients of one store.
struct Pair {
    ours: Client,
    theirs: Client,
}

impl Pair {
    async fn of(url: &str) -> Self {
        let patient = || {
            Client::builder(url)
                .command_timeout(SOON)
                .connect_timeout(SOON)
        };
        let connect = async || patient().connect().await.expect("the store is there");
        let pair = Self {
            ours: connect().await,
            theirs: connect().await,
        };
        // The scripts are known from now on.
        let known = pair.ours.counting_semaphore("known");
        known.release(1).await.expect("the store answers");
        known.acquire(1).await.expect("there is one");
        drop(tokio::time::timeout(Duration::from_millis(50), known.acquire(2)).await);
        let latch = pair.ours.latch("known latch");
        latch.try_set(1).await.expect("the store answers");
        latch.count_down().await.expect("the store answers");
        pair
    }

    /// The same permits, to ours and to theirs.
    async fn permits(&self, story: &str, at: At) -> (CountingSemaphore, CountingSemaphore) {
        let name = format!("{story} {at:?}");
        let theirs = self.theirs.counting_semaphore(&*name);
        assert!(theirs.try_set(MANY).await.expect("the store answers"));
        (self.ours.counting_semaphore(name), theirs)
    }
}

async fn become_available(permits: &CountingSemaphore, many: u32) {
    let mut seen = None;
    let what = format!("{many} are there");
    eventually(SOON, &what, async || {
        seen = Some(permits.available().await.expect("the store answers"));
        seen == Some(i64::from(many))
    })
    .await;
}

async fn an_acquire_of_free_permits_takes_them_or_leaves_them(pair: &Pair) {
    for permits in [1, 2] {
        let mut dropped = 0;
        for at in At::places() {
            let (ours, theirs) = pair.permits(&format!("free {permits}"), at).await;
            let taken = at.hit(ours.acquire(permits), never_mind).await;
            let had = taken.map(|taken| taken.expect("the store answers"));
            become_available(&theirs, MANY - had.map_or(0, |()| permits)).await;
            // Nobody stands in the way.
            assert!(theirs.try_acquire(1).await.expect("the store answers"));
            if had.is_some() {
                break;
            }
            dropped += 1;
        }
        assert!(dropped > 0, "it was never dropped");
    }
}

async fn an_acquire_that_waits_for_permits_leaves_them_and_the_line(pair: &Pair) {
    for permits in [1, 3] {
        for at in At::places() {
            let (ours, theirs) = pair.permits(&format!("busy {permits}"), at).await;
            let out = MANY - (permits - 1);
            theirs.acquire(out).await.expect("they are there");
            // When it waits, what it waits for is given back.
            let mut out = Some(out);
            let nudge = async || {
                if let Some(out) = out.take() {
                    theirs.release(out).await.expect("the store answers");
                }
            };
            let taken = at.hit(ours.acquire(permits), nudge).await;
            let had = taken.map(|taken| taken.expect("the store answers"));
            let there = MANY - out.unwrap_or(0) - had.map_or(0, |()| permits);
            become_available(&theirs, there).await;
            theirs
                .release(MANY - there)
                .await
                .expect("the store answers");
            // It has left the line: all can be had at once.
            let all = theirs.acquire_timeout(MANY, SOON).await;
            assert!(
                all.expect("the store answers"),
                "{at:?}: somebody is in the way"
            );
            if had.is_some() {
                break;
            }
        }
    }
}

async fn a_release_that_is_dropped_counts_once_or_not_at_all(pair: &Pair) {
    for at in At::places() {
        let (ours, theirs) = pair.permits("release", at).await;
        let done = at.hit(ours.release(2), never_mind).await;
        // From now on nothing of the first can come any more.
        ours.release(10).await.expect("the store answers");
        let there = theirs.available().await.expect("the store answers");
        let all = i64::from(MANY) + 10;
        match &done {
            Some(done) => {
                done.as_ref().expect("the store answers");
                assert_eq!(there, all + 2);
            }
            None => assert!([all, all + 2].contains(&there), "{at:?}: {there}"),
        }
        if done.is_some() {
            return;
        }
    }
}

async fn a_count_down_that_is_dropped_counts_once_or_not_at_all(pair: &Pair) {
    for at in At::places() {
        let name = format!("latch {at:?}");
        let (ours, theirs) = (pair.ours.latch(&*name), pair.theirs.latch(&*name));
        assert!(theirs.try_set(9).await.expect("the store answers"));
        let done = at.hit(ours.count_down(), never_mind).await;
        let left = ours.count_down().await.expect("the store answers");
        assert!([7, 8].contains(&left), "{at:?}: {left}");
        assert_eq!(theirs.count().await.expect("the store answers"), left);
        if let Some(done) = done {
            assert_eq!((done.expect("the store answers"), left), (8, 7));
            return;
        }
    }
}

async fn a_wait_for_a_latch_leaves_nothing_behind(pair: &Pair) {
    for at in At::places() {
        let name = format!("waited for {at:?}");
        let (ours, theirs) = (pair.ours.latch(&*name), pair.theirs.latch(&*name));
        assert!(theirs.try_set(1).await.expect("the store answers"));
        let nudge = async || {
            theirs.count_down().await.expect("the store answers");
        };
        let done: Option<Result<(), Error>> = at.hit(ours.wait(), nudge).await;
        if let Some(done) = done {
            done.expect("the store answers");
            assert_eq!(theirs.count().await.expect("the store answers"), 0);
            return;
        }
        theirs.count_down().await.expect("the store answers");
        ours.wait().await.expect("it is open");
    }
}
