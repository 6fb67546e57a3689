//! Mutual exclusion: while one side holds the lock, the other does not.

use std::collections::BTreeMap;

use super::{BRIEF, LONG};
use crate::failure::{Outcome, ensure};
use crate::party::Term;
use crate::stage::Stage;

/// While one side holds a lock, the other sees it, sees its owner, and does not acquire it.
pub(super) async fn play(stage: &mut Stage) -> Outcome<String> {
    let Stage { holder, other, .. } = stage;
    for (name, term, longest) in [
        ("exclude-kept", Term::Kept, stage.terms.watchdog),
        ("exclude-fixed", Term::Fixed(LONG), LONG),
    ] {
        ensure!(
            !other.is_locked(name).await?,
            "`{name}` is not free to begin with"
        );
        holder.lock(name, term).await?;
        ensure!(
            other.is_locked(name).await?,
            "the other does not see `{name}`"
        );
        ensure!(holder.is_held(name).await?, "its holder does not think so");
        ensure!(!other.is_held(name).await?, "the other thinks it has it");
        let expected = BTreeMap::from([(holder.owner(name)?, 1)]);
        for side in [&*holder, &*other] {
            let seen = side.holders(name).await?;
            let who = side.title();
            ensure!(seen == expected, "{who} sees {seen:?}, not {expected:?}");
        }
        let ttl = other.ttl(name).await?;
        ensure!(
            ttl.is_some_and(|ttl| ttl <= longest && ttl > longest / 2),
            "the other sees a lease of {ttl:?}, not of {longest:?}"
        );
        other.is_excluded(name).await?;
        // With a wait and a lease of its own, both sides use another call.
        let (granted, _) = other.try_lock(name, BRIEF, Term::Fixed(LONG)).await?;
        ensure!(!granted, "the other got `{name}` by waiting for {BRIEF:?}");
        ensure!(
            other.hold_count(name).await? == 0,
            "the other counts a hold it has not"
        );

        holder.unlock(name).await?.done()?;
        ensure!(!other.is_locked(name).await?, "`{name}` is still locked");
        other.lock(name, term).await?;
        holder.is_excluded(name).await?;
        other.unlock(name).await?.done()?;
        holder.finds_lock_free(name).await?;
    }
    Ok(String::new())
}
