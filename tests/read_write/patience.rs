//! A reader behind a writer that is never let in, as readers of other libraries may keep it out.

use std::time::Duration;

use distlock::Client;
use tokio::time::{Instant, timeout};

/// How long a reader waits behind writers.
const BEHIND_WRITERS: Duration = Duration::from_secs(60);
/// It asks that often by itself.
const ASKS: Duration = Duration::from_secs(2);

#[tokio::test(start_paused = true)]
async fn a_reader_waits_a_minute_behind_a_writer_that_is_never_let_in_and_not_longer() {
    let client = Client::connect("memory:").await.expect("it is there");
    let other = Client::connect("memory:").await.expect("it is there");
    for client in [&client, &other] {
        let lock = client.rw_lock("prices");
        let stays = lock.read().acquire().await.expect("it is free");
        let writer = tokio::spawn(lock.write().acquire());
        tokio::task::yield_now().await;
        for _ in 0..2 {
            let begun = Instant::now();
            let reader = timeout(BEHIND_WRITERS * 2, lock.read().acquire()).await;
            let reader = reader.expect("it is let in").expect("somebody reads");
            let waited = begun.elapsed();
            assert!(waited >= BEHIND_WRITERS, "{waited:?}: a writer waits");
            assert!(waited <= BEHIND_WRITERS + ASKS, "{waited:?}");
            assert!(stays.is_held() && reader.is_held() && !writer.is_finished());
            reader.release().await.expect("it is ours");
        }
        // One that does not wait is not let past.
        let tried = lock.read().try_acquire().await.expect("it answers");
        assert!(tried.is_none(), "a writer waits");
        stays.release().await.expect("it is ours");
        let writer = writer.await.expect("no panic").expect("its turn");
        writer.release().await.expect("it is ours");
    }
}
