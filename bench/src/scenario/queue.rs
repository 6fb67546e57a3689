//! The queue scenario: many waiters in one process for a lock that another process holds; then it releases the lock, and each has it once.

use std::thread;
use std::time::Duration;

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
        job: Job::Queue,
        callers: act.cell.callers,
        names: 1,
        seconds: 0.0,
        warmup: stage.warmup(act).as_secs_f64(),
        yields: false,
    };
    // A fresh process, since its memory is to be compared.
    let mut crowd = stage.fresh_child(act.contestant)?;
    crowd.give(&work)?;
    if let Ready::Cannot(why) = stage.ready(act, &mut crowd)? {
        return Ok(Result::Cannot(why));
    }
    let mut holder = stage.fresh_child(act.contestant)?;
    holder.give(&Work {
        job: Job::Step,
        ..work
    })?;
    if let Ready::Cannot(why) = stage.ready(act, &mut holder)? {
        return Ok(Result::Cannot(why));
    }
    holder.say("go")?;
    holder.say("lock")?;
    holder.next_reply(stage.patience())?;

    let memory_before = crowd.memory()?;
    crowd.say("go")?;
    let answer = crowd.next_reply(stage.patience())?;
    let missing = || Failure::new("it did not say how many wait");
    let waiters = answer.waiting.ok_or_else(missing)?;
    asleep(&mut server)?;
    let memory = crowd.memory()?.saturating_sub(memory_before);
    let subscriptions = server.subscriptions()?;

    let before = server.gauges()?;
    holder.say("unlock")?;
    let answer = crowd.next_reply(stage.patience())?;
    let done = server.gauges()?.since(&before);
    let missing = || Failure::new("it did not say what it did");
    let tally = answer.tally.ok_or_else(missing)?;
    let cycles = to_f64(tally.cycles.max(1));
    Ok(Result::Figures(Figures::from([
        (figure::RATE, cycles / tally.seconds),
        (figure::SUBSCRIPTIONS, to_f64(subscriptions)),
        (figure::MEMORY, to_f64(memory) / to_f64(waiters.max(1))),
        (figure::SCRIPTS, to_f64(done.scripts()) / cycles),
        (figure::SERVER_CPU, done.cpu / cycles * 100_000.0),
    ])))
}

/// Waits until no more requests are sent: all callers are waiting.
fn asleep(server: &mut Server) -> Outcome {
    let mut asked = server.gauges()?.scripts();
    for _ in 0..LOOKS {
        thread::sleep(Duration::from_millis(500));
        let now = server.gauges()?.scripts();
        // The head of a queue may poll from time to time.
        if now <= asked + FEW {
            return Ok(());
        }
        asked = now;
    }
    Err(Failure::new("the waiters never fall asleep"))
}

const LOOKS: u32 = 120;
const FEW: u64 = 4;
