//! Acquires that are dropped.

use std::pin::Pin;
use std::time::Duration;

use distlock::{Backoff, Error, Guard, Lock, Wait};
use tokio::task::yield_now;

use super::SOON;
use super::polls::{At, never_mind};
use super::stage::{Stage, followed};
use super::support::Family;

pub(crate) async fn an_acquire_of_a_free_lock_leaves_nothing_behind<F: Family>(stage: &Stage<F>) {
    let places = stage.if_redis(3);
    let free = async |what, acquire: fn(&Lock<F::Kind>) -> Acquiring<F::Kind>| {
        let story = async |at: At| {
            let name = stage.name();
            let lock = stage.ours.lock(name.as_str());
            let acquired = at.hit(acquire(&lock), never_mind).await;
            let finished = acquired.is_some();
            drop(acquired);
            stage.is_gone(&name).await;
            finished
        };
        stage.sweep(what, places, story).await;
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

/// Dropped while asking, while starting to listen, while asleep, and as the lock becomes free.
pub(crate) async fn an_acquire_of_another_clients_lock_leaves_nothing_behind<F: Family>(
    stage: &Stage<F>,
) {
    for (what, wait) in [
        ("acquire, listening", Wait::Notify),
        ("acquire, polling", Wait::Poll(BACKOFF)),
    ] {
        let story = async |at: At| {
            let name = stage.name();
            let mut theirs = Some(hold(&stage.theirs.against(name.as_str())).await);
            let lock = stage.ours.lock(name.as_str()).with_wait(wait);
            let mut behind = None;
            let acquiring = followed(lock.acquire(), &lock, &mut behind);
            let acquired = at.hit(acquiring, async || release(&mut theirs).await).await;
            let finished = acquired.is_some();
            if let Some(theirs) = &theirs {
                stage.held_by(theirs).await;
            }
            release(&mut theirs).await;
            if let Some(acquired) = acquired {
                acquired.unwrap().release().await.unwrap();
            }
            if let Some(behind) = behind {
                behind.gets_its_turn().await.release().await.unwrap();
            }
            stage.is_gone(&name).await;
            finished
        };
        stage.sweep(what, stage.if_redis(6), story).await;
    }
}

/// Dropped before its time is over, or given up then: whoever is behind it goes on.
pub(crate) async fn an_acquire_that_runs_out_of_time_leaves_nothing_behind<F: Family>(
    stage: &Stage<F>,
) {
    let story = async |at: At| {
        let name = stage.name();
        let theirs = hold(&stage.theirs.lock(name.as_str())).await;
        let lock = stage.ours.lock(name.as_str());
        let mut behind = None;
        let acquiring = followed(lock.acquire_timeout(A_MOMENT), &lock, &mut behind);
        let acquired = at.hit(acquiring, never_mind).await;
        let finished = acquired.is_some();
        if let Some(acquired) = acquired {
            let busy = matches!(acquired, Ok(None) | Err(Error::Timeout { .. }));
            assert!(busy, "{acquired:?}");
        }
        stage.held_by(&theirs).await;
        theirs.release().await.unwrap();
        if let Some(behind) = behind {
            behind.gets_its_turn().await.release().await.unwrap();
        }
        stage.is_gone(&name).await;
        finished
    };
    let what = "acquire_timeout, in vain";
    stage.sweep(what, stage.if_redis(4), story).await;
}

/// Dropped in the line behind a hold of its own client, and as the lock is handed over: in memory, by
/// the store in the same breath, or by asking the store again.
pub(crate) async fn an_acquire_in_line_leaves_nothing_behind_and_lets_the_next_one_up<F: Family>(
    stage: &Stage<F>,
) {
    let through_the_store = stage.with(|builder| builder.handoff_limit(0)).await;
    for (what, stage) in [
        ("in line, handed on in memory", stage),
        ("in line, handed on by the store", &through_the_store),
    ] {
        for dropped in [false, true] {
            let story = async |at: At| {
                let name = stage.name();
                let lock = stage.ours.lock(name.as_str());
                let mut holder = Some(hold(&stage.ours.against(name.as_str())).await);
                let mut behind = None;
                let acquiring = followed(lock.acquire(), &lock, &mut behind);
                let acquired = at
                    .hit(acquiring, async || match dropped {
                        true => drop(holder.take()),
                        false => release(&mut holder).await,
                    })
                    .await;
                let finished = acquired.is_some();
                release(&mut holder).await;
                if let Some(acquired) = acquired {
                    acquired.unwrap().release().await.unwrap();
                }
                if let Some(behind) = behind {
                    behind.gets_its_turn().await.release().await.unwrap();
                }
                stage.is_gone(&name).await;
                finished
            };
            let what = format!(
                "{what}, {}",
                if dropped { "by a drop" } else { "by a release" }
            );
            stage.sweep(&what, 2, story).await;
        }
    }
}

pub(crate) async fn a_re_entry_leaves_the_count_as_it_was<F: Family>(stage: &Stage<F>) {
    let story = async |at: At, wait: bool| {
        let name = stage.name();
        let owner = stage.ours.new_owner();
        let lock = stage.ours.lock(name.as_str()).with_owner(&owner);
        let outer = hold(&lock).await;
        let inner = at.hit(lock.acquire(), never_mind).await;
        let finished = inner.is_some();
        if finished && wait {
            assert_eq!(outer.hold_count(), 2);
            stage.held_by(&outer).await;
        }
        drop(inner);
        if wait {
            assert_eq!(outer.hold_count(), 1);
            stage.held_by(&outer).await;
        }
        outer.release().await.unwrap();
        stage.is_gone(&name).await;
        finished
    };
    let places = stage.if_redis(3);
    let calm = async |at: At| story(at, true).await;
    stage.sweep("re-entry", places, calm).await;
    let hasty = async |at: At| story(at, false).await;
    stage
        .sweep("re-entry, and the release at once", places, hasty)
        .await;
}

pub(crate) async fn a_run_gives_the_lock_back<F: Family>(stage: &Stage<F>) {
    let story = async |at: At| {
        let name = stage.name();
        let lock = stage.ours.lock(name.as_str());
        let work = lock.run(async |held| {
            yield_now().await;
            assert!(held.is_held());
            yield_now().await;
        });
        let done = at.hit(work, never_mind).await;
        stage.is_gone(&name).await;
        done.is_some()
    };
    stage.sweep("run", stage.if_redis(7).max(3), story).await;
}

pub(crate) async fn hold<K>(lock: &Lock<K>) -> Guard<K> {
    lock.acquire().await.expect("it is free")
}

pub(crate) async fn release<K>(guard: &mut Option<Guard<K>>) {
    if let Some(guard) = guard.take() {
        guard.release().await.expect("it is still held");
    }
}

type Acquiring<K> = Pin<Box<dyn Future<Output = Result<Option<Guard<K>>, Error>> + Send>>;

/// Long enough to ask and to listen.
const A_MOMENT: Duration = Duration::from_millis(100);
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(10));
