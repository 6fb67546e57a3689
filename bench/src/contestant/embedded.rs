//! Locks without a store: a mutex of the runtime, a lock on a file.

use std::collections::HashMap;
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::failure::{Failure, Outcome};
use crate::line::{Answer, Job, Tally, Work};
use crate::serve::{Locker, Orders, say};
use crate::spin::{Caller, sum};

/// A `tokio::sync::Mutex` for each name, found by name as distlock's are.
#[derive(Clone, Default)]
pub(super) struct TokioMutex(Arc<RwLock<Named>>);

type Named = HashMap<Arc<str>, Arc<Mutex<()>>>;

impl Locker for TokioMutex {
    type Hold = OwnedMutexGuard<()>;

    fn version() -> String {
        "tokio::sync::Mutex in a map of names".into()
    }

    async fn connect(_: &Work) -> Outcome<Self> {
        Ok(Self::default())
    }

    async fn acquire(&self, name: &Arc<str>) -> Outcome<Self::Hold> {
        let known = self.0.read().expect("nobody panics").get(name).cloned();
        let mutex = known.unwrap_or_else(|| {
            let mut all = self.0.write().expect("nobody panics");
            all.entry(name.clone()).or_default().clone()
        });
        Ok(mutex.lock_owned().await)
    }

    async fn release(&self, hold: Self::Hold) -> Outcome {
        drop(hold);
        Ok(())
    }
}

/// Measures `flock` with one thread per caller, each with a handle of its own. Changes of the holder are not counted.
pub(super) fn serve_flock() -> Outcome {
    let mut orders = Orders::new();
    while let Some(work) = orders.work()? {
        if work.job != Job::Cycle {
            say(&Answer::cannot("only locks and unlocks"))?;
            continue;
        }
        flock(&work, work.warmup)?;
        say(&Answer::ready("flock(2) through std::fs::File"))?;
        orders.expect("go")?;
        let tally = Some(flock(&work, work.seconds)?);
        say(&Answer {
            tally,
            ..Answer::default()
        })?;
    }
    Ok(())
}

fn flock(work: &Work, seconds: f64) -> Outcome<Tally> {
    let folder = TempDir::with_prefix("distlock-bench-")?;
    let over = Arc::new(AtomicBool::new(false));
    let began = Instant::now();
    let mut callers = Vec::new();
    for number in 0..work.callers {
        let name = if work.names == 1 { 0 } else { number };
        let file = File::create(folder.path().join(name.to_string()))?;
        let (over, yields) = (over.clone(), work.yields);
        callers.push(thread::spawn(move || -> Outcome<Caller> {
            let mut done = Caller::default();
            while !over.load(Ordering::Relaxed) {
                let began = Instant::now();
                file.lock()?;
                if yields {
                    thread::yield_now();
                }
                file.unlock()?;
                done.note(began.elapsed(), over.load(Ordering::Relaxed));
            }
            Ok(done)
        }));
    }
    thread::sleep(Duration::from_secs_f64(seconds));
    over.store(true, Ordering::Relaxed);
    let took = began.elapsed();
    let panicked = |_| Failure::new("a caller panicked");
    let done: Outcome<Vec<Caller>> = callers
        .into_iter()
        .map(|caller| caller.join().map_err(panicked)?)
        .collect();
    Ok(sum(&done?, took))
}
