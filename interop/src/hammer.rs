//! The hammer: three processes of ours and those of the other libraries add to the same counters under the same locks, all at once.

pub(crate) mod counting;
mod doomed;
pub(crate) mod permits;
pub(crate) mod quorum_lock;
pub(crate) mod read_write;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;

use crate::checker::{self, Grant, Overlap, Setback};
use crate::failure::{Failure, Outcome, ensure};
use crate::library::Shared;
use crate::peer::Peer;
use crate::quorum;
use crate::stage::Fleet;
use crate::support::{RedisServer, SeededRng};
use crate::worker::{LockMode, MOMENT, Tally, Work};

/// Plays a round without locks, which has to go wrong, and then with them.
pub(crate) async fn play(fleet: &mut Fleet) -> Outcome<String> {
    let mut random = SeededRng::from_env_or(20_201_013);
    let mut time = time(fleet);
    let mut short = CONTROL.min(time / 3);
    let control = loop {
        let control = round(fleet, LockMode::Unlocked, short, &mut random).await?;
        if control.lost_updates() > 0 && !control.overlaps.is_empty() {
            break control;
        }
        short = longer(short, || {
            format!("without locks nothing went wrong, so the hammer proves nothing: {control}")
        })?;
    };
    let report = loop {
        let report = round(fleet, LockMode::Mixed, time, &mut random).await?;
        is_right(fleet, &report)?;
        let mut by_worker = report.by_worker.values();
        if by_worker.all(|by_name| by_name.len() == NAMES.len()) {
            break report;
        }
        time = longer(time, || format!("somebody never got a lock: {report}"))?;
    };
    Ok(format!("{report}; without locks {control}"))
}

/// Returns a longer time, in which each worker may have its turn on a busy machine, too. Fails when that is too long.
fn longer(time: Duration, why: impl FnOnce() -> String) -> Outcome<Duration> {
    if time < LONGEST {
        return Ok(time * 2);
    }
    Err(Failure::new(why()))
}

/// Checks that no two workers held one lock at the same time, and that no update was lost.
fn is_right(fleet: &Fleet, report: &Report) -> Outcome {
    if let Some(Overlap { first, second }) = report.overlaps.first() {
        let (first, second) = (first.line(), second.line());
        let failure = format!("two held one lock: {first} and {second}; {report}");
        return Err(Failure::new(failure));
    }
    if let Some(Setback { first, second }) = report.setbacks.first() {
        let (first, second) = (first.line(), second.line());
        let failure = format!("a token did not grow: {first} and then {second}; {report}");
        return Err(Failure::new(failure));
    }
    let tokens = if fleet.shared == Shared::Fenced {
        report.grants()
    } else {
        0
    };
    ensure!(
        report.tokens == tokens,
        "{} grants have a token, not {tokens}: {report}",
        report.tokens
    );
    ensure!(
        report.counted == report.grants(),
        "the counters are not exact: {report}"
    );
    Ok(())
}

/// Returns how long a round takes: the more kinds of locks are played, the less time each of them has.
fn time(fleet: &Fleet) -> Duration {
    let time = fleet.world.pace.hammer;
    match fleet.shared {
        Shared::Plain => time,
        Shared::Counting
        | Shared::Fair
        | Shared::Fenced
        | Shared::Latch
        | Shared::Multi
        | Shared::ReadWrite
        | Shared::Semaphore => time.mul_f64(0.5),
        Shared::Simple => time.mul_f64(0.3).max(Duration::from_secs(1)),
        // A lock on a majority of servers takes longer until each worker has had its turn.
        Shared::Quorum | Shared::SimpleQuorum => time.mul_f64(0.3).max(Duration::from_secs(2)),
    }
}

/// Returns how long the last holds may take. A Java thread may sleep at a read/write lock that is free (`rw-asleep`), when no other thread
/// is left to wake it: for two leases, where the writer before it had entered twice.
fn overtime(shared: Shared) -> Duration {
    match shared {
        Shared::ReadWrite => OVERTIME * 3,
        _ => OVERTIME,
    }
}

/// Returns how many tasks a process has. Where all waiters retry and a majority of servers is needed, a few are a crowd.
const fn tasks(shared: Shared) -> u64 {
    match shared {
        Shared::Quorum | Shared::SimpleQuorum => 4,
        _ => 8,
    }
}

/// The result of a round.
struct Report {
    /// The sum of the counters.
    counted: u64,
    /// The number of grants by worker and lock.
    by_worker: BTreeMap<String, BTreeMap<String, u64>>,
    refused: u64,
    overlaps: Vec<Overlap>,
    /// The number of grants that have a token.
    tokens: u64,
    setbacks: Vec<Setback>,
}

impl Report {
    fn grants(&self) -> u64 {
        self.by_worker.values().flat_map(BTreeMap::values).sum()
    }

    fn lost_updates(&self) -> u64 {
        self.grants().saturating_sub(self.counted)
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (grants, counted) = (self.grants(), self.counted);
        write!(f, "{grants} grants, counted {counted}")?;
        write!(f, ", {} overlaps", self.overlaps.len())?;
        if self.tokens > 0 {
            write!(f, ", {} tokens", self.tokens)?;
        }
        if self.refused > 0 {
            write!(f, ", {} waits over", self.refused)?;
        }
        for (who, by_name) in &self.by_worker {
            write!(f, ", {who} {}", by_name.values().sum::<u64>())?;
        }
        Ok(())
    }
}

async fn round(
    fleet: &Fleet,
    manner: LockMode,
    time: Duration,
    random: &mut SeededRng,
) -> Outcome<Report> {
    let (tally, logs) = work(fleet, manner, time, random).await?;
    let report = Report {
        counted: count(&fleet.servers()[0], "counter")?,
        refused: tally.refused,
        ..examine(logs)
    };
    ensure!(
        report.grants() == tally.grants,
        "{} grants were logged, {} reported",
        report.grants(),
        tally.grants
    );
    Ok(report)
}

/// The log of each worker.
type Logs = BTreeMap<String, Vec<Grant>>;

/// Lets all workers run at once.
async fn work(
    fleet: &Fleet,
    manner: LockMode,
    time: Duration,
    random: &mut SeededRng,
) -> Outcome<(Tally, Logs)> {
    connect_all(fleet).await?;
    at_work(fleet, manner, time, random).await
}

/// Connects all peers before the work begins: connecting takes each of them a second.
async fn connect_all(fleet: &Fleet) -> Outcome {
    for (number, peer) in fleet.peers.iter().enumerate() {
        connect(fleet.servers(), peer)
            .await
            .map_err(|failure| failure.during(number))?;
    }
    Ok(())
}

/// Lets all workers run, where the peers are connected already; the peers disconnect at the end.
async fn at_work(
    fleet: &Fleet,
    manner: LockMode,
    time: Duration,
    random: &mut SeededRng,
) -> Outcome<(Tally, Logs)> {
    let logs = TempDir::with_prefix("distlock-hammer-")?;
    let servers = fleet.servers();
    let mut order = |who: String| Work {
        urls: servers.iter().map(RedisServer::url).collect(),
        shared: fleet.shared,
        names: NAMES.map(str::to_owned).to_vec(),
        tasks: tasks(fleet.shared),
        time,
        moment: MOMENT,
        manner,
        seed: random.below(1 << 32),
        log: logs.path().join(&who),
        who,
    };
    let mut workers = tokio::task::JoinSet::new();
    let mut missing = BTreeSet::new();
    for (number, peer) in fleet.peers.iter().enumerate() {
        let work = order(format!("{}-{number}", peer.build().word()));
        missing.insert(work.who.clone());
        workers.spawn(named(work.who.clone(), their_worker(peer.clone(), work)));
    }
    for number in 0..PROCESSES {
        let mut work = order(format!("we-{number}"));
        // The first process of ours works without scripts, where it shares the simple lock of the other libraries.
        if fleet.shared == Shared::Simple && number == 0 {
            work.urls[0] += "?scripts=off";
        }
        missing.insert(work.who.clone());
        workers.spawn(named(work.who.clone(), our_worker(work)));
    }

    let mut tally = Tally::default();
    let everyone = async {
        while let Some(done) = workers.join_next().await {
            let (who, done) = done??;
            missing.remove(&who);
            tally.grants += done.grants;
            tally.refused += done.refused;
        }
        Ok::<_, Failure>(())
    };
    let all = tokio::time::timeout(time + overtime(fleet.shared), everyone).await;
    all.map_err(|_| hangs(&missing, &servers[0]))??;
    for peer in &fleet.peers {
        peer.ask(json!({"cmd": "close", "client": CLIENT})).await?;
    }

    let logs = read(logs.path())?;
    let all = fleet.peers.len() + PROCESSES as usize;
    ensure!(
        logs.len() == all,
        "{} of {all} workers have left a log",
        logs.len()
    );
    Ok((tally, logs))
}

async fn named<T>(who: String, work: impl Future<Output = Outcome<T>>) -> Outcome<(String, T)> {
    Ok((who, work.await?))
}

/// Describes which worker's waiter hangs, and for what: what is held then, by which owner, and which clients are subscribed.
fn hangs(missing: &BTreeSet<String>, server: &RedisServer) -> Failure {
    let mut what = format!("a waiter hangs: {missing:?} have not come back");
    for key in server.keys() {
        let found: redis::RedisResult<redis::Value> = server.try_query(&["HGETALL", &key]);
        let left = server.pttl(&key);
        what += &format!("; `{key}` for {left} ms: {found:?}");
    }
    what += &format!("; heard: {:?}", server.pubsub_channels());
    Failure::new(what)
}

async fn connect(servers: &[RedisServer], peer: &Arc<Peer>) -> Outcome {
    let addresses = quorum::addresses(servers.iter());
    let connect = match &*addresses {
        [address] => json!({"cmd": "connect", "client": CLIENT, "address": address}),
        several => json!({"cmd": "connect", "client": CLIENT, "addresses": several}),
    };
    peer.ask(connect).await.map(drop)
}

async fn their_worker(peer: Arc<Peer>, work: Work) -> Outcome<Tally> {
    let mut order = work.to_json();
    order["cmd"] = "hammer".into();
    order["client"] = CLIENT.into();
    Tally::from_json(&peer.ask(order).await?)
}

/// Starts another process of this program as a worker.
async fn our_worker(work: Work) -> Outcome<Tally> {
    let output = Command::new(std::env::current_exe()?)
        .arg("worker")
        .arg(work.to_json().to_string())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "{} failed: {said}{}",
        work.who,
        String::from_utf8_lossy(&output.stderr)
    );
    Tally::from_json(&serde_json::from_str(&said)?)
}

/// Returns the sum of the counters, and removes them.
fn count(server: &RedisServer, what: &str) -> Outcome<u64> {
    let mut counted = 0;
    for name in NAMES {
        let counter: Option<u64> = server.query(&["GETDEL", &format!("{what}:{name}")]);
        counted += counter.unwrap_or(0);
    }
    Ok(counted)
}

fn read(folder: &Path) -> Outcome<Logs> {
    let mut logs = Logs::new();
    for log in fs::read_dir(folder)? {
        let log = log?;
        let worker = log.file_name().to_string_lossy().into_owned();
        let grants = checker::read(&fs::read_to_string(log.path())?)?;
        logs.insert(worker, grants);
    }
    Ok(logs)
}

fn examine(logs: Logs) -> Report {
    let mut grants: Vec<Grant> = Vec::new();
    let mut by_worker: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    for (worker, log) in logs {
        let by_name = by_worker.entry(worker).or_default();
        for grant in log {
            *by_name.entry(grant.name.clone()).or_default() += 1;
            grants.push(grant);
        }
    }
    Report {
        counted: 0,
        by_worker,
        refused: 0,
        tokens: grants
            .iter()
            .map(|grant| u64::from(grant.token.is_some()))
            .sum(),
        setbacks: checker::setbacks(grants.clone()),
        overlaps: checker::overlaps(grants),
    }
}

const NAMES: [&str; 3] = ["hammer-1", "hammer-2", "hammer-3"];
const PROCESSES: u32 = 3;
const CLIENT: &str = "hammer";
const CONTROL: Duration = Duration::from_secs(2);
/// If a worker is idle for this long, the machine is not the cause.
const LONGEST: Duration = Duration::from_secs(40);
/// Upper bound for the last holds on a busy machine; only a worker that hangs waits this long.
const OVERTIME: Duration = Duration::from_secs(180);
