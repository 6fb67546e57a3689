//! Drops a future at every place where it can be dropped.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

/// Where a future is dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    /// After it was polled so often, each time because it was woken.
    pub(crate) polls: usize,
    /// Not before it was woken once more: what it waited for is there, and it has not seen it.
    pub(crate) woken: bool,
}

impl At {
    /// Every place, one after the other.
    pub(crate) fn places() -> impl Iterator<Item = Self> {
        let unpolled = Self {
            polls: 0,
            woken: false,
        };
        let polled = (1..).flat_map(|polls| [false, true].map(|woken| Self { polls, woken }));
        std::iter::once(unpolled).chain(polled)
    }

    /// Drops the future here, or gives what it became before. When nothing wakes it, or nothing comes of
    /// it, `nudge` is called so that something does.
    pub(crate) async fn hit<F: Future>(
        self,
        future: F,
        mut nudge: impl AsyncFnMut(),
    ) -> Option<F::Output> {
        let alarm = Arc::new(Alarm(Notify::new()));
        let waker = Waker::from(alarm.clone());
        let mut future = Box::pin(future);
        for poll in 1..=self.polls {
            if let Poll::Ready(output) = poll_once(future.as_mut(), &waker) {
                return Some(output);
            }
            if poll < self.polls || self.woken {
                if poll >= IN_VAIN {
                    nudge().await;
                }
                alarm.rung(&mut nudge).await;
            }
        }
        None
    }
}

/// Polls once; says whether the future waits for something.
pub(crate) fn begin<F: Future + ?Sized>(future: Pin<&mut F>) -> bool {
    poll_once(future, Waker::noop()).is_pending()
}

fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

struct Alarm(Notify);

impl Alarm {
    async fn rung(&self, nudge: &mut impl AsyncFnMut()) {
        for _ in 0..NUDGES {
            if timeout(STALL, self.0.notified()).await.is_ok() {
                return;
            }
            nudge().await;
        }
        panic!("it waits for something that never comes");
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// A server on this machine answers sooner.
const STALL: Duration = Duration::from_millis(40);
const NUDGES: usize = 250;
/// What waits for the store alone is done by then.
const IN_VAIN: usize = 8;

/// For futures that wait for nothing but the store.
pub(crate) async fn never_mind() {}
