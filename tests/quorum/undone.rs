//! Requests that are cancelled, or never replied to, leave nothing on any server.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use distlock::Lease;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::{ANSWER, Format, NAME, ROUND_TRIP, Stage, lock, on_all, staged};
use crate::support::{Fault, Match, PATIENCE, Script, eventually, simulated};

struct Alarm(Notify);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// Polls up to this many times, each time after a wake; returns whether the future completed.
async fn polled<F: Future + Send>(mut future: Pin<&mut F>, times: usize) -> bool {
    let alarm = Arc::new(Alarm(Notify::new()));
    let waker = Waker::from(alarm.clone());
    for _ in 0..times {
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        if polled.is_ready() {
            return true;
        }
        let _ = timeout(Duration::from_millis(100), alarm.0.notified()).await;
    }
    false
}

#[test]
fn an_acquire_dropped_at_any_await_leaves_nothing_and_a_dropped_release_completes() {
    staged(async |stage, clients, format| {
        let lock = lock(&clients, format).with_lease(LONG);
        for releases in [false, true] {
            let (mut polls, mut done) = (0, false);
            while !done {
                if releases {
                    let guard = lock.acquire().await.expect("all are up");
                    done = polled(Box::pin(guard.release()).as_mut(), polls).await;
                } else {
                    done = polled(Box::pin(lock.acquire()).as_mut(), polls).await;
                }
                stage.nothing_is_left().await;
                polls += 1;
            }
            assert!(polls > 2, "it was dropped before it had asked, and after");
        }
    });
}

/// The waiter is dropped while it sends its requests, while it releases what the others have granted, and before its next requests.
#[test]
fn an_acquire_dropped_against_a_majority_of_another_client_leaves_nothing() {
    staged(async |stage, clients, format| {
        let (ours, theirs) = (clients, stage.clients().await);
        let ours = lock(&ours, format).with_lease(LONG);
        let theirs = lock(&theirs[..3], format).with_lease(LONG);
        for polls in 0..WAITING {
            let held = theirs.acquire().await.expect("all are up");
            // Two of the holder's three servers are a majority of them: if it has only those, our client may have three of five.
            stage.held_by(&[0, 1, 2]).await;
            let mut waiting = Box::pin(ours.acquire());
            assert!(!polled(waiting.as_mut(), polls).await, "it is theirs");
            drop(waiting);
            stage.held_by(&[0, 1, 2]).await;
            assert!(held.is_held());
            held.release().await.expect("it is theirs");
            stage.nothing_is_left().await;
        }
    });
}

/// A lease so long that no key expires while the test waits: every left-over is seen.
const LONG: Lease = Lease::KeepAlive(Duration::from_secs(120));
/// The waiter has sent its requests twice by then.
const WAITING: usize = 14;

#[test]
fn an_acquire_with_three_lost_replies_is_refused_and_undone() {
    simulated(async || {
        for fault in [Fault::HoldReply, Fault::HoldRequest, Fault::CutAfter] {
            let stage = Stage::new();
            stage.servers.iter().for_each(Script::load_all);
            let (proxies, clients) = stage.proxied().await;
            let lock = lock(&clients, Format::Plain);
            // Each client makes its first connection.
            on_all(&lock).await.release().await.expect("all agree");
            for proxy in &proxies[2..] {
                let acquire = Match::words(|words| Script::Acquire.runs(words)).nth(1);
                proxy.rule(acquire, fault);
            }
            let begun = Instant::now();
            let error = lock.try_acquire().await;
            let error = error.expect_err("three have not answered");
            assert!(error.is_transient(), "{error}");
            let took = begun.elapsed();
            assert!(took < 2 * (ANSWER + ROUND_TRIP), "{fault:?}: {took:?}");
            for proxy in &proxies[2..] {
                assert_eq!(proxy.injected().len(), 1, "{fault:?} took effect");
            }
            // Undone by a separate request: the delayed one arrives later, and finds its tombstone.
            eventually(PATIENCE, "it is undone", async || {
                let is_undo = |words: &Vec<String>| Script::Undo.runs(words);
                let mut proxies = proxies[2..].iter();
                proxies.all(|proxy| proxy.requests().iter().any(is_undo))
            })
            .await;
            stage.nothing_is_left().await;
            proxies.iter().for_each(|proxy| proxy.deliver_held());
            eventually(PATIENCE, "everything has come", async || {
                proxies.iter().all(|proxy| proxy.unanswered() == 0)
            })
            .await;
            stage.nothing_is_left().await;
        }
    });
}

/// One server is slow to grant it, and its client closes right after the guard was dropped: by then it is undone there.
#[test]
fn a_client_closed_right_after_its_guard_has_undone_requests_in_flight() {
    simulated(async || {
        for releases in [false, true] {
            let stage = Stage::new();
            stage.servers.iter().for_each(Script::load_all);
            let (proxies, clients) = stage.proxied().await;
            let lock = lock(&clients, Format::Plain);
            let acquire = Match::words(|words| Script::Acquire.runs(words)).nth(1);
            proxies[4].rule(acquire, Fault::DelayRequest(ANSWER / 2));
            let guard = lock.acquire().await.expect("four are enough");
            assert!(guard.votes() < 5, "the last has not heard of it");
            match releases {
                false => drop(guard),
                true => guard.release().await.expect("it is ours"),
            }
            clients[4].close().await.expect("its server answers");
            // The program of a closed client may have ended, so a later request would not count.
            let sent = proxies[4].requests().len();
            eventually(PATIENCE, "everything has come", async || {
                proxies[4].unanswered() == 0
            })
            .await;
            assert_eq!(proxies[4].injected().len(), 1, "the fault took effect");
            assert_eq!(proxies[4].requests().len(), sent);
            let left = stage.servers[4].try_query::<bool>(&["EXISTS", NAME]);
            assert_eq!(left, Ok(false));
        }
    });
}
