//! Drops a future at every place where it can be dropped.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

/// The place at which a future is dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DropAt {
    /// The future is dropped after this many polls, each because it was woken.
    pub(crate) polls: usize,
    /// The future is dropped only once it was woken again: the event that it waited for has come, and it has not seen it.
    woken: bool,
}

impl DropAt {
    /// Returns every place, one after the other.
    pub(crate) fn every() -> impl Iterator<Item = Self> {
        let polled = (1..).flat_map(|polls| [false, true].map(|woken| Self { polls, woken }));
        let unpolled = Self {
            polls: 0,
            woken: false,
        };
        std::iter::once(unpolled).chain(polled)
    }

    /// Drops the future here, or returns its output if it completes first. When nothing wakes it, or a wake leads nowhere, `nudge` is
    /// called to change that.
    pub(crate) async fn run<F: Future>(
        self,
        future: F,
        mut nudge: impl AsyncFnMut(),
    ) -> Option<F::Output> {
        let woken = Arc::new(WakeFlag(Notify::new()));
        let waker = Waker::from(woken.clone());
        let mut future = Box::pin(future);
        for poll in 1..=self.polls {
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Some(output);
            }
            if poll < self.polls || self.woken {
                if poll >= IN_VAIN {
                    nudge().await;
                }
                woken.wait(&mut nudge).await;
            }
        }
        None
    }

    /// Runs a future that waits for nothing but the store.
    pub(crate) async fn run_alone<F: Future>(self, future: F) -> Option<F::Output> {
        self.run(future, async || ()).await
    }
}

/// Polls once, and returns whether the future waits for something.
pub(crate) fn begin<F: Future + ?Sized>(future: Pin<&mut F>) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    future.poll(&mut context).is_pending()
}

struct WakeFlag(Notify);

impl WakeFlag {
    async fn wait(&self, nudge: &mut impl AsyncFnMut()) {
        for _ in 0..NUDGES {
            if timeout(STALL, self.0.notified()).await.is_ok() {
                return;
            }
            nudge().await;
        }
        panic!("the future waits for an event that never comes");
    }
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// Upper bound for a round trip to the store.
const STALL: Duration = Duration::from_millis(150);
const NUDGES: usize = 100;
/// A future that waits for the store alone has completed after this many polls.
const IN_VAIN: usize = 8;
