//! The contestant rslock, as in its README: one manager, a lease, `acquire` until the lock is held.
//!
//! It is a package of its own: rslock brings TLS along, which must not enter the library's dependencies. The
//! loops are the same files that distlock runs in.
#![forbid(unsafe_code)]
#![allow(dead_code, reason = "the orchestrator uses what is not used here")]

#[path = "../../../src/clock.rs"]
mod clock;
#[path = "../../../src/failure.rs"]
mod failure;
#[path = "../../../src/histogram.rs"]
mod histogram;
#[path = "../../../src/line.rs"]
mod line;
#[path = "../../../src/serve.rs"]
mod serve;
#[path = "../../../src/spin.rs"]
mod spin;

use std::sync::Arc;
use std::time::Duration;

use rslock::{LockGuard, LockManager};
use tokio::runtime::Builder;

use crate::failure::Outcome;
use crate::line::{Job, Work};
use crate::serve::Locker;

fn main() -> Outcome {
    serve::serve::<Rslock>(&Builder::new_multi_thread().enable_all().build()?)
}

#[derive(Clone)]
struct Rslock(LockManager);

impl Locker for Rslock {
    type Hold = LockGuard;

    fn cannot(work: &Work) -> Option<&'static str> {
        match work.job {
            Job::Cycle | Job::Step => None,
            Job::Hold => Some("renews only inside `using`"),
            Job::Queue => Some("polls"),
        }
    }

    fn version() -> String {
        "rslock 0.10.0".into()
    }

    async fn connect(work: &Work) -> Outcome<Self> {
        Ok(Self(LockManager::new(vec![work.url.as_str()])))
    }

    async fn acquire(&self, name: &Arc<str>) -> Outcome<LockGuard> {
        let lease = Duration::from_secs(30);
        Ok(self.0.acquire(name.as_bytes(), lease).await?)
    }

    async fn release(&self, hold: LockGuard) -> Outcome {
        hold.release().await;
        Ok(())
    }
}
