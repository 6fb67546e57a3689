//! The fate of a held lock: servers that reply late, or are lost, or come back.

use std::time::Duration;

use distlock::{Client, Error, Lease, LostReason, Member, QuorumLock};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{Format, LEASE, NAME, ROUND_TRIP, lock, lost, members, on_all, staged, votes};
use crate::support::{PATIENCE, RedisServer, eventually, simulated};

/// A server has half a second to reply.
const SHORT: Duration = Duration::from_secs(10);

fn short(clients: &[Client], format: Format) -> QuorumLock {
    lock(clients, format).with_lease(Lease::KeepAlive(SHORT))
}

#[test]
fn the_loss_of_two_servers_is_no_loss() {
    staged(async |stage, clients, format| {
        let guard = on_all(&short(&clients, format)).await;
        stage.servers[0].kill();
        stage.servers[1].stop_process();
        votes(&guard, 3).await;
        // The others are renewed as before.
        let lost = timeout(5 * SHORT, guard.lost()).await;
        assert!(lost.is_err(), "three are left: {lost:?}");
        assert_eq!(guard.votes(), 3);
        assert!(guard.remaining() > SHORT / 2 && guard.at_risk().is_none());
        guard.release().await.expect("three agree");
        stage.servers[0].restart();
        stage.servers[1].continue_process();
        stage.nothing_is_left().await;
    });
}

#[test]
fn the_loss_of_three_servers_is_reported_before_their_leases_expire() {
    staged(async |stage, clients, format| {
        let guard = on_all(&short(&clients, format)).await;
        stage.servers[2..]
            .iter()
            .for_each(RedisServer::stop_process);
        // Every grant was made before this moment.
        let over = Instant::now() + SHORT;
        let promised = Instant::from_std(guard.valid_until());
        assert!(promised < over, "it was relied on for too long");
        lost(&guard).await;
        assert!(Instant::now() >= promised, "it is reported, not guessed");
        assert!(Instant::now() < over);
        sleep_until(over).await;
        assert!(!guard.is_held() && guard.remaining().is_zero());
        // The holds on the other servers are released without a request of the caller.
        stage.servers[2..]
            .iter()
            .for_each(RedisServer::continue_process);
        stage.nothing_is_left().await;
        guard.release().await.expect_err("it was lost");
    });
}

#[test]
fn a_late_vote_joins_the_hold_and_is_released_with_it() {
    staged(async |stage, clients, format| {
        for server in &stage.servers[3..] {
            server.simulated().stall(Duration::from_millis(500));
        }
        // A lock that is not kept alive: no further request is sent.
        let lock = lock(&clients, format).with_lease(Lease::Fixed(LEASE));
        let guard = lock.acquire().await.expect("three answer");
        assert_eq!(guard.votes(), 3);
        votes(&guard, 5).await;
        assert_eq!(stage.holders(), [0, 1, 2, 3, 4]);
        guard.release().await.expect("all agree");
        assert!(stage.holders().is_empty(), "every one was asked");
    });
}

#[test]
fn a_release_before_a_late_vote_releases_that_vote_too() {
    staged(async |stage, clients, format| {
        stage.servers[3..]
            .iter()
            .for_each(RedisServer::stop_process);
        let lock = lock(&clients, format);
        let guard = lock.acquire().await.expect("three answer");
        guard.release().await.expect("three agree");
        stage.servers[3..]
            .iter()
            .for_each(RedisServer::continue_process);
        stage.nothing_is_left().await;
        // Requests that were sent before it are executed after it, or never.
        drop(on_all(&lock).await);
    });
}

#[test]
fn a_long_hold_outlives_the_restart_of_every_server() {
    staged(async |stage, clients, format| {
        // Servers have their votes back a lease after their restart, and are asked again.
        let lock = QuorumLock::new(members(&clients, format));
        let lock = lock.with_lease(Lease::KeepAlive(SHORT));
        sleep(SHORT + Duration::from_secs(1)).await;
        let guard = on_all(&lock).await;
        for _ in 0..3 {
            for some in stage.servers.chunks(2) {
                some.iter().for_each(RedisServer::restart);
                votes(&guard, 5 - some.len()).await;
                votes(&guard, 5).await;
                assert!(guard.is_held());
            }
        }
        guard.release().await.expect("all agree");
        stage.nothing_is_left().await;
    });
}

async fn force_open(clients: &[Client]) {
    for client in clients {
        assert!(client.admin().force_release(NAME).await.expect("it is up"));
    }
}

#[test]
fn a_lock_force_released_on_every_server_is_lost() {
    staged(async |stage, clients, format| {
        let guard = on_all(&short(&clients, format)).await;
        // Other clients open it: its own learn of it when they next renew it, one server after the other.
        force_open(&stage.clients().await).await;
        lost(&guard).await;
    });
}

#[test]
fn run_fails_if_too_few_servers_held_it_to_the_end() {
    staged(async |stage, clients, format| {
        let others = stage.clients().await;
        for (forced, is_held) in [(2, true), (3, false)] {
            let lock = lock(&clients, format);
            let done = lock.run(async |held| {
                while held.votes() < 5 {
                    sleep(Duration::from_millis(10)).await;
                }
                force_open(&others[..forced]).await;
                "work done"
            });
            match done.await {
                Ok(output) => assert!(is_held && output == "work done"),
                Err(error) => {
                    assert!(!is_held && error.error().is_lost(), "{error}");
                    assert_eq!(error.into_output(), Some("work done"));
                }
            }
            stage.nothing_is_left().await;
        }
    });
}

#[test]
fn run_succeeds_though_three_servers_do_not_answer_its_release() {
    staged(async |stage, clients, format| {
        let lock = lock(&clients, format);
        let done = lock.run(async |held| {
            while held.votes() < 5 {
                sleep(Duration::from_millis(10)).await;
            }
            stage.servers[..3].iter().for_each(RedisServer::kill);
        });
        done.await.expect("it was held to the end");
    });
}

#[test]
fn a_fixed_lease_is_lost_when_it_expires() {
    staged(async |_stage, clients, format| {
        let lock = lock(&clients, format).with_lease(Lease::Fixed(SHORT));
        let guard = on_all(&lock).await;
        let end = Instant::from_std(guard.valid_until());
        lost(&guard).await;
        assert!(end.elapsed() < Duration::from_millis(2));
    });
}

#[test]
fn a_fixed_lease_is_extended_by_most_servers_or_not_at_all() {
    staged(async |stage, clients, format| {
        let others = stage.clients().await;
        let fixed = lock(&clients, format).with_lease(Lease::Fixed(SHORT));
        let guard = on_all(&fixed).await;
        // Its servers fail one by one; a majority is enough.
        stage.servers[..2].iter().for_each(RedisServer::kill);
        guard.extend(SHORT * 3).await.expect("three answer");
        assert!(guard.remaining() > SHORT * 2, "{:?}", guard.remaining());
        sleep(SHORT + ROUND_TRIP).await;
        assert!(guard.is_held(), "its first lease would be over");
        let other = lock(&others, format).try_acquire().await;
        assert!(!matches!(other, Ok(Some(_))), "two hold it");
        stage.servers[2].kill();
        let refused = guard.extend(SHORT * 10).await;
        assert!(refused.is_err(), "two are no majority");
        assert!(guard.remaining() < SHORT * 3);
    });
}

/// Other clients would again trust a server that has forgotten a longer lease.
#[test]
fn a_lease_is_not_extended_for_longer_than_a_restarted_server_is_waited_for() {
    simulated(async || {
        let client = Client::connect("memory:").await.expect("always");
        let alone = QuorumLock::new([client.lock(NAME).into()]).with_lease(Lease::Fixed(SHORT));
        let guard = alone.acquire().await.expect("it is free");
        let refused = guard.extend(SHORT * 2).await;
        let is_refused = matches!(refused, Err(Error::InvalidOption { .. }));
        assert!(is_refused, "{refused:?}");
        guard.extend(SHORT).await.expect("that is waited for");
        guard.release().await.expect("it is ours");
        let told = alone.with_longest_lease(SHORT * 2).acquire().await;
        let guard = told.expect("it is free");
        guard.extend(SHORT * 2).await.expect("that is waited for");
        assert!(guard.remaining() > SHORT);
    });
}

/// The lock is left to its leases, which are not renewed any more.
#[test]
fn a_forgotten_lock_stays_held_until_its_leases_expire() {
    staged(async |stage, clients, format| {
        let others = stage.clients().await;
        let guard = on_all(&short(&clients, format)).await;
        let (held, end) = (guard.held(), Instant::from_std(guard.valid_until()));
        guard.forget();
        assert!(!held.is_held() && held.lost().await.is_none());
        let refused = lock(&others, format).try_acquire().await;
        assert!(refused.expect("all are up").is_none());
        stage.nothing_is_left().await;
        assert!(
            Instant::now() >= end,
            "{:?} too early",
            end - Instant::now()
        );
    });
}

#[test]
fn the_time_of_the_replies_is_subtracted_from_the_lease() {
    staged(async |stage, clients, format| {
        let took = Duration::from_millis(1800);
        for server in &stage.servers {
            server.simulated().stall(took);
        }
        let lease = Duration::from_secs(120);
        let lock = lock(&clients, format).with_lease(Lease::Fixed(lease));
        let guard = lock.acquire().await.expect("they have six seconds");
        // The allowance is one hundredth, and two milliseconds.
        let (left, most) = (
            guard.remaining(),
            lease - Duration::from_millis(1202) - took,
        );
        assert!(left < most && left > most - ROUND_TRIP, "{left:?}");
    });
}

#[test]
fn an_owner_re_enters_and_holds_it_until_both_guards_are_released() {
    staged(async |stage, clients, _| {
        let owned = clients.iter().map(|client| {
            let owner = client.new_owner();
            client.lock(NAME).with_owner(&owner).into()
        });
        let lock = QuorumLock::new(owned).with_longest_lease(Duration::ZERO);
        let first = on_all(&lock).await;
        // Wait for all servers: a hold that one grants after the release of the first would be a new one.
        let again = on_all(&lock).await;
        first.release().await.expect("it is ours");
        assert!(again.is_held());
        assert_eq!(stage.holders().len(), 5);
        again.release().await.expect("it is ours");
        stage.nothing_is_left().await;
    });
}

fn bounded(clients: &[Client], longest: Duration) -> QuorumLock {
    let clients = clients.iter();
    let bounded: Vec<Member> = clients
        .map(|client| client.lock(NAME).with_max_hold(longest).into())
        .collect();
    QuorumLock::new(bounded).with_longest_lease(Duration::ZERO)
}

#[test]
fn a_quorum_lock_is_held_for_the_max_hold_of_its_members_and_not_requested_again() {
    staged(async |stage, clients, _| {
        let longest = Duration::from_secs(3);
        let begun = Instant::now();
        let guard = bounded(&clients, longest).acquire().await;
        let guard = guard.expect("all are up");
        assert_eq!(lost(&guard).await.reason, LostReason::MaxHold);
        assert!(begun.elapsed() < longest + ROUND_TRIP);
        stage.nothing_is_left().await;
    });
}

/// The lease on a server that comes back counts from the beginning, not from its return.
#[test]
fn a_returning_server_does_not_extend_max_hold() {
    staged(async |stage, clients, _| {
        let longest = Duration::from_secs(14);
        let lease = Lease::KeepAlive(Duration::from_secs(4));
        let begun = Instant::now();
        let guard = on_all(&bounded(&clients, longest).with_lease(lease)).await;
        // The return is so late that a lease which counted from there would last for seconds longer.
        sleep(Duration::from_secs(3)).await;
        // Two at a time are forced open: they are asked again.
        for two in [&clients[..2], &clients[2..4]] {
            force_open(two).await;
            eventually(PATIENCE, "they have it again", async || {
                stage.holders().len() == 5 && guard.votes() == 5
            })
            .await;
        }
        assert_eq!(lost(&guard).await.reason, LostReason::MaxHold);
        let lasted = begun.elapsed();
        assert!(lasted < longest + ROUND_TRIP, "{lasted:?}");
        drop(guard);
        stage.nothing_is_left().await;
    });
}

#[test]
fn locks_of_different_names_or_kinds_are_not_one_lock() {
    staged(async |stage, clients, _| {
        let (a, b, c) = (&clients[0], &clients[1], &clients[2]);
        let plain = || [a.lock("x").into(), b.lock("x").into()];
        for third in [c.lock("y").into(), c.simple_lock("x").into()] {
            let members = plain().into_iter().chain([third]);
            refused(QuorumLock::new(members)).await;
        }
        let fair = [a, b, c].map(|client| client.fair_lock("x").into());
        refused(QuorumLock::new(fair)).await;
        let permits = |client: &Client| client.semaphore("x").with_permits(2).permit().into();
        refused(QuorumLock::new([a, b, c].map(permits))).await;
        stage.nothing_is_left().await;
    });
}

async fn refused(lock: QuorumLock) {
    let refused = lock.try_acquire().await.map(|guard| guard.is_some());
    let is_refused = matches!(refused, Err(Error::InvalidOption { .. }));
    assert!(is_refused, "{refused:?}");
}
