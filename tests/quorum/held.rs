//! What becomes of it once it is held: servers that answer late, or are lost, or come back.

use std::time::{Duration, Instant};

use distlock::{Client, Error, Lease, Lost, LostReason, QuorumGuard, QuorumLock};

use super::stage::{Format, LEASE, NAME, Stage, lock, members, taken};
use super::support::{PATIENCE, RedisServer, eventually};

/// So short that a test can wait for its end, and so long that a server has half a second to answer.
const SHORT: Duration = Duration::from_secs(10);

fn short(clients: &[Client], format: Format) -> QuorumLock {
    lock(clients, format).with_lease(Lease::KeepAlive(SHORT))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_loss_of_two_servers_is_no_loss() {
    tokio::join!(two_are_lost(Format::Plain), two_are_lost(Format::Simple));
}

/// Gives it back; says whether enough have said so. Who does not answer within a twentieth of so short a lease has not said
/// that it is not ours.
async fn gives_back(guard: QuorumGuard) -> bool {
    match guard.release().await {
        Ok(()) => true,
        Err(error) if error.is_transient() => false,
        Err(error) => panic!("{error}"),
    }
}

async fn two_are_lost(format: Format) {
    for _ in 0..3 {
        if three_are_enough(format).await {
            return;
        }
    }
    panic!("three never agree");
}

async fn three_are_enough(format: Format) -> bool {
    let stage = Stage::new();
    let clients = stage.clients().await;
    let guard = taken(&short(&clients, format)).await;
    eventually(PATIENCE, "all five hold it", async || guard.votes() == 5).await;
    stage.servers[0].kill();
    stage.servers[1].stop_process();
    eventually(PATIENCE, "what two have granted is over", async || {
        guard.votes() == 3
    })
    .await;
    // The others are renewed as before.
    let lost = tokio::time::timeout(SHORT / 2, guard.lost()).await;
    assert!(lost.is_err(), "three are left: {lost:?}");
    assert_eq!(guard.votes(), 3);
    assert!(guard.remaining() > Duration::ZERO && guard.at_risk().is_none());
    let agreed = gives_back(guard).await;
    stage.servers[0].restart();
    stage.servers[1].continue_process();
    stage.nothing_is_left().await;
    agreed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_loss_of_three_servers_is_told_before_their_leases_are_over() {
    tokio::join!(
        three_are_lost(Format::Plain),
        three_are_lost(Format::Simple)
    );
}

async fn three_are_lost(format: Format) {
    let stage = Stage::new();
    let clients = stage.clients().await;
    let guard = taken(&short(&clients, format)).await;
    eventually(PATIENCE, "all five hold it", async || guard.votes() == 5).await;
    for server in &stage.servers[2..] {
        server.stop_process();
    }
    // Whatever they have granted they have granted before this.
    let over = Instant::now() + SHORT;
    let held = guard.held();
    let promised = held.valid_until();
    assert!(promised < over, "it was relied on for too long");
    let lost = tokio::time::timeout(PATIENCE, guard.lost()).await;
    assert!(matches!(lost, Ok(Some(Lost { .. }))), "{lost:?}");
    assert!(
        Instant::now() >= promised - SHORT / 20,
        "it is told, not guessed"
    );
    tokio::time::sleep_until(over.into()).await;
    assert!(!guard.is_held() && guard.remaining().is_zero());
    // What is left on the others is given back without being asked for.
    for server in &stage.servers[2..] {
        server.continue_process();
    }
    stage.nothing_is_left().await;
    guard.release().await.expect_err("it was lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_answers_late_joins_in_and_is_asked_to_give_it_back() {
    let stage = Stage::new();
    let clients = stage.clients().await;
    for server in &stage.servers[3..] {
        server.cmd(&["CLIENT", "PAUSE", "200", "ALL"]);
    }
    // One that is not kept alive: nobody asks again.
    let lock = lock(&clients, Format::Plain).with_lease(Lease::Fixed(LEASE));
    let guard = lock.acquire().await.expect("three answer");
    assert!(guard.votes() >= 3);
    eventually(PATIENCE, "all five hold it", async || guard.votes() == 5).await;
    assert_eq!(stage.holders(), [0, 1, 2, 3, 4]);
    guard.release().await.expect("all agree");
    assert!(stage.holders().is_empty(), "every one was asked");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_given_back_before_a_server_has_answered_is_given_back_there_too() {
    let stage = Stage::new();
    let clients = stage.clients().await;
    for server in &stage.servers[3..] {
        server.stop_process();
    }
    let guard = lock(&clients, Format::Plain)
        .acquire()
        .await
        .expect("three answer");
    guard.release().await.expect("three agree");
    for server in &stage.servers[3..] {
        server.continue_process();
    }
    stage.nothing_is_left().await;
    // What they were asked before it comes after it, or never.
    let guard = lock(&clients, Format::Plain)
        .acquire()
        .await
        .expect("all answer");
    eventually(PATIENCE, "all five hold it", async || guard.votes() == 5).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_hold_outlives_the_restart_of_every_server() {
    let stage = Stage::new();
    let clients = stage.clients().await;
    // A server that is late when it is asked again is asked once more; but no other may lose it meanwhile.
    let lease = Duration::from_secs(5);
    // Servers have their votes back a lease after their restart, and it is asked for again.
    let lock =
        QuorumLock::new(members(&clients, Format::Plain)).with_lease(Lease::KeepAlive(lease));
    let guard = taken(&lock).await;
    eventually(PATIENCE, "all five hold it", async || guard.votes() == 5).await;
    for some in stage.servers.chunks(2) {
        some.iter().for_each(RedisServer::restart);
        eventually(PATIENCE, "their holds are lost", async || {
            guard.votes() == 5 - some.len()
        })
        .await;
        eventually(PATIENCE, "all five hold it again", async || {
            guard.votes() == 5
        })
        .await;
        assert!(guard.is_held());
    }
    gives_back(guard).await;
    stage.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_forced_open_on_every_server_is_lost() {
    let stage = Stage::new();
    let clients = stage.clients().await;
    let guard = taken(&short(&clients, Format::Plain)).await;
    eventually(PATIENCE, "all five hold it", async || guard.votes() == 5).await;
    // By others, of whom its own clients hear when they next renew it: one server after the other.
    for client in &stage.clients().await {
        assert!(client.admin().force_release(NAME).await.expect("it is up"));
    }
    let lost = tokio::time::timeout(PATIENCE, guard.lost()).await;
    assert!(matches!(lost, Ok(Some(_))), "it was taken back: {lost:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_fails_if_too_few_servers_held_it_to_the_end() {
    let stage = Stage::new();
    let clients = stage.clients().await;
    let others = stage.clients().await;
    for (forced, is_held) in [(2, true), (3, false)] {
        let lock = lock(&clients, Format::Plain);
        let give_up = Instant::now() + PATIENCE;
        let done = loop {
            let done = lock.run(async |held| {
                while held.votes() < 5 {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                for client in &others[..forced] {
                    assert!(client.admin().force_release(NAME).await.expect("it is up"));
                }
                "work done"
            });
            match done.await {
                Err(error) if error.error().is_transient() && Instant::now() < give_up => {}
                done => break done,
            }
        };
        match done {
            Ok(output) => assert!(is_held && output == "work done"),
            Err(error) => {
                assert!(!is_held && error.error().is_lost(), "{error}");
                assert_eq!(error.into_output(), Some("work done"));
            }
        }
        stage.nothing_is_left().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_succeeds_though_three_servers_do_not_answer_its_release() {
    let stage = Stage::new();
    let clients = stage.clients().await;
    let lock = lock(&clients, Format::Plain);
    let give_up = Instant::now() + PATIENCE;
    let done = loop {
        let done = lock.run(async |held| {
            while held.votes() < 5 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            stage.servers[..3].iter().for_each(RedisServer::kill);
        });
        match done.await {
            Err(error) if error.error().is_transient() && Instant::now() < give_up => {}
            done => break done,
        }
    };
    done.expect("it was held to the end");
}

#[tokio::test]
async fn a_fixed_lease_is_lost_when_it_is_over() {
    let stage = Stage::new();
    let clients = stage.clients().await;
    let lock = lock(&clients, Format::Simple).with_lease(Lease::Fixed(SHORT));
    let guard = taken(&lock).await;
    assert!(guard.is_held() && guard.remaining() < SHORT);
    let lost = tokio::time::timeout(PATIENCE, guard.lost()).await;
    assert!(matches!(lost, Ok(Some(_))), "{lost:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fixed_lease_is_extended_by_most_servers_or_not_at_all() {
    tokio::join!(
        extended_by_three(Format::Plain),
        extended_by_three(Format::Simple)
    );
}

async fn extended_by_three(format: Format) {
    let stage = Stage::new();
    let (clients, others) = (stage.clients().await, stage.clients().await);
    let fixed = lock(&clients, format).with_lease(Lease::Fixed(SHORT));
    let guard = taken(&fixed).await;
    eventually(PATIENCE, "all five hold it", async || guard.votes() == 5).await;
    // Its servers go one by one; most of them are enough.
    for server in &stage.servers[..2] {
        server.kill();
    }
    let give_up = Instant::now() + SHORT / 2;
    while let Err(error) = guard.extend(SHORT * 3).await {
        // They have little time to answer.
        assert!(error.is_transient() && Instant::now() < give_up, "{error}");
    }
    assert!(guard.remaining() > SHORT * 2, "{:?}", guard.remaining());
    tokio::time::sleep(SHORT + Duration::from_millis(500)).await;
    assert!(guard.is_held(), "its first lease would be over");
    let other = lock(&others, format).try_acquire().await;
    assert!(!matches!(other, Ok(Some(_))), "two hold it");
    stage.servers[2].kill();
    let refused = guard.extend(SHORT * 10).await;
    assert!(refused.is_err(), "two are no majority");
    assert!(guard.remaining() < SHORT * 3);
}

/// Others would trust a server again that has forgotten a longer one.
#[tokio::test]
async fn a_lease_is_not_extended_for_longer_than_a_restarted_server_is_waited_for() {
    let client = Client::connect("memory:").await.expect("always");
    let alone = QuorumLock::new([client.lock(NAME).into()]).with_lease(Lease::Fixed(SHORT));
    let guard = alone.acquire().await.expect("it is free");
    let refused = guard.extend(SHORT * 2).await;
    assert!(
        matches!(refused, Err(Error::InvalidOption { .. })),
        "{refused:?}"
    );
    guard.extend(SHORT).await.expect("that is waited for");
    guard.release().await.expect("it is ours");
    let told = alone.with_longest_lease(SHORT * 2).acquire().await;
    let guard = told.expect("it is free");
    guard.extend(SHORT * 2).await.expect("that is waited for");
    assert!(guard.remaining() > SHORT);
}

/// It is left to its leases, which nobody renews any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_forgotten_stays_until_its_leases_are_over() {
    tokio::join!(forgotten(Format::Plain), forgotten(Format::Simple));
}

async fn forgotten(format: Format) {
    let stage = Stage::new();
    let (clients, others) = (stage.clients().await, stage.clients().await);
    let guard = taken(&short(&clients, format)).await;
    eventually(PATIENCE, "all five hold it", async || guard.votes() == 5).await;
    let (held, began) = (guard.held(), Instant::now());
    guard.forget();
    assert!(!held.is_held() && held.lost().await.is_none());
    // With time to answer: how long its own lease would be says nothing of the other's.
    let refused = lock(&others, format).try_acquire().await;
    assert!(refused.expect("all are up").is_none() || began.elapsed() > SHORT / 2);
    stage.nothing_is_left().await;
    assert!(began.elapsed() > SHORT / 2, "{:?}", began.elapsed());
}

#[tokio::test]
async fn the_time_that_the_answers_took_is_taken_off_the_lease() {
    let stage = Stage::new();
    let mut clients = Vec::new();
    for server in &stage.servers {
        let client = Client::builder(&server.url()).command_timeout(PATIENCE);
        clients.push(client.connect().await.expect("it is up"));
    }
    for server in &stage.servers {
        server.cmd(&["CLIENT", "PAUSE", "2500", "ALL"]);
    }
    let lease = Duration::from_secs(120);
    let lock = lock(&clients, Format::Plain).with_lease(Lease::Fixed(lease));
    let guard = lock.acquire().await.expect("they have six seconds");
    // And one hundredth, and two milliseconds. A busy machine may not have asked at once.
    let left = guard.remaining();
    assert!(left < lease - Duration::from_millis(1202 + 800), "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_takes_it_once_more_and_has_it_until_both_are_given_back() {
    let stage = Stage::new();
    let clients = stage.clients().await;
    let owned = clients.iter().map(|client| {
        let owner = client.new_owner();
        client.lock(NAME).with_owner(&owner).into()
    });
    let lock = QuorumLock::new(owned).with_longest_lease(Duration::ZERO);
    let first = lock.acquire().await.expect("all are up");
    eventually(PATIENCE, "all five hold it", async || first.votes() == 5).await;
    let again = lock.try_acquire().await.expect("all answer");
    let again = again.expect("it is its own");
    // What answers after the first has left it would be a new one's.
    eventually(PATIENCE, "all five have it twice", async || {
        again.votes() == 5
    })
    .await;
    first.release().await.expect("it is ours");
    assert!(again.is_held());
    assert_eq!(stage.holders().len(), 5);
    again.release().await.expect("it is ours");
    stage.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_held_for_as_long_as_its_members_may_be_and_not_asked_for_again() {
    let stage = Stage::new();
    let clients = stage.clients().await;
    // Not over before the answers are there.
    let longest = Duration::from_secs(3);
    let bounded = clients
        .iter()
        .map(|client| client.lock(NAME).with_max_hold(longest).into());
    let lock = QuorumLock::new(bounded).with_longest_lease(Duration::ZERO);
    let guard = lock.acquire().await.expect("all are up");
    let lost = tokio::time::timeout(PATIENCE, guard.lost()).await;
    let lost = lost.expect("in time").expect("it was not given back");
    assert_eq!(lost.reason, LostReason::MaxHold);
    stage.nothing_is_left().await;
}

/// A server that comes back counts from the beginning, not from where it came back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_back_does_not_make_it_last_longer() {
    let stage = Stage::new();
    let clients = stage.clients().await;
    let longest = Duration::from_secs(14);
    let lease = Lease::KeepAlive(Duration::from_secs(4));
    let bounded = clients
        .iter()
        .map(|client| client.lock(NAME).with_max_hold(longest).into());
    let lock = QuorumLock::new(bounded)
        .with_lease(lease)
        .with_longest_lease(Duration::ZERO);
    let guard = taken(&lock).await;
    let begun = Instant::now();
    eventually(PATIENCE, "all five hold it", async || guard.votes() == 5).await;
    // So late that one which counted from there would last for seconds longer.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let mut first_back = None;
    // Two at a time are forced open: they are asked again.
    for two in [[0, 1], [2, 3]] {
        for place in two {
            let forced = clients[place].admin().force_release(NAME).await;
            forced.expect("it is up");
        }
        eventually(PATIENCE, "they have it again", async || {
            // A busy machine may not get as far as that.
            !guard.is_held() || stage.holders().len() == 5 && guard.votes() == 5
        })
        .await;
        first_back.get_or_insert(begun.elapsed());
    }
    let lost = tokio::time::timeout(PATIENCE, guard.lost()).await;
    let lost = lost.expect("in time").expect("it was not given back");
    let lasted = begun.elapsed();
    assert_eq!(lost.reason, LostReason::MaxHold);
    let first_back = first_back.expect("there were two rounds");
    assert!(lasted < longest + first_back * 3 / 4, "{lasted:?}");
    drop(guard);
    stage.nothing_is_left().await;
}

#[tokio::test]
async fn locks_of_other_names_or_kinds_are_not_one_lock() {
    let stage = Stage::new();
    let clients = stage.clients().await;
    let (a, b, c) = (&clients[0], &clients[1], &clients[2]);
    for members in [
        [a.lock("x").into(), b.lock("x").into(), c.lock("y").into()],
        [
            a.lock("x").into(),
            b.lock("x").into(),
            c.simple_lock("x").into(),
        ],
        [a, b, c].map(|client| client.fair_lock("x").into()),
        [a, b, c].map(|client| client.semaphore("x").with_permits(2).permit().into()),
    ] {
        let refused = QuorumLock::new(members).try_acquire().await;
        let refused = refused.map(|guard| guard.is_some());
        assert!(
            matches!(refused, Err(Error::InvalidOption { .. })),
            "{refused:?}"
        );
    }
    stage.nothing_is_left().await;
}
