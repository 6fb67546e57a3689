//! A process that holds a lock is killed.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::{ROUNDING, SLACK};
use crate::clock::Stamp;
use crate::failure::{Outcome, ensure};
use crate::party::{JavaThread, Party, Term};
use crate::stage::{Stage, java_thread};

/// The lock stays the dead one's until its lease is over, and is the waiter's then.
pub(super) async fn play(stage: &mut Stage) -> Outcome<String> {
    let lease = stage.terms.watchdog;
    let name = "death";
    let mortal = Mortal::lock(stage, name).await?;
    let Stage { other, world, .. } = stage;
    let kill = async {
        world.asleep(name).await?;
        let seen = Stamp::now();
        let left = u64::try_from(world.server.pttl(name))?;
        let promised = seen + Duration::from_millis(left);
        Ok((mortal.die().await?, promised))
    };
    let (waited, (died, promised)) = tokio::try_join!(other.lock(name, Term::Kept), kill)?;
    ensure!(waited.to > died, "the other had it while the holder lived");
    let after = waited.to.since(died);
    ensure!(after <= lease + SLACK, "it took {after:?} to be free");
    // What the last renewal promised is kept, even to the dead.
    ensure!(
        waited.to + ROUNDING >= promised,
        "free {:?} before the lease was over",
        promised.since(waited.to)
    );
    other.unlock(name).await?.done()?;
    Ok(format!("free after {} ms", after.as_millis()))
}

/// A process of its own that holds a lock.
enum Mortal {
    Java(JavaThread),
    Ours(Child),
}

impl Mortal {
    /// Of the same kind as the holder.
    async fn lock(stage: &Stage, name: &str) -> Outcome<Self> {
        let Stage {
            holder,
            world,
            version,
            terms,
            ..
        } = stage;
        if matches!(holder, Party::Java(_)) {
            let jvm = world.fresh_jvm(version).await?;
            let thread = java_thread(world, &jvm, *terms).await?;
            thread.lock(name, Term::Kept).await?;
            return Ok(Self::Java(thread));
        }
        let lease = terms.watchdog.as_millis().to_string();
        let mut child = Command::new(std::env::current_exe()?)
            .args(["hold", &world.server.url(), name, &lease])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let said = child.stdout.take().expect("it is piped");
        let line = BufReader::new(said).lines().next_line().await?;
        ensure!(line.as_deref() == Some("held"), "the process said {line:?}");
        Ok(Self::Ours(child))
    }

    /// Without a last word. Says when.
    async fn die(self) -> Outcome<Stamp> {
        match self {
            Self::Java(thread) => thread.peer().halt().await,
            Self::Ours(mut child) => {
                let now = Stamp::now();
                // SIGKILL, and waits for it.
                child.kill().await?;
                Ok(now)
            }
        }
    }
}
