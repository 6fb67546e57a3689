//! A waker that panics or blocks.

use std::future::IntoFuture;
use std::pin::{Pin, pin};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::{
    Behaviour, Misbehaviour, PATIENCE, Store, a_loss_is_notified, a_release_is_noticed, closes,
    eventually, stays_renewed,
};

/// A task that misbehaves when it is woken.
struct MisbehavingTask(Misbehaviour);

impl Wake for MisbehavingTask {
    fn wake(self: Arc<Self>) {
        self.0.call();
    }
}

async fn a_bad_waker_costs_nobody_a_lock(store: Store, manner: Behaviour, name: &str) {
    let bad: [Arc<MisbehavingTask>; 4] =
        std::array::from_fn(|_| Arc::new(MisbehavingTask(Misbehaviour::new(manner))));
    let wakers: Vec<Waker> = bad.iter().cloned().map(Waker::from).collect();
    let [of_loss, of_queue, of_release, of_reply] = &*wakers else {
        panic!("there are four of them");
    };
    let client = store.builder().connect().await.expect("the store is up");
    let other = store.builder().connect().await.expect("the store is up");
    let good = client.lock(format!("{name} good")).acquire().await;
    let good = good.expect("it is free");

    // Woken by the watchdog: two tasks wait for the end of one hold, and one of them has a bad waker.
    let short = client.lock(format!("{name} short"));
    let short = short.with_max_hold(Duration::from_millis(300));
    let short = short.acquire().await.expect("it is free");
    let mut lost_to_bad = pin!(short.lost());
    poll(lost_to_bad.as_mut(), of_loss);
    let lost = timeout(PATIENCE, short.lost()).await;
    assert!(lost.expect("its holder is notified").is_some());

    // Woken by cleanup: the task is queued behind a hold of the same client, whose guard is dropped.
    let queued = client.lock(format!("{name} queued"));
    let held = queued.acquire().await.expect("it is free");
    let mut waiting = pin!(queued.acquire().into_future());
    poll(waiting.as_mut(), of_queue);
    drop(held);
    called(&bad[1], "the waiter in the queue is woken").await;

    // Woken by a notification: the task waits for another client's release.
    let elsewhere = client.lock(format!("{name} elsewhere"));
    let held = other.lock(elsewhere.name()).acquire().await;
    let held = held.expect("it is free");
    let mut waiting = pin!(elsewhere.acquire().into_future());
    until_it_sleeps(waiting.as_mut()).await;
    poll(waiting.as_mut(), of_release);
    held.release().await.expect("it is held");
    called(&bad[2], "the waiter for a release is woken").await;

    // Woken by a reply.
    let mut asking;
    let mut tries = 0..100;
    loop {
        let number = tries.next().expect("some reply takes longer than a poll");
        let lock = client.lock(format!("{name} asked for {number}"));
        asking = Box::pin(lock.acquire().into_future());
        // A reply that arrives before the poll ends wakes no task.
        if is_pending(asking.as_mut(), of_reply) {
            break;
        }
    }
    called(&bad[3], "the caller is woken").await;

    tokio::join!(
        a_release_is_noticed(&store, &client, name),
        a_loss_is_notified(&store, &client, name),
        stays_renewed(&good),
    );
    called(&bad[0], "the waiter for a loss is woken").await;
    closes(client).await;
    closes(other).await;
    for bad in bad {
        bad.0.release();
    }
}

/// Polls once, with this waker, on a runtime of its own: timers wake there, and their effect on it concerns nothing else.
fn poll<F: Future>(future: Pin<&mut F>, waker: &Waker) {
    assert!(is_pending(future, waker), "it waits");
}

fn is_pending<F: Future>(future: Pin<&mut F>, waker: &Waker) -> bool {
    static OWN: LazyLock<Runtime> = LazyLock::new(|| {
        let mut own = Builder::new_multi_thread();
        let own = own.worker_threads(1).enable_all().build();
        own.expect("a runtime can be had")
    });
    let _own = OWN.enter();
    future.poll(&mut Context::from_waker(waker)).is_pending()
}

/// Polls the future until nothing has woken it for a while. If it is woken by something else than what it waits for after that, it is woken
/// all the same.
async fn until_it_sleeps<F: Future>(mut future: Pin<&mut F>) {
    let woken = Arc::new(WakeFlag::default());
    let waker = Waker::from(woken.clone());
    loop {
        poll(future.as_mut(), &waker);
        let quiet = Duration::from_millis(200);
        if timeout(quiet, woken.0.notified()).await.is_err() {
            return;
        }
    }
}

#[derive(Default)]
struct WakeFlag(tokio::sync::Notify);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

async fn called(bad: &MisbehavingTask, what: &str) {
    eventually(PATIENCE, what, async || bad.0.calls() > 0).await;
}

macro_rules! on_every_store {
    ($($test:ident: $store:ident, $manner:ident;)+) => {
        $(
            #[tokio::test]
            async fn $test() {
                let name = stringify!($test);
                a_bad_waker_costs_nobody_a_lock(Store::$store(), Behaviour::$manner, name).await;
            }
        )+
    };
}

on_every_store! {
    a_waker_that_panics_loses_no_lock_on_redis: redis, Panics;
    a_waker_that_blocks_loses_no_lock_on_redis: redis, Blocks;
    a_waker_that_panics_loses_no_lock_without_scripts: redis_without_scripts, Panics;
    a_waker_that_blocks_loses_no_lock_without_scripts: redis_without_scripts, Blocks;
    a_waker_that_panics_loses_no_lock_in_a_file: sqlite, Panics;
    a_waker_that_blocks_loses_no_lock_in_a_file: sqlite, Blocks;
}
