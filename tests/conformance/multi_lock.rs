//! Several locks, all or none.

use std::time::Duration;

use distlock::{Client, Error, Lease, LostReason, Member, MultiLock};
use tokio::time::{Instant, sleep, timeout};

use crate::stage::{ASLEEP, CaseResult, PATIENCE, Stage, asked, in_time};
use crate::support::RedisServer;

on_every_engine! { play with Plain:
    all_locks_are_acquired_and_released,
    one_busy_lock_fails_all_and_leaves_nothing,
    the_same_lock_twice_is_acquired_once,
    opposite_orders_acquire_all_locks_every_time,
    one_deadline_covers_all_locks,
    a_lost_lock_is_reported_with_its_name,
    run_fails_if_one_lock_was_lost_before_the_work_ended,
    d26_a_lock_that_was_lost_meanwhile_is_not_part_of_a_guard,
    d27_all_are_released_though_one_was_lost,
    a_dropped_wait_leaves_nothing_behind,
    locks_of_two_stores_are_acquired_together_or_not_at_all,
    d25_all_leases_end_together_after_a_wait_as_well,
    nesting_in_another_order_does_not_block_it_forever,
    an_owner_re_enters_several_locks,
    fixed_leases_are_extended_together,
    an_empty_multi_lock_is_rejected,
}

over_tls! {
    all_locks_are_acquired_and_released,
    opposite_orders_acquire_all_locks_every_time,
}

mod kinds;

/// Returns two clients, and three names in no order.
async fn two(stage: &Stage) -> Result<(Client, Client, [String; 3]), Error> {
    let (a, b) = stage.clients().await?;
    let names = ["c", "a", "b"].map(|name| stage.name(name));
    Ok(((*a).clone(), (*b).clone(), names))
}

/// Consecutive requests travel in batches: far fewer calls than locks, and no lock costs more because there are many.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_thousand_locks_take_at_most_one_call_each() -> CaseResult {
    const MANY: u64 = 3000;
    let server = RedisServer::start();
    let client = Client::builder(&server.url());
    let client = client.command_timeout(PATIENCE).connect().await?;
    let names: Vec<_> = (0..MANY).map(|number| format!("lock-{number}")).collect();
    let lock = plain(&client, &names);
    let calls = || server.commandstats("evalsha") + server.commandstats("eval");
    for try_once in [true, false] {
        let before = calls();
        let guard = match try_once {
            true => lock.try_acquire().await?.expect("all are free"),
            false => lock.acquire().await?,
        };
        let acquired = calls() - before;
        assert!(acquired <= MANY, "{acquired} calls for {MANY} locks");
        guard.release().await?;
        let released = calls() - before - acquired;
        assert!(released <= MANY, "{released} calls for {MANY} locks");
    }
    assert_eq!(server.keys(), Vec::<String>::new());
    Ok(())
}

fn plain(client: &Client, names: &[String]) -> MultiLock {
    MultiLock::new(names.iter().map(|name| client.lock(&**name).into()))
}

async fn all_free(client: &Client, names: &[String]) -> CaseResult {
    for name in names {
        let seen = client.admin().inspect(name).await?;
        assert!(seen.is_none(), "`{name}` is held: {seen:?}");
    }
    Ok(())
}

async fn soon_all_free(client: &Client, names: &[String]) -> CaseResult {
    in_time(async {
        for name in names {
            while client.admin().inspect(name).await?.is_some() {
                sleep(Duration::from_millis(5)).await;
            }
        }
        Ok(())
    })
    .await
}

async fn all_locks_are_acquired_and_released(stage: &Stage) -> CaseResult {
    let (a, b, names) = two(stage).await?;
    let guard = plain(&a, &names).acquire().await?;
    let mut sorted = names.clone();
    sorted.sort();
    assert!(guard.names().eq(sorted.iter().map(String::as_str)));
    assert!(guard.is_held() && guard.remaining() > Duration::from_secs(20));
    for name in &names {
        assert!(b.lock(&**name).try_acquire().await?.is_none());
    }
    let (held, lost) = (guard.held(), guard.lost());
    guard.release().await?;
    assert!(!held.is_held() && lost.await.is_none());
    all_free(&b, &names).await
}

async fn one_busy_lock_fails_all_and_leaves_nothing(stage: &Stage) -> CaseResult {
    let (a, b, names) = two(stage).await?;
    for busy in &names {
        let held = b.lock(&**busy).acquire().await?;
        assert!(plain(&a, &names).try_acquire().await?.is_none());
        let others: Vec<_> = names.iter().filter(|name| *name != busy).cloned().collect();
        all_free(&b, &others).await?;
        held.release().await?;
    }
    plain(&a, &names)
        .try_acquire()
        .await?
        .expect("all are free")
        .release()
        .await
}

async fn the_same_lock_twice_is_acquired_once(stage: &Stage) -> CaseResult {
    let (a, b, names) = two(stage).await?;
    let name = &*names[0];
    // The members are one lock, also through another client of the same store and as another kind.
    let members: [Member; 4] = [
        a.lock(name).into(),
        a.lock(name).into(),
        b.lock(name).into(),
        a.fenced_lock(name).into(),
    ];
    let guard = in_time(MultiLock::new(members).acquire()).await?;
    assert!(guard.names().eq([name]));
    assert!(guard.token(name).is_some(), "the stronger one");
    guard.release().await?;
    all_free(&b, &names).await
}

async fn opposite_orders_acquire_all_locks_every_time(stage: &Stage) -> CaseResult {
    const ROUNDS: usize = 200;
    let (a, b, names) = two(stage).await?;
    let mut reversed = names.clone();
    reversed.reverse();
    let inside = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let play = |lock: MultiLock| {
        let inside = inside.clone();
        tokio::spawn(async move {
            for _ in 0..ROUNDS {
                let guard = lock.acquire().await?;
                assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                tokio::task::yield_now().await;
                inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                guard.release().await?;
            }
            Ok::<_, Error>(())
        })
    };
    let tasks = [play(plain(&a, &names)), play(plain(&b, &reversed))];
    for task in tasks {
        task.await.expect("no panic")?;
    }
    all_free(&a, &names).await
}

async fn one_deadline_covers_all_locks(stage: &Stage) -> CaseResult {
    let (a, b, names) = two(stage).await?;
    let held = plain(&b, &names).acquire().await?;
    stage
        .in_vain(async || {
            let begun = Instant::now();
            let wait = Duration::from_millis(1500);
            let got = plain(&a, &names).acquire_timeout(wait).await;
            let waited = begun.elapsed();
            assert!(
                waited >= wait && waited < wait + stage.slack(),
                "{waited:?}"
            );
            got
        })
        .await?;
    held.release().await?;
    all_free(&a, &names).await
}

async fn a_lost_lock_is_reported_with_its_name(stage: &Stage) -> CaseResult {
    let (a, _, names) = two(stage).await?;
    let guard = plain(&a, &names).acquire().await?;
    a.admin().force_release(&names[2]).await?;
    let lost = in_time(guard.lost()).await.expect("it was taken");
    assert_eq!(
        (&*lost.name, lost.reason),
        (&*names[2], LostReason::Removed)
    );
    assert!(!guard.is_held() && guard.remaining().is_zero());
    assert!(matches!(guard.check(), Err(Error::Lost { name, .. }) if *name == *names[2]));
    let work = guard.while_held(std::future::pending::<()>()).await;
    assert!(matches!(work.map_err(Error::from), Err(Error::Lost { .. })));
    // The others are still held.
    assert!(a.lock(&*names[0]).try_acquire().await?.is_none());
    drop(guard);
    soon_all_free(&a, &names).await
}

async fn run_fails_if_one_lock_was_lost_before_the_work_ended(stage: &Stage) -> CaseResult {
    let (a, b, names) = two(stage).await?;
    let admin = b.admin();
    let done = plain(&a, &names).run(async |_| {
        let forced = admin.force_release(&names[1]).await;
        assert!(forced.is_ok_and(|forced| forced));
        "work done"
    });
    let error = done.await.expect_err("one of them was not held to the end");
    assert!(matches!(error.error(), Error::Lost { name, .. } if **name == *names[1]));
    assert_eq!(error.into_output(), Some("work done"));
    soon_all_free(&a, &names).await
}

/// Another client takes the first one by force while the waiter waits for the last; the waiter is not notified.
async fn d26_a_lock_that_was_lost_meanwhile_is_not_part_of_a_guard(stage: &Stage) -> CaseResult {
    let (a, b, names) = two(stage).await?;
    let [last, first, _] = &names;
    let held = b.lock(&**last).acquire().await?;
    let waiting = tokio::spawn(plain(&a, &names).acquire());
    in_time(async {
        while b.admin().inspect(first).await?.is_none() {
            sleep(Duration::from_millis(5)).await;
        }
        Ok::<_, Error>(())
    })
    .await?;
    sleep(ASLEEP * 2).await;
    let stranger = in_time(async {
        loop {
            b.admin().force_release(first).await?;
            if let Some(guard) = b.lock(&**first).try_acquire().await? {
                return Ok::<_, Error>(guard);
            }
        }
    })
    .await?;
    held.release().await?;
    sleep(ASLEEP).await;
    if waiting.is_finished() {
        panic!("the first is somebody else's: {:?}", waiting.await);
    }
    stranger.release().await?;
    let guard = in_time(waiting).await.expect("no panic")?;
    assert!(guard.is_held());
    guard.release().await
}

async fn d27_all_are_released_though_one_was_lost(stage: &Stage) -> CaseResult {
    let (a, _, names) = two(stage).await?;
    let guard = plain(&a, &names).acquire().await?;
    a.admin().force_release(&names[1]).await?;
    let released = guard.release().await;
    assert!(
        matches!(&released, Err(Error::Lost { name, .. }) if **name == *names[1]),
        "{released:?}"
    );
    all_free(&a, &names).await?;
    // A release reports every failure.
    let guard = plain(&a, &names).acquire().await?;
    a.admin().force_release(&names[0]).await?;
    a.admin().force_release(&names[1]).await?;
    let Err(Error::Several { errors }) = guard.release().await else {
        panic!("two were lost");
    };
    assert_eq!(errors.len(), 2);
    assert!(
        errors
            .iter()
            .all(|error| matches!(error, Error::Lost { .. }))
    );
    all_free(&a, &names).await
}

async fn a_dropped_wait_leaves_nothing_behind(stage: &Stage) -> CaseResult {
    let (a, b, names) = two(stage).await?;
    // The first call is dropped at its first await, unless that acquires all at once.
    let (asking, _) = asked(plain(&a, &names).acquire()).await;
    drop(asking);
    soon_all_free(&b, &names).await?;
    // The second call is dropped in the middle of a wait, while it holds two of three.
    let held = b.lock(&*names[0]).acquire().await?;
    let waiting = timeout(ASLEEP, plain(&a, &names).acquire()).await;
    assert!(waiting.is_err());
    soon_all_free(&b, &names[1..]).await?;
    held.release().await?;
    soon_all_free(&b, &names).await
}

async fn locks_of_two_stores_are_acquired_together_or_not_at_all(stage: &Stage) -> CaseResult {
    let (a, b, names) = two(stage).await?;
    let elsewhere = Client::connect("memory:").await?;
    let both = || MultiLock::new([elsewhere.lock("z").into(), a.lock(&*names[0]).into()]);
    let guard = both().acquire().await?;
    assert!(elsewhere.lock("z").try_acquire().await?.is_none());
    assert!(b.lock(&*names[0]).try_acquire().await?.is_none());
    guard.release().await?;
    let held = elsewhere.lock("z").acquire().await?;
    assert!(both().try_acquire().await?.is_none());
    let patience = Duration::from_millis(1500);
    stage
        .in_vain(async || both().acquire_timeout(patience).await)
        .await?;
    all_free(&b, &names).await?;
    held.release().await?;
    let held = b.lock(&*names[0]).acquire().await?;
    assert!(both().try_acquire().await?.is_none());
    assert!(elsewhere.lock("z").try_acquire().await?.is_some());
    held.release().await
}

async fn d25_all_leases_end_together_after_a_wait_as_well(stage: &Stage) -> CaseResult {
    let (a, b, names) = two(stage).await?;
    let lease = Duration::from_secs(60);
    let held = b.lock(&*names[0]).acquire().await?;
    let lock = plain(&a, &names).with_lease(Lease::Fixed(lease));
    let waiting = tokio::spawn(lock.acquire());
    // Meanwhile it holds the others for 4.5 s: it has begun anew once, and has held them for a while again.
    sleep(Duration::from_secs(8)).await;
    let freed = Instant::now();
    held.release().await?;
    let guard = in_time(waiting).await.expect("no panic")?;
    let left = guard.remaining() + freed.elapsed();
    // Each lease ends between the two moments: a request may take long.
    let (mut ends, mut looks) = (Vec::new(), Vec::new());
    for name in &names {
        let before = Instant::now();
        let seen = a.admin().inspect(name).await?.expect("it is held");
        let ttl = seen.holders[0].ttl.expect("it has an end");
        assert!(ttl <= lease, "longer than asked for: {ttl:?}");
        looks.push((before + ttl, Instant::now() + ttl));
        ends.push(ttl);
    }
    let latest = looks.iter().map(|(before, _)| *before).max().unwrap();
    let soonest = looks.iter().map(|(_, after)| *after).min().unwrap();
    let apart = latest.saturating_duration_since(soonest);
    assert!(apart < Duration::from_secs(1), "apart: {ends:?}");
    assert!(left > lease - Duration::from_millis(1900), "{left:?}");
    guard.release().await
}

/// Other code acquires the last and then the first, one by one: neither side waits for ever.
async fn nesting_in_another_order_does_not_block_it_forever(stage: &Stage) -> CaseResult {
    let (a, b, names) = two(stage).await?;
    let [last, first, _] = &names;
    let outer = b.lock(&**last).acquire().await?;
    let waiting = tokio::spawn(plain(&a, &names).acquire());
    sleep(ASLEEP).await;
    let inner = in_time(b.lock(&**first).acquire()).await?;
    inner.release().await?;
    outer.release().await?;
    in_time(waiting).await.expect("no panic")?.release().await
}

async fn an_owner_re_enters_several_locks(stage: &Stage) -> CaseResult {
    let (a, b, names) = two(stage).await?;
    let me = a.new_owner();
    let outer = a.lock(&*names[0]).with_owner(&me).acquire().await?;
    let mine = |name: &String| Member::from(a.lock(&**name).with_owner(&me));
    let lock = MultiLock::new(names.iter().map(mine));
    let guard = in_time(lock.acquire()).await?;
    assert_eq!(outer.hold_count(), 2);
    guard.release().await?;
    let guard = lock.try_acquire().await?.expect("ours already");
    guard.release().await?;
    // The owner's lock may also be listed with another client's lock of the same name, in either order.
    let both = [mine(&names[0]), b.lock(&*names[0]).into()];
    for order in [both.clone(), [both[1].clone(), both[0].clone()]] {
        let guard = MultiLock::new(order).try_acquire().await?;
        guard.expect("ours already").release().await?;
    }
    assert!(outer.is_held());
    all_free(&b, &names[1..]).await?;
    outer.release().await
}

async fn fixed_leases_are_extended_together(stage: &Stage) -> CaseResult {
    let (a, b, names) = two(stage).await?;
    let (short, long) = (Duration::from_secs(3), Duration::from_secs(60));
    let kept = plain(&a, &names).acquire().await?;
    let refused = kept.extend(long).await;
    assert!(matches!(refused, Err(Error::InvalidOption { .. })));
    kept.release().await?;
    let fixed = plain(&a, &names).with_lease(Lease::Fixed(short));
    let guard = fixed.acquire().await?;
    guard.extend(long).await?;
    assert!(guard.remaining() > long / 2);
    sleep(short + Duration::from_millis(100)).await;
    assert!(guard.is_held());
    for name in &names {
        assert!(b.lock(&**name).try_acquire().await?.is_none());
    }
    b.admin().force_release(&names[0]).await?;
    let lost = guard.extend(long).await;
    assert!(
        matches!(&lost, Err(Error::Lost { name, .. }) if **name == *names[0]),
        "{lost:?}"
    );
    assert!(guard.at_risk().is_none() && !guard.is_held());
    Ok(())
}

async fn an_empty_multi_lock_is_rejected(stage: &Stage) -> CaseResult {
    let (a, _, _) = two(stage).await?;
    let error = MultiLock::new([]).acquire().await.unwrap_err();
    assert!(matches!(error, Error::InvalidOption { .. }), "{error}");
    let error = MultiLock::new([a.lock("").into()]).try_acquire().await;
    assert!(matches!(error, Err(Error::InvalidName { .. })));
    Ok(())
}
