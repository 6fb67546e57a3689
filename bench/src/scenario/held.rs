//! The scenario of held locks: many locks held for a while by one client that keeps them alive.

use std::thread;

use crate::book::{Figures, Result, figure};
use crate::failure::{Failure, Outcome};
use crate::line::{Job, Work};
use crate::scenario::Act;
use crate::server::{Server, to_f64};
use crate::stage::{Ready, Stage};

pub(super) fn play(stage: &mut Stage, act: &Act) -> Outcome<Result> {
    let mut server = Server::start()?;
    let work = Work {
        url: server.url(),
        job: Job::Hold,
        callers: act.cell.callers,
        names: act.cell.names,
        seconds: 0.0,
        warmup: stage.warmup(act).as_secs_f64(),
        yields: false,
    };
    // A fresh process, since its memory is to be compared.
    let mut child = stage.fresh_child(act.contestant)?;
    child.give(&work)?;
    if let Ready::Cannot(why) = stage.ready(act, &mut child)? {
        return Ok(Result::Cannot(why));
    }
    let memory_before = child.memory()?;
    child.say("go")?;
    let missing = || Failure::new("it did not say how many it holds or lost");
    let held = child
        .next_reply(stage.patience())?
        .held
        .ok_or_else(missing)?;
    let memory = child.memory()?.saturating_sub(memory_before);

    let (before, cpu_before) = (server.gauges()?, child.cpu()?);
    let time = stage.held_time();
    thread::sleep(time);
    let (done, cpu) = (server.gauges()?.since(&before), child.cpu()? - cpu_before);

    // The locks are counted on the server too: a client that does not notice a loss cannot report it.
    let kept = server.keys()?.min(held);
    child.say("end")?;
    let lost = child
        .next_reply(stage.patience())?
        .lost
        .ok_or_else(missing)?;
    let seconds = time.as_secs_f64();
    Ok(Result::Figures(Figures::from([
        (figure::SCRIPTS, to_f64(done.scripts()) / seconds),
        (figure::CLIENT_LOAD, cpu / seconds),
        (figure::SERVER_LOAD, done.cpu / seconds),
        (figure::MEMORY, to_f64(memory) / to_f64(held.max(1))),
        (figure::LOST, to_f64(lost.max(held - kept))),
    ])))
}
