//! Both sides held by one owner: the transitions from one to the other.

use std::time::Duration;

use distlock::{Error, LockKind};

use super::{Sleeper, nothing_is_left, two};
use crate::stage::{CaseResult, Stage, Write, begun, in_time, seen, soon};

on_every_engine_with_scripts! { play with Write:
    the_writer_may_read,
    a_downgraded_writer_lets_other_readers_in,
    a_reader_released_under_its_own_writer_leaves_the_writer,
    a_downgrade_lets_waiting_readers_in_at_once,
    a_downgrade_of_a_lost_lock_reports_the_loss,
    the_only_reader_may_upgrade_and_downgrade_again,
    one_of_many_readers_may_not_upgrade,
    a_reader_does_not_wait_for_itself_to_upgrade,
}

async fn the_writer_may_read(stage: &Stage<Write>) -> CaseResult {
    let (a, _b, lock, other) = two(stage).await?;
    let me = a.new_owner();
    let writer = lock.write().with_owner(&me).acquire().await?;
    // A stranger is queued before it.
    let stranger = begun(lock.read().acquire()).await;
    let reader = in_time(lock.read().with_owner(&me).acquire()).await?;
    let tried = lock.read().with_owner(&me).try_acquire().await?;
    tried.expect("it writes").release().await?;
    assert!(
        other.read().try_acquire().await?.is_none(),
        "others may not"
    );
    reader.release().await?;
    writer.release().await?;
    in_time(stranger).await?.release().await
}

async fn a_downgraded_writer_lets_other_readers_in(stage: &Stage<Write>) -> CaseResult {
    let (a, _b, lock, other) = two(stage).await?;
    let me = a.new_owner();
    soon(stage, async || {
        let writer = lock.write().with_owner(&me).acquire().await?;
        let reader = lock.read().with_owner(&me).acquire().await?;
        let waiting = Sleeper::new(other.read()).await;
        assert!(waiting.waits(), "somebody writes");
        writer.release().await?;
        let (next, waited) = waiting.woken().await?;
        assert!(reader.is_held() && next.is_held());
        next.release().await?;
        assert!(other.write().try_acquire().await?.is_none());
        reader.release().await?;
        Ok(waited)
    })
    .await
}

async fn a_reader_released_under_its_own_writer_leaves_the_writer(
    stage: &Stage<Write>,
) -> CaseResult {
    let (a, _b, lock, other) = two(stage).await?;
    let me = a.new_owner();
    let writer = lock.write().with_owner(&me).acquire().await?;
    for _ in 0..2 {
        let reader = lock.read().with_owner(&me).acquire().await?;
        reader.release().await?;
        assert!(other.read().try_acquire().await?.is_none());
        assert_eq!(seen(&a, lock.name()).await?.kind, LockKind::Write);
    }
    assert!(writer.is_held());
    writer.release().await?;
    other.write().acquire().await?.release().await
}

async fn a_downgrade_lets_waiting_readers_in_at_once(stage: &Stage<Write>) -> CaseResult {
    let (a, _b, lock, other) = two(stage).await?;
    soon(stage, async || {
        let writer = lock.write().acquire().await?;
        let waiting = Sleeper::new(other.read()).await;
        assert!(waiting.waits(), "somebody writes");
        let reader = writer.downgrade().await?;
        assert_eq!(seen(&a, lock.name()).await?.kind, LockKind::Read);
        let (next, waited) = waiting.woken().await?;
        assert!(reader.is_held() && next.is_held());
        assert!(other.write().try_acquire().await?.is_none());
        next.release().await?;
        reader.release().await?;
        other.write().acquire().await?.release().await?;
        Ok(waited)
    })
    .await
}

async fn a_downgrade_of_a_lost_lock_reports_the_loss(stage: &Stage<Write>) -> CaseResult {
    let (a, b, lock, other) = two(stage).await?;
    let writer = lock.write().acquire().await?;
    assert!(b.admin().force_release(lock.name()).await?);
    let next = other.write().acquire().await?;
    let lost = writer.downgrade().await.expect_err("it is another's");
    assert!(matches!(lost, Error::Lost { .. }), "{lost:?}");
    let info = seen(&a, lock.name()).await?;
    assert_eq!(info.holders[0].owner, next.owner());
    next.release().await
}

async fn the_only_reader_may_upgrade_and_downgrade_again(stage: &Stage<Write>) -> CaseResult {
    let (a, b, lock, other) = two(stage).await?;
    let reader = lock.read().acquire().await?;
    let writer = reader.try_upgrade().await?.expect("nobody else reads");
    assert_eq!(seen(&a, lock.name()).await?.kind, LockKind::Write);
    assert!(other.read().try_acquire().await?.is_none());
    writer.release().await?;
    assert!(reader.is_held());
    in_time(other.read().acquire()).await?.release().await?;
    assert!(other.write().try_acquire().await?.is_none());
    // The reverse: the owner keeps writing when it has stopped reading.
    let writer = reader.try_upgrade().await?.expect("nobody else reads");
    reader.release().await?;
    assert!(writer.is_held());
    assert!(other.read().try_acquire().await?.is_none());
    writer.release().await?;
    nothing_is_left(&[&a, &b], lock.name()).await
}

async fn one_of_many_readers_may_not_upgrade(stage: &Stage<Write>) -> CaseResult {
    let (_a, _b, lock, other) = two(stage).await?;
    let mine = lock.read().acquire().await?;
    let theirs = other.read().acquire().await?;
    assert!(mine.try_upgrade().await?.is_none());
    assert!(theirs.try_upgrade().await?.is_none());
    assert!(mine.is_held() && theirs.is_held());
    mine.release().await?;
    let writer = theirs.try_upgrade().await?.expect("alone by now");
    writer.release().await?;
    theirs.release().await
}

async fn a_reader_does_not_wait_for_itself_to_upgrade(stage: &Stage<Write>) -> CaseResult {
    let (a, _b, lock, other) = two(stage).await?;
    let me = a.new_owner();
    let reader = lock.read().with_owner(&me).acquire().await?;
    let theirs = other.read().acquire().await?;
    let write = lock.write().with_owner(&me);
    assert!(write.try_acquire().await?.is_none());
    for refused in [
        in_time(write.acquire()).await.map(Some),
        in_time(write.acquire_timeout(Duration::from_secs(3600))).await,
    ] {
        let refused = refused.expect_err("it would wait for itself");
        assert!(
            matches!(refused, Error::WouldDeadlock { .. }),
            "{refused:?}"
        );
    }
    theirs.release().await?;
    // There is no other reader any more.
    let writer = in_time(write.acquire()).await?;
    writer.release().await?;
    assert!(reader.is_held());
    reader.release().await
}
