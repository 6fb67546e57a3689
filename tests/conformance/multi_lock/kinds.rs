//! Several locks of all kinds.

use std::time::Duration;

use distlock::{Client, Error, LostReason, Member, MultiLock};
use tokio::time::sleep;

use super::{all_free, two};
use crate::stage::{ASLEEP, CaseResult, Stage, in_time};

on_every_engine_with_scripts! { play with Plain:
    locks_of_every_kind_are_acquired_together,
    a_failed_try_of_every_kind_leaves_each_unchanged,
    a_fair_lock_among_them_is_never_queued_for,
    permits_of_one_semaphore_are_added_up,
}

async fn permits_of_one_semaphore_are_added_up(stage: &Stage) -> CaseResult {
    let (a, b, _) = two(stage).await?;
    let semaphore = a.semaphore(stage.name("exports"));
    semaphore.set_total(100_000).await?;
    let both = |one, other| {
        MultiLock::new([
            semaphore.permits(one).into(),
            semaphore.permits(other).into(),
        ])
    };
    let too_many = both(40_000, 40_000).try_acquire().await;
    let refused = matches!(too_many, Err(Error::InvalidOption { .. }));
    assert!(refused, "{too_many:?}");
    let guard = both(1, 2).acquire().await?;
    let count = b.semaphore(stage.name("exports")).count().await?;
    assert_eq!((count.available, count.out), (99_997, 3));
    guard.release().await?;
    assert_eq!(semaphore.count().await?.available, 100_000);
    let longest = Duration::from_secs(2);
    let limited = semaphore.permit().with_max_hold(longest);
    let both = MultiLock::new([semaphore.permit().into(), limited.into()]);
    let guard = both.acquire().await?;
    let lost = in_time(guard.lost()).await.expect("it was held too long");
    assert_eq!(lost.reason, LostReason::MaxHold);
    Ok(())
}

/// Returns one lock of each kind, under names of their own.
fn every_kind(client: &Client, stage: &Stage) -> Vec<Member> {
    let name = |kind: &str| stage.name(kind);
    vec![
        client.lock(name("plain")).into(),
        client.fenced_lock(name("fenced")).into(),
        client.fair_lock(name("fair")).into(),
        client.simple_lock(name("simple")).into(),
        client.rw_lock(name("read")).read().into(),
        client.rw_lock(name("write")).write().into(),
        client
            .semaphore(name("permits"))
            .with_permits(3)
            .permits(2)
            .into(),
    ]
}

const KINDS: [&str; 6] = ["plain", "fenced", "fair", "simple", "read", "write"];

async fn locks_of_every_kind_are_acquired_together(stage: &Stage) -> CaseResult {
    let (a, b, _) = two(stage).await?;
    for wait in [Duration::ZERO, Duration::from_secs(5)] {
        let all = MultiLock::new(every_kind(&a, stage));
        let guard = all.acquire_timeout(wait).await?.expect("all are free");
        for kind in KINDS {
            assert!(
                b.admin().inspect(&stage.name(kind)).await?.is_some(),
                "{kind}"
            );
        }
        assert_eq!(
            b.semaphore(stage.name("permits")).count().await?.available,
            1
        );
        assert!(
            MultiLock::new(every_kind(&b, stage))
                .try_acquire()
                .await?
                .is_none()
        );
        guard.release().await?;
        all_free(&b, &KINDS.map(|kind| stage.name(kind))).await?;
        assert_eq!(
            b.semaphore(stage.name("permits")).count().await?.available,
            3
        );
    }
    Ok(())
}

/// Another client holds each of them in turn.
async fn a_failed_try_of_every_kind_leaves_each_unchanged(stage: &Stage) -> CaseResult {
    let (a, b, _) = two(stage).await?;
    let semaphore = b.semaphore(stage.name("permits"));
    semaphore.set_total(3).await?;
    // An earlier reader stays, with its own lease.
    let reader = b.rw_lock(stage.name("read")).read().acquire().await?;
    let held = b.lock(stage.name("zzz-last")).acquire().await?;
    let mut members = every_kind(&a, stage);
    members.push(a.lock(stage.name("zzz-last")).into());
    assert!(MultiLock::new(members).try_acquire().await?.is_none());
    for kind in KINDS.into_iter().filter(|kind| *kind != "read") {
        let seen = b.admin().inspect(&stage.name(kind)).await?;
        assert!(seen.is_none(), "{kind}: {seen:?}");
    }
    let seen = b
        .admin()
        .inspect(&stage.name("read"))
        .await?
        .expect("it is read");
    assert_eq!(seen.holders.len(), 1);
    assert_eq!(seen.holders[0].owner, reader.owner());
    let count = semaphore.count().await?;
    assert_eq!((count.available, count.out), (3, 0));
    held.release().await?;
    reader.release().await
}

async fn a_fair_lock_among_them_is_never_queued_for(stage: &Stage) -> CaseResult {
    let (a, b, names) = two(stage).await?;
    let held = b.fair_lock(&*names[0]).acquire().await?;
    let lock = MultiLock::new([a.fair_lock(&*names[0]).into(), a.lock(&*names[1]).into()]);
    let waiting = tokio::spawn(lock.acquire());
    sleep(ASLEEP).await;
    let seen = b.admin().inspect(&names[0]).await?.expect("it is held");
    assert!(seen.waiting.is_empty(), "{:?}", seen.waiting);
    held.release().await?;
    in_time(waiting).await.expect("no panic")?.release().await
}
