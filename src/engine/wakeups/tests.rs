//! Wakers that block.

use super::*;
use std::sync::mpsc::{self, Receiver, Sender};

const PATIENCE: Duration = Duration::from_secs(20);

/// Says that it was called, and then waits until it may return.
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

fn woken(wakeups: &Wakeups, waker: &Waker) {
    let mut shield = Shield::NONE;
    shield.waker(wakeups, waker).wake_by_ref();
}

#[test]
fn a_waker_that_blocks_delays_no_other() {
    let wakeups = Wakeups::threads();
    let mut blocked = Vec::new();
    for _ in 0..5 {
        let (waker, called, release) = slow();
        woken(&wakeups, &waker);
        called.recv_timeout(PATIENCE).expect("it is woken");
        blocked.push(release);
    }
}

#[test]
fn the_waker_of_another_executor_is_not_called_where_it_is_woken() {
    let wakeups = Wakeups::threads();
    let (waker, called, release) = slow();
    // Would never return if it were called here.
    woken(&wakeups, &waker);
    called.recv_timeout(PATIENCE).expect("it is woken");
    drop(release);
}

#[tokio::test]
async fn the_wakers_of_tokio_take_no_detour() {
    #[expect(clippy::disallowed_methods, reason = "awaited here")]
    tokio::spawn(async {
        trust_this_waker().await;
        std::future::poll_fn(|cx| {
            let mut shield = Shield::NONE;
            let used = shield.waker(&Wakeups::inline(), cx.waker());
            assert!(used.will_wake(cx.waker()) && shield.0.is_none());
            Poll::Ready(())
        })
        .await;
    })
    .await
    .unwrap();
}
