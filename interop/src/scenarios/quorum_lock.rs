//! One lock on a majority of several servers: `RedissonRedLock`, redsync with several pools, redlock with several clients.

mod ends;

use std::time::Duration;

pub(super) use self::ends::{dead_holder, is_kept};
use super::BRIEF;
use crate::failure::{Outcome, ensure};
use crate::library::Shared;
use crate::quorum::{OurVoter, Side, Stage, UnavailableServer};
use crate::simple::Lease;
use crate::support::RedisServer;
use crate::world::until;

/// While one side holds it, every server has it in the format that both know, and the other does not acquire it.
pub(super) async fn excludes(stage: &mut Stage) -> Outcome<String> {
    let Stage {
        holder,
        other,
        world,
        shared,
        terms,
        ..
    } = stage;
    let servers = world.servers().first(terms.servers);
    let name = "quorum-exclude";
    for lease in holder.leases(terms.lease) {
        holder.lock(name, lease).await?;
        looks_like(*shared, servers, name, lease)?;
        other.is_excluded(name, terms.lease).await?;
        other.is_kept_out_for(name, BRIEF, terms.lease).await?;
        looks_like(*shared, servers, name, lease)?;

        holder.unlock(name).await?.done()?;
        let lease = other.lease(terms.lease);
        other.lock(name, lease).await?;
        looks_like(*shared, servers, name, lease)?;
        holder.is_excluded(name, terms.lease).await?;
        other.unlock(name).await?.done()?;
        holder.finds_lock_free(name, terms.lease).await?;
    }
    Ok(String::new())
}

/// Checks that the lock is on a majority of servers, one hash or one string on each, and expires by itself. On a server where it is just
/// being released, it may be missing.
fn looks_like(shared: Shared, servers: &[RedisServer], name: &str, lease: Lease) -> Outcome {
    let kind = match shared {
        Shared::SimpleQuorum => "string",
        _ => "hash",
    };
    let each: Vec<(String, i64)> = servers
        .iter()
        .map(|server| (server.query(&["TYPE", name]), server.pttl(name)))
        .collect();
    let time = i64::try_from(lease.time().as_millis())?;
    let good = |least: i64| {
        let good = |(found, left): &&(String, i64)| found == kind && (least..=time).contains(left);
        each.iter().filter(good).count() > servers.len() / 2
    };
    ensure!(
        good(0),
        "not a {kind} with {time} ms or less on most servers: {each:?}"
    );
    ensure!(good(time / 4), "nearly over on most servers: {each:?}");
    Ok(())
}

/// Another client holds one server of three, and then two.
pub(super) async fn needs_most(stage: &mut Stage) -> Outcome<String> {
    let Stage {
        holder,
        other,
        world,
        shared,
        terms,
        ..
    } = stage;
    let servers = world.servers().first(terms.servers);
    let name = "quorum-majority";
    let mut strangers = Vec::new();
    for server in &servers[..2] {
        strangers.push(OurVoter::connect([server.url()], *shared).await?);
    }
    strangers[0].lock(name, Lease::Kept(terms.lease)).await?;
    let taken = holder.lock(name, holder.lease(terms.lease)).await?.took();
    if let Side::Ours(voter) = holder {
        let votes = voter.votes(name);
        ensure!(votes == 2, "we have {votes} votes of the other two");
    }
    other.is_excluded(name, terms.lease).await?;
    holder.unlock(name).await?.done()?;
    other.finds_lock_free(name, terms.lease).await?;

    strangers[1].lock(name, Lease::Kept(terms.lease)).await?;
    for side in [holder, other] {
        side.is_excluded(name, terms.lease).await?;
        side.is_kept_out_for(name, BRIEF, terms.lease).await?;
        let who = side.title();
        until(&format!("what {who} had of too few is given back"), || {
            servers[2].pttl(name) == -2
        })
        .await?;
    }
    for stranger in &mut strangers {
        ensure!(stranger.votes(name) == 1, "a stranger has lost its own");
        stranger.unlock(name).await?.done()?;
        stranger.close().await?;
    }
    let Stage { holder, other, .. } = stage;
    holder.finds_lock_free(name, stage.terms.lease).await?;
    other.finds_lock_free(name, stage.terms.lease).await?;
    Ok(format!("two of three in {} ms", taken.as_millis()))
}

/// A waiter retries or is notified, and has the lock soon after it is released.
pub(super) async fn hands_over(stage: &mut Stage) -> Outcome<String> {
    let Stage {
        holder,
        other,
        world,
        terms,
        ..
    } = stage;
    let servers = world.servers().first(terms.servers);
    let name = "quorum-handover";
    let rounds = world.pace.rounds(3);
    let mut longest = Duration::ZERO;
    for _ in 0..rounds {
        holder.lock(name, holder.lease(terms.lease)).await?;
        let unlock = async {
            asks(servers).await?;
            holder.unlock(name).await?.done()
        };
        let lease = other.lease(terms.lease);
        let (waited, freed) = tokio::try_join!(other.lock(name, lease), unlock)?;
        ensure!(waited.to > freed.from, "it had the lock before");
        longest = longest.max(waited.to.since(freed.from));
        other.unlock(name).await?.done()?;
    }
    Ok(format!(
        "longest {:.0} ms of {rounds}",
        longest.as_secs_f64() * 1e3
    ))
}

/// Waits until a client has requested the lock from these servers, and has been told that it is held.
async fn asks(servers: &[RedisServer]) -> Outcome {
    let questions = || -> u64 {
        let ways = ["set", "eval", "evalsha"];
        let each = servers.iter();
        each.map(|server| ways.map(|way| server.commandstats(way)).iter().sum::<u64>())
            .sum()
    };
    let asked = questions();
    until("the other has asked", || questions() >= asked + 2).await?;
    // No event shows when the reply arrives. Somewhat earlier or later, the waiter passes or fails alike.
    tokio::time::sleep(Duration::from_millis(150)).await;
    Ok(())
}

/// One of five servers is killed, and one hangs, while the lock is held. It is released and acquired by the other side, all with three.
pub(super) async fn two_away(stage: &mut Stage) -> Outcome<String> {
    let Stage {
        holder,
        other,
        world,
        terms,
        ..
    } = stage;
    let servers = world.servers().first(terms.servers);
    let (name, lease) = ("quorum-away", Lease::Kept(terms.lease));
    holder.lock(name, lease).await?;
    let have_it = |servers: &[RedisServer]| servers.iter().all(|server| server.pttl(name) > 0);
    until("all have it", || have_it(servers)).await?;

    let away = [
        UnavailableServer::kill(&servers[3]),
        UnavailableServer::hang(&servers[4]),
    ];
    other.is_excluded(name, terms.lease).await?;
    other.is_kept_out_for(name, BRIEF, terms.lease).await?;
    ensure!(have_it(&servers[..3]), "the three that are left forgot it");
    holder.unlock(name).await?.done()?;

    let mut longest = Duration::ZERO;
    let (mut one, mut two) = (other, holder);
    // In a quick run each side acquires it once, as the other side.
    for _ in 0..world.pace.rounds(2) {
        let (granted, span) = one.try_lock(name, FEW_TRIES, lease).await?;
        let (who, took) = (one.title(), span.took());
        ensure!(granted, "{who} did not get it from three of five: {took:?}");
        longest = longest.max(took);
        two.is_excluded(name, terms.lease).await?;
        one.unlock(name).await?.done()?;
        until("it is given back", || {
            servers[..3].iter().all(|server| server.pttl(name) == -2)
        })
        .await?;
        std::mem::swap(&mut one, &mut two);
    }
    drop(away);
    Ok(format!(
        "longest {:.0} ms with three of five",
        longest.as_secs_f64() * 1e3
    ))
}

/// The wait limit for clients that notice only by their retries that a server is gone.
const FEW_TRIES: Duration = Duration::from_secs(60);
