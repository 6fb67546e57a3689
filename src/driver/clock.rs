//! The only clock of the library.

use std::pin::Pin;
#[cfg(feature = "simulation")]
use std::sync::Arc;
use std::sync::LazyLock;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::time::Sleep;

use crate::engine::waker_executor::{WakerExecutor, WakerProxy};
use crate::protocol::Moment;

/// The clock that measures leases.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// Time since the machine started, which continues while the machine is suspended: a laptop that was shut for an
    /// hour wakes up knowing that its leases have expired.
    Boot,
    /// Tokio's clock, which a test may pause; for stores in memory, which are suspended together with this process.
    Tokio(Handle),
    /// The clock of a simulated machine.
    #[cfg(feature = "simulation")]
    Simulated(Arc<dyn crate::simulation::Host>),
}

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "the clock reads itself")]
    pub(crate) fn now(&self) -> Moment {
        match self {
            Self::Boot => boot_time(),
            Self::Tokio(runtime) => {
                let now = match Handle::try_current() {
                    Ok(here) if here.id() == runtime.id() => tokio::time::Instant::now().into_std(),
                    // This thread is ending, and drops a guard in a thread-local variable.
                    Err(error) if error.is_thread_local_destroyed() => Instant::now(),
                    // This thread is outside of the runtime; it may be dropping a guard. Entering the runtime costs
                    // more than reading the clock.
                    Ok(_) | Err(_) => {
                        let _inside = runtime.enter();
                        tokio::time::Instant::now().into_std()
                    }
                };
                Moment::at(now.saturating_duration_since(*EPOCH))
            }
            #[cfg(feature = "simulation")]
            Self::Simulated(host) => Moment::at(host.now()),
        }
    }

    /// Returns the same moment on the standard library's clock, to be shown to users.
    #[expect(clippy::disallowed_methods, reason = "the clock reads itself")]
    pub(crate) fn instant(&self) -> Instant {
        match self {
            Self::Boot | Self::Tokio(_) => Instant::now(),
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => tokio::time::Instant::now().into_std(),
        }
    }

    /// Sleeps at least until this moment, by this clock, or forever; without a runtime, not at all.
    pub(crate) const fn sleep_until(&self, until: Option<Moment>) -> SleepUntil<'_> {
        SleepUntil {
            clock: self,
            until,
            pause: None,
        }
    }
}

/// The future of [`Clock::sleep_until`].
pub(crate) struct SleepUntil<'a> {
    clock: &'a Clock,
    until: Option<Moment>,
    pause: Option<SafeSleep>,
}

impl Future for SleepUntil<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(until) = self.until else {
            return Poll::Pending;
        };
        loop {
            let left = until.since(self.clock.now());
            if left.is_zero() || !has_runtime() {
                return Poll::Ready(());
            }
            // Tokio's timers count whole milliseconds and may end a little early by this clock.
            let limit = left.max(Duration::from_millis(1));
            let pause = self.pause.get_or_insert(SafeSleep::new(limit));
            ready!(Pin::new(pause).poll(cx));
            self.pause = None;
        }
    }
}

/// Awaits a reply; `None` if it takes longer than `limit`, or if there is no runtime to wait with.
pub(super) const fn with_timeout<A: Future + Unpin>(limit: Duration, future: A) -> WithTimeout<A> {
    let pause = SafeSleep::new(limit);
    WithTimeout { future, pause }
}

/// The future of [`with_timeout`]. Not an `async fn`: it is part of every wait, and an `async fn` is twice the size of
/// its arguments.
pub(super) struct WithTimeout<A> {
    future: A,
    pause: SafeSleep,
}

impl<A: Future + Unpin> Future for WithTimeout<A> {
    type Output = Option<A::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(output) = Pin::new(&mut self.future).poll(cx) {
            return Poll::Ready(Some(output));
        }
        Pin::new(&mut self.pause).poll(cx).map(|()| None)
    }
}

/// Tokio's sleep, except that it ends at once where tokio's would panic: without a runtime, or after the runtime has
/// gone.
struct SafeSleep {
    limit: Duration,
    /// Set once the sleep has begun.
    sleep: Option<Pin<Box<Sleep>>>,
    /// Protects tokio's timers: a panic inside of them ends the whole process.
    waker_proxy: WakerProxy,
}

impl SafeSleep {
    const fn new(limit: Duration) -> Self {
        Self {
            limit,
            sleep: None,
            waker_proxy: WakerProxy::NONE,
        }
    }
}

impl Future for SafeSleep {
    type Output = ();

    #[expect(clippy::disallowed_methods, reason = "the clock reads itself")]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if !has_runtime() {
            return Poll::Ready(());
        }
        let Self {
            limit,
            sleep,
            waker_proxy,
        } = &mut *self;
        let sleep = sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(*limit)));
        // Timers wake the task in the runtime that it runs on, as it expects.
        let waker = waker_proxy.waker(&WakerExecutor::inline(), cx.waker());
        sleep.as_mut().poll(&mut Context::from_waker(waker))
    }
}

pub(super) fn has_runtime() -> bool {
    Handle::try_current().is_ok()
}

/// The origin of tokio's time. It lies a day before its first use, because a paused clock may have been stopped a
/// moment earlier.
#[expect(clippy::disallowed_methods, reason = "the clock reads itself")]
static EPOCH: LazyLock<Instant> = LazyLock::new(|| {
    let now = Instant::now();
    now.checked_sub(Duration::from_secs(86_400)).unwrap_or(now)
});

#[cfg(target_os = "linux")]
fn boot_time() -> Moment {
    crate::engine::boot::time()
}

#[cfg(not(target_os = "linux"))]
#[expect(clippy::disallowed_methods, reason = "the clock reads itself")]
fn boot_time() -> Moment {
    Moment::at(Instant::now().saturating_duration_since(*EPOCH))
}
