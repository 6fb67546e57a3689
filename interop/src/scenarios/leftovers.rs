//! Cleanup: when all is done, nothing is left in the store.

use std::time::Duration;

use distlock::Client;

use crate::failure::{Outcome, ensure};
use crate::party::Term;
use crate::stage::Stage;
use crate::world::{channel, until};

/// Holds, re-entries, waits that time out and waits that are granted: keys and channels exist meanwhile, and are gone afterwards, while all
/// clients are still connected.
pub(super) async fn play(stage: &mut Stage) -> Outcome<String> {
    let Stage {
        holder,
        other,
        world,
        ..
    } = stage;
    let names = ["leftover-1", "leftover-{2}"];
    for name in names {
        holder.lock(name, Term::Kept).await?;
        holder.lock(name, Term::Kept).await?;
        let look = async {
            world.asleep(name).await?;
            let keys = world.server().keys();
            ensure!(keys == [name], "while it is held the keys are {keys:?}");
            world.hears_only(&channel(name))
        };
        let wait = Duration::from_millis(600);
        let ((granted, _), ()) = tokio::try_join!(other.try_lock(name, wait, Term::Kept), look)?;
        ensure!(!granted, "it got a lock that is held");
        let unlock = async {
            world.asleep(name).await?;
            holder.unlock(name).await?.done()?;
            holder.unlock(name).await?.done()
        };
        tokio::try_join!(other.lock(name, Term::Kept), unlock)?;
        other.unlock(name).await?.done()?;
        world.is_clean().await?;
    }
    labelled(stage).await?;
    Ok(String::new())
}

/// A client of ours with a label keeps a key of its own for as long as it lives; the key disturbs no other client.
async fn labelled(stage: &mut Stage) -> Outcome {
    let Stage {
        holder,
        other,
        world,
        ..
    } = stage;
    let url = world.server().url();
    let client = Client::builder(&url).label("interop").connect().await?;
    until("the label is there", || !world.server().keys().is_empty()).await?;
    let keys = world.server().keys();
    ensure!(
        keys.len() == 1 && keys[0].starts_with("distlock_client:"),
        "a labelled client leaves {keys:?}"
    );
    ensure!(world.server().pttl(&keys[0]) > 0, "the label has no end");
    let guard = client.lock("labelled").acquire().await?;
    holder.is_excluded("labelled").await?;
    other.is_excluded("labelled").await?;
    guard.release().await?;
    holder.finds_lock_free("labelled").await?;
    other.finds_lock_free("labelled").await?;
    client.close().await?;
    world.is_clean().await
}
