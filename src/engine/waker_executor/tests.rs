//! Wakers that block.

use super::*;
use std::sync::mpsc::{self, Receiver, Sender};

const PATIENCE: Duration = Duration::from_secs(20);

/// Reports that it was called, and then waits until it may return.
struct Slow(Mutex<(Sender<()>, Receiver<()>)>);

impl Wake for Slow {
    fn wake(self: Arc<Self>) {
        let (called, go_on) = &*self.0.lock().unwrap();
        called.send(()).unwrap();
        let _ = go_on.recv();
    }
}

fn slow() -> (Waker, Receiver<()>, Sender<()>) {
    let (call, called) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let waker = Waker::from(Arc::new(Slow(Mutex::new((call, released)))));
    (waker, called, release)
}

fn woken(waker_executor: &WakerExecutor, waker: &Waker) {
    let mut waker_proxy = WakerProxy::NONE;
    waker_proxy.waker(waker_executor, waker).wake_by_ref();
}

#[test]
fn blocking_waker_delays_no_other() {
    let waker_executor = WakerExecutor::threads();
    let mut blocked = Vec::new();
    for _ in 0..5 {
        let (waker, called, release) = slow();
        woken(&waker_executor, &waker);
        called.recv_timeout(PATIENCE).expect("it is woken");
        blocked.push(release);
    }
}

#[test]
fn foreign_waker_is_called_on_another_thread() {
    let waker_executor = WakerExecutor::threads();
    let (waker, called, release) = slow();
    // A call in this thread would never return.
    woken(&waker_executor, &waker);
    called.recv_timeout(PATIENCE).expect("it is woken");
    drop(release);
}

#[tokio::test]
async fn tokio_wakers_are_called_directly() {
    #[expect(clippy::disallowed_methods, reason = "awaited here")]
    tokio::spawn(async {
        trust_current_waker().await;
        std::future::poll_fn(|cx| {
            let mut waker_proxy = WakerProxy::NONE;
            let used = waker_proxy.waker(&WakerExecutor::inline(), cx.waker());
            assert!(used.will_wake(cx.waker()) && waker_proxy.0.is_none());
            Poll::Ready(())
        })
        .await;
    })
    .await
    .unwrap();
}
