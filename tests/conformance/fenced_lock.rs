//! The properties of the fenced lock beyond those of every lock: tokens.

use std::time::Duration;

use distlock::{Client, FencingToken, Held, Lease, LockKind};
use tokio::time::sleep;

use crate::stage::{CaseResult, Fenced, Stage, begun, in_time, seen};

on_every_engine! { play with Fenced:
    every_grant_has_a_greater_token_than_all_before,
    a_waiter_gets_a_greater_token_than_the_holder_before,
    many_waiters_get_increasing_tokens,
    an_owner_that_re_enters_keeps_its_token,
    a_token_grows_after_a_lock_was_lost,
    the_work_receives_its_token,
    a_lookup_shows_the_token_and_the_kind,
    a_plain_lock_of_the_same_name_excludes_a_fenced_one_and_has_no_token,
    tokens_are_greater_than_a_clock_of_2025,
}

async fn every_grant_has_a_greater_token_than_all_before(stage: &Stage<Fenced>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let mut last = FencingToken::new(0);
    for _ in 0..5 {
        for client in [&a, &b] {
            let guard = client.lock(&*name).acquire().await?;
            grows(&mut last, guard.token());
            guard.release().await?;
            let guard = client.lock(&*name).try_acquire().await?;
            let guard = guard.expect("it is free");
            grows(&mut last, guard.token());
            guard.release().await?;
        }
    }
    Ok(())
}

async fn a_waiter_gets_a_greater_token_than_the_holder_before(stage: &Stage<Fenced>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    for waiter in [&a, &b] {
        let held = a.lock(&*name).acquire().await?;
        let waiting = begun(waiter.lock(&*name).acquire()).await;
        let token = held.token();
        held.release().await?;
        let next = in_time(waiting).await?;
        assert!(next.token() > token, "{} after {token}", next.token());
        next.release().await?;
    }
    Ok(())
}

/// The waiters belong to one client, and the store may release the lock and grant it to the next one in one request.
async fn many_waiters_get_increasing_tokens(stage: &Stage<Fenced>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let first = a.lock(&*name).acquire().await?;
    let mut last = first.token();
    let mut waiting = Vec::new();
    for number in 0..12 {
        let client = if number % 4 == 3 { &b } else { &a };
        waiting.push(begun(client.lock(&*name).acquire()).await);
    }
    first.release().await?;
    let (tokens, mut granted) = tokio::sync::mpsc::unbounded_channel();
    let turns = waiting.into_iter().map(|acquiring| {
        let tokens = tokens.clone();
        tokio::spawn(async move {
            let guard = acquiring.await?;
            // Send the token before the release, so that tokens arrive in the order of the grants.
            let _ = tokens.send(guard.token());
            guard.release().await
        })
    });
    for turn in turns.collect::<Vec<_>>() {
        in_time(turn).await.expect("it does not panic")?;
    }
    drop(tokens);
    let mut count = 0;
    while let Some(token) = granted.recv().await {
        grows(&mut last, token);
        count += 1;
    }
    assert_eq!(count, 12);
    Ok(())
}

async fn an_owner_that_re_enters_keeps_its_token(stage: &Stage<Fenced>) -> CaseResult {
    let client = stage.client().await?;
    let name = stage.name("stock");
    let lock = client.one_owners(&name);
    let outer = lock.acquire().await?;
    let inner = lock.acquire().await?;
    assert_eq!(inner.token(), outer.token());
    assert_eq!(seen(&client, &name).await?.token, Some(outer.token()));
    let token = outer.token();
    outer.release().await?;
    assert_eq!(inner.token(), token);
    inner.release().await?;
    let next = lock.acquire().await?;
    assert!(next.token() > token);
    next.release().await
}

async fn a_token_grows_after_a_lock_was_lost(stage: &Stage<Fenced>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let short = Lease::Fixed(Duration::from_millis(1500));
    let expired = a.lock(&*name).with_lease(short).acquire().await?;
    sleep(Duration::from_millis(1600)).await;
    let forced = in_time(b.lock(&*name).acquire()).await?;
    assert!(forced.token() > expired.token());
    assert!(a.admin().force_release(&name).await?);
    let next = in_time(a.lock(&*name).acquire()).await?;
    assert!(next.token() > forced.token());
    next.release().await
}

async fn the_work_receives_its_token(stage: &Stage<Fenced>) -> CaseResult {
    let client = stage.client().await?;
    let lock = client.lock(stage.name("stock"));
    let before = lock.acquire().await?;
    let token = before.token();
    before.release().await?;
    let work = async |held: Held<distlock::Fenced>| held.token();
    let during = lock.run(work).await?;
    assert!(during > token);
    Ok(())
}

async fn a_lookup_shows_the_token_and_the_kind(stage: &Stage<Fenced>) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let guard = a.lock(&*name).acquire().await?;
    let shown = seen(&b, &name).await?;
    assert_eq!(shown.kind, LockKind::Fenced);
    assert_eq!(shown.token, Some(guard.token()));
    let listed = b.admin().list(&name).await?;
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].kind, listed[0].token), (shown.kind, shown.token));
    guard.release().await?;

    let plain = stage.name("plain");
    let guard = (*a).lock(&*plain).acquire().await?;
    let shown = seen(&b, &plain).await?;
    assert_eq!((shown.kind, shown.token), (LockKind::Plain, None));
    guard.release().await
}

async fn a_plain_lock_of_the_same_name_excludes_a_fenced_one_and_has_no_token(
    stage: &Stage<Fenced>,
) -> CaseResult {
    let (a, b) = stage.clients().await?;
    let name = stage.name("stock");
    let plain = (*a).lock(&*name).acquire().await?;
    assert!(b.lock(&*name).try_acquire().await?.is_none());
    let waiting = begun(b.lock(&*name).acquire()).await;
    plain.release().await?;
    let fenced = in_time(waiting).await?;
    assert!((*a).lock(&*name).try_acquire().await?.is_none());
    // A forced release ends the hold of either kind.
    assert!(a.admin().force_release(&name).await?);
    in_time(fenced.lost()).await.expect("it was taken");
    Ok(())
}

/// A store that has forgotten its tokens, or a new store in its place, never grants an old token again.
async fn tokens_are_greater_than_a_clock_of_2025(stage: &Stage<Fenced>) -> CaseResult {
    let client = stage.client().await?;
    let guard = client.lock(stage.name("stock")).acquire().await?;
    // 2025, in microseconds.
    assert!(guard.token() > FencingToken::new(1_735_689_600_000_000));
    // A token fits into the integers of a database.
    assert!(i64::from(guard.token()) > 0 && guard.token().to_string().len() == 16);
    guard.release().await
}

/// A store in memory loses its tokens when it ends.
#[tokio::test]
async fn a_new_memory_store_continues_tokens_from_the_clock() -> CaseResult {
    let mut last = FencingToken::new(0);
    for _ in 0..5 {
        let client = Client::connect("memory:").await?;
        let guard = client.fenced_lock("stock").acquire().await?;
        grows(&mut last, guard.token());
        guard.release().await?;
        client.close().await?;
    }
    Ok(())
}

/// Checks that a token is greater than `last`, and remembers it.
#[track_caller]
fn grows(last: &mut FencingToken, token: FencingToken) {
    assert!(token > *last, "{token} after {last}");
    *last = token;
}
