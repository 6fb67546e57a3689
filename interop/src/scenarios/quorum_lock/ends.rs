//! The ends of a lock on a majority of several servers: it is kept, or ends when its lease does.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::super::ROUNDING;
use super::asks;
use crate::clock::Stamp;
use crate::failure::{Outcome, ensure};
use crate::quorum::{Side, Stage, TheirVoter};
use crate::simple::Lease;
use crate::support::RedisServer;

/// A lease is renewed until more time has passed than it has, and a waiter waits all the while. Our lease is renewed by itself, Redisson's
/// by its watchdog, that of the other libraries by the holder.
pub(in super::super) async fn is_kept(stage: &mut Stage) -> Outcome<String> {
    let Stage {
        holder,
        other,
        world,
        terms,
        ..
    } = stage;
    let servers = world.servers().first(terms.servers);
    let (name, lease) = ("quorum-kept", terms.lease);
    holder.lock(name, Lease::Kept(lease)).await?;
    let unlock = async {
        let (mut renewals, mut before, mut lowest) = (0, lease, lease);
        // The renewals are a third of the lease apart.
        while renewals < 4 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let left = on_most(servers, name);
            ensure!(!left.is_zero(), "the lease was over");
            renewals += u32::from(left > before);
            lowest = lowest.min(left);
            before = left;
            match &*holder {
                Side::Theirs(voter) if !voter.has_watchdog() && left < lease * 2 / 3 => {
                    voter.extend(name, lease).await?;
                }
                _ => {}
            }
        }
        Ok((holder.unlock(name).await?.done()?, lowest))
    };
    let kept = Lease::Kept(lease);
    let (waited, (freed, lowest)) = tokio::try_join!(other.lock(name, kept), unlock)?;
    ensure!(waited.to > freed.from, "it had the lock while it was kept");
    other.unlock(name).await?.done()?;
    Ok(format!("4 renewals, lowest {} ms", lowest.as_millis()))
}

/// Returns for how long a majority of them has the lock, if it is not renewed.
fn on_most(servers: &[RedisServer], name: &str) -> Duration {
    let mut left: Vec<i64> = servers.iter().map(|server| server.pttl(name)).collect();
    left.sort_unstable();
    // As many servers have it for longer, and this one makes them a majority.
    let left = left[(servers.len() - 1) / 2];
    Duration::from_millis(u64::try_from(left).unwrap_or(0))
}

/// A process that holds it is killed, with its connections to all servers.
pub(in super::super) async fn dead_holder(stage: &mut Stage) -> Outcome<String> {
    let name = "quorum-death";
    let mortal = HolderProcess::lock(stage, name).await?;
    let Stage {
        other,
        world,
        terms,
        ..
    } = stage;
    let servers = world.servers().first(terms.servers);
    let kill = async {
        asks(servers).await?;
        let promised = Stamp::now() + on_most(servers, name);
        Ok((mortal.die().await?, promised))
    };
    let lease = other.lease(terms.lease);
    let (waited, (died, promised)) = tokio::try_join!(other.lock(name, lease), kill)?;
    ensure!(waited.to > died, "the other had it while the holder lived");
    // The last renewal is kept, even after the holder's death.
    ensure!(
        waited.to + ROUNDING >= promised,
        "free {:?} before the lease was over",
        promised.since(waited.to)
    );
    let after = waited.to.since(died);
    other.unlock(name).await?.done()?;
    other.finds_lock_free(name, terms.lease).await?;
    Ok(format!("free after {} ms", after.as_millis()))
}

/// A process of its own that holds the lock.
enum HolderProcess {
    Ours(Child),
    Theirs(TheirVoter),
}

impl HolderProcess {
    /// Starts the process on the holder's side and acquires the lock in it.
    async fn lock(stage: &Stage, name: &str) -> Outcome<Self> {
        let Stage {
            holder,
            world,
            build,
            shared,
            terms,
            ..
        } = stage;
        let servers = world.servers().first(terms.servers);
        if matches!(holder, Side::Theirs(_)) {
            let peer = world.fresh_peer(build).await?;
            let voter = TheirVoter::connect(&peer, servers, *terms).await?;
            voter.lock(name, Lease::Kept(terms.lease)).await?;
            return Ok(Self::Theirs(voter));
        }
        let lease = terms.lease.as_millis().to_string();
        let mut child = Command::new(std::env::current_exe()?)
            .args(["hold-most", shared.word(), name, &lease])
            .args(servers.iter().map(RedisServer::url))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let said = child.stdout.take().expect("it is piped");
        let line = BufReader::new(said).lines().next_line().await?;
        ensure!(line.as_deref() == Some("held"), "the process said {line:?}");
        Ok(Self::Ours(child))
    }

    /// Kills the process with `kill -9`. Returns when.
    async fn die(self) -> Outcome<Stamp> {
        match self {
            Self::Theirs(voter) => voter.peer().kill_hard().await,
            Self::Ours(mut child) => {
                let now = Stamp::now();
                child.start_kill()?;
                let ended = child.wait().await?;
                ensure!(ended.code().is_none(), "it ended in order: {ended}");
                Ok(now)
            }
        }
    }
}
