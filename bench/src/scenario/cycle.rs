//! The cycle scenarios: callers that lock and unlock in a loop, in one process or in several.

use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::book::{Figures, Result, figure};
use crate::failure::{Failure, Outcome};
use crate::histogram::Histogram;
use crate::line::{Job, Tally, Work};
use crate::scenario::Act;
use crate::server::{Gauges, Server, to_f64};
use crate::stage::{Ready, Stage};

pub(super) fn play(stage: &mut Stage, act: &Act) -> Outcome<Result> {
    let mut server = if act.contestant.is_embedded() {
        None
    } else {
        Some(Server::start()?)
    };
    // The folder is removed after the measurement, as the server's is.
    let folder = TempDir::with_prefix("distlock-bench-")?;
    let url = match (&server, act.contestant.name) {
        (Some(server), _) => server.url(),
        (None, "sqlite") => format!("sqlite:{}/locks.db", folder.path().display()),
        (None, _) => "memory:".into(),
    };
    let work = Work {
        url,
        job: Job::Cycle,
        callers: act.cell.callers,
        names: act.cell.names,
        seconds: stage.seconds().as_secs_f64(),
        warmup: stage.warmup(act).as_secs_f64(),
        yields: act.contestant.is_embedded() && act.cell.callers > 1,
    };
    let mut children = stage.children(act.contestant, act.cell.processes)?;
    for child in &mut children {
        child.give(&work)?;
    }
    if let Some(server) = &server
        && !stage.knows_what_is_sent(act)
    {
        let warmup = Duration::from_secs_f64(work.warmup);
        thread::sleep(warmup / 2);
        let sampled = server.sample((warmup / 4).min(LONGEST_SAMPLE))?;
        stage.note_what_is_sent(act, sampled);
    }
    for child in &mut children {
        if let Ready::Cannot(why) = stage.ready(act, child)? {
            return Ok(Result::Cannot(why));
        }
    }
    let gauges = |server: &mut Option<Server>| server.as_mut().map(Server::gauges).transpose();
    let before = gauges(&mut server)?;
    let cpu_before = sum(children.iter().map(|child| child.cpu()))?;
    for child in &mut children {
        child.say("go")?;
    }
    let mut tallies = Vec::new();
    for child in &mut children {
        let answer = child.next_reply(stage.seconds() + stage.patience())?;
        let missing = || Failure::new("it did not say what it did");
        tallies.push(answer.tally.ok_or_else(missing)?);
    }
    let cpu = sum(children.iter().map(|child| child.cpu()))? - cpu_before;
    let after = gauges(&mut server)?;
    stage.return_children(act.contestant, children);

    let mut figures = rates(&tallies);
    if act.cell.names == 1 && act.cell.callers > 1 {
        let handoffs = tallies.iter();
        let handoffs = handoffs.map(|tally| to_f64(tally.handoffs) / tally.seconds);
        let handoffs: f64 = handoffs.sum();
        // A contestant that does not count them reports none.
        if handoffs > 0.0 {
            figures.insert(figure::HANDOFFS, handoffs);
        }
    }
    let finished = to_f64(
        tallies
            .iter()
            .map(|tally| tally.finished)
            .sum::<u64>()
            .max(1),
    );
    figures.insert(figure::CLIENT_CPU, cpu / finished * 100_000.0);
    if let (Some(before), Some(after)) = (before, after) {
        let done: Gauges = after.since(&before);
        figures.insert(figure::SERVER_CPU, done.cpu / finished * 100_000.0);
        figures.insert(figure::CPU, (cpu + done.cpu) / finished * 100_000.0);
        figures.insert(figure::READS, to_f64(done.reads) / finished);
        if let Some(sent) = stage.sent(act, &done.calls) {
            figures.insert(figure::COMMANDS, sent / finished);
        }
    }
    Ok(Result::Figures(figures))
}

fn rates(tallies: &[Tally]) -> Figures {
    let mut latency = Histogram::default();
    for tally in tallies {
        latency.add(&tally.latency);
    }
    let rates: Vec<f64> = tallies
        .iter()
        .map(|tally| to_f64(tally.cycles) / tally.seconds)
        .collect();
    let rate: f64 = rates.iter().sum();
    let mut figures = Figures::from([(figure::RATE, rate)]);
    percentiles(&latency, &mut figures);
    if tallies.len() > 1 && rate > 0.0 {
        let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
        figures.insert(figure::LEAST_SHARE, least / rate);
    }
    let least = tallies.iter().map(|tally| tally.least).min().unwrap_or(0);
    let most = tallies.iter().map(|tally| tally.most).max().unwrap_or(0);
    figures.insert(figure::EVENNESS, to_f64(least) / to_f64(most.max(1)));
    figures
}

/// Adds percentiles in microseconds, from latencies in nanoseconds.
pub(super) fn percentiles(latency: &Histogram, figures: &mut Figures) {
    let parts = [
        (figure::P50, 0.5),
        (figure::P99, 0.99),
        (figure::P999, 0.999),
    ];
    for (name, part) in parts {
        if let Some(nanos) = latency.quantile(part) {
            figures.insert(name, nanos / 1000.0);
        }
    }
    figures.insert(figure::COUNT, to_f64(latency.count()));
}

fn sum(values: impl Iterator<Item = Outcome<f64>>) -> Outcome<f64> {
    values.sum()
}

/// The longest sample: MONITOR slows the server down, and a longer one is not worth that.
const LONGEST_SAMPLE: Duration = Duration::from_millis(250);
