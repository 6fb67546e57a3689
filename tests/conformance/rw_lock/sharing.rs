//! Readers, which share the lock, and writers, which do not.

use std::time::Duration;

use distlock::{Backoff, Error, Guard, Lease, LockKind, Read, Wait};
use tokio::time::sleep;

use super::{Sleeper, nothing_is_left, two, writer_waits};
use crate::stage::{ASLEEP, CaseResult, PATIENCE, Stage, Write, begun, in_time, seen, soon};

on_every_engine_with_scripts! { play with Write:
    readers_share_the_lock_and_exclude_writers,
    a_writer_excludes_readers,
    readers_wait_behind_a_waiting_writer,
    a_writer_that_gives_up_lets_readers_in_at_once,
    readers_wait_behind_a_polling_writer_too,
    readers_that_never_pause_do_not_starve_a_writer,
    readers_are_let_in_together_after_a_writer,
    a_crashed_reader_ends_no_other_reader,
    a_short_lease_of_one_reader_shortens_no_other,
    a_nested_lease_never_shortens_the_lock,
    a_lookup_shows_readers_and_writers,
    a_force_release_is_lost_to_every_reader,
    the_hold_of_one_reader_is_released_by_its_owner_id,
    a_reader_that_is_dropped_wakes_the_writer,
    a_reader_re_enters,
}

/// Long enough for the store's reply that another client holds it.
const SHORT: Duration = Duration::from_millis(1000);

async fn readers_share_the_lock_and_exclude_writers(stage: &Stage<Write>) -> CaseResult {
    let (a, b, lock, other) = two(stage).await?;
    let mine = lock.read().acquire().await?;
    let theirs = in_time(other.read().acquire()).await?;
    let mine_too = in_time(lock.read().acquire()).await?;
    for lock in [&lock, &other] {
        assert!(lock.write().try_acquire().await?.is_none());
        stage
            .in_vain(async || lock.write().acquire_timeout(SHORT).await)
            .await?;
    }
    mine.release().await?;
    theirs.release().await?;
    assert!(lock.write().try_acquire().await?.is_none());
    mine_too.release().await?;
    lock.write().acquire().await?.release().await?;
    nothing_is_left(&[&a, &b], lock.name()).await
}

async fn a_writer_excludes_readers(stage: &Stage<Write>) -> CaseResult {
    let (_a, _b, lock, other) = two(stage).await?;
    let writer = lock.write().acquire().await?;
    for lock in [&lock, &other] {
        assert!(lock.read().try_acquire().await?.is_none());
        stage
            .in_vain(async || lock.read().acquire_timeout(SHORT).await)
            .await?;
        assert!(lock.write().try_acquire().await?.is_none());
    }
    let waiting = begun(other.read().acquire()).await;
    writer.release().await?;
    in_time(waiting).await?.release().await
}

async fn readers_wait_behind_a_waiting_writer(stage: &Stage<Write>) -> CaseResult {
    let (a, _b, lock, other) = two(stage).await?;
    let reader = lock.read().acquire().await?;
    let writer = tokio::spawn(other.write().acquire());
    writer_waits(&a, lock.name()).await?;
    assert!(lock.read().try_acquire().await?.is_none(), "a writer waits");
    let late = tokio::spawn(lock.read().acquire());
    sleep(SHORT).await;
    assert!(!late.is_finished());
    reader.release().await?;
    let writer = in_time(writer).await.expect("no panic")?;
    assert!(!late.is_finished());
    writer.release().await?;
    in_time(late).await.expect("no panic")?.release().await
}

async fn a_writer_that_gives_up_lets_readers_in_at_once(stage: &Stage<Write>) -> CaseResult {
    let (a, _b, lock, other) = two(stage).await?;
    let reader = lock.read().acquire().await?;
    for dropped in [false, true] {
        let patience = if dropped { PATIENCE } else { ASLEEP * 2 };
        soon(stage, async || {
            let writer = tokio::spawn(other.write().acquire_timeout(patience));
            writer_waits(&a, lock.name()).await?;
            let late = Sleeper::new(lock.read()).await;
            // On a slow machine the writer may have left before the reader slept.
            let slept = late.waits();
            if dropped {
                assert!(slept, "a writer waits");
                writer.abort();
            } else {
                let gave_up = in_time(writer).await.expect("no panic")?;
                assert!(gave_up.is_none(), "somebody reads");
            }
            let (late, waited) = late.woken().await?;
            late.release().await?;
            assert!(seen(&a, lock.name()).await?.waiting.is_empty());
            Ok(if slept { waited } else { Duration::MAX })
        })
        .await?;
    }
    reader.release().await
}

async fn readers_wait_behind_a_polling_writer_too(stage: &Stage<Write>) -> CaseResult {
    let (a, _b, lock, other) = two(stage).await?;
    let reader = lock.read().acquire().await?;
    let pause = Duration::from_millis(20);
    let poll = Wait::Poll(Backoff::new(pause, pause));
    let writer = tokio::spawn(other.write().with_wait(poll).acquire());
    writer_waits(&a, lock.name()).await?;
    assert!(lock.read().try_acquire().await?.is_none(), "a writer waits");
    reader.release().await?;
    in_time(writer).await.expect("no panic")?.release().await
}

/// The writer acquires the lock when the readers of that moment have left.
async fn readers_that_never_pause_do_not_starve_a_writer(stage: &Stage<Write>) -> CaseResult {
    const READERS: usize = 8;
    let (_a, _b, lock, other) = two(stage).await?;
    let mut readers = Vec::new();
    for number in 0..READERS {
        let lock = if number % 2 == 0 { &lock } else { &other }.read();
        readers.push(tokio::spawn(async move {
            loop {
                let guard = lock.acquire().await?;
                sleep(Duration::from_millis(5 + number as u64)).await;
                guard.release().await?;
            }
            #[expect(unreachable_code, reason = "says what may go wrong")]
            Ok::<(), Error>(())
        }));
    }
    sleep(SHORT).await;
    for _ in 0..3 {
        in_time(other.write().acquire()).await?.release().await?;
    }
    for reader in readers {
        assert!(!reader.is_finished(), "{:?}", reader.await);
        reader.abort();
    }
    Ok(())
}

async fn readers_are_let_in_together_after_a_writer(stage: &Stage<Write>) -> CaseResult {
    const READERS: usize = 10;
    let (_a, _b, lock, other) = two(stage).await?;
    soon(stage, async || {
        let writer = lock.write().acquire().await?;
        let waiting = (0..READERS).map(|number| {
            let lock = if number % 2 == 0 { &lock } else { &other };
            Sleeper::begin(lock.read())
        });
        let waiting: Vec<_> = waiting.collect();
        sleep(ASLEEP).await;
        assert!(waiting.iter().all(Sleeper::waits), "somebody writes");
        writer.release().await?;
        let (mut readers, mut longest) = (Vec::new(), Duration::ZERO);
        for reader in waiting {
            // No reader releases it before all readers hold it.
            let (reader, waited) = reader.woken().await?;
            readers.push(reader);
            longest = longest.max(waited);
        }
        for reader in readers {
            assert!(reader.is_held());
            reader.release().await?;
        }
        Ok(longest)
    })
    .await
}

async fn a_crashed_reader_ends_no_other_reader(stage: &Stage<Write>) -> CaseResult {
    let (a, b, lock, other) = two(stage).await?;
    let lives = lock.read().acquire().await?;
    let short = Lease::Fixed(Duration::from_millis(1500));
    let dies = other.read().with_lease(short).acquire().await?;
    // This hold is neither renewed nor released.
    let owner = dies.owner();
    dies.forget();
    sleep(Duration::from_millis(2000)).await;
    let info = seen(&a, lock.name()).await?;
    let [left] = &*info.holders else {
        panic!("{info:?}")
    };
    assert_ne!(left.owner, owner);
    assert!(lives.is_held());
    assert!(other.write().try_acquire().await?.is_none());
    lives.release().await?;
    in_time(other.write().acquire()).await?.release().await?;
    nothing_is_left(&[&a, &b], lock.name()).await
}

async fn a_short_lease_of_one_reader_shortens_no_other(stage: &Stage<Write>) -> CaseResult {
    let (_a, _b, lock, other) = two(stage).await?;
    let long = Lease::Fixed(Duration::from_secs(30));
    let long = lock.read().with_lease(long).acquire().await?;
    let short = Lease::Fixed(Duration::from_millis(2000));
    let short = other.read().with_lease(short).acquire().await?;
    short.release().await?;
    sleep(Duration::from_millis(2500)).await;
    assert!(other.write().try_acquire().await?.is_none());
    long.release().await
}

async fn a_nested_lease_never_shortens_the_lock(stage: &Stage<Write>) -> CaseResult {
    let (a, _b, lock, other) = two(stage).await?;
    let me = a.new_owner();
    let lease = |millis| Lease::Fixed(Duration::from_millis(millis));
    let outer = lock.write().with_owner(&me).with_lease(lease(30_000));
    let outer = outer.acquire().await?;
    let inner = lock.write().with_owner(&me).with_lease(lease(1500));
    let inner = inner.acquire().await?;
    let reading = lock.read().with_owner(&me).with_lease(lease(1500));
    let reading = reading.acquire().await?;
    sleep(Duration::from_millis(2000)).await;
    inner.release().await?;
    // The store may have removed it by now: its lease has expired.
    let _ = reading.release().await;
    sleep(Duration::from_millis(50)).await;
    assert!(outer.is_held());
    assert!(other.read().try_acquire().await?.is_none());
    outer.release().await
}

async fn a_lookup_shows_readers_and_writers(stage: &Stage<Write>) -> CaseResult {
    let (a, b, lock, other) = two(stage).await?;
    let mine = lock.read().acquire().await?;
    let theirs = other.read().acquire().await?;
    let writer = tokio::spawn(other.write().acquire());
    writer_waits(&a, lock.name()).await?;
    let info = seen(&a, lock.name()).await?;
    assert_eq!((info.kind, info.waiting.len()), (LockKind::Read, 1));
    let mut owners: Vec<_> = info.holders.iter().map(|holder| &*holder.owner).collect();
    owners.sort_unstable();
    let mut expected = [mine.owner(), theirs.owner()];
    expected.sort_unstable();
    assert_eq!(owners, expected);
    let listed = b.admin().list(lock.name()).await?;
    assert_eq!((listed.len(), listed[0].holders.len()), (1, 2));
    mine.release().await?;
    theirs.release().await?;
    let writer = in_time(writer).await.expect("no panic")?;
    let info = seen(&a, lock.name()).await?;
    assert_eq!((info.kind, info.holders.len()), (LockKind::Write, 1));
    assert_eq!(info.holders[0].owner, writer.owner());
    writer.release().await
}

async fn a_force_release_is_lost_to_every_reader(stage: &Stage<Write>) -> CaseResult {
    let (a, b, lock, other) = two(stage).await?;
    soon(stage, async || {
        let mine = lock.read().acquire().await?;
        let mine_too = lock.read().acquire().await?;
        let theirs = other.read().acquire().await?;
        let writer = Sleeper::new(other.write()).await;
        assert!(writer.waits(), "somebody reads");
        assert!(a.admin().force_release(lock.name()).await?);
        assert!(!mine.is_held() && !mine_too.is_held());
        let (writer, waited) = writer.woken().await?;
        let lost = theirs.release().await.expect_err("it was taken");
        assert!(matches!(lost, Error::Lost { .. }), "{lost:?}");
        writer.release().await?;
        assert!(!b.admin().force_release(lock.name()).await?);
        Ok(waited)
    })
    .await
}

async fn the_hold_of_one_reader_is_released_by_its_owner_id(stage: &Stage<Write>) -> CaseResult {
    let (_a, b, lock, other) = two(stage).await?;
    let mine = lock.read().acquire().await?;
    let theirs = other.read().acquire().await?;
    let owner = mine.owner();
    mine.forget();
    assert!(b.admin().release(lock.name(), &owner).await?);
    assert!(!b.admin().release(lock.name(), &owner).await?);
    assert!(theirs.is_held());
    theirs.release().await?;
    let writer = lock.write().acquire().await?;
    let owner = writer.owner();
    writer.forget();
    assert!(b.admin().release(lock.name(), &owner).await?);
    in_time(other.read().acquire()).await?.release().await
}

async fn a_reader_that_is_dropped_wakes_the_writer(stage: &Stage<Write>) -> CaseResult {
    let (_a, _b, lock, other) = two(stage).await?;
    soon(stage, async || {
        let reader = lock.read().acquire().await?;
        let writer = Sleeper::new(other.write()).await;
        assert!(writer.waits(), "somebody reads");
        drop(reader);
        let (writer, waited) = writer.woken().await?;
        writer.release().await?;
        Ok(waited)
    })
    .await
}

async fn a_reader_re_enters(stage: &Stage<Write>) -> CaseResult {
    let (a, _b, lock, other) = two(stage).await?;
    let me = a.new_owner();
    let reading = lock.read().with_owner(&me);
    let outer: Guard<Read> = reading.acquire().await?;
    // A reader enters again past a waiting writer, too: otherwise it would wait for itself.
    let writer = tokio::spawn(other.write().acquire());
    writer_waits(&a, lock.name()).await?;
    let inner = in_time(reading.acquire()).await?;
    assert_eq!(seen(&a, lock.name()).await?.holders[0].hold_count, 2);
    outer.release().await?;
    assert!(inner.is_held() && !writer.is_finished());
    assert_eq!(seen(&a, lock.name()).await?.holders[0].hold_count, 1);
    inner.release().await?;
    in_time(writer).await.expect("no panic")?.release().await
}
