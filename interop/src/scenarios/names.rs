//! Names: both sides mean the same lock by every name.

use super::LONG;
use crate::failure::{Outcome, ensure};
use crate::party::{Party, Term};
use crate::stage::Stage;

/// Names that an escape, an encoding or the brace rule could spoil.
pub(super) const ODD: [&str; 13] = [
    "a{b}c",
    "foo{bar",
    "{}foo",
    "foo}bar",
    "{whole}",
    "order:42:line:7",
    "  two words  and more ",
    "naïve Ключ 鍵 🔑",
    "redisson_lock__channel:{order}",
    "quote\" back\\slash 'single' %s $1",
    "line\nbreak\ttab",
    "*?[a-z]",
    "0",
];

/// Each name is the same lock and the same channel on both sides.
pub(super) async fn odd(stage: &mut Stage) -> Outcome<String> {
    for name in ODD {
        meets(stage, name, name)
            .await
            .map_err(|failure| failure.during(format_args!("{name:?}")))?;
    }
    Ok(format!("{} names", ODD.len()))
}

/// With a prefix on both sides, the names are the same and the keys carry it.
pub(super) async fn prefixed(stage: &mut Stage) -> Outcome<String> {
    let prefix = stage.terms.prefix;
    for name in ["order", "a{b}c"] {
        meets(stage, name, &format!("{prefix}{name}")).await?;
    }
    // A name that already carries the prefix gets it once more, and is another lock.
    let (name, same) = ("order", format!("{prefix}order"));
    let Stage { holder, other, .. } = stage;
    holder.lock(name, Term::Kept).await?;
    other.finds_lock_free(&same).await?;
    holder.unlock(name).await?.done()?;
    let mut by = String::new();
    for party in [holder, other] {
        if let Party::Java(thread) = party {
            by = format!("by {}", thread.prefix_by());
        }
    }
    Ok(by)
}

/// Checks that the lock is in this key and keeps the other side out, and that its unlock wakes the other side.
pub(super) async fn meets(stage: &mut Stage, name: &str, key: &str) -> Outcome {
    let Stage {
        holder,
        other,
        world,
        ..
    } = stage;
    holder.lock(name, Term::Fixed(LONG)).await?;
    let keys = world.server().keys();
    ensure!(keys == [key], "the keys are {keys:?}, not {key:?}");
    other.is_excluded(name).await?;
    let unlock = async {
        let at = world.asleep(key).await?;
        world.hears_only(&at)?;
        holder.unlock(name).await?.done()
    };
    let (waited, freed) = tokio::try_join!(other.lock(name, Term::Kept), unlock)?;
    ensure!(waited.to > freed.from, "the other had it before the unlock");
    other.unlock(name).await?.done()?;
    world.is_clean().await
}
