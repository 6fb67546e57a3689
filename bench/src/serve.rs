//! A contestant's side of the lines: what one is, and how it is told what to do.

use std::io::{self, Lines, StdinLock, Write};
use std::sync::Arc;

use tokio::runtime::Runtime;

use crate::failure::{Failure, Outcome, ensure};
use crate::line::{Answer, Job, Work};
use crate::{clock, spin};

/// Something that locks: one client, shared by all callers.
pub(crate) trait Locker: Clone + Send + Sync + Sized + 'static {
    type Hold: Send + 'static;

    /// Why it cannot do this, if it cannot.
    fn cannot(_: &Work) -> Option<&'static str> {
        None
    }

    fn version() -> String;

    fn connect(work: &Work) -> impl Future<Output = Outcome<Self>> + Send;

    fn acquire(&self, name: &Arc<str>) -> impl Future<Output = Outcome<Self::Hold>> + Send;

    fn release(&self, hold: Self::Hold) -> impl Future<Output = Outcome> + Send;

    /// Whether it knows of nothing that ended this hold.
    fn is_held(_: &Self::Hold) -> bool {
        true
    }

    fn close(self) -> impl Future<Output = Outcome> + Send {
        async { Ok(()) }
    }
}

/// Answers work with results. What is measured runs in tasks of the runtime, never in `block_on` itself:
/// that is half as fast, and nobody's service is written so.
pub(crate) fn serve<L: Locker>(runtime: &Runtime) -> Outcome {
    let mut orders = Orders::new();
    while let Some(work) = orders.work()? {
        if let Some(why) = L::cannot(&work) {
            say(&Answer::cannot(why))?;
            continue;
        }
        if let Err(failure) = perform::<L>(runtime, &work, &mut orders) {
            let failed = Some(failure.to_string());
            say(&Answer {
                failed,
                ..Answer::default()
            })?;
        }
    }
    Ok(())
}

fn perform<L: Locker>(runtime: &Runtime, work: &Work, orders: &mut Orders) -> Outcome {
    let order = work.clone();
    let locker = within(runtime, async move { L::connect(&order).await })?;
    match work.job {
        Job::Cycle => {
            within(runtime, spin::warm(locker.clone(), work.clone()))?;
            orders.ready::<L>()?;
            let tally = within(runtime, spin::cycle(locker.clone(), work.clone()))?;
            say(&Answer {
                tally: Some(tally),
                ..Answer::default()
            })?;
        }
        Job::Hold => {
            // Whatever is made once is made before memory is first looked at.
            within(runtime, spin::warm(locker.clone(), few(work)))?;
            orders.ready::<L>()?;
            let holds = within(runtime, spin::hold(locker.clone(), work.clone()))?;
            say(&Answer {
                held: Some(holds.len() as u64),
                ..Answer::default()
            })?;
            orders.expect("end")?;
            let lost = holds.iter().filter(|hold| !L::is_held(hold)).count();
            say(&Answer {
                lost: Some(lost as u64),
                ..Answer::default()
            })?;
            // By its end the server is gone: nobody waits for these to be given back.
            drop(holds);
            return Ok(());
        }
        Job::Queue => {
            within(runtime, spin::warm(locker.clone(), few(work)))?;
            orders.ready::<L>()?;
            let waiting = runtime.spawn(spin::queue(locker.clone(), work.clone()));
            say(&Answer {
                waiting: Some(work.callers as u64),
                ..Answer::default()
            })?;
            let tally = runtime.block_on(waiting)??;
            say(&Answer {
                tally: Some(tally),
                ..Answer::default()
            })?;
        }
        Job::Step => {
            orders.ready::<L>()?;
            steps(runtime, &locker, orders)?;
        }
    }
    within(runtime, locker.close())
}

/// Takes and gives back one lock as it is told, and says when.
fn steps<L: Locker>(runtime: &Runtime, locker: &L, orders: &mut Orders) -> Outcome {
    let name: Arc<str> = spin::name(0).into();
    let mut held = None;
    loop {
        let at = match orders.next()?.as_deref() {
            Some("lock") => {
                let (locker, name) = (locker.clone(), name.clone());
                let (hold, at) = within(runtime, async move {
                    let hold = locker.acquire(&name).await?;
                    Ok((hold, clock::now()))
                })?;
                held = Some(hold);
                at
            }
            Some("unlock") => {
                let locker = locker.clone();
                let hold = held.take().ok_or_else(|| Failure::new("nothing is held"))?;
                within(runtime, async move {
                    let at = clock::now();
                    locker.release(hold).await?;
                    Ok(at)
                })?
            }
            Some("end") => return Ok(()),
            other => return Err(Failure::new(format!("not a step: {other:?}"))),
        };
        say(&Answer {
            at: Some(at),
            ..Answer::default()
        })?;
    }
}

/// The same work on names of its own, by few: to warm up what will wait or hold later.
fn few(work: &Work) -> Work {
    Work {
        callers: work.callers.min(64),
        names: work.callers.min(64),
        ..work.clone()
    }
}

fn within<T: Send + 'static>(
    runtime: &Runtime,
    work: impl Future<Output = Outcome<T>> + Send + 'static,
) -> Outcome<T> {
    runtime.block_on(runtime.spawn(work))?
}

pub(crate) fn say(answer: &Answer) -> Outcome {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(answer)?)?;
    out.flush()?;
    Ok(())
}

/// What the orchestrator says.
pub(crate) struct Orders {
    lines: Lines<StdinLock<'static>>,
}

impl Orders {
    pub(crate) fn new() -> Self {
        Self {
            lines: io::stdin().lines(),
        }
    }

    pub(crate) fn next(&mut self) -> Outcome<Option<String>> {
        Ok(self.lines.next().transpose()?)
    }

    /// `None` when there is no more.
    pub(crate) fn work(&mut self) -> Outcome<Option<Work>> {
        let line = self.next()?;
        Ok(line.map(|line| serde_json::from_str(&line)).transpose()?)
    }

    fn ready<L: Locker>(&mut self) -> Outcome {
        say(&Answer::ready(L::version()))?;
        self.expect("go")
    }

    pub(crate) fn expect(&mut self, word: &str) -> Outcome {
        let line = self.next()?;
        ensure!(line.as_deref() == Some(word), "not `{word}`: {line:?}");
        Ok(())
    }
}
