//! The failure of two of five servers does not matter; that of three does. Neither takes long.

use std::time::Duration;

use distlock::Error;
use tokio::time::Instant;

use super::{ANSWER, FORMATS, Format, ROUND_TRIP, Stage, clients, lock, on_all, staged, votes};
use crate::support::{ChaosProxy, PATIENCE, RedisServer, builder, eventually, simulated};

#[derive(Clone, Copy, Debug)]
enum Fault {
    Killed,
    Hung,
    Full,
}

const FAULTS: [Fault; 3] = [Fault::Killed, Fault::Hung, Fault::Full];

impl Fault {
    fn strike(self, server: &RedisServer) {
        match self {
            Self::Killed => server.kill(),
            Self::Hung => server.stop_process(),
            Self::Full => server.config_set("maxmemory", "1"),
        }
    }

    fn end(self, server: &RedisServer) {
        match self {
            Self::Killed => server.restart(),
            Self::Hung => server.continue_process(),
            Self::Full => server.config_set("maxmemory", "0"),
        }
    }

    /// Returns the time within which the servers reply, or fail to.
    const fn bound(self) -> Duration {
        match self {
            Self::Hung => ANSWER.saturating_add(ROUND_TRIP),
            Self::Killed | Self::Full => ROUND_TRIP,
        }
    }
}

#[test]
fn two_killed_hung_or_full_servers_are_tolerated() {
    for fault in FAULTS {
        staged(async move |stage, clients, format| {
            stage.servers[3..].iter().for_each(|s| fault.strike(s));
            let begun = Instant::now();
            let taken = lock(&clients, format).try_acquire().await;
            let guard = taken.expect("three answer").expect("it is free");
            let took = begun.elapsed();
            assert!(took < fault.bound(), "{fault:?}: {took:?}");
            assert_eq!(guard.votes(), 3, "{fault:?}");
            assert!(guard.is_held() && guard.check().is_ok());
            let begun = Instant::now();
            guard.release().await.expect("three agree");
            let took = begun.elapsed();
            assert!(took < fault.bound(), "{fault:?}: {took:?}");
            stage.servers[3..].iter().for_each(|s| fault.end(s));
            stage.nothing_is_left().await;
        });
    }
}

#[test]
fn three_killed_hung_or_full_servers_fail_the_acquire_and_leave_nothing() {
    for fault in FAULTS {
        staged(async move |stage, clients, format| {
            stage.servers[2..].iter().for_each(|s| fault.strike(s));
            for wait in [Duration::ZERO, Duration::from_secs(3), Duration::MAX] {
                let begun = Instant::now();
                let taken = lock(&clients, format).acquire_timeout(wait).await;
                let took = begun.elapsed();
                assert!(took < 2 * fault.bound(), "{fault:?}: {took:?}");
                let error = taken.expect_err("nobody could have it");
                assert!(error.is_transient(), "{error}");
                let Error::Several { errors } = &error else {
                    panic!("each server's error is reported: {error}");
                };
                assert_eq!(errors.len(), 3, "{error}");
                let port = stage.servers[2].port().to_string();
                assert!(error.to_string().contains(&port), "and where: {error}");
            }
            stage.servers[2..].iter().for_each(|s| fault.end(s));
            stage.nothing_is_left().await;
            // The undo is complete by then, and servers that were down are connected again.
            eventually(PATIENCE, "it can be acquired", async || {
                let taken = lock(&clients, format).try_acquire().await;
                taken.is_ok_and(|guard| guard.is_some())
            })
            .await;
        });
    }
}

#[test]
fn a_client_created_while_its_server_is_down_works_once_it_is_up() {
    simulated(async || {
        let stage = Stage::new();
        stage.servers[4].kill();
        let clients = stage.clients().await;
        let lock = lock(&clients, Format::Plain);
        let taken = lock.try_acquire().await.expect("four answer");
        let guard = taken.expect("it is free");
        votes(&guard, 4).await;
        guard.release().await.expect("four agree");
        stage.servers[4].restart();
        drop(on_all(&lock).await);
    });
}

/// The wait for a hanging server does not depend on the command timeout.
#[test]
fn hung_servers_are_waited_for_far_less_than_the_lease() {
    simulated(async || {
        let stage = Stage::new();
        let mut clients = Vec::new();
        for server in &stage.servers {
            let client = builder(&server.url()).command_timeout(Duration::from_secs(600));
            clients.push(client.connect().await.expect("it is up"));
        }
        stage.servers[2..]
            .iter()
            .for_each(RedisServer::stop_process);
        let begun = Instant::now();
        let taken = lock(&clients, Format::Plain).try_acquire().await;
        taken.expect_err("three do not answer");
        let took = begun.elapsed();
        assert!(took < 2 * (ANSWER + ROUND_TRIP), "{took:?}");
        stage.servers[2..]
            .iter()
            .for_each(RedisServer::continue_process);
        stage.nothing_is_left().await;
    });
}

#[test]
fn two_members_on_one_server_are_refused_by_its_address() {
    simulated(async || {
        let server = RedisServer::start();
        let url = server.url();
        // Another database is not another server.
        let clients = clients([url.clone(), format!("{url}1")]).await;
        let error = lock(&clients, Format::Plain).try_acquire().await;
        let Err(error @ Error::InvalidOption { .. }) = error else {
            panic!("it would vote twice: {error:?}");
        };
        let port = server.port().to_string();
        assert!(error.to_string().contains(&port), "{error}");
    });
}

/// A client cannot know that both addresses lead to one server; and it is the same key.
#[test]
fn a_server_with_two_addresses_grants_it_once() {
    simulated(async || {
        for format in FORMATS {
            let (twice, once) = (RedisServer::start(), RedisServer::start());
            let proxy = ChaosProxy::start(twice.addr());
            let urls = || [twice.url(), proxy.url(), once.url()];
            let (first, second) = (clients(urls()).await, clients(urls()).await);
            let guard = lock(&first, format).acquire_timeout(PATIENCE).await;
            let guard = guard.expect("two are up").expect("and free");
            assert_eq!(guard.votes(), 2);
            let other = lock(&second, format).try_acquire().await;
            assert!(other.expect("two are up").is_none(), "two hold it");
            guard.release().await.expect("it is ours");
            // Alone, it is no majority under either name.
            once.kill();
            let alone = lock(&first, format).try_acquire().await;
            assert!(!matches!(alone, Ok(Some(_))), "{alone:?}");
        }
    });
}
