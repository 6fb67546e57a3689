//! Crowds of readers on a read/write lock.

use std::time::Duration;

use tokio::task::JoinSet;

use super::super::LONG;
use super::{acquires_at_once, both};
use crate::failure::{Failure, Outcome, ensure};
use crate::party::{Party, Sides, Term};
use crate::stage::Stage;
use crate::world::rw_channel;

/// When a writer leaves, all waiting readers are let in, all at the same time.
pub(in super::super) async fn wakes_all_readers(stage: &mut Stage) -> Outcome<String> {
    let (mut holder, other) = both(stage);
    let world = &stage.world;
    let name = "rw-all";
    let mut longest = Duration::ZERO;
    for _ in 0..world.pace.rounds(3) {
        holder.write.lock(name, Term::Fixed(LONG)).await?;
        let messages = world.messages();
        let mut waiting = JoinSet::new();
        for _ in 0..READERS {
            let mut reader = other.sibling().await?.read;
            waiting.spawn(async move {
                let span = reader.lock(name, Term::Kept).await?;
                Ok::<_, Failure>((reader, span))
            });
        }
        world.asleep_on(&rw_channel(name)).await?;
        tokio::time::sleep(A_MOMENT).await;
        ensure!(
            waiting.try_join_next().is_none(),
            "somebody reads while it is written"
        );
        let freed = holder.write.unlock(name).await?.done()?;
        let mut readers = Vec::new();
        while let Some(done) = waiting.join_next().await {
            let (reader, span) = done??;
            ensure!(span.to > freed.from, "it read before the unlock");
            longest = longest.max(span.to.since(freed.from));
            // No reader leaves before all are in.
            readers.push(reader);
        }
        let told = world.messages() - messages;
        ensure!(told == 1, "there were {told} messages");
        for reader in &mut readers {
            reader.unlock(name).await?.done()?;
        }
    }
    let longest = longest.as_secs_f64() * 1e3;
    Ok(format!("{READERS} readers, longest {longest:.1} ms"))
}

/// While a writer of ours waits, our readers queue behind it, and Java's, which do not see it, pass. While one of Java's waits, the readers
/// of both sides pass.
pub(in super::super) async fn readers_pass_a_writer(stage: &mut Stage) -> Outcome<String> {
    let (mut holder, other) = both(stage);
    let world = &stage.world;
    let name = "rw-pass";
    for ours_waits in [true, false] {
        holder.read.lock(name, Term::Fixed(LONG)).await?;
        let sides = [&holder, &other];
        let of = |java: bool| sides.into_iter().find(|side| side.is_java() == java);
        let (ours, java) = (of(false).expect("a side"), of(true).expect("a side"));
        let writer = if ours_waits { ours } else { java };
        let mut writer = writer.sibling().await?.write;
        let waiting = tokio::spawn(async move {
            writer.lock(name, Term::Kept).await?;
            Ok::<Party, Failure>(writer)
        });
        world.asleep_on(&rw_channel(name)).await?;
        for reader in [ours, java] {
            let Sides { mut read, .. } = reader.sibling().await?;
            if ours_waits && !reader.is_java() {
                read.is_excluded(name).await?;
            } else {
                acquires_at_once(&mut read, name).await?;
                read.unlock(name).await?.done()?;
            }
        }
        ensure!(!waiting.is_finished(), "it writes while somebody reads");
        holder.read.unlock(name).await?.done()?;
        let mut writer = waiting.await??;
        writer.unlock(name).await?.done()?;
    }
    Ok(String::new())
}

const READERS: usize = 6;
/// Time for a reader to read that must not.
const A_MOMENT: Duration = Duration::from_millis(200);
