//! Processes that acquire the same locks over and over: some for a moment, some for longer than a lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use distlock::{Client, Guard, Lease};

use super::hold_interval::{HoldLog, now};
use super::support::SeededRng;
use super::support::process::{Process, say, url};
use super::terms::Settings;

pub(crate) const ROLE: &str = "load";

/// The prefix of a belief that a worker prints.
pub(crate) const BELIEVED: &str = "believed ";

/// Starts a process that acquires these; it prints `ready`, and begins at the first order.
pub(crate) fn start(url: &str, terms: &Settings, names: &Names, seed: u64) -> Process {
    let [short, long] = [&names.short, &names.long].map(|names| names.join(","));
    Process::start(
        &format!("{ROLE} {} {seed} {short} {long}", terms.to_line()),
        url,
    )
}

/// The locks that are held for a moment, and those that are kept.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub(crate) short: Vec<String>,
    pub(crate) long: Vec<String>,
}

pub(crate) async fn play(told: &str, orders: Receiver<String>) {
    let mut words = told.split(' ');
    let mut word = || words.next().expect("there are four");
    let terms = Settings::parse(word());
    let seed = word().parse().expect("a number");
    let mut names = || word().split(',').map(str::to_owned).collect::<Vec<_>>();
    let (short, long) = (names(), names());

    let connected = terms.builder(&url()).connect().await;
    let client = connected.expect("the servers are up");
    say("ready");
    orders.recv().expect("it begins");
    let over = Arc::new(AtomicBool::new(false));
    let player = |names, seed, keeps| Player {
        client: client.clone(),
        terms,
        names,
        rng: SeededRng::new(seed),
        keeps,
        over: over.clone(),
    };
    let tasks = [
        tokio::spawn(player(short, seed, false).play()),
        tokio::spawn(player(long, seed + 1, true).play()),
    ];
    // There is only one order.
    tokio::task::spawn_blocking(move || orders.recv())
        .await
        .expect("it waits")
        .expect("it is over");
    over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("it plays to the end");
    }
    say("done");
}

struct Player {
    client: Client,
    terms: Settings,
    names: Vec<String>,
    rng: SeededRng,
    /// Whether it holds for longer than a moment.
    keeps: bool,
    over: Arc<AtomicBool>,
}

impl Player {
    async fn play(mut self) {
        while !self.over.load(Ordering::Relaxed) {
            if let Some(guard) = self.take().await {
                self.hold(guard).await;
            }
            let pause = 2 + self.rng.below(20);
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }

    /// Tries to acquire one of the locks. A busy lock, and any error during a failover, is expected and not a failure.
    async fn take(&mut self) -> Option<Guard> {
        let mut lock = self.client.lock(&**self.rng.pick(&self.names));
        if self.rng.chance(25) {
            lock = lock.with_lease(Lease::Fixed(self.terms.lease));
        }
        let taken = if self.rng.chance(50) {
            lock.try_acquire().await
        } else {
            lock.acquire_timeout(PATIENCE).await
        };
        taken.ok().flatten()
    }

    async fn hold(&mut self, guard: Guard) {
        let Some(mut diary) = HoldLog::begin(&guard) else {
            return;
        };
        let longest = if self.keeps {
            self.terms.lease.min(LONGEST_HOLD) * 3 / 2
        } else {
            SHORT_HOLD
        };
        let longest = u64::try_from(longest.as_millis()).expect("it is short");
        let until = now() + Duration::from_millis(self.rng.below(longest));
        let mut held = true;
        while held && now() < until && !self.over.load(Ordering::Relaxed) {
            tokio::time::sleep(LOOK).await;
            held = diary.check_hold(&guard);
        }
        if held {
            // The last moment at which the lock was surely held; from then on it is being released.
            held = diary.check_hold(&guard);
        }
        let lost = match held {
            true => None,
            false => guard.lost().await.map(|lost| lost.reason),
        };
        say(&format!("{BELIEVED}{}", diary.end(lost).to_line()));
        // A loss, or a missing reply, changes nothing of the belief.
        let _ = guard.release().await;
    }
}

/// The interval at which a holder checks its guard.
pub(crate) const LOOK: Duration = Duration::from_millis(5);
const SHORT_HOLD: Duration = Duration::from_millis(40);
const LONGEST_HOLD: Duration = Duration::from_secs(4);
const PATIENCE: Duration = Duration::from_secs(1);
