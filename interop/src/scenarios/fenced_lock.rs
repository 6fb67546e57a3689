//! The fenced lock: one counter of tokens for both sides.

use std::time::Duration;

use super::LONG;
use super::names::ODD;
use crate::failure::{Outcome, ensure};
use crate::party::{Kind, Party, Term};
use crate::stage::{Settings, Stage, java_thread};
use crate::world::{World, counter};

/// Whichever side holds the lock, and however it was acquired, its token is greater than the one before, and is in the key that both read.
pub(super) async fn tokens_grow(stage: &mut Stage) -> Outcome<String> {
    let mut grants = 0;
    for name in ODD {
        grants += take_turns(stage, name, name)
            .await
            .map_err(|failure| failure.during(format_args!("{name:?}")))?;
    }
    Ok(format!("{grants} grants of {} names", ODD.len()))
}

/// The counter of a prefixed lock is that of its key.
pub(super) async fn prefixed(stage: &mut Stage) -> Outcome<String> {
    let prefix = stage.terms.prefix;
    let mut grants = 0;
    for name in ["order", "a{b}c"] {
        grants += take_turns(stage, name, &format!("{prefix}{name}")).await?;
    }
    Ok(format!("{grants} grants"))
}

/// Lets both sides acquire the lock one after the other, in every way there is; returns the number of grants.
async fn take_turns(stage: &mut Stage, name: &str, key: &str) -> Outcome<u32> {
    let Stage {
        holder,
        other,
        world,
        ..
    } = stage;
    let mut tokens = Tokens::of(world, key);
    for term in [Term::Kept, Term::Fixed(LONG)] {
        for party in [&mut *holder, &mut *other] {
            party.lock(name, term).await?;
            tokens.grow(party, name).await?;
            party.unlock(name).await?.done()?;
            for wait in [Duration::ZERO, LONG] {
                let (granted, _) = party.try_lock(name, wait, term).await?;
                ensure!(granted, "{} did not get it", party.title());
                tokens.grow(party, name).await?;
                party.unlock(name).await?.done()?;
            }
        }
    }
    // A holder that has waited, in both directions.
    for _ in 0..2 {
        holder.lock(name, Term::Kept).await?;
        tokens.grow(holder, name).await?;
        let unlock = async {
            world.asleep(key).await?;
            holder.unlock(name).await?.done()
        };
        tokio::try_join!(other.lock(name, Term::Kept), unlock)?;
        tokens.grow(other, name).await?;
        other.unlock(name).await?.done()?;
        std::mem::swap(holder, other);
    }
    let counters = world.server().keys();
    let expected = counter(key);
    ensure!(
        counters.contains(&expected) && !counters.contains(&key.to_owned()),
        "there is no `{expected}` in {counters:?}"
    );
    Ok(tokens.grants)
}

/// A hold of ours keeps its token. Redisson raises its counter at each acquire, and the last token is the current one.
pub(super) async fn reentry(stage: &mut Stage) -> Outcome<String> {
    let Stage {
        holder,
        other,
        world,
        ..
    } = stage;
    let name = "fenced-reentry";
    let mut tokens = Tokens::of(world, name);
    holder.lock(name, Term::Kept).await?;
    tokens.grow(holder, name).await?;
    let first = tokens.last;
    for count in 2..=3 {
        holder.lock(name, Term::Kept).await?;
        let again = holder.token(name).await?;
        match holder {
            Party::Java(_) => ensure!(
                again == first + count - 1,
                "Redisson's is {again} the {count}nd time, after {first}"
            ),
            Party::Ours(_) => ensure!(again == first, "ours is {again} after {first}"),
        }
        tokens.last = again;
        let shown = world.counter(name);
        ensure!(
            shown == Some(again),
            "the counter is {shown:?}, not {again}"
        );
        other.is_excluded(name).await?;
        let counted = world.counter(name);
        ensure!(
            counted == shown,
            "who was kept out has counted: {counted:?}"
        );
    }
    for _ in 0..3 {
        other.is_excluded(name).await?;
        holder.unlock(name).await?.done()?;
    }
    other.lock(name, Term::Kept).await?;
    tokens.grow(other, name).await?;
    other.unlock(name).await?.done()?;
    Ok(String::new())
}

/// However a hold ends, the next has a greater token.
pub(super) async fn after_a_loss(stage: &mut Stage) -> Outcome<String> {
    let Stage {
        holder,
        other,
        world,
        ..
    } = stage;
    let name = "fenced-lost";
    let mut tokens = Tokens::of(world, name);
    let lease = Duration::from_secs(1);
    holder.lock(name, Term::Fixed(lease)).await?;
    tokens.grow(holder, name).await?;
    other.lock(name, Term::Kept).await?;
    tokens.grow(other, name).await?;
    // A lost guard of ours keeps its own token, not that of the next holder.
    if let Party::Ours(late) = holder {
        let late = late.token(name)?;
        ensure!(late < tokens.last, "a lost guard says {late}");
    }
    holder.unlock(name).await?.refused()?;
    ensure!(holder.force_unlock(name).await?, "it was not forced");
    holder.lock(name, Term::Kept).await?;
    tokens.grow(holder, name).await?;
    other.unlock(name).await?.refused()?;
    holder.unlock(name).await?.done()?;
    Ok(String::new())
}

/// Our tokens follow the server's clock if the server has lost its data; Redisson's come only from the counter.
pub(super) async fn forgotten(stage: &mut Stage) -> Outcome<String> {
    let Stage {
        holder,
        other,
        world,
        ..
    } = stage;
    let name = "fenced-forgotten";
    for party in [holder, other] {
        let mut tokens = Tokens::of(world, name);
        // A hold of ours first, so that there is a great number to forget.
        let mut ours = Party::ours(world, stage.terms).await?;
        ours.lock(name, Term::Kept).await?;
        tokens.grow(&ours, name).await?;
        ours.unlock(name).await?.done()?;
        ours.close().await?;
        world.server().flushall();
        party.lock(name, Term::Kept).await?;
        match party {
            Party::Java(_) => {
                let token = party.token(name).await?;
                ensure!(token == 1, "Redisson has learnt to go on, with {token}");
            }
            Party::Ours(_) => tokens.grow(party, name).await?,
        }
        party.unlock(name).await?.done()?;
        // From the next token of ours on, the tokens of both sides grow again.
        for party in [
            Party::ours(world, stage.terms).await?,
            Party::Java(java_thread(world, &world.peer(&stage.build).await?, stage.terms).await?),
        ] {
            let mut party = party;
            party.lock(name, Term::Kept).await?;
            tokens.grow(&party, name).await?;
            party.unlock(name).await?.done()?;
            party.close().await?;
        }
    }
    Ok(String::new())
}

/// A fenced and a plain lock of one name are one lock in the store: a plain hold has no token, and raises no counter.
pub(super) async fn beside_plain(stage: &mut Stage) -> Outcome<String> {
    let Stage {
        holder,
        other,
        world,
        build,
        ..
    } = stage;
    let name = "fenced-plain";
    let mut tokens = Tokens::of(world, name);
    holder.lock(name, Term::Kept).await?;
    tokens.grow(holder, name).await?;
    // The same two sides with plain locks.
    let jvm = world.peer(build).await?;
    let plain = Settings {
        kind: Kind::Plain,
        ..stage.terms
    };
    for mut plain in [
        Party::ours(world, plain).await?,
        Party::java(world, &jvm, plain).await?,
    ] {
        plain.is_excluded(name).await?;
        holder.unlock(name).await?.done()?;
        plain.lock(name, Term::Kept).await?;
        holder.is_excluded(name).await?;
        other.is_excluded(name).await?;
        let counted = world.counter(name);
        ensure!(
            counted == Some(tokens.last),
            "the counter is {counted:?}, not {}",
            tokens.last
        );
        plain.unlock(name).await?.done()?;
        holder.lock(name, Term::Kept).await?;
        tokens.grow(holder, name).await?;
        plain.close().await?;
    }
    holder.unlock(name).await?.done()?;
    Ok(String::new())
}

/// The tokens of one lock, in the order of the grants.
struct Tokens<'a> {
    world: &'a World,
    key: String,
    last: u64,
    grants: u32,
}

impl<'a> Tokens<'a> {
    fn of(world: &'a World, key: &str) -> Self {
        Self {
            world,
            key: key.into(),
            last: 0,
            grants: 0,
        }
    }

    /// Checks that the token of the party that holds the lock now is the next one.
    async fn grow(&mut self, party: &Party, name: &str) -> Outcome {
        let (token, last) = (party.token(name).await?, self.last);
        let who = party.title();
        ensure!(token > last, "{who} got {token} after {last}");
        if matches!(party, Party::Ours(_)) {
            ensure!(token > CALENDAR, "ours is {token}, below the server's time");
        }
        let counted = self.world.counter(&self.key);
        ensure!(
            counted == Some(token),
            "the counter is {counted:?}, not {token} of {who}"
        );
        self.last = token;
        self.grants += 1;
        Ok(())
    }
}

/// The year 2025, in microseconds.
const CALENDAR: u64 = 1_735_689_600_000_000;
