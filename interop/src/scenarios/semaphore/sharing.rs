//! Permits of both sides, side by side and one after the other.

use std::time::Duration;

use super::{agree, forget_clients, is_refused, settle};
use crate::failure::{Outcome, ensure};
use crate::party::{Party, Term};
use crate::scenarios::names::ODD;
use crate::scenarios::{BRIEF, LONG, Wakes};
use crate::stage::Stage;
use crate::world::{permits_out, semaphore_channel};

/// Three permits, two of one side's and one of the other's: a fourth is refused to both.
pub(crate) async fn counted(stage: &mut Stage) -> Outcome<String> {
    let name = "sem-count";
    let set = stage.holder.try_set_permits(name, 3).await?;
    let again = stage.other.try_set_permits(name, 5).await?;
    ensure!(set && !again, "set by both: {set} and {again}");
    agree(stage, name, 3).await?;
    let (first, _) = stage.holder.take(name, 1, Term::Kept).await?;
    let (second, _) = stage.holder.take(name, 1, Term::Fixed(LONG)).await?;
    agree(stage, name, 1).await?;
    let (third, _) = stage.other.take(name, 1, Term::Kept).await?;
    agree(stage, name, 0).await?;
    let out: u64 = stage.world.server().query(&["ZCARD", &permits_out(name)]);
    ensure!(out == 3, "{out} stand in the store");
    for party in [&mut stage.holder, &mut stage.other] {
        is_refused(party, name, 1).await?;
        // With a wait and a lease of its own, both sides use another call.
        let term = Term::Fixed(LONG);
        let (got, span) = party.take_within(name, 1, Some(BRIEF), term).await?;
        let who = party.title();
        ensure!(got.is_none(), "{who} got a fourth by waiting");
        let took = span.took();
        ensure!(took >= BRIEF * 9 / 10, "{who} gave up after {took:?}");
    }
    stage.other.release(name, &third).await?.done()?;
    agree(stage, name, 1).await?;
    stage.holder.release(name, &second).await?.done()?;
    agree(stage, name, 2).await?;
    let (fourth, _) = stage.other.take(name, 1, Term::Fixed(LONG)).await?;
    let (fifth, _) = stage.other.take(name, 1, Term::Kept).await?;
    agree(stage, name, 0).await?;
    is_refused(&mut stage.holder, name, 1).await?;
    for ids in [fourth, fifth] {
        stage.other.release(name, &ids).await?.done()?;
    }
    stage.holder.release(name, &first).await?.done()?;
    settle(stage, name, name, 3).await?;
    Ok(String::new())
}

/// A sleeping waiter has the permit soon after it is released: by the message, since no lease ends within a minute, and our waiter would
/// poll only after two seconds.
pub(crate) async fn wakes(stage: &mut Stage) -> Outcome<String> {
    let name = "sem-wake";
    stage.other.try_set_permits(name, 1).await?;
    let rounds = stage.world.pace.rounds(6);
    let mut wakes = Wakes::default();
    while wakes.another(rounds)? {
        wakes.add(one_wake(stage, name).await?);
    }
    settle(stage, name, name, 1).await?;
    Ok(wakes.remark())
}

async fn one_wake(stage: &mut Stage, name: &str) -> Outcome<Duration> {
    let Stage {
        holder,
        other,
        world,
        ..
    } = stage;
    let (ids, _) = holder.take(name, 1, Term::Fixed(LONG)).await?;
    let messages = world.messages();
    let give_back = async {
        world.asleep_on(&semaphore_channel(name)).await?;
        holder.release(name, &ids).await?.done()
    };
    let ((got, waited), freed) = tokio::try_join!(other.take(name, 1, Term::Kept), give_back)?;
    ensure!(waited.to > freed.from, "it had the permit before");
    let messages = world.messages() - messages;
    ensure!(messages == 1, "it sent {messages} messages");
    other.release(name, &got).await?.done()?;
    Ok(waited.to.since(freed.from))
}

/// Setting or raising the number of permits wakes the waiters of the other side.
pub(crate) async fn raised(stage: &mut Stage) -> Outcome<String> {
    let name = "sem-set";
    let mut longest = Duration::ZERO;
    for (total, how) in [(1, How::TrySet), (2, How::Set), (3, How::Add)] {
        let Stage {
            holder,
            other,
            world,
            build,
            ..
        } = &mut *stage;
        let how = match (how, &*holder) {
            (How::Set, Party::Java(_)) if !build.takes_several_permits() => How::Add,
            (how, _) => how,
        };
        let raise = async {
            world.asleep_on(&semaphore_channel(name)).await?;
            let from = crate::clock::Stamp::now();
            match how {
                How::Add => holder.add_permits(name, 1).await?,
                How::Set => holder.set_permits(name, total).await?,
                How::TrySet => {
                    let set = holder.try_set_permits(name, total).await?;
                    ensure!(set, "somebody had said how many");
                }
            }
            Ok(from)
        };
        let ((_, waited), from) = tokio::try_join!(other.take(name, 1, Term::Fixed(LONG)), raise)?;
        ensure!(waited.to > from, "it had a permit that was not there");
        let late = waited.to.since(from);
        longest = longest.max(late);
        agree(stage, name, 0).await?;
    }
    // A permit that is in use when the semaphore is deleted does not come back.
    ensure!(stage.holder.delete_semaphore(name).await?, "it was there");
    agree(stage, name, 0).await?;
    forget_clients(&stage.world)?;
    Ok(format!("longest {:.1} ms", longest.as_secs_f64() * 1e3))
}

#[derive(Clone, Copy, Debug)]
enum How {
    Add,
    Set,
    TrySet,
}

/// Several permits at once, all or none; Java in versions that can, one by one in others.
pub(crate) async fn several(stage: &mut Stage) -> Outcome<String> {
    let name = "sem-several";
    let plural = stage.build.takes_several_permits();
    stage.holder.try_set_permits(name, 5).await?;
    let can = |party: &Party| plural || matches!(party, Party::Ours(_));
    let mut held = Vec::new();
    if can(&stage.holder) {
        held.push(stage.holder.take(name, 3, Term::Kept).await?.0);
    } else {
        for _ in 0..3 {
            held.push(stage.holder.take(name, 1, Term::Kept).await?.0);
        }
    }
    agree(stage, name, 2).await?;
    if can(&stage.other) {
        // The request gets no permit rather than two.
        is_refused(&mut stage.other, name, 3).await?;
        let term = Term::Fixed(LONG);
        let (got, _) = stage.other.take_within(name, 3, Some(BRIEF), term).await?;
        ensure!(got.is_none(), "it got three of two");
        agree(stage, name, 2).await?;
        let (two, _) = stage.other.take(name, 2, Term::Fixed(LONG)).await?;
        agree(stage, name, 0).await?;
        stage.other.release(name, &two).await?.done()?;
        agree(stage, name, 2).await?;
    }
    // A waiter for more permits than are available has them when the last one has come back.
    let Stage {
        holder,
        other,
        world,
        ..
    } = &mut *stage;
    let wanted = if can(other) { 5 } else { 1 };
    let mut taken = Vec::new();
    if wanted == 1 {
        for _ in 0..2 {
            taken.push(other.take(name, 1, Term::Fixed(LONG)).await?.0);
        }
    }
    let give_back = async {
        world.asleep_on(&semaphore_channel(name)).await?;
        let mut freed = None;
        for ids in &held {
            freed = Some(holder.release(name, ids).await?.done()?);
        }
        Ok(freed)
    };
    let ((got, waited), freed) = tokio::try_join!(other.take(name, wanted, Term::Kept), give_back)?;
    let late = freed.map_or(Duration::ZERO, |freed| waited.to.since(freed.from));
    taken.push(got);
    for ids in taken {
        other.release(name, &ids).await?.done()?;
    }
    settle(stage, name, name, 5).await?;
    Ok(format!("woken after {:.1} ms", late.as_secs_f64() * 1e3))
}

/// Each name is the same semaphore, and the same channel, on both sides.
pub(crate) async fn odd_names(stage: &mut Stage) -> Outcome<String> {
    for name in ODD {
        meets(stage, name, name)
            .await
            .map_err(|failure| failure.during(format_args!("{name:?}")))?;
    }
    Ok(format!("{} names", ODD.len()))
}

/// With a prefix on both sides, the names are the same and the keys carry it.
pub(crate) async fn prefixed(stage: &mut Stage) -> Outcome<String> {
    let prefix = stage.terms.prefix;
    for name in ["order", "a{b}c"] {
        meets(stage, name, &format!("{prefix}{name}")).await?;
    }
    Ok(String::new())
}

async fn meets(stage: &mut Stage, name: &str, key: &str) -> Outcome {
    stage.holder.try_set_permits(name, 1).await?;
    let Stage {
        holder,
        other,
        world,
        ..
    } = &mut *stage;
    let (ids, _) = holder.take(name, 1, Term::Fixed(LONG)).await?;
    is_refused(other, name, 1).await?;
    let give_back = async {
        world.asleep_on(&semaphore_channel(key)).await?;
        holder.release(name, &ids).await?.done()
    };
    let ((got, _), _) = tokio::try_join!(other.take(name, 1, Term::Fixed(LONG)), give_back)?;
    is_refused(holder, name, 1).await?;
    other.release(name, &got).await?.done()?;
    settle(stage, name, key, 1).await
}
