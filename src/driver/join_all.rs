//! Drives several futures at the same time.

use std::future::poll_fn;
use std::mem::take;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use crate::engine::waker_executor::{WakerExecutor, WakerProxy, trust};

/// Drives all futures at the same time, each to its end. A wake-up polls only the future that it is for, so that the
/// cost of a future does not grow with their number. The task is woken where `waker_executor` says.
pub(super) async fn join_all<F: Future + Send>(
    waker_executor: &WakerExecutor,
    futures: impl IntoIterator<Item = F>,
) -> Vec<F::Output> {
    let shared = Arc::<JoinAllShared>::default();
    let mut futures: Vec<Option<(Pin<Box<F>>, Waker)>> = futures
        .into_iter()
        .enumerate()
        .map(|(index, future)| {
            let shared = shared.clone();
            let waker = Waker::from(Arc::new(FutureWaker { index, shared }));
            // This waker calls the task's waker only through the proxy.
            trust(&waker);
            Some((Box::pin(future), waker))
        })
        .collect();
    let mut left = futures.len();
    let mut done: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    shared.state().woken = (0..left).collect();
    let mut waker_proxy = WakerProxy::NONE;
    poll_fn(|cx| {
        let waker = waker_proxy.waker(waker_executor, cx.waker());
        let woken = {
            let mut state = shared.state();
            state.all = Some(waker.clone());
            take(&mut state.woken)
        };
        for index in woken {
            // A future that is done may have been woken twice.
            let Some((future, waker)) = &mut futures[index] else {
                continue;
            };
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(waker)) {
                done[index] = Some(output);
                futures[index] = None;
                left -= 1;
            }
        }
        if left == 0 {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    done.into_iter().flatten().collect()
}

/// The state that the wakers of all futures share.
#[derive(Default)]
struct JoinAllShared(Mutex<JoinAllState>);

#[derive(Default)]
struct JoinAllState {
    /// The futures that are to be polled.
    woken: Vec<usize>,
    /// The waker of the task that waits for all of them.
    all: Option<Waker>,
}

impl JoinAllShared {
    fn state(&self) -> MutexGuard<'_, JoinAllState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The waker of one future.
struct FutureWaker {
    index: usize,
    shared: Arc<JoinAllShared>,
}

impl Wake for FutureWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut state = self.shared.state();
        state.woken.push(self.index);
        let all = state.all.clone();
        drop(state);
        if let Some(all) = all {
            all.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn each_future_is_polled_only_when_it_was_woken() {
        const MANY: usize = 3000;
        let polls = &AtomicUsize::new(0);
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..MANY).map(|_| oneshot::channel::<usize>()).unzip();
        let counted = receivers.into_iter().map(|mut receiver| {
            poll_fn(move |cx| {
                polls.fetch_add(1, Ordering::Relaxed);
                Pin::new(&mut receiver).poll(cx)
            })
        });
        let sending = async {
            for (index, sender) in senders.into_iter().enumerate() {
                // One wake-up at a time.
                tokio::task::yield_now().await;
                sender.send(index).expect("it is waited for");
            }
        };
        let waker_executor = WakerExecutor::inline();
        let (done, ()) = tokio::join!(join_all(&waker_executor, counted), sending);
        assert!(done.into_iter().eq((0..MANY).map(Ok)));
        let polls = polls.load(Ordering::Relaxed);
        // A task that has used up its budget is sometimes polled in vain.
        assert!(polls <= 3 * MANY, "{polls} polls of {MANY} futures");
    }

    /// A waker behind a proxy is called by a thread, which takes much longer.
    #[tokio::test]
    async fn the_wakers_of_the_futures_need_no_proxy() {
        let waker_executor = WakerExecutor::threads();
        let shielded = poll_fn(|cx| {
            let mut waker_proxy = WakerProxy::NONE;
            let waker = waker_proxy.waker(&waker_executor, cx.waker());
            Poll::Ready(!waker.will_wake(cx.waker()))
        });
        assert_eq!(join_all(&waker_executor, [shielded]).await, [false]);
    }
}
