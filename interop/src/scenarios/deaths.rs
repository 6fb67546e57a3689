//! A process that holds a lock is killed.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use super::ROUNDING;
use crate::clock::Stamp;
use crate::failure::{Outcome, ensure};
use crate::party::{JavaThread, Kind, Party, Term};
use crate::stage::{Settings, Stage, java_thread};
use crate::world::World;

/// However the holder dies, the lock stays its own until its lease expires, and is the waiter's then.
pub(super) async fn play(stage: &mut Stage) -> Outcome<String> {
    let mut remarks = Vec::new();
    for death in Death::ALL {
        let mortal = HolderProcess::lock(stage, stage.terms, death, NAME).await?;
        let after = inherit(stage, mortal).await?;
        let millis = after.as_millis();
        remarks.push(format!("{death:?}: free after {millis} ms"));
    }
    Ok(remarks.join(", "))
}

/// Returns how long after the death the other side acquired the lock.
async fn inherit(stage: &mut Stage, mortal: HolderProcess) -> Outcome<Duration> {
    let (terms, name) = (stage.terms, NAME);
    let Stage { other, world, .. } = stage;
    let kill = async {
        world.asleep(name).await?;
        let seen = Stamp::now();
        let promised = seen + world.left(name)?;
        let behind = match terms.kind {
            Kind::Fair => Some(follow(world, terms).await?),
            _ => None,
        };
        Ok((mortal.die(NAME).await?, promised, behind))
    };
    let (waited, (died, promised, behind)) = tokio::try_join!(other.lock(name, Term::Kept), kill)?;
    ensure!(waited.to > died, "the other had it while the holder lived");
    let after = waited.to.since(died);
    // The last renewal is kept, even after the holder's death.
    ensure!(
        waited.to + ROUNDING >= promised,
        "free {:?} before the lease was over",
        promised.since(waited.to)
    );
    other.unlock(name).await?.done()?;
    if let Some(behind) = behind {
        behind.await??;
    }
    Ok(after)
}

/// Queues a waiter of ours behind the other side: Redisson before 3.32 may sleep on where a holder has died, unless it is woken.
async fn follow(world: &Arc<World>, terms: Settings) -> Outcome<JoinHandle<Outcome>> {
    let mut ours = Party::ours(world, terms).await?;
    let waiting = tokio::spawn(async move {
        ours.lock(NAME, Term::Kept).await?;
        ours.unlock(NAME).await?.done()?;
        ours.close().await
    });
    world.until_queued(NAME, 2).await?;
    Ok(waiting)
}

/// How a process dies without releasing its lock.
#[derive(Clone, Copy, Debug)]
pub(super) enum Death {
    /// The process ends itself: `Runtime.halt` in Java, `abort` here.
    Halt,
    /// The process is killed by `kill -9`.
    Kill,
}

impl Death {
    const ALL: [Self; 2] = [Self::Halt, Self::Kill];
}

/// A process of its own that holds a lock.
pub(super) enum HolderProcess {
    Java(JavaThread, Death),
    Ours(Child, Death),
}

impl HolderProcess {
    /// Starts the process on the holder's side and acquires the lock in it.
    pub(super) async fn lock(
        stage: &Stage,
        terms: Settings,
        death: Death,
        name: &str,
    ) -> Outcome<Self> {
        let Stage {
            holder,
            world,
            build,
            ..
        } = stage;
        if matches!(holder, Party::Java(_)) {
            let jvm = world.fresh_peer(build).await?;
            let thread = java_thread(world, &jvm, terms).await?;
            if terms.kind == Kind::Permit {
                // Redisson renews no permits.
                let lease = Term::Fixed(terms.watchdog);
                thread.take_permits(name, 1, None, lease).await?;
            } else {
                thread.lock(name, Term::Kept).await?;
            }
            return Ok(Self::Java(thread, death));
        }
        let lease = terms.watchdog.as_millis().to_string();
        let mut child = Command::new(std::env::current_exe()?)
            .args([
                "hold",
                &world.server().url(),
                terms.kind.word(),
                name,
                &lease,
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let said = child.stdout.take().expect("it is piped");
        let line = BufReader::new(said).lines().next_line().await?;
        ensure!(line.as_deref() == Some("held"), "the process said {line:?}");
        Ok(Self::Ours(child, death))
    }

    /// Ends the process without a release. Returns when.
    pub(super) async fn die(self, name: &str) -> Outcome<Stamp> {
        match self {
            Self::Java(thread, death) => {
                // The process must not have died by itself before.
                if thread.kind() != Kind::Permit {
                    let held = thread.ask_bool("is_locked", name).await?;
                    ensure!(held, "it was not locked any more");
                }
                match death {
                    Death::Halt => thread.peer().halt().await,
                    Death::Kill => thread.peer().kill_hard().await,
                }
            }
            Self::Ours(mut child, death) => {
                let now = Stamp::now();
                match death {
                    // The process ends when its standard input is closed.
                    Death::Halt => drop(child.stdin.take()),
                    Death::Kill => child.start_kill()?,
                }
                let ended = child.wait().await?;
                ensure!(ended.code().is_none(), "it ended in order: {ended}");
                Ok(now)
            }
        }
    }
}

const NAME: &str = "death";
