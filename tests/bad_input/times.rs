//! Leases, waits and timeouts at both ends of the range of a `Duration`.

use std::time::Duration;

use tokio::time::Instant;

use distlock::{Backoff, Error, Lease, Wait};

use super::support::{RedisServer, builder, eventually, simulated};
use super::{PATIENCE, checked_message, connect};

/// Leases that are too short to be kept, or longer than a human life.
const IMPOSSIBLE: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_nanos(1),
    Duration::from_micros(999),
    Duration::from_secs(200 * 366 * 86_400),
    Duration::MAX,
];

fn assert_option(error: Error, option: &str) {
    let error = checked_message(error);
    assert!(matches!(error, Error::InvalidOption { .. }), "{error:?}");
    assert!(error.to_string().contains(option), "{error}");
    assert!(!error.is_transient());
}

#[test]
fn a_lease_that_cannot_be_kept_is_refused() {
    simulated(async || {
        let server = RedisServer::start();
        for url in ["memory:", &server.url()] {
            let client = connect(url).await;
            let fixed = client.lock("fixed").with_lease(Lease::Fixed(PATIENCE));
            let held = fixed.acquire().await.unwrap();
            for lease in IMPOSSIBLE {
                for lease in [Lease::Fixed(lease), Lease::KeepAlive(lease)] {
                    let lock = client.lock("lease").with_lease(lease);
                    assert_option(lock.acquire().await.unwrap_err(), "lease");
                    assert_option(lock.try_acquire().await.unwrap_err(), "lease");
                    let builder = builder(url).default_lease(lease);
                    assert_option(builder.connect().await.unwrap_err(), "lease");
                }
                assert_option(held.extend(lease).await.unwrap_err(), "lease");
                assert!(held.is_held(), "a bad extension costs nothing");
            }
            held.release().await.unwrap();
        }
        assert_eq!(server.keys(), Vec::<String>::new());
    });
}

#[test]
fn a_lease_of_a_hundred_years_is_kept() {
    simulated(async || {
        let server = RedisServer::start();
        let century = Duration::from_secs(100 * 365 * 86_400);
        for url in ["memory:", &server.url()] {
            let client = connect(url).await;
            for lease in [Lease::Fixed(century), Lease::KeepAlive(century)] {
                let guard = client
                    .lock("century")
                    .with_lease(lease)
                    .acquire()
                    .await
                    .unwrap();
                // The lease that is left after the allowance for clock drift.
                assert!(
                    guard.remaining() > century.mul_f64(0.98),
                    "{:?}",
                    guard.remaining()
                );
                assert!(guard.valid_until() > Instant::now().into_std());
                let seen = client.admin().inspect("century").await.unwrap().unwrap();
                let ttl = seen.ttl.expect("it has an end");
                assert!(ttl <= century && ttl > century - PATIENCE, "{ttl:?}");
                if let Lease::Fixed(_) = lease {
                    guard.extend(century).await.unwrap();
                }
                guard.release().await.unwrap();
            }
        }
        assert_eq!(server.keys(), Vec::<String>::new());
    });
}

#[test]
fn the_shortest_waits_return_at_once_and_leave_nothing() {
    simulated(async || {
        let server = RedisServer::start();
        for url in ["memory:", &server.url()] {
            let client = connect(url).await;
            let held = client.lock("busy").acquire().await.unwrap();
            for wait in [
                Duration::ZERO,
                Duration::from_nanos(1),
                Duration::from_micros(500),
            ] {
                let begun = Instant::now();
                let free = client.lock("free").acquire_timeout(wait).await;
                let busy = client.lock("busy").acquire_timeout(wait).await;
                let took = begun.elapsed();
                assert!(took < Duration::from_secs(1), "{took:?}");
                match free {
                    Ok(Some(guard)) => guard.release().await.unwrap(),
                    Ok(None) => panic!("nobody holds it, and nobody said so"),
                    Err(error) => {
                        // Too short for any reply of a server.
                        let error = super::checked_message_of("free", error);
                        assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
                    }
                }
                match busy {
                    Ok(Some(_)) => panic!("two hold the same lock"),
                    Ok(None) => {}
                    Err(error) => assert!(matches!(error, Error::Timeout { .. }), "{error:?}"),
                }
            }
            held.release().await.unwrap();
            eventually(PATIENCE, "everything was taken back", async || {
                client.admin().list("*").await.unwrap().is_empty()
            })
            .await;
        }
    });
}

#[test]
fn the_longest_waits_and_holds_end_when_they_are_granted() {
    simulated(async || {
        let server = RedisServer::start();
        for url in ["memory:", &server.url()] {
            let client = connect(url).await;
            for forever in [Duration::MAX, Duration::from_secs(100 * 366 * 86_400)] {
                let held = client
                    .lock("long")
                    .with_max_hold(forever)
                    .acquire()
                    .await
                    .unwrap();
                let waiting = tokio::spawn(client.lock("long").acquire_timeout(forever));
                tokio::task::yield_now().await;
                assert!(!waiting.is_finished());
                held.release().await.unwrap();
                let guard = waiting.await.expect("no panic").unwrap();
                guard
                    .expect("the time is not over")
                    .release()
                    .await
                    .unwrap();
            }
        }
    });
}

#[test]
fn poll_intervals_of_any_length_do_not_panic() {
    simulated(async || {
        let server = RedisServer::start();
        for (first, longest) in [
            (Duration::ZERO, Duration::ZERO),
            (Duration::MAX, Duration::MAX),
            (Duration::ZERO, Duration::MAX),
            (Duration::MAX, Duration::ZERO),
        ] {
            // The waiter polls again when the holder's lease expires, at the latest: twice here.
            super::wrong_kind::hold_as_stranger(&server, "poll", Duration::from_secs(3));
            let client = connect(&server.url()).await;
            let lock = client
                .lock("poll")
                .with_wait(Wait::Poll(Backoff::new(first, longest)));
            let waiting = tokio::spawn(lock.acquire_timeout(PATIENCE));
            eventually(PATIENCE, "it was asked for once", async || {
                server.commandstats("evalsha") > 0
            })
            .await;
            super::wrong_kind::hold_as_stranger(&server, "poll", Duration::from_millis(2000));
            let got = waiting
                .await
                .unwrap_or_else(|panic| panic!("({first:?}, {longest:?}): {panic}"));
            got.unwrap()
                .expect("the stranger has gone")
                .release()
                .await
                .unwrap();
            server.cmd(&["CONFIG", "RESETSTAT"]);
        }
    });
}

#[test]
fn a_timeout_or_max_hold_of_zero_is_rejected() {
    simulated(async || {
        let server = RedisServer::start();
        for url in ["memory:", &server.url()] {
            let refused = builder(url).command_timeout(Duration::ZERO);
            assert_option(refused.connect().await.unwrap_err(), "command_timeout");
            let refused = builder(url).connect_timeout(Duration::ZERO);
            assert_option(refused.connect().await.unwrap_err(), "connect_timeout");
            let client = connect(url).await;
            let lock = client.lock("hold").with_max_hold(Duration::ZERO);
            assert_option(lock.acquire().await.unwrap_err(), "max_hold");
        }
    });
}

#[test]
fn timeouts_of_any_length_work() {
    simulated(async || {
        let server = RedisServer::start();
        for limit in [
            Duration::from_secs(30 * 86_400),
            Duration::from_secs(100 * 366 * 86_400),
            Duration::MAX,
        ] {
            let url = server.url();
            let client = tokio::spawn(async move {
                builder(&url)
                    .command_timeout(limit)
                    .connect_timeout(limit)
                    .handoff_window(limit)
                    .connect()
                    .await
            });
            let client = client
                .await
                .unwrap_or_else(|panic| panic!("{limit:?}: {panic}"));
            let client = client.unwrap_or_else(|error| panic!("{limit:?}: {error}"));
            client
                .lock("patient")
                .acquire()
                .await
                .unwrap()
                .release()
                .await
                .unwrap();
        }
    });
}

#[test]
fn an_owner_of_another_client_is_refused() {
    simulated(async || {
        let (ours, theirs) = (connect("memory:").await, connect("memory:").await);
        let lock = ours.lock("owner").with_owner(&theirs.new_owner());
        assert_option(lock.acquire().await.unwrap_err(), "owner");
    });
}
