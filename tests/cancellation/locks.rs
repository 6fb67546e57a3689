//! Calls of one lock that are dropped: acquires, releases, extensions and closes.

use std::pin::Pin;
use std::time::Duration;

use distlock::{Backoff, Error, Guard, Lease, Lock, Wait};
use tokio::task::yield_now;
use tokio::time::timeout;

use super::drop_at::{DropAt, begin};
use super::fixture::{Fixture, Waiter, followed, hold, release};
use super::{LEASE, PATIENCE};
use crate::support::Family;

pub(crate) async fn an_acquire_of_a_free_lock_leaves_nothing_behind<F: Family>(
    fixture: &Fixture<F>,
) {
    let acquires: [NamedAcquire<F::Kind>; 3] = [
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
            let name = fixture.name();
            let lock = fixture.ours.lock(name.as_str());
            let acquired = at.run_alone(acquire(&lock)).await;
            let finished = acquired.is_some();
            drop(acquired);
            fixture.assert_gone(&name).await;
            finished
        };
        fixture.sweep(what, 3, story).await;
    }
}

/// Drops the acquire while its request is under way, while it subscribes, while it sleeps, and as the lock becomes free.
pub(crate) async fn an_acquire_of_another_clients_lock_leaves_nothing_behind<F: Family>(
    fixture: &Fixture<F>,
) {
    for (what, wait) in [
        ("acquire, subscribed", Wait::Notify),
        ("acquire, polling", Wait::Poll(BACKOFF)),
    ] {
        let story = async |at: DropAt| {
            let name = fixture.name();
            let mut theirs = Some(hold(&fixture.theirs.against(name.as_str())).await);
            let lock = fixture.ours.lock(name.as_str()).with_wait(wait);
            let mut next = None;
            let acquiring = followed(lock.acquire(), &lock, &mut next);
            let acquired = at.run(acquiring, async || release(&mut theirs).await).await;
            if let Some(theirs) = &theirs {
                fixture.assert_held_by(theirs).await;
            }
            release(&mut theirs).await;
            everyone_goes_on(fixture, &name, acquired, next).await
        };
        fixture.sweep(what, 6, story).await;
    }
}

/// Drops the acquire before its deadline, or has it time out: the waiter behind it goes on.
pub(crate) async fn a_timed_out_acquire_leaves_nothing_behind<F: Family>(fixture: &Fixture<F>) {
    let story = async |at: DropAt| {
        let name = fixture.name();
        let theirs = hold(&fixture.theirs.against(name.as_str())).await;
        let lock = fixture.ours.lock(name.as_str());
        let mut next = None;
        let acquiring = followed(lock.acquire_timeout(A_MOMENT), &lock, &mut next);
        let acquired = at.run_alone(acquiring).await;
        let busy = matches!(acquired, None | Some(Ok(None) | Err(Error::Timeout { .. })));
        assert!(busy, "{acquired:?}");
        fixture.assert_held_by(&theirs).await;
        theirs.release().await.unwrap();
        everyone_goes_on(fixture, &name, None, next).await;
        acquired.is_some()
    };
    fixture.sweep("acquire_timeout, in vain", 4, story).await;
}

/// Drops the waiter in the queue behind a hold of its own client, and as the lock is handed off: in memory, by the store in the same
/// script, or by a new request to the store.
pub(crate) async fn a_waiter_behind_its_own_client_leaves_nothing_behind_and_wakes_the_next<
    F: Family,
>(
    fixture: &Fixture<F>,
) {
    let through_the_store = fixture.with(|builder| builder.handoff_limit(0)).await;
    for fixture in [fixture, &through_the_store] {
        for dropped in [false, true] {
            let story = async |at: DropAt| {
                let name = fixture.name();
                let lock = fixture.ours.lock(name.as_str());
                let mut holder = Some(hold(&fixture.ours.against(name.as_str())).await);
                let mut next = None;
                let acquiring = followed(lock.acquire(), &lock, &mut next);
                let nudge = async || match dropped {
                    true => drop(holder.take()),
                    false => release(&mut holder).await,
                };
                let acquired = at.run(acquiring, nudge).await;
                release(&mut holder).await;
                everyone_goes_on(fixture, &name, acquired, next).await
            };
            let how = if dropped { "by a drop" } else { "by a release" };
            fixture.sweep(&format!("handed off {how}"), 2, story).await;
        }
    }
}

/// Releases the guard, has the next waiter take its turn, and returns whether there was a guard.
async fn everyone_goes_on<F: Family>(
    fixture: &Fixture<F>,
    name: &str,
    acquired: Option<Result<Guard<F::Kind>, Error>>,
    next: Option<Waiter<F::Kind>>,
) -> bool {
    let finished = acquired.is_some();
    if let Some(acquired) = acquired {
        acquired.unwrap().release().await.unwrap();
    }
    if let Some(next) = next {
        fixture.turn_of(next).await.release().await.unwrap();
    }
    fixture.assert_gone(name).await;
    finished
}

pub(crate) async fn a_run_releases_the_lock<F: Family>(fixture: &Fixture<F>) {
    let story = async |at: DropAt| {
        let name = fixture.name();
        let lock = fixture.ours.lock(name.as_str());
        let work = lock.run(async |held| {
            yield_now().await;
            assert!(held.is_held());
            yield_now().await;
        });
        let done = at.run_alone(work).await;
        fixture.assert_gone(&name).await;
        done.is_some()
    };
    fixture.sweep("run", 7, story).await;
}

pub(crate) async fn a_dropped_re_entry_leaves_the_count_unchanged<F: Family>(fixture: &Fixture<F>) {
    for waits in [true, false] {
        let story = async |at: DropAt| {
            let name = fixture.name();
            let lock = fixture.ours.one_owners(&name);
            let outer = hold(&lock).await;
            let inner = at.run_alone(lock.acquire()).await;
            let finished = inner.is_some();
            if finished && waits {
                assert_eq!(outer.hold_count(), 2);
                fixture.assert_held_by(&outer).await;
            }
            drop(inner);
            if waits {
                assert_eq!(outer.hold_count(), 1);
                fixture.assert_held_by(&outer).await;
            }
            outer.release().await.unwrap();
            fixture.assert_gone(&name).await;
            finished
        };
        fixture.sweep("re-entry", 3, story).await;
    }
}

pub(crate) async fn a_partial_release_completes_without_its_caller<F: Family>(
    fixture: &Fixture<F>,
) {
    let story = async |at: DropAt| {
        let name = fixture.name();
        let lock = fixture.ours.one_owners(&name);
        let (outer, inner) = (hold(&lock).await, hold(&lock).await);
        assert_eq!(outer.hold_count(), 2);
        fixture.assert_held_by(&outer).await;
        let released = at.run_alone(inner.release()).await;
        assert_eq!(outer.hold_count(), 1);
        fixture.assert_held_by(&outer).await;
        outer.release().await.unwrap();
        fixture.assert_gone(&name).await;
        released.is_some()
    };
    fixture.sweep("partial release", 3, story).await;
}

pub(crate) async fn a_release_completes_without_its_caller<F: Family>(fixture: &Fixture<F>) {
    let story = async |at: DropAt| {
        let name = fixture.name();
        let guard = hold(&fixture.ours.lock(name.as_str())).await;
        let held = guard.held();
        let released = at.run_alone(guard.release()).await;
        assert!(!held.is_held());
        assert_eq!(held.lost().await, None, "it was released, not lost");
        fixture.assert_gone(&name).await;
        released.is_some()
    };
    fixture.sweep("release", 3, story).await;
}

/// Drops the release: the lock goes to the next waiter, in memory or through the store.
pub(crate) async fn a_dropped_release_lets_the_next_waiter_in<F: Family>(fixture: &Fixture<F>) {
    let through_the_store = fixture.with(|builder| builder.handoff_limit(0)).await;
    for (fixture, places) in [(fixture, 1), (&through_the_store, 3)] {
        let story = async |at: DropAt| {
            let name = fixture.name();
            let lock = fixture.ours.lock(name.as_str());
            let guard = hold(&fixture.ours.against(name.as_str())).await;
            let (next, last) = (Waiter::start(&lock), Waiter::start(&lock));
            let released = at.run_alone(guard.release()).await;
            let next = fixture.turn_of(next).await;
            if !F::SHARED {
                fixture.assert_held_by(&next).await;
            }
            next.release().await.unwrap();
            let last = fixture.turn_of(last).await;
            fixture.assert_held_by(&last).await;
            last.release().await.unwrap();
            fixture.assert_gone(&name).await;
            released.is_some()
        };
        fixture.sweep("release to the next", places, story).await;
    }
}

pub(crate) async fn an_extension_leaves_the_lock_held<F: Family>(fixture: &Fixture<F>) {
    let story = async |at: DropAt| {
        let name = fixture.name();
        let lock = fixture.ours.lock(name.as_str());
        let guard = hold(&lock.with_lease(Lease::Fixed(LEASE))).await;
        let extended = at.run_alone(guard.extend(LEASE * 2)).await;
        assert!(guard.remaining() <= LEASE * 2);
        fixture.assert_held_by(&guard).await;
        guard.release().await.unwrap();
        fixture.assert_gone(&name).await;
        extended.is_some()
    };
    fixture.sweep("extend", 3, story).await;
}

/// Drops a close: from its first poll on, all holds are released and no waiter waits any more, whether it is awaited or not.
pub(crate) async fn a_close_completes_without_its_caller<F: Family>(fixture: &Fixture<F>) {
    let story = async |at: DropAt| {
        let fixture = fixture.with(|builder| builder).await;
        let (name, waited_for) = (fixture.name(), fixture.name());
        let guard = hold(&fixture.ours.lock(name.as_str())).await;
        let theirs = hold(&fixture.theirs.against(waited_for.as_str())).await;
        let mut waiting = Box::pin(fixture.ours.lock(waited_for.as_str()).acquire());
        assert!(begin(waiting.as_mut()));
        let closed = at.run_alone(fixture.ours.close()).await;
        if at.polls > 0 {
            let waited = timeout(PATIENCE, waiting).await;
            assert!(waited.expect("no caller waits any more").is_err());
            assert!(!guard.is_held());
        } else {
            drop(waiting);
            assert!(guard.is_held());
            drop(guard);
        }
        theirs.release().await.unwrap();
        fixture.assert_gone(&name).await;
        fixture.assert_gone(&waited_for).await;
        closed.is_some()
    };
    fixture.sweep("close", 1, story).await;
}

/// A way to acquire, and its name.
type NamedAcquire<K> = (&'static str, fn(&Lock<K>) -> Acquiring<K>);
type Acquiring<K> = Pin<Box<dyn Future<Output = Result<Option<Guard<K>>, Error>> + Send>>;

/// Enough time to send a request and to subscribe.
const A_MOMENT: Duration = Duration::from_millis(500);
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(10));
