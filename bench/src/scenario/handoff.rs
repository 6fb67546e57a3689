//! The hand-off scenario, the time a lock takes from one process to another: one holds it, the other requests it and falls asleep, the one
//! releases it. There is no other client, so nothing but the hand-off is in the time.

use std::thread;
use std::time::{Duration, Instant};

use crate::book::{Figures, Result, figure};
use crate::child::Child;
use crate::failure::{Failure, Outcome, ensure};
use crate::histogram::Histogram;
use crate::line::{Job, Work};
use crate::scenario::Act;
use crate::scenario::cycle::percentiles;
use crate::server::{Server, to_f64};
use crate::stage::{Ready, Stage};

pub(super) fn play(stage: &mut Stage, act: &Act) -> Outcome<Result> {
    let mut server = Server::start()?;
    let work = Work {
        url: server.url(),
        job: Job::Step,
        callers: 1,
        names: 1,
        seconds: 0.0,
        warmup: 0.0,
        yields: false,
    };
    let warmup = stage.warmup(act);
    let mut children = stage.children(act.contestant, 2)?;
    if let Some(why) = crowd(&mut children, &work, stage, act)? {
        return Ok(Result::Cannot(why));
    }
    for child in &mut children {
        child.give(&work)?;
        if let Ready::Cannot(why) = stage.ready(act, child)? {
            return Ok(Result::Cannot(why));
        }
        child.say("go")?;
    }
    let mut dice = u64::from(act.repetition) + 1;
    let [one, other] = &mut children[..] else {
        return Err(Failure::new("two processes were asked for"));
    };
    let warm = Instant::now() + warmup;
    while Instant::now() < warm {
        round(one, other, &mut dice, stage.patience())?;
    }
    let mut latency = Histogram::default();
    let before = server.gauges()?;
    let end = Instant::now() + stage.handoff_time();
    while Instant::now() < end {
        latency.record(round(one, other, &mut dice, stage.patience())?);
    }
    let done = server.gauges()?.since(&before);
    for child in &mut children {
        child.say("end")?;
    }
    stage.return_children(act.contestant, children);

    let mut figures = Figures::new();
    percentiles(&latency, &mut figures);
    // A round has two grants: the hand-off, and the first holder's own.
    let grants = to_f64(latency.count() * 2).max(1.0);
    figures.insert(figure::SCRIPTS, to_f64(done.scripts()) / grants);
    Ok(Result::Figures(figures))
}

/// Lets both take turns at another name for a while, with callers enough that some always wait: the rounds alone are too few for a virtual
/// machine to compile what they run.
fn crowd(
    children: &mut [Child],
    work: &Work,
    stage: &mut Stage,
    act: &Act,
) -> Outcome<Option<String>> {
    let work = Work {
        job: Job::Cycle,
        callers: 4,
        warmup: stage.warmup(act).as_secs_f64(),
        seconds: 0.1,
        ..work.clone()
    };
    for child in children.iter_mut() {
        child.give(&work)?;
    }
    for child in children.iter_mut() {
        if let Ready::Cannot(why) = stage.ready(act, child)? {
            return Ok(Some(why));
        }
    }
    for child in children.iter_mut() {
        child.say("go")?;
    }
    for child in children.iter_mut() {
        child.next_reply(stage.patience())?;
    }
    Ok(None)
}

/// Plays one hand-off; returns its nanoseconds.
fn round(one: &mut Child, other: &mut Child, dice: &mut u64, limit: Duration) -> Outcome<u64> {
    one.say("lock")?;
    at(one, limit)?;
    other.say("lock")?;
    // The time is long enough to send a request, to subscribe, to send another and to sleep; it is not in step with any timer.
    *dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    thread::sleep(ASLEEP_AFTER + Duration::from_micros((*dice >> 33) % 2_000));
    one.say("unlock")?;
    let released = at(one, limit)?;
    let held = at(other, limit)?;
    other.say("unlock")?;
    at(other, limit)?;
    // Each round begins at rest.
    thread::sleep(ASLEEP_AFTER);
    ensure!(held > released, "held before it was released");
    Ok(held - released)
}

fn at(child: &mut Child, limit: Duration) -> Outcome<u64> {
    let answer = child.next_reply(limit)?;
    let missing = || Failure::new("it did not say when");
    answer.at.ok_or_else(missing)
}

const ASLEEP_AFTER: Duration = Duration::from_millis(3);
