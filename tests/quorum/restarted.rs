//! A server that restarted may have forgotten a holder: it has no vote until every lease from before has expired.

use std::time::Duration;

use distlock::{Client, Error, Lease, QuorumGuard, QuorumLock};
use tokio::time::{Instant, sleep};

use super::{FORMATS, Format, NAME, Stage, clients, lost, members, staged};
use crate::support::{ChaosProxy, Fault, Match, PATIENCE, RedisServer, eventually, simulated};

/// A server has six tenths of a second to reply.
const LEASE: Duration = Duration::from_secs(12);
const SECOND: Duration = Duration::from_secs(1);

fn lock(clients: &[Client], format: Format) -> QuorumLock {
    QuorumLock::new(members(clients, format)).with_lease(Lease::Fixed(LEASE))
}

/// A lock that is held on three servers, one of which forgets it: three of five are free then. The holder cannot learn of that.
struct Forgotten {
    guard: QuorumGuard,
    others: Vec<Client>,
    _stage: (Stage, Vec<ChaosProxy>, Vec<Client>),
}

impl Forgotten {
    async fn by_one(format: Format) -> Self {
        let stage = Stage::new();
        let ((proxies, clients), others) = (stage.proxied().await, stage.clients().await);
        // Wait until all have their votes.
        sleep(LEASE + SECOND).await;
        stage.servers[3..].iter().for_each(RedisServer::kill);
        let guard = lock(&clients, format).acquire().await;
        let guard = guard.expect("three have a vote");
        assert_eq!(guard.votes(), 3);
        for (server, proxy) in stage.servers.iter().zip(&proxies).skip(2) {
            proxy.partition(true);
            server.restart();
        }
        assert_eq!(stage.holders(), [0, 1]);
        Self {
            guard,
            others,
            _stage: (stage, proxies, clients),
        }
    }
}

#[test]
fn a_holder_forgotten_by_one_server_excludes_others_until_its_lease_expires() {
    simulated(async || {
        for format in FORMATS {
            let forgotten = Forgotten::by_one(format).await;
            let mut refused = 0;
            let next = loop {
                match lock(&forgotten.others, format).try_acquire().await {
                    Ok(Some(next)) => break next,
                    Ok(None) | Err(_) => refused += usize::from(forgotten.guard.is_held()),
                }
                sleep(Duration::from_millis(20)).await;
            };
            assert!(!forgotten.guard.is_held(), "two hold it");
            assert!(refused > 100, "it was tried meanwhile: {refused}");
            next.release().await.expect("it is ours");
        }
    });
}

/// The purpose of the rule, which shows that the test before this one could fail.
#[test]
fn two_clients_hold_it_after_a_restart_with_the_rule_disabled() {
    simulated(async || {
        for format in FORMATS {
            let forgotten = Forgotten::by_one(format).await;
            let trusting = lock(&forgotten.others, format).with_longest_lease(Duration::ZERO);
            let next = trusting.acquire().await.expect("three are up");
            assert!(forgotten.guard.is_held() && next.is_held());
        }
    });
}

/// On working connections a forgotten holder soon learns of the loss.
#[test]
fn a_holder_forgotten_by_too_many_servers_is_notified_at_once() {
    staged(async |stage, clients, format| {
        let lock = lock(&clients, format).with_lease(Lease::Fixed(20 * PATIENCE));
        let lock = lock.with_longest_lease(Duration::ZERO);
        let guard = lock.acquire().await.expect("all are up");
        stage.servers[2..].iter().for_each(RedisServer::restart);
        let begun = Instant::now();
        lost(&guard).await;
        assert!(begun.elapsed() < SECOND, "{:?}", begun.elapsed());
    });
}

#[test]
fn after_a_majority_restarted_every_client_is_refused_for_a_lease_with_the_reason() {
    staged(async |stage, clients, format| {
        sleep(LEASE + SECOND).await;
        drop(
            lock(&clients, format)
                .acquire()
                .await
                .expect("all have a vote"),
        );
        stage.nothing_is_left().await;
        // The first of them has its vote back a lease after this, and then there are enough.
        let before = Instant::now();
        stage.servers[2..].iter().for_each(RedisServer::restart);
        // The first attempts may use connections that have ended.
        eventually(SECOND, "it is told why", async || {
            let why = lock(&clients, format).try_acquire().await;
            let Err(error @ Error::Several { .. }) = why else {
                panic!("three have no vote: {why:?}");
            };
            assert!(error.is_transient());
            error.to_string().contains("has no vote")
        })
        .await;
        // A waiter waits for that.
        let short = Duration::from_millis(300);
        let error = lock(&clients, format).acquire_timeout(short).await;
        error.expect_err("time was over before");
        let guard = lock(&clients, format).acquire().await;
        assert!(guard.expect("in the end").is_held());
        assert!(before.elapsed() >= LEASE, "{:?}", before.elapsed());
        // The age of a server is in whole seconds.
        assert!(before.elapsed() < LEASE + 2 * SECOND);
    });
}

#[test]
fn the_configured_longest_lease_of_others_is_waited_for() {
    staged(async |_stage, clients, format| {
        let hour = Duration::from_secs(3600);
        let patient = lock(&clients, format).with_longest_lease(hour);
        sleep(LEASE + SECOND).await;
        let refused = patient.try_acquire().await;
        refused.expect_err("none has been up for an hour");
        let taken = lock(&clients, format).try_acquire().await;
        let taken = taken.expect("all have been up for a lease");
        taken
            .expect("it is free")
            .release()
            .await
            .expect("it is ours");
        sleep(hour).await;
        let taken = patient.try_acquire().await;
        assert!(taken.expect("all have been up for an hour").is_some());
    });
}

#[test]
fn servers_that_restart_during_a_request_have_no_vote() {
    staged(async |stage, clients, format| {
        sleep(LEASE + SECOND).await;
        drop(
            lock(&clients, format)
                .acquire()
                .await
                .expect("all have a vote"),
        );
        stage.nothing_is_left().await;
        // Three restart all the time, and none is ever old enough.
        let restart = || stage.servers[2..].iter().for_each(RedisServer::restart);
        let end = Instant::now() + LEASE;
        let restarting = async {
            while Instant::now() < end {
                restart();
                sleep(Duration::from_millis(137)).await;
            }
        };
        let asking = async {
            let mut asked = 0;
            while Instant::now() < end {
                if let Ok(Some(guard)) = lock(&clients, format).try_acquire().await {
                    panic!("granted by {}, the {asked}th time", guard.votes());
                }
                asked += 1;
                sleep(Duration::from_millis(1)).await;
            }
            asked
        };
        restart();
        let ((), asked) = tokio::join!(restarting, asking);
        assert!(asked > 10, "{asked}");
        stage.nothing_is_left().await;
    });
}

/// The knowledge about a server belongs to a connection: after it broke, nothing is known of the server behind the next one.
#[test]
fn a_grant_by_a_server_that_restarted_after_its_age_was_read_does_not_count() {
    simulated(async || {
        // A connection that breaks before the grant arrives is another error.
        for _ in 0..20 {
            if restarted_before_its_grant().await.contains("has no vote") {
                return;
            }
        }
        panic!("it has never granted it anew");
    });
}

/// Returns the error of a caller whose server restarts between the request for its age and the grant.
async fn restarted_before_its_grant() -> String {
    let server = RedisServer::start();
    let proxy = ChaosProxy::start(server.addr());
    // Without scripts requests go one after the other, on a connection that is made anew when necessary.
    let client = clients([proxy.url_with("scripts=off")]).await;
    let alone = QuorumLock::new([client[0].lock(NAME).into()])
        .with_lease(Lease::KeepAlive(Duration::from_secs(60)))
        .with_longest_lease(SECOND);
    sleep(2 * SECOND).await;
    // The reply to the request before it never arrives, so that the next one waits.
    proxy.rule(Match::command("WATCH").nth(1), Fault::HoldReply);
    let before = tokio::spawn(client[0].lock("another").try_acquire());
    eventually(PATIENCE, "it is held back", async || {
        proxy.injected().len() == 1
    })
    .await;
    let asked = || {
        let requests = proxy.requests().into_iter();
        let asked = requests.filter(|words| words.concat() == "INFOserver");
        asked.count()
    };
    // Each new connection first asks for the identity of the server.
    let before_it = asked();
    let taking = tokio::spawn(alone.try_acquire());
    eventually(PATIENCE, "its age is known", async || {
        // All requests have a reply but the one that is held back.
        asked() > before_it && proxy.unanswered() <= 1
    })
    .await;
    server.restart();
    proxy.cut_all();
    let error = taking.await.expect("it ends");
    let error = error.expect_err("granted by a server that may have forgotten");
    drop(before.await);
    eventually(PATIENCE, "nothing is left", async || {
        !server.query::<bool>(&["EXISTS", NAME])
    })
    .await;
    error.to_string()
}

/// A server that denies the client the request for its age counts as up for as long as a connection to it exists.
#[test]
fn a_server_of_unknown_age_has_a_vote_once_it_is_connected_for_a_lease() {
    simulated(async || {
        let stage = Stage::new();
        sleep(LEASE + SECOND).await;
        for server in &stage.servers {
            server.cmd(&["ACL", "SETUSER", "default", "-info"]);
        }
        let clients = stage.clients().await;
        let connected = Instant::now();
        let early = lock(&clients, Format::Plain).try_acquire().await;
        early.expect_err("none of them has a vote");
        let guard = lock(&clients, Format::Plain).acquire().await;
        assert!(guard.expect("in the end").is_held());
        let waited = connected.elapsed();
        assert!(
            waited >= LEASE - SECOND && waited < LEASE + SECOND,
            "{waited:?}"
        );
    });
}
