//! The only clock.

use std::sync::LazyLock;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use crate::protocol::Moment;

/// Which time leases are counted in.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// Time since the machine started, counted on while it sleeps: a laptop that is shut for an hour
    /// wakes up knowing that its leases are over.
    Boot,
    /// Tokio's, which a test may pause; for stores in memory, which sleep when we sleep.
    Tokio(Handle),
}

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    pub(crate) fn now(&self) -> Moment {
        match self {
            Self::Boot => boot_time(),
            Self::Tokio(runtime) => {
                let gone = Handle::try_current().is_err_and(|e| e.is_thread_local_destroyed());
                let now = if gone {
                    // A guard in a thread-local variable, dropped while its thread ends.
                    Instant::now()
                } else {
                    // Also right on a thread outside of the runtime, such as one that drops a guard.
                    let _inside = runtime.enter();
                    tokio::time::Instant::now().into_std()
                };
                Moment::at(now.saturating_duration_since(*LONG_AGO))
            }
        }
    }

    /// Sleeps at least until `moment`, by this clock; without a runtime, not at all.
    pub(crate) async fn sleep_until(&self, moment: Moment) {
        loop {
            let left = moment.since(self.now());
            if left.is_zero() {
                return;
            }
            // Tokio counts in whole milliseconds and may end a little early by our clock.
            pause(left.max(Duration::from_millis(1))).await;
            if !in_a_runtime() {
                return;
            }
        }
    }
}

/// The answer, or `None` if it takes longer than `limit`, or if there is no runtime to wait with.
pub(super) async fn within<T: Send>(
    limit: Duration,
    answer: impl Future<Output = T> + Send,
) -> Option<T> {
    tokio::select! {
        biased;
        answer = answer => Some(answer),
        () = pause(limit) => None,
    }
}

/// Tokio's sleep, but over at once where tokio's would panic: without a runtime, or after it has gone.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
async fn pause(time: Duration) {
    if !in_a_runtime() {
        return;
    }
    let mut sleep = std::pin::pin!(tokio::time::sleep(time));
    std::future::poll_fn(|cx| {
        if in_a_runtime() {
            sleep.as_mut().poll(cx)
        } else {
            Poll::Ready(())
        }
    })
    .await;
}

pub(super) fn in_a_runtime() -> bool {
    Handle::try_current().is_ok()
}

/// What tokio's time counts from. A day before it is first asked for, because a paused clock may have
/// been stopped a moment earlier.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
static LONG_AGO: LazyLock<Instant> = LazyLock::new(|| {
    let now = Instant::now();
    now.checked_sub(Duration::from_secs(86_400)).unwrap_or(now)
});

#[cfg(target_os = "linux")]
fn boot_time() -> Moment {
    use rustix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Moment::at(Duration::new(seconds, nanos))
}

#[cfg(not(target_os = "linux"))]
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
fn boot_time() -> Moment {
    Moment::at(Instant::now().saturating_duration_since(*LONG_AGO))
}
