//! The hammer on permits without owners: no permit may be made up, and none lost except those of the killed processes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use distlock::Client;

use super::doomed::ProcessesToKill;
use super::permits::most_at_once;
use super::{Logs, NAMES, at_work, connect_all, longer, time};
use crate::failure::{Failure, Outcome, ensure};
use crate::stage::Fleet;
use crate::support::SeededRng;
use crate::worker::{LockMode, Work};
use crate::world::World;

/// Plays a round in which no process dies; in the end exactly as many permits are available as in the beginning. Then plays one in which a
/// JVM and a process of ours are killed halfway; the missing permits are those that they had by the record that every worker keeps.
pub(crate) async fn play(fleet: &mut Fleet) -> Outcome<String> {
    let mut random = SeededRng::from_env_or(20_201_013);
    let mut remarks = Vec::new();
    for kills in [false, true] {
        let mut time = (time(fleet) / 2).max(SHORTEST);
        remarks.push(loop {
            let doomed = match kills {
                true => Some(ProcessesToKill::ready(fleet).await?),
                false => None,
            };
            match round(fleet, time, &mut random, doomed).await? {
                Ok(remark) => break remark,
                Err(why) => time = longer(time, || why)?,
            }
        });
    }
    Ok(remarks.join("; with kills "))
}

/// Plays one round and returns a remark, or why it was too short.
async fn round(
    fleet: &Fleet,
    time: Duration,
    random: &mut SeededRng,
    doomed: Option<ProcessesToKill>,
) -> Outcome<Result<String, String>> {
    let world = &fleet.world;
    let client = Client::connect(&world.server().url()).await?;
    for name in NAMES {
        let set = client.counting_semaphore(name).try_set(TOTAL).await?;
        ensure!(set, "it was there");
    }
    connect_all(fleet).await?;
    let killed = doomed.is_some();
    let seed = random.below(1 << 32);
    let kill = async {
        if let Some(doomed) = doomed {
            let order = |who: &str, tasks, seed| Work {
                urls: vec![world.server().url()],
                shared: fleet.shared,
                names: NAMES.map(str::to_owned).to_vec(),
                tasks,
                time,
                moment: LONG_MOMENT,
                manner: LockMode::Mixed,
                seed,
                log: PathBuf::new(),
                who: who.into(),
            };
            let doomed = doomed.work(
                order("doomed-java", DOOMED[0], seed),
                order("doomed-we", DOOMED[1], seed + 1000),
            )?;
            tokio::time::sleep(time / 2).await;
            doomed.die().await?;
        }
        Ok(())
    };
    let mut seen = PermitRange::default();
    let everybody = async { tokio::try_join!(at_work(fleet, LockMode::Mixed, time, random), kill) };
    let ((tally, logs), ()) = tokio::select! {
        done = everybody => done?,
        failure = watch(world, &mut seen) => return Err(failure),
    };
    let by_worker: BTreeMap<&str, usize> = logs
        .iter()
        .map(|(who, grants)| (&**who, grants.len()))
        .collect();
    let idle = by_worker.values().any(|grants| *grants == 0);
    let most = most_of_a_name(&logs);
    ensure!(most <= TOTAL as usize, "{most} of {TOTAL} were out at once");

    let mut missing = 0;
    for name in NAMES {
        let there = balance(world, name, killed)?;
        missing += i64::from(TOTAL) - there;
        // A killed process, even one that was queued, keeps no other client from the permits that are left.
        let all = u32::try_from(there)?;
        let semaphore = client.counting_semaphore(name);
        let got = semaphore.acquire_timeout(all, PASSED_OVER).await?;
        ensure!(got, "{name}: what is there cannot be had");
        let rest: i64 = world.server().query(&["GET", name]);
        ensure!(rest == 0, "{name}: {rest} are left of all");
        ensure!(semaphore.delete().await?, "it was there");
    }
    client.close().await?;
    world.forget_done()?;
    if idle || most <= MOST_WANTED || (killed && missing == 0) {
        return Ok(Err(format!(
            "somebody never got a permit, or never more than {most} were out, or the killed had none: {by_worker:?}"
        )));
    }
    let (permits, waits) = (by_worker.values().sum::<usize>(), tally.refused);
    Ok(Ok(format!(
        "{permits} permits {by_worker:?}, {waits} waits over, at most {most} of {TOTAL} at once, {} to {} there in {} looks, {missing} gone",
        seen.least, seen.most, seen.looks
    )))
}

/// Returns how many permits are available now that all workers have ended: as many as the record says.
fn balance(world: &World, name: &str, killed: bool) -> Outcome<i64> {
    let there: i64 = world.server().query(&["GET", name]);
    let book = |what: &str| -> i64 {
        let entry: Option<i64> = world.server().query(&["GETDEL", &format!("{what}:{name}")]);
        entry.unwrap_or(0)
    };
    let (perhaps, certain) = (book("perhaps"), book("certain"));
    ensure!(
        killed || (perhaps, certain) == (0, 0),
        "{name}: {certain} to {perhaps} are out though everybody has come back"
    );
    let all = i64::from(TOTAL);
    ensure!(
        (all - perhaps..=all - certain).contains(&there),
        "{name}: {there} of {all} are there, and {certain} to {perhaps} are out"
    );
    Ok(there)
}

/// The least and the most permits that were in the store whenever it was polled.
#[derive(Default)]
struct PermitRange {
    looks: u64,
    least: i64,
    most: i64,
}

/// Polls the store until there are fewer permits than none, or more than there can be.
async fn watch(world: &World, seen: &mut PermitRange) -> Failure {
    seen.least = i64::MAX;
    loop {
        for name in NAMES {
            let there: Option<i64> = world.server().query(&["GET", name]);
            let there = there.unwrap_or(-1);
            if !(0..=i64::from(TOTAL)).contains(&there) {
                return Failure::new(format!("{name}: {there} of {TOTAL} are there"));
            }
            seen.looks += 1;
            seen.least = seen.least.min(there);
            seen.most = seen.most.max(there);
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

fn most_of_a_name(logs: &Logs) -> usize {
    let of = |name: &'static str| {
        let grants = logs.values().flatten();
        most_at_once(grants.filter(move |grant| grant.name == name))
    };
    NAMES.map(of).into_iter().max().unwrap_or(0)
}

/// The permits of each semaphore. Enough are left for any worker, however many the killed processes had.
const TOTAL: u32 = 12;
const MOST_WANTED: usize = 3;
/// How many threads and tasks the killed processes have; each takes up to three permits.
const DOOMED: [u64; 2] = [1, 2];
/// The workers keep permits for so long that some of the killed ones have permits when they die.
const LONG_MOMENT: Duration = Duration::from_millis(200);
/// Upper bound; waiters that died in the queue are skipped within six seconds.
const PASSED_OVER: Duration = Duration::from_secs(120);
/// Each worker has to get its turn, on a machine that starts JVMs meanwhile.
const SHORTEST: Duration = Duration::from_secs(3);
