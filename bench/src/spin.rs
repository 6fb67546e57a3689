//! The loops of callers: lock and unlock, hold, queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::failure::{Outcome, ensure};
use crate::histogram::Histogram;
use crate::line::{Tally, Work};
use crate::serve::Locker;

/// Lets `callers` lock and unlock until they are warm: for a while, and until each of the names was used, so that the state that is kept
/// for a name exists.
pub(crate) async fn warm<L: Locker>(locker: L, work: Work) -> Outcome<Tally> {
    let each = work.names / work.callers;
    let seconds = work.warmup;
    // Latencies are not recorded: memory that was freed just now would hide later allocations.
    spin(locker, work, seconds, each, false).await
}

/// Lets `callers` lock and unlock until time is up.
pub(crate) async fn cycle<L: Locker>(locker: L, work: Work) -> Outcome<Tally> {
    let seconds = work.seconds;
    spin(locker, work, seconds, 0, true).await
}

/// Lets `callers` lock and unlock until time is up, with at least `each` cycles per caller.
async fn spin<L: Locker>(
    locker: L,
    work: Work,
    seconds: f64,
    least: usize,
    noted: bool,
) -> Outcome<Tally> {
    let time = Duration::from_secs_f64(seconds);
    let mut callers = JoinSet::new();
    // Each caller reads the clock itself: on one thread, a timer would wait for callers that never do.
    let end = Instant::now() + time;
    let shared = Arc::new(Shared::default());
    for number in 0..work.callers {
        let names = Names::of(number, &work);
        let shared = (work.names == 1 && work.callers > 1).then(|| (shared.clone(), number));
        let until = (end, least as u64);
        let done = Caller {
            forgets: !noted,
            ..Caller::default()
        };
        callers.spawn(caller(
            locker.clone(),
            names,
            shared,
            work.yields,
            until,
            done,
        ));
    }
    let mut all = Vec::with_capacity(work.callers);
    while let Some(done) = callers.join_next().await {
        all.push(done??);
    }
    Ok(sum(&all, time))
}

/// The state that callers of one name share.
#[derive(Default)]
struct Shared {
    held: AtomicBool,
    /// The last holder, counted from one.
    last: AtomicUsize,
}

impl Shared {
    /// Reports whether another caller had it before.
    fn enter(&self, me: usize) -> Outcome<bool> {
        // A lock that excludes no caller would be the fastest of all.
        ensure!(
            !self.held.swap(true, Ordering::Relaxed),
            "two held it at once"
        );
        Ok(self.last.swap(me + 1, Ordering::Relaxed) != me + 1)
    }
}

async fn caller<L: Locker>(
    locker: L,
    mut names: Names,
    shared: Option<(Arc<Shared>, usize)>,
    yields: bool,
    (end, least): (Instant, u64),
    mut done: Caller,
) -> Outcome<Caller> {
    let mut began = Instant::now();
    while began < end || done.finished < least {
        let name = names.next();
        let hold = locker.acquire(&name).await?;
        let passed = match &shared {
            Some((shared, me)) => shared.enter(*me)?,
            None => false,
        };
        if yields {
            tokio::task::yield_now().await;
        }
        if let Some((shared, _)) = &shared {
            shared.held.store(false, Ordering::Relaxed);
        }
        locker.release(hold).await?;
        let now = Instant::now();
        done.note(now - began, now >= end);
        done.handoffs += u64::from(passed && now < end);
        began = now;
    }
    Ok(done)
}

/// Acquires every name, `callers` at a time.
pub(crate) async fn hold<L: Locker>(locker: L, work: Work) -> Outcome<Vec<L::Hold>> {
    let mut callers = JoinSet::new();
    for number in 0..work.callers {
        let (locker, names) = (locker.clone(), work.names);
        let mine = (number..names).step_by(work.callers);
        callers.spawn(async move {
            let mut holds = Vec::with_capacity(mine.len());
            for number in mine {
                holds.push(locker.acquire(&name(number).into()).await?);
            }
            Outcome::Ok(holds)
        });
    }
    let mut holds = Vec::with_capacity(work.names);
    while let Some(done) = callers.join_next().await {
        holds.append(&mut done??);
    }
    Ok(holds)
}

/// Lets `callers` wait for one name, and release it as soon as they have it.
pub(crate) async fn queue<L: Locker>(locker: L, work: Work) -> Outcome<Tally> {
    let shared: Arc<str> = name(0).into();
    let mut callers = JoinSet::new();
    for _ in 0..work.callers {
        let (locker, name) = (locker.clone(), shared.clone());
        callers.spawn(async move {
            let hold = locker.acquire(&name).await?;
            let first = Instant::now();
            locker.release(hold).await?;
            Outcome::Ok(first)
        });
    }
    let mut first: Option<Instant> = None;
    while let Some(done) = callers.join_next().await {
        let at = done??;
        first = Some(first.map_or(at, |first| first.min(at)));
    }
    // Measured from the first grant: the time for which the holder kept them waiting does not count.
    let took = first.map_or(Duration::ZERO, |first| first.elapsed());
    let cycles = work.callers as u64;
    Ok(Tally {
        cycles,
        finished: cycles,
        seconds: took.as_secs_f64(),
        ..Tally::default()
    })
}

/// Returns the name with this number; the orchestrator and the other languages use the same names.
pub(crate) fn name(number: usize) -> String {
    format!("bench:{number}")
}

/// The names one caller goes through, over and over.
pub(crate) enum Names {
    /// One name, made once.
    One(Arc<str>),
    /// Names made each time, few or many: a million of them do not fit into a cache, and that would not be the lock's cost.
    Some { next: usize, from: usize, to: usize },
}

impl Names {
    pub(crate) fn of(caller: usize, work: &Work) -> Self {
        if work.names == 1 {
            return Self::One(name(0).into());
        }
        if work.names == work.callers {
            return Self::One(name(caller).into());
        }
        let each = work.names / work.callers;
        Self::Some {
            next: caller * each,
            from: caller * each,
            to: (caller + 1) * each,
        }
    }

    pub(crate) fn next(&mut self) -> Arc<str> {
        match self {
            Self::One(name) => name.clone(),
            Self::Some { next, from, to } => {
                let number = *next;
                *next = if number + 1 == *to { *from } else { number + 1 };
                name(number).into()
            }
        }
    }
}

/// The measurements of one caller.
#[derive(Default)]
pub(crate) struct Caller {
    /// Whether latencies are not recorded.
    forgets: bool,
    finished: u64,
    handoffs: u64,
    /// The cycles within the time, in nanoseconds. They are put into buckets afterwards.
    took: Vec<u64>,
}

impl Caller {
    pub(crate) fn note(&mut self, took: Duration, over: bool) {
        self.finished += 1;
        if !self.forgets && !over {
            let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            self.took.push(nanos);
        }
    }
}

pub(crate) fn sum(callers: &[Caller], took: Duration) -> Tally {
    let mut latency = Histogram::default();
    for nanos in callers.iter().flat_map(|caller| &caller.took) {
        latency.record(*nanos);
    }
    let counts = || callers.iter().map(|caller| caller.took.len() as u64);
    Tally {
        cycles: counts().sum(),
        finished: callers.iter().map(|caller| caller.finished).sum(),
        seconds: took.as_secs_f64(),
        latency,
        handoffs: callers.iter().map(|caller| caller.handoffs).sum(),
        least: counts().min().unwrap_or(0),
        most: counts().max().unwrap_or(0),
    }
}
