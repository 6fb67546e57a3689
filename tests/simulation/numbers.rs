//! The workloads without guards: a counting semaphore, and latches.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use distlock::{Error, Latch};
use distlock_sim::Random;
use tokio::sync::{Barrier, Notify};
use tokio::time::{Instant, sleep, timeout};

use crate::judge::Judge;
use crate::run::RECOVERY;
use crate::workload::{NAME, Task};

/// The known state of a counting semaphore. Clones share their state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Permits(Arc<Mutex<Counted>>);

#[derive(Debug, Default)]
struct Counted {
    /// Permits that tasks have acquired and have not begun to release.
    taken: u32,
    /// Permits whose release failed in such a way that it may have been executed.
    uncertain: u32,
}

impl Permits {
    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acquires permits in a random way, holds and releases them.
    pub(crate) async fn turn(&self, task: &Task, random: &mut Random, calm: bool) {
        let total = task.setup.total;
        let count = 1 + u32::try_from(random.below(total.into())).expect("it is small");
        let semaphore = task.process.clients[0].counting_semaphore(NAME);
        let longest = random.up_to(Duration::from_secs(8));
        let draw = if calm { 99 } else { random.below(100) };
        let begun = Instant::now();
        let got = if draw < 10 {
            semaphore.try_acquire(count).await
        } else if draw < 10 + task.setup.gives_up_percent {
            match timeout(longest / 8, semaphore.acquire(count)).await {
                Ok(got) => got.map(|()| true),
                Err(_) => return,
            }
        } else if draw < 70 {
            let got = semaphore.acquire_timeout(count, longest).await;
            let took = begun.elapsed();
            if took > longest + task.setup.longest_answer() && !task.setup.has_stops {
                let what = format!("an acquire of {longest:?} took {took:?}");
                task.ledger.violation(Judge::Resolution, what);
            }
            match got {
                Ok(false) => task.ledger.busy(&task.process.name, begun, longest),
                Err(error) => return task.ledger.wait_error(&error, begun, longest),
                Ok(true) => {}
            }
            got
        } else {
            // Permits whose release had no reply may never come back, so no wait is unlimited.
            let got = semaphore.acquire_timeout(count, LONGEST_WAIT).await;
            if matches!(got, Ok(false)) && self.lock().uncertain == 0 {
                let what = format!("{count} of {total} permits were not had in {LONGEST_WAIT:?}");
                task.ledger.violation(Judge::Progress, what);
            }
            got
        };
        match got {
            Ok(true) => task.ledger.granted(),
            Ok(false) => return,
            Err(error) => return task.ledger.error(&error),
        }
        let taken = {
            let mut counted = self.lock();
            counted.taken += count;
            counted.taken
        };
        if taken > total {
            let what = format!("{taken} of {total} permits are in use");
            task.ledger.violation(Judge::Exclusion, what);
        }
        sleep(random.up_to(task.setup.longest_hold)).await;
        self.lock().taken -= count;
        while let Err(error) = semaphore.release(count).await {
            task.ledger.error(&error);
            if may_be_done(&error) {
                self.lock().uncertain += count;
                break;
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Checks that no permit is lost or made up, when all are released.
    pub(crate) fn check(&self, total: u32, there: i64) -> Option<String> {
        let uncertain = self.lock().uncertain;
        let least = i64::from(total) - i64::from(uncertain);
        let right = (least..=i64::from(total)).contains(&there);
        (!right).then(|| format!("{there} of {total} permits are there, {uncertain} uncertain"))
    }
}

/// One latch after the other, which all tasks count down and wait for.
#[derive(Debug)]
pub(crate) struct Latches {
    tasks: usize,
    together: Barrier,
    round: Mutex<Round>,
}

#[derive(Debug, Default)]
struct Round {
    number: u64,
    goes_on: bool,
    begun: usize,
    uncertain: usize,
}

impl Latches {
    pub(crate) fn new(tasks: usize) -> Arc<Self> {
        Arc::new(Self {
            tasks,
            together: Barrier::new(tasks),
            round: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Round> {
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether another latch is made, the same for all tasks.
    pub(crate) async fn goes_on(&self, end: Instant) -> bool {
        if self.together.wait().await.is_leader() {
            self.lock().goes_on = Instant::now() < end;
        }
        self.together.wait().await;
        self.lock().goes_on
    }

    /// Counts down once. When all tasks have, the leader makes up for uncertain counts.
    async fn count(&self, task: &Task, latch: &Latch, name: &str, leads: bool) {
        while let Err(error) = latch.count_down().await {
            task.ledger.error(&error);
            if may_be_done(&error) {
                self.lock().uncertain += 1;
                break;
            }
            sleep(Duration::from_millis(100)).await;
        }
        self.together.wait().await;
        if !leads {
            return;
        }
        let uncertain = self.lock().uncertain;
        let left = loop {
            match latch.count().await {
                Ok(left) => break left,
                Err(error) => task.ledger.error(&error),
            }
            sleep(Duration::from_millis(100)).await;
        };
        if left > uncertain as u64 {
            let what = format!("{left} are left of `{name}`, {uncertain} uncertain");
            task.ledger.violation(Judge::Counts, what);
        }
        if left > 0 {
            while let Err(error) = latch.delete().await {
                task.ledger.error(&error);
                sleep(Duration::from_millis(100)).await;
            }
        }
    }

    /// Plays one latch: set by one task, counted down by each, and waited for by each.
    pub(crate) async fn turn(&self, task: &Task, random: &mut Random) {
        let client = &task.process.clients[0];
        let leads = self.together.wait().await.is_leader();
        let name = format!("{NAME}-{}", self.lock().number);
        let latch = client.latch(&*name);
        if leads {
            // No other task sets it, so whatever the reply, it is set once.
            while let Err(error) = latch.try_set(self.tasks as u64).await {
                task.ledger.error(&error);
                sleep(Duration::from_millis(100)).await;
            }
        }
        self.together.wait().await;
        let counted = Notify::new();
        let counts = async {
            sleep(random.up_to(task.setup.longest_hold)).await;
            self.lock().begun += 1;
            self.count(task, &latch, &name, leads).await;
            counted.notify_one();
        };
        let opens = async {
            while let Err(error) = latch.wait().await {
                task.ledger.error(&error);
                sleep(Duration::from_millis(100)).await;
            }
            let begun = self.lock().begun;
            if begun < self.tasks {
                let what = format!("`{name}` opened after {begun} of {}", self.tasks);
                task.ledger.violation(Judge::Exclusion, what);
            }
        };
        let late = async {
            counted.notified().await;
            sleep(RECOVERY).await;
        };
        // Each task waits from before the first count to after the last.
        let waits = async {
            tokio::select! {
                biased;
                () = opens => {}
                () = late => {
                    let what = format!("{} still waits for `{name}`", task.process.name);
                    task.ledger.violation(Judge::Progress, what);
                }
            }
        };
        tokio::join!(counts, waits);
        task.ledger.granted();
        if self.together.wait().await.is_leader() {
            let mut round = self.lock();
            let number = round.number + 1;
            *round = Round {
                number,
                ..Round::default()
            };
        }
        self.together.wait().await;
    }
}

/// Upper bound for any fault, and for the turns of all other tasks.
const LONGEST_WAIT: Duration = Duration::from_secs(90);

/// Returns whether a change may have been made though it had no reply.
fn may_be_done(error: &Error) -> bool {
    matches!(error, Error::Timeout { .. })
}
