//! A contestant's side of the protocol of lines: the trait of a contestant, and the loop that runs its work orders.

use std::io::{self, Lines, StdinLock, Write};
use std::sync::Arc;

use tokio::runtime::Runtime;

use crate::failure::{Failure, Outcome, ensure};
use crate::line::{Answer, Job, Work};
use crate::{clock, spin};

/// A client that locks, shared by all callers.
pub(crate) trait Locker: Clone + Send + Sync + Sized + 'static {
    type Hold: Send + 'static;

    /// Returns why it cannot do this work, if it cannot.
    fn cannot(_: &Work) -> Option<&'static str> {
        None
    }

    fn version() -> String;

    fn connect(work: &Work) -> impl Future<Output = Outcome<Self>> + Send;

    fn acquire(&self, name: &Arc<str>) -> impl Future<Output = Outcome<Self::Hold>> + Send;

    fn release(&self, hold: Self::Hold) -> impl Future<Output = Outcome> + Send;

    /// Reports whether it knows of nothing that ended this hold.
    fn is_held(_: &Self::Hold) -> bool {
        true
    }

    fn close(self) -> impl Future<Output = Outcome> + Send {
        async { Ok(()) }
    }
}

/// Answers work orders with results. The measured code runs in tasks of the runtime, never in `block_on` itself: that is half as fast, and
/// no real service is written so.
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
            // State that is created once is created before memory is measured for the first time.
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
            // By its end the server is gone: these holds cannot be released.
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

/// Acquires and releases one lock as ordered, and reports when.
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

/// Returns the same work for few callers and on names of its own: to warm up processes that will wait or hold later.
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

/// The orders of the orchestrator.
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

    /// Returns the next order, or `None` when there is no more.
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
