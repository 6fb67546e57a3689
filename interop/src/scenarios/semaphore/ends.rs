//! The ends of a permit: released by its id, by the end of its lease, or with its holder.

use std::time::Duration;

use super::{agree, is_refused, settle};
use crate::clock::Stamp;
use crate::failure::{Outcome, ensure};
use crate::party::{Party, Term};
use crate::scenarios::deaths::{Death, HolderProcess};
use crate::scenarios::{LONG, ROUNDING};
use crate::stage::Stage;
use crate::world::{permits_out, semaphore_channel};

/// Each side acquires a permit, and the other releases it.
pub(crate) async fn by_id(stage: &mut Stage) -> Outcome<String> {
    let name = "sem-return";
    stage.holder.try_set_permits(name, 2).await?;
    for term in [Term::Kept, Term::Fixed(LONG)] {
        let Stage {
            holder,
            other,
            build,
            world,
            ..
        } = &mut *stage;
        let (ids, _) = holder.take(name, 1, term).await?;
        let id = ids[0].clone();
        ensure!(id.len() == 32, "its id is {id}");
        let member = if matches!(holder, Party::Ours(_)) || build.has_short_permit_ids() {
            16
        } else {
            32
        };
        let out: Vec<Vec<u8>> = world
            .server()
            .query(&["ZRANGE", &permits_out(name), "0", "-1"]);
        ensure!(
            out.len() == 1 && out[0].len() == member,
            "{out:?} stand in the store"
        );
        for party in [&*holder, &*other] {
            if let Party::Ours(task) = party {
                let seen = task.holders(name).await?;
                ensure!(seen.len() == 1, "we see {seen:?}");
            }
        }
        // Redisson before 3.17 stores ids in their text form; it does not find ours.
        let known = matches!(other, Party::Ours(_)) || build.has_short_permit_ids();
        let done = other.release_permit(name, &id).await?;
        ensure!(done == known, "{} gave it back: {done}", other.title());
        agree(stage, name, if known { 2 } else { 1 }).await?;
        let again = stage.other.release_permit(name, &id).await?;
        ensure!(!again, "it was given back twice");
        let late = stage.holder.release(name, &ids).await?;
        if known {
            late.refused()?;
        } else {
            late.done()?;
        }
        agree(stage, name, 2).await?;
    }
    settle(stage, name, name, 2).await?;
    Ok(String::new())
}

/// A permit that is not released in time goes to the other side, which waits for it.
pub(crate) async fn expires(stage: &mut Stage) -> Outcome<String> {
    let name = "sem-expiry";
    let lease = Duration::from_secs(2);
    stage.other.try_set_permits(name, 1).await?;
    let Stage { holder, other, .. } = &mut *stage;
    let early = holder.gives_up_early(lease);
    let (ids, taken) = holder.take(name, 1, Term::Fixed(lease)).await?;
    let (got, waited) = other.take(name, 1, Term::Fixed(LONG)).await?;
    let after = waited.to.since(taken.from);
    ensure!(
        after + ROUNDING + early >= lease,
        "free {after:?} after a lease of {lease:?} began"
    );
    holder.release(name, &ids).await?.refused()?;
    agree(stage, name, 0).await?;
    stage.other.release(name, &got).await?.done()?;
    settle(stage, name, name, 1).await?;
    Ok(format!("a lease of {lease:?}: {} ms", after.as_millis()))
}

/// A kept permit is in use for as long as it is held: ours by renewals, Java's because it has no end.
pub(crate) async fn is_kept(stage: &mut Stage) -> Outcome<String> {
    let name = "sem-kept";
    let lease = stage.terms.watchdog;
    stage.other.try_set_permits(name, 2).await?;
    let (ids, taken) = stage.holder.take(name, 1, Term::Kept).await?;
    let mut looks = 0;
    while Stamp::now().since(taken.to) < lease * 5 / 4 {
        agree(stage, name, 1).await?;
        let Stage { other, .. } = &mut *stage;
        let (one, _) = other.take(name, 1, Term::Fixed(LONG)).await?;
        is_refused(other, name, 1).await?;
        other.release(name, &one).await?.done()?;
        looks += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    stage.holder.release(name, &ids).await?.done()?;
    settle(stage, name, name, 2).await?;
    Ok(format!(
        "{looks} looks in {:.1} s",
        (lease * 5 / 4).as_secs_f64()
    ))
}

/// The permit of a killed process goes to the other side when its lease expires, and not before.
pub(crate) async fn dead(stage: &mut Stage) -> Outcome<String> {
    let name = "sem-death";
    let mut remarks = Vec::new();
    stage.other.try_set_permits(name, 1).await?;
    for death in [Death::Kill, Death::Halt] {
        let mortal = HolderProcess::lock(stage, stage.terms, death, name).await?;
        let Stage { other, world, .. } = &mut *stage;
        let kill = async {
            world.asleep_on(&semaphore_channel(name)).await?;
            let seen = Stamp::now();
            let promised = seen + world.permit_left(name)?;
            Ok((mortal.die(name).await?, promised))
        };
        let ((ids, waited), (died, promised)) =
            tokio::try_join!(other.take(name, 1, Term::Fixed(LONG)), kill)?;
        ensure!(waited.to > died, "the other had it while its holder lived");
        let after = waited.to.since(died);
        // The last renewal is kept, even after the holder's death.
        ensure!(
            waited.to + ROUNDING >= promised,
            "back {:?} before its lease was over",
            promised.since(waited.to)
        );
        other.release(name, &ids).await?.done()?;
        let millis = after.as_millis();
        remarks.push(format!("{death:?}: back after {millis} ms"));
    }
    settle(stage, name, name, 1).await?;
    Ok(remarks.join(", "))
}
