//! The hammer on one semaphore, in which some processes are killed: never may more permits be out than there are, and none may be lost.

use std::collections::BTreeMap;
use std::time::Duration;

use distlock::Client;
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::doomed::ProcessesToKill;
use super::{CLIENT, OVERTIME, connect_all, longer, our_worker, read, their_worker, time};
use crate::checker::Grant;
use crate::clock::Stamp;
use crate::failure::{Failure, Outcome, ensure};
use crate::scenarios::semaphore::only_the_number;
use crate::stage::Fleet;
use crate::support::SeededRng;
use crate::worker::{LockMode, MOMENT, Work};

/// Plays with three permits for all workers; halfway a JVM and a process of ours are killed.
pub(crate) async fn play(fleet: &mut Fleet) -> Outcome<String> {
    let mut random = SeededRng::from_env_or(20_201_013);
    let mut time = time(fleet).max(SHORTEST);
    loop {
        match round(fleet, time, &mut random).await? {
            Ok(remark) => return Ok(remark),
            Err(why) => time = longer(time, || why)?,
        }
    }
}

/// Plays one round and returns a remark, or why it was too short.
async fn round(
    fleet: &Fleet,
    time: Duration,
    random: &mut SeededRng,
) -> Outcome<Result<String, String>> {
    let world = &fleet.world;
    let client = Client::connect(&world.server().url()).await?;
    let semaphore = client.semaphore(NAME);
    ensure!(semaphore.try_set(TOTAL).await?, "it was there");

    let logs = TempDir::with_prefix("distlock-permits-")?;
    let mut order = |who: String| Work {
        urls: vec![world.server().url()],
        shared: fleet.shared,
        names: vec![NAME.into()],
        tasks: 8,
        time,
        moment: MOMENT,
        manner: LockMode::Mixed,
        seed: random.below(1 << 32),
        log: logs.path().join(&who),
        who,
    };
    let doomed = ProcessesToKill::ready(fleet).await?;
    connect_all(fleet).await?;
    let mut workers = JoinSet::new();
    for (number, peer) in fleet.peers.iter().enumerate() {
        let work = order(format!("{}-{number}", peer.build().word()));
        workers.spawn(their_worker(peer.clone(), work));
    }
    for number in 0..2 {
        workers.spawn(our_worker(order(format!("we-{number}"))));
    }
    let survivors = fleet.peers.len() + 2;
    let doomed = doomed.work(order("doomed-java".into()), order("doomed-we".into()))?;
    tokio::time::sleep(time / 2).await;
    let out = semaphore.count().await?.out;
    doomed.die().await?;

    let everyone = async {
        while let Some(done) = workers.join_next().await {
            done??;
        }
        Ok::<_, Failure>(())
    };
    tokio::time::timeout(time + OVERTIME, everyone)
        .await
        .map_err(|_| Failure::new("somebody has not come back: a waiter hangs"))??;
    for peer in &fleet.peers {
        peer.ask(json!({"cmd": "close", "client": CLIENT})).await?;
    }

    let logs = read(logs.path())?;
    ensure!(logs.len() == survivors, "{} have left a log", logs.len());
    let by_worker: BTreeMap<&str, usize> = logs
        .iter()
        .map(|(who, grants)| (&**who, grants.len()))
        .collect();
    let idle = by_worker.values().any(|grants| *grants == 0);
    let most = most_at_once(logs.values().flatten());
    ensure!(most <= TOTAL as usize, "{most} of {TOTAL} were out at once");

    // The permits of the killed processes are back: all can be acquired at once.
    let from = Stamp::now();
    let all = semaphore.permits(TOTAL).acquire_timeout(PATIENCE);
    let all = all.await?;
    let all = all.ok_or_else(|| Failure::new("what the dead had has not come back"))?;
    let after = Stamp::now().since(from);
    all.release().await?;
    only_the_number(world, NAME, TOTAL).await?;
    ensure!(semaphore.delete().await?, "it was there");
    client.close().await?;
    if idle || most < TOTAL as usize {
        return Ok(Err(format!(
            "somebody never got a permit, or never more than {most} were out: {by_worker:?}"
        )));
    }
    let grants: usize = by_worker.values().sum();
    Ok(Ok(format!(
        "{grants} permits {by_worker:?}, at most {most} at once, {out} out at the kills; all back {} ms after the end",
        after.as_millis()
    )))
}

/// Returns how many grants there were at the same time, at most.
pub(super) fn most_at_once<'a>(grants: impl Iterator<Item = &'a Grant>) -> usize {
    let mut changes = Vec::new();
    for grant in grants {
        changes.push((grant.from, 1_i64));
        changes.push((grant.to, -1));
    }
    // At the same timestamp, releases sort before grants.
    changes.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, change) in changes {
        now += change;
        most = most.max(now);
    }
    usize::try_from(most).unwrap_or_default()
}

const NAME: &str = "hammer-permits";
const TOTAL: u32 = 3;
/// Upper bound that is far longer than the leases of the killed processes.
const PATIENCE: Duration = Duration::from_secs(120);
/// Each worker has to get its turn, on a machine that starts JVMs meanwhile.
const SHORTEST: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker;

    fn most(lines: &str) -> usize {
        let grants = checker::read(lines).expect("a history made up here is whole");
        most_at_once(grants.iter())
    }

    #[test]
    fn grants_at_the_same_moment_are_counted() {
        assert_eq!(most(""), 0);
        assert_eq!(most("a us 10 20\na java 20 30"), 1);
        assert_eq!(most("a us 10 20\na java 19 30"), 2);
        assert_eq!(most("a us 10 40\na us 10 40\na java 20 30\na we 30 35"), 3);
    }
}
