//! All workers wait for a while and then give up, or hold the lock for a moment; again and again. Among Redisson's clients alone this ends
//! with a queue that waits for a client that is gone.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use distlock::Client;
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::checker::{self, Grant};
use crate::clock::Stamp;
use crate::failure::{Failure, Outcome, ensure, granted};
use crate::peer::Peer;
use crate::stage::Fleet;
use crate::support::SeededRng;
use crate::worker::Tally;

/// Plays twenty rounds.
pub(crate) async fn mix(fleet: &mut Fleet) -> Outcome<String> {
    let rounds = fleet.world.pace.rounds(20);
    play(fleet, rounds.into()).await
}

/// Plays a thousand rounds.
pub(crate) async fn long_mix(fleet: &mut Fleet) -> Outcome<String> {
    play(fleet, 1000).await
}

async fn play(fleet: &Fleet, rounds: u64) -> Outcome<String> {
    let mut random = SeededRng::from_env_or(20_201_013);
    let begun = Stamp::now();
    let logs = TempDir::with_prefix("distlock-mix-")?;
    let mut workers = JoinSet::new();
    for (number, peer) in fleet.peers.iter().enumerate() {
        let who = format!("{}-{number}", peer.build().word());
        let connect = json!({"cmd": "connect", "client": CLIENT, "address": fleet.world.address()});
        peer.ask(connect).await?;
        let order = json!({
            "cmd": "mix", "client": CLIENT, "name": NAME, "threads": THEIRS, "rounds": rounds,
            "shortest": SHORTEST, "longest": LONGEST, "seed": random.below(1 << 32),
            "log": logs.path().join(&who), "who": who,
        });
        let peer = peer.clone();
        workers.spawn(async move { Tally::from_json(&peer.ask(order).await?) });
    }
    let client = Client::connect(&fleet.world.server().url()).await?;
    let tasks = EVERYBODY - THEIRS * fleet.peers.len() as u64;
    let log = logs.path().join("we");
    workers.spawn(ours(
        client.clone(),
        tasks,
        rounds,
        random.next_u64(),
        log.into(),
    ));
    let mut tally = Tally::default();
    while let Some(done) = workers.join_next().await {
        let done = done??;
        tally.grants += done.grants;
        tally.refused += done.refused;
    }
    for peer in &fleet.peers {
        close(peer).await?;
    }
    client.close().await?;

    let turns = tally.grants + tally.refused;
    ensure!(
        turns == EVERYBODY * rounds,
        "{turns} rounds of {EVERYBODY} times {rounds}"
    );
    let grants = read(logs.path())?;
    ensure!(
        grants.len() as u64 == tally.grants,
        "{} grants were logged, {} reported",
        grants.len(),
        tally.grants
    );
    let idle = EVERYBODY as usize - distinct(&grants);
    ensure!(idle == 0, "{idle} of {EVERYBODY} never had it");
    let pause = longest_pause(begun, &grants);
    ensure!(
        pause <= WEDGED,
        "for {pause:?} nobody had it: the line waits for nobody"
    );
    let overlaps = checker::overlaps(grants);
    ensure!(
        overlaps.is_empty(),
        "two held it at once: {:?}",
        overlaps[0]
    );
    Ok(format!(
        "{} grants, {} gave up, the longest pause {} ms",
        tally.grants,
        tally.refused,
        pause.as_millis()
    ))
}

/// Runs our half of the workers.
async fn ours(
    client: Client,
    tasks: u64,
    rounds: u64,
    seed: u64,
    log: Arc<Path>,
) -> Outcome<Tally> {
    let mut waiting = JoinSet::new();
    for number in 0..tasks {
        let lock = client.fair_lock(NAME);
        let mut random = SeededRng::new(seed.wrapping_add(number));
        waiting.spawn(async move {
            let mut grants = Vec::new();
            for _ in 0..rounds {
                let patience = SHORTEST + random.below(LONGEST - SHORTEST);
                let patience = Duration::from_millis(patience);
                let Some(guard) = granted(lock.acquire_timeout(patience).await)? else {
                    continue;
                };
                let from = Stamp::now();
                tokio::time::sleep(Duration::from_millis(random.below(10))).await;
                let to = Stamp::now();
                guard.release().await?;
                grants.push(Grant {
                    name: NAME.into(),
                    who: format!("we/{number}"),
                    from,
                    to,
                    token: None,
                });
            }
            Ok::<_, Failure>(grants)
        });
    }
    let (mut lines, mut grants) = (String::new(), 0);
    while let Some(done) = waiting.join_next().await {
        for grant in done?? {
            lines += &grant.line();
            lines.push('\n');
            grants += 1;
        }
    }
    fs::write(log, lines)?;
    Ok(Tally {
        grants,
        refused: tasks * rounds - grants,
    })
}

async fn close(peer: &Arc<Peer>) -> Outcome {
    let closed = peer.ask(json!({"cmd": "close", "client": CLIENT})).await?;
    ensure!(closed == true, "there was no client to close");
    Ok(())
}

fn read(logs: &Path) -> Outcome<Vec<Grant>> {
    let mut grants = Vec::new();
    for log in fs::read_dir(logs)? {
        grants.extend(checker::read(&fs::read_to_string(log?.path())?)?);
    }
    grants.sort_by_key(|grant| grant.from);
    Ok(grants)
}

fn distinct(grants: &[Grant]) -> usize {
    let who: std::collections::BTreeSet<&str> = grants.iter().map(|grant| &*grant.who).collect();
    who.len()
}

/// Returns the longest time for which the lock was free, from one grant to the next.
fn longest_pause(begun: Stamp, grants: &[Grant]) -> Duration {
    let mut free_since = begun;
    let mut longest = Duration::ZERO;
    for grant in grants {
        longest = longest.max(grant.from.since(free_since));
        free_since = grant.to;
    }
    longest
}

const NAME: &str = "fair-mix";
const CLIENT: &str = "mix";
const EVERYBODY: u64 = 25;
/// The threads of each of two JVMs.
const THEIRS: u64 = 6;
/// The shortest wait, in ms.
const SHORTEST: u64 = 50;
const LONGEST: u64 = 5_000;
const WEDGED: Duration = Duration::from_secs(60);
