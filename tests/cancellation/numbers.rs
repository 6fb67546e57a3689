//! Numbers without an owner: futures dropped at every poll, after which no permit is lost or made up and no change counts twice.

use distlock::CountingSemaphore;

use super::PATIENCE;
use super::drop_at::DropAt;
use super::fixture::Fixture;
use crate::support::{Plain, eventually};

/// The number of permits at first.
const MANY: u32 = 5;

/// Returns a semaphore with this many permits, as seen by our client and by the other.
async fn permits(fixture: &Fixture<Plain>) -> (CountingSemaphore, CountingSemaphore) {
    let name = fixture.name();
    let theirs = fixture.theirs.counting_semaphore(&*name);
    assert!(theirs.try_set(MANY).await.unwrap());
    (fixture.ours.counting_semaphore(name), theirs)
}

async fn become_available(permits: &CountingSemaphore, many: u32) {
    eventually(PATIENCE, &format!("{many} are available"), async || {
        permits.available().await.unwrap() == i64::from(many)
    })
    .await;
}

pub(crate) async fn an_acquire_of_free_permits_takes_them_or_leaves_them(fixture: &Fixture<Plain>) {
    for permits_wanted in [1, 2] {
        let story = async |at: DropAt| {
            let (ours, theirs) = permits(fixture).await;
            let acquired = at.run_alone(ours.acquire(permits_wanted)).await;
            let finished = acquired.map(Result::unwrap).is_some();
            become_available(&theirs, MANY - if finished { permits_wanted } else { 0 }).await;
            assert!(theirs.try_acquire(1).await.unwrap(), "nobody is in the way");
            finished
        };
        fixture.sweep("free permits", 3, story).await;
    }
}

pub(crate) async fn an_acquire_that_waits_for_permits_leaves_them_and_the_queue(
    fixture: &Fixture<Plain>,
) {
    for permits_wanted in [1, 3] {
        let story = async |at: DropAt| {
            let (ours, theirs) = permits(fixture).await;
            let mut taken = MANY - (permits_wanted - 1);
            theirs.acquire(taken).await.unwrap();
            // When the future waits, the permits that it waits for are released.
            let nudge = async || theirs.release(std::mem::take(&mut taken)).await.unwrap();
            let acquired = at.run(ours.acquire(permits_wanted), nudge).await;
            let finished = acquired.map(Result::unwrap).is_some();
            let left = MANY - taken - if finished { permits_wanted } else { 0 };
            become_available(&theirs, left).await;
            theirs.release(MANY - left).await.unwrap();
            // The waiter has left the queue: all permits are available at once.
            let all = theirs.acquire_timeout(MANY, PATIENCE).await.unwrap();
            assert!(all, "{at:?}: a waiter is in the way");
            finished
        };
        fixture.sweep("permits that are out", 5, story).await;
    }
}

pub(crate) async fn a_release_that_is_dropped_counts_once_or_not_at_all(fixture: &Fixture<Plain>) {
    let story = async |at: DropAt| {
        let (ours, theirs) = permits(fixture).await;
        let released = at.run_alone(ours.release(2)).await;
        let finished = released.map(Result::unwrap).is_some();
        // From now on the first change cannot arrive any more.
        ours.release(10).await.unwrap();
        let added = theirs.available().await.unwrap() - i64::from(MANY) - 10;
        assert!(added == 2 || added == 0 && !finished, "{at:?}: {added}");
        finished
    };
    fixture.sweep("release", 3, story).await;
}

pub(crate) async fn a_count_down_that_is_dropped_counts_once_or_not_at_all(
    fixture: &Fixture<Plain>,
) {
    let story = async |at: DropAt| {
        let name = fixture.name();
        let (ours, theirs) = (fixture.ours.latch(&*name), fixture.theirs.latch(&*name));
        assert!(theirs.try_set(9).await.unwrap());
        let counted = at.run_alone(ours.count_down()).await.map(Result::unwrap);
        let left = ours.count_down().await.unwrap();
        assert_eq!(theirs.count().await.unwrap(), left);
        let right = [Some(8), None].contains(&counted);
        assert!(
            right && (left == 7 || left == 8 && counted.is_none()),
            "{at:?}: {left}"
        );
        counted.is_some()
    };
    fixture.sweep("count down", 3, story).await;
}

pub(crate) async fn a_wait_for_a_latch_leaves_nothing_behind(fixture: &Fixture<Plain>) {
    let story = async |at: DropAt| {
        let name = fixture.name();
        let (ours, theirs) = (fixture.ours.latch(&*name), fixture.theirs.latch(&*name));
        assert!(theirs.try_set(1).await.unwrap());
        let nudge = async || assert_eq!(theirs.count_down().await.unwrap(), 0);
        let waited = at.run(ours.wait(), nudge).await.map(Result::unwrap);
        if waited.is_some() {
            assert_eq!(theirs.count().await.unwrap(), 0);
        }
        theirs.count_down().await.unwrap();
        ours.wait().await.unwrap();
        eventually(PATIENCE, "no connection listens", async || {
            !fixture.is_subscribed(&name)
        })
        .await;
        waited.is_some()
    };
    fixture.sweep("latch", 3, story).await;
}
