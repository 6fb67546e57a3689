//! Watches: the changes of locks, reported as they happen.

use std::collections::HashMap;
use std::time::Duration;

use distlock::{Change, Client, Error, Event, Lease, Watch};
use tokio::time::{Instant, timeout};

use crate::stage::{CaseResult, Family, PATIENCE, Player, Stage, begun, in_time, seen};
use crate::support::eventually;

with_every_lock! {
    a_watch_reports_current_holds_and_later_events,
    a_watch_distinguishes_an_expired_lease_from_a_release,
    a_force_release_is_reported,
    a_watch_with_cancelled_calls_misses_nothing,
    a_grant_is_reported_with_the_label_that_follows_it,
    a_dropped_watch_unsubscribes,
    ;
    a_hold_too_short_to_be_polled_is_reported,
    a_watch_reports_only_its_pattern_and_prefix,
    many_quick_holds_are_reported_once_each_and_in_order,
}

over_tls! {
    a_watch_reports_current_holds_and_later_events,
}

async fn a_watch_reports_current_holds_and_later_events(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let first = a.lock(&*name).acquire().await?;
    let beside = format!("beside {}", stage.name("stock"));
    let _other = b.lock(beside).acquire().await?;
    let mut watch = b.admin().watch(stage.name("*"));
    expect_event(&mut watch, &name, &first.owner(), Change::Held).await?;
    let old = first.owner();
    let waiting = begun(b.lock(&*name).acquire()).await;
    first.release().await?;
    let second = in_time(waiting).await?;
    expect_event(&mut watch, &name, &old, Change::Released).await?;
    expect_event(&mut watch, &name, &second.owner(), Change::Granted).await?;
    let new = second.owner();
    second.release().await?;
    expect_event(&mut watch, &name, &new, Change::Released).await
}

async fn a_watch_distinguishes_an_expired_lease_from_a_release(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let client = stage.client().await?;
    let name = stage.name("stock");
    let lease = Lease::Fixed(Duration::from_secs(6));
    let held = client.lock(&*name).with_lease(lease).acquire().await?;
    let mut watch = client.admin().watch(&*name);
    let owner = held.owner();
    held.forget();
    expect_event(&mut watch, &name, &owner, Change::Held).await?;
    let end = next(&mut watch).await?;
    assert_eq!((&*end.name, end.owner.as_deref()), (&*name, Some(&*owner)));
    // A watch tells an expired lease from a release by the time of its last scan, and the scans of a slow machine are far
    // apart.
    let is_right =
        end.change == Change::Expired || stage.is_real() && end.change == Change::Released;
    assert!(is_right, "{:?}", end.change);
    Ok(())
}

async fn a_hold_too_short_to_be_polled_is_reported(stage: &Stage<impl Family>) -> CaseResult {
    if !stage.tells_all() {
        return Ok(());
    }
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let mut watch = watching(stage, &b).await?;
    for _ in 0..5 {
        let held = a.lock(&*name).acquire().await?;
        let owner = held.owner();
        held.release().await?;
        expect_event(&mut watch, &name, &owner, Change::Granted).await?;
        expect_event(&mut watch, &name, &owner, Change::Released).await?;
    }
    nothing_more(&mut watch).await
}

async fn a_force_release_is_reported(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let held = a.lock(&*name).acquire().await?;
    let mut watch = b.admin().watch(&*name);
    expect_event(&mut watch, &name, &held.owner(), Change::Held).await?;
    assert!(b.admin().force_release(&name).await?);
    let what = if stage.tells_all() {
        Change::Forced
    } else {
        Change::Released
    };
    expect_event(&mut watch, &name, &held.owner(), what).await?;
    drop(held);
    nothing_more(&mut watch).await
}

async fn a_watch_reports_only_its_pattern_and_prefix(stage: &Stage<impl Family>) -> CaseResult {
    if !stage.tells_releases() {
        return Ok(());
    }
    let prefix = stage.name("app[1]/");
    let a = stage.client().await?;
    let b = stage.connect(stage.builder().key_prefix(&*prefix)).await?;
    let mut watch = watching_for(&b, "order:?", "order:0").await?;
    let mut others = Vec::new();
    for name in ["order:22", "stock", "{order:3}"] {
        others.push(a.lock(format!("{prefix}{name}")).acquire().await?);
    }
    // The same names without the prefix.
    for name in ["order:1", "order:22", "stock", "{order:4}"] {
        others.push(a.lock(stage.name(name)).acquire().await?);
    }
    for (lock, name) in [
        (a.lock(format!("{prefix}order:1")), "order:1"),
        (b.lock("order:\u{fc}"), "order:\u{fc}"),
    ] {
        let held = lock.acquire().await?;
        let owner = held.owner();
        expect_event(&mut watch, name, &owner, Change::Granted).await?;
        held.release().await?;
        expect_event(&mut watch, name, &owner, Change::Released).await?;
    }
    for other in others {
        other.release().await?;
    }
    let mut watch = watching_for(&b, "{order*", "{order:3}:0").await?;
    let held = b.lock("{order:3}:a").acquire().await?;
    expect_event(&mut watch, "{order:3}:a", &held.owner(), Change::Granted).await?;
    nothing_more(&mut watch).await
}

async fn many_quick_holds_are_reported_once_each_and_in_order(
    stage: &Stage<impl Family>,
) -> CaseResult {
    const TASKS: usize = 4;
    const CYCLES: usize = 60;
    if !stage.tells_all() {
        return Ok(());
    }
    let watcher = stage.client().await?;
    let mut watch = watching(stage, &watcher).await?;
    let mut tasks = Vec::new();
    for task in 0..TASKS {
        // Two names with two tasks each, every task with a client of its own; no lock is handed off in memory.
        let client = stage.connect(stage.builder().handoff_limit(0)).await?;
        let lock = client.lock(stage.name(["a", "b"][task % 2]));
        tasks.push(tokio::spawn(async move {
            for _ in 0..CYCLES {
                lock.acquire().await?.release().await?;
            }
            client.close().await
        }));
    }
    let mut events = Vec::new();
    let mut released = 0;
    while released < TASKS * CYCLES {
        let event = in_time(watch.next()).await?;
        released += usize::from(event.change == Change::Released);
        events.push(event);
    }
    for task in tasks {
        in_time(task).await.expect("no panic")?;
    }
    nothing_more(&mut watch).await?;
    check_order(&events);
    let granted = events.len() - released;
    assert_eq!(granted, TASKS * CYCLES);
    eprintln!("{released} holds, {granted} of them seen when they began");
    Ok(())
}

/// Checks the events of each lock: no grant before the last known holder has left, and no event twice.
fn check_order(events: &[Event]) {
    let mut holders: HashMap<&str, &str> = HashMap::new();
    let mut ended = Vec::new();
    for event in events {
        let owner = event.owner.as_deref().expect("it was seen");
        let told = (&*event.name, owner);
        assert!(!ended.contains(&told), "told after its end: {event:?}");
        match event.change {
            Change::Granted => {
                let before = holders.insert(&event.name, owner);
                assert_eq!(before, None, "{event:?}");
            }
            Change::Released => {
                assert_eq!(holders.remove(&*event.name), Some(owner), "{event:?}");
                ended.push(told);
            }
            other => panic!("nobody did that: {other:?}"),
        }
    }
}

async fn a_watch_with_cancelled_calls_misses_nothing(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let mut watch = b.admin().watch(stage.name("*"));
    let first = a.lock(&*name).acquire().await?;
    let mut told = Vec::new();
    let mut impatient = async |watch: &mut Watch, wanted: usize| -> CaseResult {
        let begun = Instant::now();
        while told.len() < wanted {
            // Drops the future at every possible await.
            if let Ok(event) = timeout(Duration::from_micros(200), watch.next()).await {
                told.push(event?.change);
            }
            assert!(begun.elapsed() < PATIENCE, "{told:?}");
        }
        Ok(())
    };
    impatient(&mut watch, 1).await?;
    first.release().await?;
    impatient(&mut watch, 2).await?;
    let second = a.lock(&*name).acquire().await?;
    impatient(&mut watch, 3).await?;
    second.release().await?;
    impatient(&mut watch, 4).await?;
    assert!(matches!(told[0], Change::Held | Change::Granted));
    let then = [Change::Released, Change::Granted, Change::Released];
    assert_eq!(told[1..], then);
    Ok(())
}

async fn a_grant_is_reported_with_the_label_that_follows_it(
    stage: &Stage<impl Family>,
) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let mut watch = watching(stage, &b).await?;
    let held = a.lock(stage.name("stock")).acquire().await?;
    a.set_label("billing-7");
    let granted = in_time(watch.next()).await?;
    assert_eq!(granted.change, Change::Granted);
    if granted.label.is_none() {
        // On a busy machine the label came later than a watch waits for it, but before the next scan or the end.
        eventually(PATIENCE, "the label is seen", async || {
            let seen = seen(&b, &stage.name("stock")).await;
            seen.is_ok_and(|lock| lock.holders[0].label.is_some())
        })
        .await;
        nothing_more(&mut watch).await?;
    }
    held.release().await?;
    let released = in_time(watch.next()).await?;
    let label = released.label.as_deref();
    assert_eq!(
        (released.change, label),
        (Change::Released, Some("billing-7"))
    );
    Ok(())
}

async fn a_dropped_watch_unsubscribes(stage: &Stage<impl Family>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let watch = watching(stage, &b).await?;
    if let Some(patterns) = stage.patterns(&name) {
        assert_eq!(patterns, 1, "it listens");
    }
    drop(watch);
    eventually(PATIENCE, "nobody listens", async || {
        stage.patterns(&name).unwrap_or(0) == 0
    })
    .await;
    hold_for_a_moment(&a, &name).await
}

/// Returns a watch of all of the stage's locks that has begun.
async fn watching(stage: &Stage<impl Family>, by: &Client) -> Result<Watch, Error> {
    watching_for(by, &stage.name("*"), &stage.name("a mark")).await
}

/// Returns a watch of this pattern, which matches the name of the mark.
async fn watching_for(by: &Client, pattern: &str, mark: &str) -> Result<Watch, Error> {
    // The watch does not report the end of this long lease.
    let lease = Lease::Fixed(Duration::from_secs(600));
    let mark = by.lock(mark).with_lease(lease).acquire().await?;
    let mut watch = by.admin().watch(pattern);
    expect_event(&mut watch, mark.name(), &mark.owner(), Change::Held).await?;
    mark.forget();
    Ok(watch)
}

async fn hold_for_a_moment(client: &Player<impl Family>, name: &str) -> CaseResult {
    client.lock(name).acquire().await?.release().await
}

/// Checks that a watch reports no event for as long as a scan or two take.
async fn nothing_more(watch: &mut Watch) -> CaseResult {
    match timeout(Duration::from_millis(1300), watch.next()).await {
        Ok(event) => panic!("{:?}", event?),
        Err(_) => Ok(()),
    }
}

/// Returns the next event of a watch, which comes soon.
async fn next(watch: &mut Watch) -> Result<Event, Error> {
    // If the store reports releases only, a watch pauses for nine times as long as its last scan has taken.
    let event = timeout(3 * PATIENCE, watch.next()).await;
    event.expect("it is told")
}

async fn expect_event(watch: &mut Watch, name: &str, owner: &str, what: Change) -> CaseResult {
    let event = next(watch).await?;
    let told = (&*event.name, event.owner.as_deref(), event.change);
    assert_eq!(told, (name, Some(owner), what));
    Ok(())
}
