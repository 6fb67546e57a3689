//! Owners of every form that Redisson writes are owners to distlock: threads with any number, and transactions.

use std::collections::BTreeMap;
use std::time::Duration;

use super::read_write::{self, both, is_held};
use super::{LONG, exclusion, names, reentry};
use crate::failure::{Failure, Outcome, ensure};
use crate::party::{End, JavaThread, Kind, Party, Term, transaction_lock};
use crate::stage::Stage;
use crate::world::rw_channel;

/// The thread ids that an asynchronous call may have: of no real thread, and the longest numbers.
const THREAD_IDS: [i64; 4] = [-5, 0, i64::MIN, i64::MAX];

/// A lock that Java acquires by its asynchronous calls is read, waited for, handed over and forced like any other.
pub(super) async fn thread_ids(stage: &mut Stage) -> Outcome<String> {
    let name = "thread-ids";
    for id in THREAD_IDS {
        stage.java_acts_as(id).await?;
        let met = names::meets(stage, name, name).await;
        met.map_err(|failure| failure.during(format_args!("thread {id}")))?;
    }
    for id in THREAD_IDS {
        stage.java_acts_as(id).await?;
        let played = excludes_and_is_forced(stage, name).await;
        played.map_err(|failure| failure.during(format_args!("thread {id}")))?;
    }
    Ok(format!("{} ids", THREAD_IDS.len()))
}

async fn excludes_and_is_forced(stage: &mut Stage, name: &str) -> Outcome {
    exclusion::play(stage).await?;
    reentry::counts(stage).await?;
    let Stage { holder, other, .. } = stage;
    holder.lock(name, Term::Fixed(LONG)).await?;
    ensure!(other.force_unlock(name).await?, "the lock was not forced");
    other.finds_lock_free(name).await?;
    // Redisson's result of unlocking a fair lock that is free already is part of another scenario.
    drop(holder.unlock(name).await?);
    Ok(())
}

/// A read/write lock that Java acquires by its asynchronous calls behaves like any other: the owner of a writer ends with `:write`.
pub(super) async fn rw_thread_ids(stage: &mut Stage) -> Outcome<String> {
    let name = "rw-thread-ids";
    for id in THREAD_IDS {
        stage.java_acts_as(id).await?;
        let played = rw_meets(stage, name).await;
        played.map_err(|failure| failure.during(format_args!("thread {id}")))?;
    }
    Ok(format!("{} ids", THREAD_IDS.len()))
}

async fn rw_meets(stage: &Stage, name: &str) -> Outcome {
    read_write::meets(stage, name, name).await?;
    let (mut holder, mut other) = both(stage);
    let world = &stage.world;
    for kind in [Kind::Read, Kind::Write] {
        let (mode, suffix) = match kind {
            Kind::Read => ("read", ""),
            _ => ("write", ":write"),
        };
        let holds = holder.side(kind);
        holds.lock(name, Term::Fixed(LONG)).await?;
        let owner = holds.owner(name)?;
        is_held(world, name, mode, &[(format!("{owner}{suffix}"), 1)])?;
        if let Party::Ours(task) = &other.write {
            let seen = task.holders(name).await?;
            let expected = BTreeMap::from([(owner, 1)]);
            ensure!(seen == expected, "we see {seen:?}, not {expected:?}");
        }
        other.write.is_excluded(name).await?;
        if holder.is_java() {
            let forced = other.write.force_unlock(name).await?;
            ensure!(forced, "the {mode} lock was not forced");
            other.write.finds_lock_free(name).await?;
            // Redisson's report of a lost lock is part of another scenario.
            drop(holder.side(kind).unlock(name).await?);
        } else {
            // Redisson would leave the key of our reader to its lease (`rw-force`).
            holder.side(kind).unlock(name).await?.done()?;
            other.write.finds_lock_free(name).await?;
        }
    }
    Ok(())
}

/// The objects that a transaction changes are locked by an owner that ends with the transaction's id. It keeps our side out and wakes it,
/// and the other way round.
pub(super) async fn transaction(stage: &mut Stage) -> Outcome<String> {
    for (bucket, end) in [("committed", End::Commit), ("rolled-back", End::Rollback)] {
        let name = &*transaction_lock(bucket);
        let Stage {
            holder,
            other,
            world,
            ..
        } = &mut *stage;
        match (holder, other) {
            (Party::Java(java), ours) => {
                java.set_in_transaction(bucket, "changed").await?;
                is_in_transaction(java, ours, name).await?;
                for kind in [Kind::Plain, Kind::Fair, Kind::Fenced] {
                    ours.side(kind).is_excluded(name).await?;
                }
                let end = async {
                    world.asleep(name).await?;
                    java.end_transaction(end).await
                };
                let (waited, ended) = tokio::try_join!(ours.lock(name, Term::Kept), end)?;
                ensure!(waited.to > ended.from, "we had it before the end");
                ours.unlock(name).await?.done()?;
            }
            (ours, Party::Java(java)) => {
                ours.lock(name, Term::Fixed(LONG)).await?;
                let unlock = async {
                    world.asleep(name).await?;
                    ours.unlock(name).await?.done()
                };
                let set = java.set_in_transaction(bucket, "changed");
                let (waited, freed) = tokio::try_join!(set, unlock)?;
                ensure!(waited.to > freed.from, "it changed what we had locked");
                is_in_transaction(java, ours, name).await?;
                java.end_transaction(end).await?;
                ours.finds_lock_free(name).await?;
            }
            _ => return Err(Failure::new("one of the two is Java")),
        }
        let set: u64 = world.server().query(&["DEL", bucket]);
        let committed = matches!(end, End::Commit);
        ensure!(set == u64::from(committed), "{end:?}: {set} buckets");
    }
    stage.world.is_clean().await?;
    forced(stage).await
}

/// Checks that the lock is held once, by this thread's transaction.
async fn is_in_transaction(java: &JavaThread, ours: &Party, name: &str) -> Outcome {
    let seen = ours.holders(name).await?;
    let owners: Vec<_> = seen.iter().collect();
    let [(owner, 1)] = owners[..] else {
        return Err(Failure::new(format!("we see {seen:?}")));
    };
    let id = owner.strip_prefix(&format!("{}:", java.owner()));
    let is_id = |id: &str| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    ensure!(id.is_some_and(is_id), "the owner is {owner}");
    let ttl = ours.ttl(name).await?;
    ensure!(
        ttl > Some(Duration::from_secs(30)),
        "we see a lease of {ttl:?}"
    );
    Ok(())
}

/// An operator of ours releases the lock of a transaction by force.
async fn forced(stage: &mut Stage) -> Outcome<String> {
    let name = &*transaction_lock("forced");
    let (Party::Java(java), ours) = (&stage.holder, &mut stage.other) else {
        return Ok(String::new());
    };
    java.set_in_transaction("forced", "changed").await?;
    ensure!(ours.force_unlock(name).await?, "the lock was not forced");
    ours.finds_lock_free(name).await?;
    Ok(String::new())
}

/// A map that a transaction deletes is locked by a writer whose owner ends with `:write` and the transaction's id.
pub(super) async fn rw_transaction(stage: &mut Stage) -> Outcome<String> {
    let name = &*transaction_lock("map");
    let (mut holder, mut other) = both(stage);
    let world = &stage.world;
    if let (Party::Java(java), ours) = (&stage.holder, &mut other) {
        java.delete_map_in_transaction("map").await?;
        is_written_in_transaction(stage, java, name)?;
        let seen = ours.write.holders(name).await?;
        ensure!(seen.len() == 1, "we see {seen:?}");
        ours.read.is_excluded(name).await?;
        ours.write.is_excluded(name).await?;
        let end = async {
            world.asleep_on(&rw_channel(name)).await?;
            java.end_transaction(End::Commit).await
        };
        let (waited, ended) = tokio::try_join!(ours.read.lock(name, Term::Kept), end)?;
        ensure!(waited.to > ended.from, "we read before the end");
        ours.read.unlock(name).await?.done()?;
        world.is_clean().await?;
        java.delete_map_in_transaction("map").await?;
        let forced = ours.write.force_unlock(name).await?;
        ensure!(forced, "the lock was not forced");
        ours.write.finds_lock_free(name).await?;
    } else if let (ours, Party::Java(java)) = (&mut holder, &stage.other) {
        ours.read.lock(name, Term::Fixed(LONG)).await?;
        let unlock = async {
            world.asleep_on(&rw_channel(name)).await?;
            ours.read.unlock(name).await?.done()
        };
        let (waited, freed) = tokio::try_join!(java.delete_map_in_transaction("map"), unlock)?;
        ensure!(waited.to > freed.from, "it wrote while we read");
        is_written_in_transaction(stage, java, name)?;
        ours.read.is_excluded(name).await?;
        java.end_transaction(End::Rollback).await?;
        ours.write.finds_lock_free(name).await?;
        world.is_clean().await?;
    } else {
        return Err(Failure::new("one of the two is Java"));
    }
    Ok(String::new())
}

/// Checks that the hash has one writer, this thread's transaction.
fn is_written_in_transaction(stage: &Stage, java: &JavaThread, name: &str) -> Outcome {
    let fields: BTreeMap<String, String> = stage.world.server().query(&["HGETALL", name]);
    let writer = format!("{}:write:", java.owner());
    let writers = fields.keys().filter(|field| field.starts_with(&writer));
    ensure!(
        fields.len() == 2 && writers.count() == 1,
        "the lock is {fields:?}"
    );
    Ok(())
}
