//! Several locks at once: ours are the plain locks of Redisson's `getMultiLock(a, b)`.

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tokio::process::Command;

use super::deaths::{Death, HolderProcess};
use super::{BRIEF, LONG, ROUNDING, Wakes};
use crate::clock::{Span, Stamp};
use crate::failure::{Outcome, ensure};
use crate::party::{Kind, Party, Term};
use crate::stage::{Stage, java_thread};
use crate::world::until;

/// A holder of two locks keeps the other side from each of them, from both and from one of them with a third; not from the third.
pub(super) async fn excludes(stage: &mut Stage) -> Outcome<String> {
    let Stage {
        holder,
        other,
        world,
        ..
    } = stage;
    let mut one = other.side(Kind::Plain);
    for term in [Term::Kept, Term::Fixed(LONG)] {
        holder.lock("multi-a+multi-b", term).await?;
        for several in ["multi-a+multi-b", "multi-b+multi-a", "multi-b+multi-c"] {
            other.is_excluded(several).await?;
            let (granted, _) = other.try_lock(several, BRIEF, Term::Kept).await?;
            ensure!(!granted, "it got `{several}` by waiting for {BRIEF:?}");
        }
        for single in ["multi-a", "multi-b"] {
            one.is_excluded(single).await?;
            let left = world.left(single)?;
            // The kept term has a shorter lease.
            ensure!(left > A_WHILE, "`{single}` is held for {left:?} only");
        }
        one.finds_lock_free("multi-c").await?;
        holder.unlock("multi-a+multi-b").await?.done()?;
        other.finds_lock_free("multi-b+multi-c").await?;
        other.finds_lock_free("multi-b+multi-a").await?;
        // One of them is enough to keep the other side out of all, and the locks it has acquired of the rest are released.
        one.lock("multi-b", term).await?;
        holder.is_excluded("multi-a+multi-b").await?;
        one.finds_lock_free("multi-a").await?;
        one.unlock("multi-b").await?.done()?;
        holder.finds_lock_free("multi-a+multi-b").await?;
    }
    Ok(String::new())
}

/// A waiter for one of them, alone or with a third, acquires it soon after all are released.
pub(super) async fn wakes(stage: &mut Stage) -> Outcome<String> {
    let rounds = stage.world.pace.rounds(6);
    let (mut several, mut single) = (Wakes::default(), Wakes::default());
    while several.another(rounds)? || single.another(rounds)? {
        several.add(one_wake(stage, Kind::Multi, "multi-b+multi-c").await?);
        single.add(one_wake(stage, Kind::Plain, "multi-b").await?);
    }
    Ok(format!("{}, of one: {}", several.remark(), single.remark()))
}

async fn one_wake(stage: &mut Stage, kind: Kind, wanted: &str) -> Outcome<Duration> {
    let Stage {
        holder,
        other,
        world,
        ..
    } = stage;
    let mut waiter = other.side(kind);
    holder.lock("multi-a+multi-b", Term::Fixed(LONG)).await?;
    let unlock = async {
        world.asleep("multi-b").await?;
        holder.unlock("multi-a+multi-b").await?.done()
    };
    let (waited, freed) = tokio::try_join!(waiter.lock(wanted, Term::Kept), unlock)?;
    ensure!(waited.to > freed.from, "it had it before it was unlocked");
    waiter.unlock(wanted).await?.done()?;
    Ok(waited.to.since(freed.from))
}

/// With a lease, all of them expire together, and the other side acquires them then.
pub(super) async fn expires(stage: &mut Stage) -> Outcome<String> {
    let Stage { holder, other, .. } = stage;
    let lease = Duration::from_secs(2);
    let span = holder.lock("multi-a+multi-b", Term::Fixed(lease)).await?;
    let waited = other.lock("multi-b+multi-a", Term::Kept).await?;
    let after = is_over(holder, lease, span, waited)?;
    holder.unlock("multi-a+multi-b").await?.refused()?;
    other.unlock("multi-b+multi-a").await?.done()?;
    other.finds_lock_free("multi-a+multi-b").await?;
    Ok(format!("a lease of {lease:?}: {} ms", after.as_millis()))
}

fn is_over(holder: &Party, lease: Duration, held: Span, waited: Span) -> Outcome<Duration> {
    let after = waited.to.since(held.from);
    ensure!(
        after + ROUNDING + holder.gives_up_early(lease) >= lease,
        "free {after:?} after a lease of {lease:?} began"
    );
    Ok(after)
}

/// A process that holds all is killed, and then one that holds the first and waits for the second.
pub(super) async fn dead(stage: &mut Stage) -> Outcome<String> {
    let all = {
        let mortal =
            HolderProcess::lock(stage, stage.terms, Death::Kill, "multi-a+multi-b").await?;
        let Stage { other, world, .. } = &mut *stage;
        let kill = async {
            world.asleep("multi-a").await?;
            mortal.die("multi-a+multi-b").await
        };
        let (waited, died) = tokio::try_join!(other.lock("multi-a+multi-b", Term::Kept), kill)?;
        ensure!(waited.to > died, "the other had it while the holder lived");
        other.unlock("multi-a+multi-b").await?.done()?;
        waited.to.since(died)
    };
    let half = half_dead(stage).await?;
    Ok(format!(
        "all: free after {} ms, half: {} ms",
        all.as_millis(),
        half.as_millis()
    ))
}

/// Returns how long after the death the held half is free.
async fn half_dead(stage: &mut Stage) -> Outcome<Duration> {
    let Stage {
        holder,
        other,
        world,
        build,
        terms,
    } = stage;
    let mut one = other.side(Kind::Plain);
    one.lock("multi-b", Term::Fixed(LONG)).await?;
    let died = if matches!(holder, Party::Java(_)) {
        let jvm = world.fresh_peer(build).await?;
        let thread = java_thread(world, &jvm, *terms).await?;
        let waiting = tokio::spawn(async move { thread.lock("multi-a+multi-b", Term::Kept).await });
        until("it holds the first", || world.server().pttl("multi-a") > 0).await?;
        one.is_excluded("multi-a").await?;
        let died = jvm.kill_hard().await?;
        ensure!(waiting.await?.is_err(), "a dead one got them");
        died
    } else {
        let lease = terms.watchdog.as_millis().to_string();
        let mut child = Command::new(std::env::current_exe()?)
            .args([
                "hold",
                &world.server().url(),
                "multi",
                "multi-a+multi-b",
                &lease,
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        until("it holds the first", || world.server().pttl("multi-a") > 0).await?;
        one.is_excluded("multi-a").await?;
        let died = Stamp::now();
        child.start_kill()?;
        child.wait().await?;
        died
    };
    let waited = one.lock("multi-a", Term::Kept).await?;
    one.unlock("multi-a").await?.done()?;
    one.unlock("multi-b").await?.done()?;
    Ok(waited.to.since(died))
}

/// Both sides acquire the same two locks again and again, named in opposite orders: each makes progress. Our client acquires them in an
/// order of its own, Java as they are named. Where that is the opposite, each may hold one and wait for the other until it gives up, three
/// seconds later.
pub(super) async fn opposite_orders(stage: &mut Stage) -> Outcome<String> {
    let Stage { holder, other, .. } = stage;
    let inside = AtomicBool::new(false);
    let turns = [AtomicU32::new(0), AtomicU32::new(0)];
    let (one, two) = tokio::try_join!(
        take_turns(holder, "multi-a+multi-b", &turns, 0, &inside),
        take_turns(other, "multi-b+multi-a", &turns, 1, &inside)
    )?;
    let [ours, theirs] = turns.map(AtomicU32::into_inner);
    Ok(format!(
        "{ours} turns and {theirs}, the longest waits {:.1} s and {:.1} s",
        one.as_secs_f64(),
        two.as_secs_f64()
    ))
}

/// Plays until both sides have had their turns. Returns the longest wait.
async fn take_turns(
    party: &mut Party,
    names: &str,
    turns: &[AtomicU32; 2],
    mine: usize,
    inside: &AtomicBool,
) -> Outcome<Duration> {
    let mut longest = Duration::ZERO;
    while turns
        .iter()
        .any(|turns| turns.load(Ordering::SeqCst) < ENOUGH)
    {
        let span = party.lock(names, Term::Kept).await?;
        let alone = !inside.swap(true, Ordering::SeqCst);
        ensure!(alone, "two held the same locks");
        tokio::time::sleep(Duration::from_millis(2)).await;
        inside.store(false, Ordering::SeqCst);
        party.unlock(names).await?.done()?;
        turns[mine].fetch_add(1, Ordering::SeqCst);
        longest = longest.max(span.took());
        // A pause for the other side's turn.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(longest)
}

const A_WHILE: Duration = Duration::from_secs(5);
/// The number of turns of each side.
const ENOUGH: u32 = 5;
