//! Watches one hold from all sides until it is over: what it claims, when it says that it is lost, and
//! what becomes of the work done under it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use distlock::{Error, Guard, Held, LostReason};
use tokio::task::JoinHandle as Task;

use super::{LATE, ONE_PERIOD, PATIENCE};

/// A hold under observation.
pub(crate) struct Observed {
    sampler: JoinHandle<Claims>,
    stop_sampling: mpsc::Sender<()>,
    news: Task<(Instant, Option<LostReason>)>,
    work: Task<(Guard, Result<(), Error>)>,
    progress: Arc<Progress>,
}

/// Everything that was seen of a hold that is over.
pub(crate) struct Obituary {
    pub(crate) claims: Claims,
    /// When `lost()` resolved.
    pub(crate) told_at: Instant,
    pub(crate) reason: LostReason,
    /// The guard itself, and how far the work came under it.
    pub(crate) guard: Guard,
    progress: Arc<Progress>,
    steps: u64,
}

/// What a hold claimed of itself, looked at again and again.
#[derive(Default)]
pub(crate) struct Claims {
    pub(crate) looks: u64,
    /// The last moment it claimed to be valid until, before it was found over.
    pub(crate) valid_until: Option<Instant>,
    /// When it was first found not to be held.
    pub(crate) over_at: Option<Instant>,
    /// When it was first found to be at risk.
    pub(crate) at_risk_at: Option<Instant>,
    /// What it may never claim.
    pub(crate) lies: Vec<String>,
}

impl Observed {
    /// Starts to look, to listen for the end, and to work under the guard.
    pub(crate) fn begin(guard: Guard) -> Self {
        let held = guard.held();
        let (stop_sampling, stop) = mpsc::channel();
        let sampler = thread::spawn(move || sample(&held, &stop));
        let news = tokio::spawn({
            let held = guard.held();
            async move {
                let lost = held.lost().await;
                let now = Instant::now();
                assert!(!held.is_held(), "told of its end while it lasts");
                (now, lost.map(|lost| lost.reason))
            }
        });
        let progress = Arc::new(Progress::default());
        let work = tokio::spawn({
            let progress = progress.clone();
            async move {
                let worked = guard.while_held(work(progress)).await;
                (guard, worked.map_err(Error::from))
            }
        });
        Self {
            sampler,
            stop_sampling,
            news,
            work,
            progress,
        }
    }

    /// Waits until the hold is lost, and checks what is true of every loss.
    pub(crate) async fn end(self) -> Obituary {
        let (told_at, reason) = tokio::time::timeout(PATIENCE, self.news)
            .await
            .expect("`lost()` resolves")
            .expect("told only of what is so");
        let reason = reason.expect("nobody gave it back");
        let (guard, worked) = tokio::time::timeout(PATIENCE, self.work)
            .await
            .expect("the work is dropped")
            .expect("the work does not panic");
        let claims = self.sampler.join().expect("the sampler does not panic");
        drop(self.stop_sampling);

        assert_eq!(claims.lies, Vec::<String>::new());
        assert!(claims.over_at.is_some(), "it was looked at beyond its end");
        match worked {
            Err(Error::Lost { reason: why, .. }) => assert_eq!(why, reason),
            other => panic!("the work ended with {other:?}"),
        }
        assert!(self.progress.dropped.load(Ordering::SeqCst));
        let steps = self.progress.steps();
        assert!(steps > 0, "there was work to drop");
        assert!(!guard.is_held());
        assert_eq!(guard.remaining(), Duration::ZERO);
        assert_eq!(guard.at_risk(), None, "the risk is over: it has happened");
        assert!(matches!(guard.check(), Err(Error::Lost { reason: why, .. }) if why == reason));
        Obituary {
            claims,
            told_at,
            reason,
            guard,
            progress: self.progress,
            steps,
        }
    }

    /// Stops looking at a hold that must still be held, and drops its guard.
    pub(crate) async fn still_held(self) -> Claims {
        let _ = self.stop_sampling.send(());
        let claims = self.sampler.join().expect("the sampler does not panic");
        assert_eq!(claims.lies, Vec::<String>::new());
        assert_eq!(claims.over_at, None);
        assert!(!self.news.is_finished(), "`lost()` resolved");
        assert!(!self.work.is_finished(), "the work was dropped");
        self.news.abort();
        self.work.abort();
        claims
    }
}

impl Obituary {
    /// The lease ran out: held up to the very end and not a moment longer, and told so then.
    pub(crate) fn assert_expired(&self) {
        assert_eq!(self.reason, LostReason::Expired);
        let end = self.claims.valid_until.expect("it was held");
        let over = self.claims.over_at.expect("it is over");
        let early = end.saturating_duration_since(over.min(self.told_at));
        assert!(early < TWO_CLOCKS, "given up {early:?} before its end");
        let late = self.told_at.saturating_duration_since(end);
        assert!(late < LATE, "told {late:?} after its end");
    }

    /// The store refused it: told within the time that one renewal takes.
    pub(crate) fn assert_refused(&self, reason: LostReason, since: Instant) {
        assert_eq!(self.reason, reason);
        let took = self.told_at.saturating_duration_since(since);
        assert!(took < ONE_PERIOD + LATE, "told after {took:?}");
        assert_eq!(
            self.claims.at_risk_at, None,
            "no renewal failed: one was refused"
        );
    }

    /// Renewals failed before the end came, and the holder could know.
    pub(crate) fn assert_warned(&self) {
        let warned = self.claims.at_risk_at.expect("at risk before it was lost");
        assert!(warned < self.told_at);
    }

    /// The work is gone, not merely asleep.
    pub(crate) fn assert_work_stays_dropped(&self) {
        assert_eq!(self.progress.steps(), self.steps);
    }

    pub(crate) fn print(&self, fault: &str) {
        let end = self.claims.valid_until.expect("it was held");
        eprintln!(
            "{fault}: {:?}, {} looks; told {:?} after `valid_until`, {:?} before it; at risk for {:?}",
            self.reason,
            self.claims.looks,
            self.told_at.saturating_duration_since(end),
            end.saturating_duration_since(self.told_at),
            self.claims
                .at_risk_at
                .map(|at| self.told_at.saturating_duration_since(at)),
        );
    }
}

/// Work that would never end by itself.
#[derive(Default)]
struct Progress {
    steps: AtomicU64,
    dropped: AtomicBool,
}

impl Progress {
    fn steps(&self) -> u64 {
        self.steps.load(Ordering::SeqCst)
    }
}

async fn work(progress: Arc<Progress>) {
    struct Dropped(Arc<Progress>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.dropped.store(true, Ordering::SeqCst);
        }
    }
    let dropped = Dropped(progress);
    loop {
        assert!(!dropped.0.dropped.load(Ordering::SeqCst), "worked on");
        dropped.0.steps.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Looks at the hold without pause around its end, and every millisecond before that.
fn sample(held: &Held, stop: &mpsc::Receiver<()>) -> Claims {
    let mut claims = Claims::default();
    let mut beyond = 0;
    while beyond < LOOKS_BEYOND && stop.try_recv().is_err() {
        let promised = held.valid_until();
        let before = Instant::now();
        let is_held = held.is_held();
        let after = Instant::now();
        let promised_now = held.valid_until();
        claims.looks += 1;
        if promised_now < promised {
            let back = promised - promised_now;
            claims.lie(format!("`valid_until` moved back by {back:?}"));
        }
        if is_held {
            // A renewal between the two looks is the only excuse.
            let renewed = promised_now.saturating_duration_since(promised) >= ONE_RENEWAL;
            if before >= promised && !renewed {
                claims.lie(format!("held {:?} too long", before - promised));
            }
            if claims.over_at.is_some() {
                claims.lie("held again".to_owned());
            }
            claims.valid_until = claims.valid_until.max(Some(promised));
            if claims.at_risk_at.is_none() && held.at_risk().is_some() {
                claims.at_risk_at = Some(Instant::now());
            }
        } else {
            claims.over_at.get_or_insert(after);
            beyond += 1;
        }
        if is_held && after + CLOSE < promised {
            thread::sleep(Duration::from_millis(1));
        }
    }
    claims
}

impl Claims {
    fn lie(&mut self, lie: String) {
        // One of a kind is enough; there are thousands of looks.
        if self.lies.len() < 5 {
            self.lies.push(lie);
        }
    }
}

/// Leases are counted on another clock than `Instant`'s, and the two cannot be read at once: the end may
/// come this much before `valid_until`, but never behind it.
const TWO_CLOCKS: Duration = Duration::from_millis(50);
/// A renewal moves the end by far more than this.
const ONE_RENEWAL: Duration = Duration::from_millis(30);
/// From this close to its end on, a hold is not let out of sight.
const CLOSE: Duration = Duration::from_millis(10);
const LOOKS_BEYOND: u64 = 1000;
