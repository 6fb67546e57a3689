//! `close()` releases every hold, notifies every waiter, and returns in bounded time: under simulated time.

use std::task::{Context, Waker};
use std::time::Duration;

use distlock::{Client, Error, Guard, LostReason, QuorumLock};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::support::{
    ChaosProxy, Fault, Match, PATIENCE, RedisServer, Script, builder, eventually, simulated,
};

async fn connect(url: &str) -> Client {
    let client = builder(url).connect().await;
    client.expect("the store is up")
}

async fn hold(client: &Client, names: impl Iterator<Item = String>) -> Vec<Guard> {
    let names: Vec<String> = names.collect();
    let mut guards = Vec::new();
    // In groups: the last of a thousand may have to wait for longer than a call may take.
    for names in names.chunks(100) {
        let locks = names.iter().map(|name| client.lock(name.as_str()));
        let acquiring: JoinSet<_> = locks.map(|lock| lock.acquire()).collect();
        guards.extend(acquiring.join_all().await.into_iter().map(Result::unwrap));
    }
    guards
}

#[test]
fn closing_releases_a_thousand_locks_within_two_seconds() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let guards = hold(&client, (0..1000).map(|n| format!("held:{n}"))).await;
        assert_eq!(server.keys().len(), 1000);
        let begun = Instant::now();
        client.close().await.unwrap();
        let took = begun.elapsed();
        assert_eq!(server.keys(), Vec::<String>::new());
        assert!(took < Duration::from_secs(2), "{took:?}");
        for guard in guards {
            assert!(!guard.is_held());
            assert_eq!(guard.lost().await.unwrap().reason, LostReason::Closed);
        }
    });
}

#[test]
fn closing_flushes_releases_of_guards_dropped_just_before() {
    simulated(async || {
        let server = RedisServer::start();
        let proxy = ChaosProxy::start(server.addr());
        let client = connect(&proxy.url()).await;
        let guards = hold(&client, (0..100).map(|n| format!("dropped:{n}"))).await;
        let me = client.new_owner();
        let (nested, waited_for) = (client.lock("nested").with_owner(&me), client.lock("waited"));
        let (outer, inner) = (
            nested.acquire().await.unwrap(),
            nested.acquire().await.unwrap(),
        );
        let released = waited_for.acquire().await.unwrap();
        assert_eq!(server.keys().len(), 102);
        // The delay ensures that no part of it can have arrived when the client is closed.
        let slow = Fault::DelayRequest(Duration::from_millis(400));
        proxy.rule(Match::any(), slow);
        let begun = Instant::now();
        // Whole holds, a part of one and then its rest, and a release that was sent and is not awaited.
        drop((guards, inner, outer));
        let mut releasing = Box::pin(released.release());
        let polled = releasing
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending(), "nobody can have answered yet");
        drop(releasing);
        client.close().await.unwrap();
        assert_eq!(server.keys(), Vec::<String>::new());
        assert!(begun.elapsed() > Duration::from_millis(300), "it waited");
    });
}

/// The waiters behind would otherwise wait for one that is gone: a process may end as soon as it has closed its client.
#[test]
fn closing_leaves_the_queue_of_a_fair_lock() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, other) = (connect(&server.url()).await, connect(&server.url()).await);
        let theirs = other.fair_lock("stock").acquire().await.unwrap();
        let length = || -> usize { server.query(&["LLEN", "redisson_lock_queue:{stock}"]) };
        let mut unpolled = Vec::new();
        for number in 1..=20 {
            let mut waiting = Box::pin(client.fair_lock("stock").acquire());
            while length() < number {
                let polled = tokio::time::timeout(Duration::from_millis(5), waiting.as_mut()).await;
                assert!(polled.is_err(), "somebody else holds it");
            }
            match number % 2 {
                0 => unpolled.push(waiting),
                _ => drop(tokio::spawn(waiting)),
            }
        }
        client.close().await.unwrap();
        assert_eq!(length(), 0, "they have left");
        for waiting in unpolled {
            assert!(matches!(waiting.await, Err(Error::Closed { .. })));
        }
        theirs.release().await.unwrap();
        assert_eq!(server.keys(), ["distlock_undone:{stock}"]);
    });
}

#[test]
fn closing_notifies_waiters_and_rejects_new_calls() {
    simulated(async || {
        let server = RedisServer::start();
        for url in ["memory:", &server.url()] {
            let client = connect(url).await;
            let held = client.lock("waited").acquire().await.unwrap();
            let mut waiting = JoinSet::new();
            for _ in 0..20 {
                waiting.spawn(client.lock("waited").acquire());
                waiting.spawn({
                    let waiting = client.lock("waited").acquire_timeout(PATIENCE);
                    async move { waiting.await.map(|guard| guard.expect("not over yet")) }
                });
            }
            tokio::task::yield_now().await;
            let begun = Instant::now();
            client.close().await.unwrap();
            while let Some(ended) = waiting.join_next().await {
                assert_closed(ended.unwrap().map(drop));
            }
            let took = begun.elapsed();
            assert!(took < Duration::from_secs(2), "{took:?}");
            let error = held.release().await.unwrap_err();
            let closed = matches!(
                &error,
                Error::Lost {
                    reason: LostReason::Closed,
                    ..
                }
            );
            assert!(closed, "{error:?}");

            let lock = client.lock("new");
            assert_closed(lock.acquire().await.map(drop));
            assert_closed(lock.try_acquire().await.map(drop));
            assert_closed(lock.acquire_timeout(PATIENCE).await.map(drop));
            assert_closed(lock.run(async |_| ()).await.map_err(Error::from));
            assert_closed(client.admin().inspect("new").await.map(drop));
            assert_closed(client.admin().list("*").await.map(drop));
            client.close().await.expect("closing twice is closing once");
            let clone = client.clone();
            assert_closed(clone.lock("new").acquire().await.map(drop));
        }
        assert_eq!(server.keys(), Vec::<String>::new());
    });
}

fn assert_closed(outcome: Result<(), Error>) {
    let error = outcome.expect_err("the client is closed");
    assert!(
        matches!(error, Error::Closed { forked: false, .. }),
        "{error:?}"
    );
    assert!(!error.to_string().contains("fork"), "{error}");
}

#[test]
fn closing_takes_five_seconds_at_most_when_the_server_does_not_answer() {
    simulated(async || {
        let server = RedisServer::start();
        let proxy = ChaosProxy::start(server.addr());
        let dying = RedisServer::start();
        let silent = connect(&proxy.url()).await;
        let dead = connect(&dying.url()).await;
        let guards = (
            hold(&silent, ["a".to_owned()].into_iter()).await,
            hold(&dead, ["b".to_owned()].into_iter()).await,
        );
        proxy.partition(true);
        dying.kill();
        let closings: JoinSet<_> = [silent, dead]
            .map(|client| async move {
                let begun = Instant::now();
                (client.close().await, begun.elapsed())
            })
            .into_iter()
            .collect();
        for (closed, took) in closings.join_all().await {
            eprintln!("gave up after {took:?}");
            assert!(took <= Duration::from_millis(5_100), "{took:?}");
            let error = closed.expect_err("nobody has answered");
            assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
            let text = error.to_string();
            assert!(!text.ends_with('.') && text.contains("leases"), "{text}");
        }
        drop(guards);
    });
}

/// A connection that was unused for long turns out to be closed at the next request.
#[test]
fn a_closed_client_leaves_no_label_though_its_connection_has_ended() {
    simulated(async || {
        let server = RedisServer::start();
        let proxy = ChaosProxy::start(server.addr());
        let builder = builder(&proxy.url()).label("nightly");
        let builder = builder.command_timeout(PATIENCE).connect_timeout(PATIENCE);
        let client = builder.connect().await.unwrap();
        eventually(PATIENCE, "the label is there", async || {
            !server.keys().is_empty()
        })
        .await;
        proxy.rule(Match::command("DEL").nth(1), Fault::CutBefore);
        client.close().await.unwrap();
        assert_eq!(server.keys(), [""; 0]);
    });
}

#[test]
fn closing_a_client_with_a_label_needs_no_server() {
    simulated(async || {
        let server = RedisServer::start();
        let proxy = ChaosProxy::start(server.addr());
        let builder = builder(&proxy.url()).label("nightly");
        let builder = builder.command_timeout(Duration::from_millis(500));
        let client = builder.connect_timeout(PATIENCE).connect().await.unwrap();
        eventually(PATIENCE, "the label is there", async || {
            !server.keys().is_empty()
        })
        .await;
        proxy.partition(true);
        client.close().await.expect("there is nothing to give back");
    });
}

#[test]
fn closing_without_holds_needs_no_server() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        client
            .lock("done")
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        server.kill();
        let begun = Instant::now();
        client.close().await.unwrap();
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(1), "{took:?}");
    });
}

#[test]
fn closing_one_client_does_not_affect_the_others() {
    simulated(async || {
        let server = RedisServer::start();
        let (ours, theirs) = (connect(&server.url()).await, connect(&server.url()).await);
        let kept = theirs.lock("theirs").acquire().await.unwrap();
        let held = ours.lock("ours").acquire().await.unwrap();
        let waiting = tokio::spawn(theirs.lock("ours").acquire());
        tokio::task::yield_now().await;
        ours.close().await.unwrap();
        assert!(!held.is_held() && kept.is_held());
        let next = tokio::time::timeout(PATIENCE, waiting)
            .await
            .unwrap()
            .unwrap();
        assert!(next.unwrap().is_held());
        assert!(server.keys().contains(&"theirs".to_owned()));
    });
}

/// A call has not reached the server yet when its client is closed. After that the client must send nothing more: its program may have
/// ended.
#[test]
fn closing_undoes_or_awaits_requests_of_other_tasks() {
    simulated(async || {
        for call in 0..4 {
            let server = RedisServer::start();
            Script::load_all(&server);
            let proxy = ChaosProxy::start(server.addr());
            let client = connect(&proxy.url()).await;
            let slow = Fault::DelayRequest(Duration::from_millis(400));
            proxy.rule(Match::words(|words| Script::Acquire.runs(words)), slow);
            let lock = client.lock("asked for");
            let asking = tokio::spawn(async move {
                match call {
                    0 => drop(lock.try_acquire().await),
                    1 => drop(lock.acquire().await),
                    2 => drop(lock.acquire_timeout(PATIENCE).await),
                    _ => {
                        let lock = QuorumLock::new([lock.into()]);
                        drop(lock.with_longest_lease(Duration::ZERO).acquire().await);
                    }
                }
            });
            eventually(PATIENCE, "it has asked", async || {
                !proxy.injected().is_empty()
            })
            .await;
            client.close().await.expect("the server answers");
            assert_eq!(proxy.unanswered(), 0);
            let mut keys = server.keys();
            keys.retain(|key| !key.starts_with("distlock_undone:"));
            assert_eq!(keys, Vec::<String>::new(), "of call {call}");
            asking.await.expect("no panic");
        }
    });
}

/// A release that another task has begun reaches the server before its client is closed, however slow the server is.
#[test]
fn closing_waits_for_a_release_of_another_task() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let guard = client.lock("held").acquire().await.unwrap();
        server.stop_process();
        let releasing = tokio::spawn(guard.release());
        tokio::task::yield_now().await;
        let closing = tokio::spawn(async move { client.close().await });
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(!closing.is_finished(), "the server has not heard of it");
        server.continue_process();
        closing.await.expect("no panic").expect("all was released");
        assert_eq!(server.keys(), Vec::<String>::new());
        releasing.await.expect("no panic").expect("it was ours");
    });
}
