//! What a semaphore has beside what every lock has: many permits.

use std::time::Duration;

use distlock::{
    Change, Client, Error, Guard, Lease, LockKind, LostReason, Permit, Semaphore as Many, Watch,
};
use tokio::time::{Instant, sleep};

use crate::stage::{ASLEEP, PATIENCE, Played, Semaphore, Stage, begun, in_time, seen, soon, waits};
use crate::support::SeededRng;

on_every_engine_with_scripts! { play with Semaphore:
    so_many_hold_it_at_once_and_no_more,
    several_are_had_all_or_none,
    who_waits_for_several_is_not_starved_by_those_who_want_one,
    who_waits_for_several_and_leaves_lets_the_others_in,
    those_who_wait_for_several_are_let_in_as_enough_come_back,
    who_wants_more_than_there_are_keeps_nobody_out,
    there_are_none_until_somebody_says_how_many,
    more_permits_let_waiters_in,
    fewer_permits_than_are_out_let_nobody_in,
    the_number_is_said_once,
    a_permit_is_given_back_by_its_id_once,
    a_guard_learns_that_one_of_its_permits_was_given_back,
    a_deleted_semaphore_tells_its_holders,
    what_makes_no_sense_is_refused,
    a_lock_and_a_semaphore_cannot_share_a_name,
    who_has_permits_is_seen,
    a_watch_tells_of_permits,
    ten_thousand_permits_come_back_by_themselves,
    no_permit_is_lost_or_made_up,
}

mod of_one_client;

/// Far longer than a case takes.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(1500);

/// One semaphore with so many permits, as two clients see it.
async fn two(stage: &Stage<Semaphore>, permits: u32) -> Result<(Many, Many), Error> {
    let (a, b) = stage.clients().await?;
    let name = stage.name("exports");
    let semaphore = a.semaphore(&*name);
    semaphore.set(permits).await?;
    Ok((semaphore, b.semaphore(&*name)))
}

async fn counts(semaphore: &Many, available: i64, out: u64) -> Played {
    let count = semaphore.count().await?;
    assert_eq!((count.available, count.out), (available, out));
    Ok(())
}

async fn release(guards: Vec<Guard<Permit>>) -> Played {
    for guard in guards {
        guard.release().await?;
    }
    Ok(())
}

async fn so_many_hold_it_at_once_and_no_more(stage: &Stage<Semaphore>) -> Played {
    let (a, b) = two(stage, 3).await?;
    let mut held = Vec::new();
    for semaphore in [&a, &b, &a] {
        held.push(semaphore.permit().acquire().await?);
    }
    counts(&b, 0, 3).await?;
    for semaphore in [&a, &b] {
        assert!(semaphore.permit().try_acquire().await?.is_none());
    }
    let waiting = begun(b.permit().acquire()).await;
    held.remove(0).release().await?;
    held.push(in_time(waiting).await?);
    counts(&a, 0, 3).await?;
    release(held).await?;
    counts(&a, 3, 0).await
}

async fn several_are_had_all_or_none(stage: &Stage<Semaphore>) -> Played {
    let (a, b) = two(stage, 5).await?;
    let three = a.permits(3).acquire().await?;
    assert_eq!(three.permit_ids().len(), 3);
    assert!(b.permits(3).try_acquire().await?.is_none());
    counts(&b, 2, 3).await?;
    let two = b.permits(2).try_acquire().await?.expect("two are there");
    let mut ids = [three.permit_ids(), two.permit_ids()].concat();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 5, "each is another");
    three.release().await?;
    counts(&b, 3, 2).await?;
    two.release().await?;
    counts(&a, 5, 0).await
}

async fn who_waits_for_several_is_not_starved_by_those_who_want_one(
    stage: &Stage<Semaphore>,
) -> Played {
    let (a, b) = two(stage, 2).await?;
    let (one, other) = (a.permit().acquire().await?, b.permit().acquire().await?);
    let big = tokio::spawn(b.permits(2).acquire());
    sleep(ASLEEP).await;
    one.release().await?;
    // It would fit, but somebody is before it.
    for semaphore in [&a, &b] {
        assert!(semaphore.permit().try_acquire().await?.is_none());
    }
    let small = tokio::spawn(a.permit().acquire());
    sleep(ASLEEP).await;
    assert!(!big.is_finished() && !small.is_finished());
    other.release().await?;
    let big = in_time(big).await.expect("no panic")?;
    assert!(!small.is_finished(), "both are out");
    big.release().await?;
    in_time(small).await.expect("no panic")?.release().await
}

async fn who_waits_for_several_and_leaves_lets_the_others_in(stage: &Stage<Semaphore>) -> Played {
    let (a, b) = two(stage, 2).await?;
    let held = a.permit().acquire().await?;
    // At once, not when it next asks by itself.
    soon(async || {
        let big = tokio::spawn(b.permits(2).acquire());
        sleep(ASLEEP).await;
        let asked = Instant::now();
        let mut small = begun(a.permit().acquire()).await;
        assert!(waits(&mut small).await);
        big.abort();
        in_time(small).await?.release().await?;
        Ok(asked.elapsed())
    })
    .await?;
    // One that runs out of time leaves as well.
    let timed = b.permits(2).acquire_timeout(ASLEEP).await?;
    assert!(timed.is_none());
    in_time(a.permit().acquire()).await?.release().await?;
    held.release().await?;
    counts(&a, 2, 0).await
}

async fn those_who_wait_for_several_are_let_in_as_enough_come_back(
    stage: &Stage<Semaphore>,
) -> Played {
    let (a, b) = two(stage, 4).await?;
    let all = a.permits(4).acquire().await?;
    let first = tokio::spawn(b.permits(2).acquire());
    let second = tokio::spawn(a.permits(2).acquire());
    sleep(ASLEEP).await;
    all.release().await?;
    let first = in_time(first).await.expect("no panic")?;
    let second = in_time(second).await.expect("no panic")?;
    counts(&a, 0, 4).await?;
    release(vec![first, second]).await
}

async fn who_wants_more_than_there_are_keeps_nobody_out(stage: &Stage<Semaphore>) -> Played {
    let (a, b) = two(stage, 2).await?;
    let held = a.permit().acquire().await?;
    let too_many = tokio::spawn(b.permits(3).acquire());
    sleep(ASLEEP).await;
    let one = a.permit().try_acquire().await?.expect("one is there");
    release(vec![held, one]).await?;
    // It gets them as soon as there are so many.
    a.set(3).await?;
    let all = in_time(too_many).await.expect("no panic")?;
    // Or has to let others in when there are fewer again.
    let waiting = tokio::spawn(b.permits(3).acquire());
    sleep(ASLEEP).await;
    a.set(2).await?;
    all.release().await?;
    in_time(a.permit().acquire()).await?.release().await?;
    waiting.abort();
    counts(&a, 2, 0).await
}

async fn there_are_none_until_somebody_says_how_many(stage: &Stage<Semaphore>) -> Played {
    let (a, b) = stage.clients().await?;
    let name = stage.name("exports");
    let (a, b) = (a.semaphore(&*name), b.semaphore(&*name));
    counts(&a, 0, 0).await?;
    assert!(a.permit().try_acquire().await?.is_none());
    let mut waiting = begun(a.permit().acquire()).await;
    assert!(waits(&mut waiting).await);
    // Whoever asks first sets it up with the same question.
    let held = b.clone().with_permits(2).permit().acquire().await?;
    let waited = in_time(waiting).await?;
    counts(&a, 0, 2).await?;
    // It is said already.
    let more = b.clone().with_permits(9).permit();
    assert!(more.try_acquire().await?.is_none());
    release(vec![held, waited]).await?;
    counts(&b, 2, 0).await
}

async fn more_permits_let_waiters_in(stage: &Stage<Semaphore>) -> Played {
    let (a, b) = two(stage, 1).await?;
    let held = a.permit().acquire().await?;
    let waiting = begun(b.permit().acquire()).await;
    a.set(2).await?;
    let waited = in_time(waiting).await?;
    counts(&b, 0, 2).await?;
    release(vec![held, waited]).await
}

async fn fewer_permits_than_are_out_let_nobody_in(stage: &Stage<Semaphore>) -> Played {
    let (a, b) = two(stage, 3).await?;
    let mut held = vec![a.permits(2).acquire().await?, b.permit().acquire().await?];
    b.set(1).await?;
    counts(&a, -2, 3).await?;
    held.remove(0).release().await?;
    counts(&a, 0, 1).await?;
    assert!(b.permit().try_acquire().await?.is_none());
    assert!(held[0].is_held());
    release(held).await?;
    counts(&a, 1, 0).await
}

async fn the_number_is_said_once(stage: &Stage<Semaphore>) -> Played {
    let (a, b) = stage.clients().await?;
    let name = stage.name("exports");
    let (a, b) = (a.semaphore(&*name), b.semaphore(&*name));
    assert!(a.try_set(2).await?);
    assert!(!b.try_set(7).await?);
    counts(&b, 2, 0).await?;
    assert!(b.delete().await?);
    assert!(!a.delete().await?);
    assert!(b.try_set(7).await?);
    counts(&a, 7, 0).await
}

async fn a_permit_is_given_back_by_its_id_once(stage: &Stage<Semaphore>) -> Played {
    let (a, b) = two(stage, 2).await?;
    let held = a.permit().with_lease(Lease::Fixed(LONG)).acquire().await?;
    let id = held.permit_ids()[0];
    held.forget();
    counts(&b, 1, 1).await?;
    let both = begun(b.permits(2).acquire()).await;
    // As text it went through another program.
    let id = id.to_string().parse().expect("it is an id");
    assert!(b.release(id).await?);
    let both = in_time(both).await?;
    assert!(!b.release(id).await?, "it takes none of another's");
    counts(&a, 0, 2).await?;
    both.release().await?;
    counts(&a, 2, 0).await
}

async fn a_guard_learns_that_one_of_its_permits_was_given_back(stage: &Stage<Semaphore>) -> Played {
    let (a, b) = two(stage, 3).await?;
    let held = a
        .permits(3)
        .with_lease(Lease::KeepAlive(SHORT * 4))
        .acquire()
        .await?;
    assert!(b.release(held.permit_ids()[1]).await?);
    let lost = in_time(held.lost()).await.expect("it was lost");
    assert_eq!(lost.reason, LostReason::Removed);
    drop(held);
    // What is left of it comes back.
    in_time(b.permits(3).acquire()).await?.release().await?;
    counts(&a, 3, 0).await
}

async fn a_deleted_semaphore_tells_its_holders(stage: &Stage<Semaphore>) -> Played {
    let (a, b) = two(stage, 1).await?;
    let held = a
        .permit()
        .with_lease(Lease::KeepAlive(SHORT * 4))
        .acquire()
        .await?;
    assert!(b.delete().await?);
    let lost = in_time(held.lost()).await.expect("it was lost");
    assert_eq!(lost.reason, LostReason::Removed);
    drop(held);
    counts(&b, 0, 0).await
}

async fn what_makes_no_sense_is_refused(stage: &Stage<Semaphore>) -> Played {
    let client = stage.client().await?;
    let semaphore = client.semaphore(stage.name("exports"));
    semaphore.set(1).await?;
    let invalid = |error: Error| matches!(error, Error::InvalidOption { .. });
    for count in [0, 1 << 17] {
        let refused = semaphore.permits(count).try_acquire().await;
        assert!(refused.is_err_and(invalid), "{count}");
    }
    let owner = client.new_owner();
    let refused = semaphore.permit().with_owner(&owner).try_acquire().await;
    assert!(refused.is_err_and(invalid));
    let refused = client.semaphore("").count().await;
    assert!(refused.is_err());
    counts(&semaphore, 1, 0).await
}

async fn a_lock_and_a_semaphore_cannot_share_a_name(stage: &Stage<Semaphore>) -> Played {
    let client: Client = (*stage.client().await?).clone();
    let wrong = |error: Error| matches!(error, Error::WrongKind { .. });
    let name = stage.name("lock");
    let lock = client.lock(&*name).acquire().await?;
    let semaphore = client.semaphore(&*name);
    assert!(semaphore.permit().try_acquire().await.is_err_and(wrong));
    assert!(semaphore.set(1).await.is_err_and(wrong));
    assert!(semaphore.count().await.is_err_and(wrong));
    lock.release().await?;
    let name = stage.name("semaphore");
    client.semaphore(&*name).set(1).await?;
    let taken = client.lock(&*name).try_acquire().await;
    assert!(taken.is_err_and(wrong));
    let taken = client.rw_lock(&*name).write().try_acquire().await;
    assert!(taken.is_err_and(wrong));
    counts(&client.semaphore(&*name), 1, 0).await
}

async fn who_has_permits_is_seen(stage: &Stage<Semaphore>) -> Played {
    let name = stage.name("exports");
    let labelled = stage.builder().label("exporter");
    let a = stage.connect(labelled).await?;
    let b = stage.client().await?;
    let semaphore = a.semaphore(&*name).with_permits(4);
    assert!(b.admin().inspect(&name).await?.is_none());
    let one = semaphore.permit().acquire().await?;
    let two = b.semaphore(&*name).permits(2).acquire().await?;
    let waiting = tokio::spawn(a.semaphore(&*name).permits(3).acquire());
    let seen = in_time(async {
        loop {
            let seen = seen(&b, &name).await?;
            let labelled = seen.holders.iter().any(|holder| holder.label.is_some());
            if labelled && !seen.waiting.is_empty() {
                return Ok::<_, Error>(seen);
            }
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await?;
    assert_eq!(seen.kind, LockKind::Semaphore);
    let permits = seen.permits.expect("it has some");
    assert_eq!((permits.available, permits.out), (1, 3));
    assert_eq!(seen.waiting.len(), 1);
    assert_eq!(seen.holders.len(), 2);
    for (guard, count, label) in [(&one, 1, Some("exporter")), (&two, 2, None)] {
        let mut holders = seen.holders.iter();
        let holder = holders.find(|holder| holder.owner == guard.owner());
        let holder = holder.expect("it is seen");
        assert_eq!((holder.hold_count, holder.label.as_deref()), (count, label));
        assert!(holder.ttl.is_some());
    }
    let listed = b.admin().list(&format!("{name}*")).await?;
    assert_eq!(listed.len(), 1);
    assert_eq!((&*listed[0].name, listed[0].holders.len()), (&*name, 2));
    assert!(b.admin().release(&name, &two.owner()).await?);
    assert!(!b.admin().release(&name, &two.owner()).await?);
    assert!(two.release().await.is_err());
    let three = in_time(waiting).await.expect("no panic")?;
    release(vec![one, three]).await?;
    assert!(b.admin().inspect(&name).await?.is_none(), "nobody has any");
    assert!(b.admin().list(&format!("{name}*")).await?.is_empty());
    assert!(!b.admin().force_release(&name).await?);
    counts(&semaphore, 4, 0).await
}

async fn a_watch_tells_of_permits(stage: &Stage<Semaphore>) -> Played {
    let (a, b) = stage.clients().await?;
    let name = stage.name("exports");
    let semaphore = a.semaphore(&*name).with_permits(2);
    let first = semaphore.permit().acquire().await?;
    let mut watch = b.admin().watch(&*name);
    tells(&mut watch, Change::Held, first.owner()).await?;
    let second = semaphore.permit().acquire().await?;
    tells(&mut watch, Change::Granted, second.owner()).await?;
    let (owner, id) = (first.owner(), first.permit_ids()[0]);
    first.forget();
    assert!(semaphore.release(id).await?);
    tells(&mut watch, Change::Released, owner).await?;
    let owner = second.owner();
    second.release().await?;
    tells(&mut watch, Change::Released, owner).await
}

async fn tells(watch: &mut Watch, change: Change, owner: String) -> Played {
    let event = in_time(watch.next()).await?;
    assert_eq!((event.change, event.owner), (change, Some(owner)));
    assert_eq!(event.kind, Some(LockKind::Semaphore));
    Ok(())
}

/// Of those who have died.
async fn ten_thousand_permits_come_back_by_themselves(stage: &Stage<Semaphore>) -> Played {
    let (a, b) = two(stage, 10_000).await?;
    for _ in 0..10 {
        // A thousand take their time in a file.
        let lease = Lease::Fixed(SHORT * 4);
        let held = a.permits(1000).with_lease(lease).acquire().await?;
        held.forget();
    }
    let all = b.permits(10_000).acquire_timeout(PATIENCE).await?;
    let all = all.expect("all have come back");
    counts(&a, 0, 10_000).await?;
    all.release().await?;
    counts(&a, 10_000, 0).await
}

/// Whatever is taken, given back, dropped, given up or left to its lease.
async fn no_permit_is_lost_or_made_up(stage: &Stage<Semaphore>) -> Played {
    const TOTAL: u32 = 7;
    let mut seeds = SeededRng::from_env_or(8);
    let (a, b) = two(stage, TOTAL).await?;
    let mut tasks = Vec::new();
    for number in 0..8 {
        let semaphore = if number % 2 == 0 { &a } else { &b }.clone();
        let mut rng = SeededRng::new(seeds.next_u64());
        tasks.push(tokio::spawn(async move {
            for _ in 0..30 {
                let lock = semaphore.permits(1 + u32::try_from(rng.below(4)).unwrap_or(0));
                let patience = Duration::from_millis(rng.below(40));
                let lock = lock.with_lease(Lease::KeepAlive(LONG));
                let got = match rng.below(3) {
                    0 => lock.try_acquire().await,
                    1 => lock.acquire_timeout(patience).await,
                    _ => {
                        let acquired = tokio::time::timeout(patience, lock.acquire()).await;
                        acquired.ok().transpose()
                    }
                };
                let guard = match got {
                    Ok(Some(guard)) => guard,
                    // A busy machine takes longer to answer than some are patient.
                    Ok(None) | Err(Error::Timeout { .. }) => continue,
                    Err(error) => return Err(error),
                };
                let count = semaphore.count().await?;
                let out = i64::try_from(count.out).unwrap_or(i64::MAX);
                assert_eq!(count.available + out, i64::from(TOTAL));
                assert!(count.available >= 0);
                match rng.below(3) {
                    0 => drop(guard),
                    1 => {
                        for id in guard.permit_ids() {
                            assert!(semaphore.release(id).await?);
                        }
                        guard.forget();
                    }
                    _ => guard.release().await?,
                }
            }
            Ok::<_, Error>(())
        }));
    }
    for task in tasks {
        in_time(task).await.expect("no panic")?;
    }
    let all = in_time(a.permits(TOTAL).acquire()).await?;
    all.release().await?;
    counts(&b, TOTAL.into(), 0).await
}
