//! Waiters of five processes on a real server: first come, first served, even if some of them give up or crash. `tests/waiting/order.rs`
//! has a thousand of them under simulated time.

use super::history::History;
use super::support::process::Process;
use super::support::{RedisServer, SeededRng, eventually};
use super::worker::{ENOUGH, GIVE_UP, LOG, STAND};
use super::{NAME, PATIENCE, connect, leaves_nothing, line, take, until_queued};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_five_processes_keep_their_order_when_one_is_killed_and_one_in_five_gives_up() {
    let mut dice = SeededRng::from_env_or(0xfa17_0001);
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let held = take(&client).await;
    let history = History::start(&server).await;
    let mut crowd: Vec<Process> = (0..PROCESSES)
        .map(|_| Process::start(STAND, &server.url()))
        .collect();
    let mut clients: Vec<String> = crowd
        .iter()
        .map(|process| process.expect_line("ready"))
        .collect();
    for process in &mut crowd {
        process.send_line(&EACH.to_string());
    }
    eventually(PATIENCE, "every waiter has come", async || {
        history.came().len() == PROCESSES * EACH
    })
    .await;
    for process in &mut crowd {
        process.send_line(GIVE_UP);
        process.send_line(ENOUGH);
    }
    // A waiter that has lost its place queues again.
    eventually(PATIENCE, "one in five has given up", async || {
        line(&server).len() == PROCESSES * PATIENT
    })
    .await;

    held.release().await.expect("it is ours");
    let early = 10 + dice.below(10);
    eventually(PATIENCE, "some have had their turn", async || {
        server.query::<u64>(&["LLEN", LOG]) > early
    })
    .await;
    let victim = usize::try_from(dice.below(5)).expect("it is small");
    let (mut killed, victim) = (crowd.swap_remove(victim), clients.swap_remove(victim));
    killed.kill();
    let is_victims = |owner: &String| owner.starts_with(&victim);
    eventually(PATIENCE, "the others have had their turn", async || {
        // This simulates that the lease of the killed holder has expired.
        if server.hgetall(NAME).keys().any(is_victims) {
            server.cmd(&["PEXPIRE", NAME, "1"]);
        }
        let served: Vec<String> = server.query(&["LRANGE", LOG, "0", "-1"]);
        served.iter().filter(|owner| !is_victims(owner)).count() == crowd.len() * PATIENT
    })
    .await;
    for process in &mut crowd {
        assert_eq!(process.expect_line("done"), PATIENT.to_string());
        process.ended_well();
    }
    // It queues behind all that the victim has left there.
    let last = client.fair_lock(NAME).acquire().await;
    let last = last.expect("the server answers");
    last.release().await.expect("it is ours");
    until_queued(&server, 0).await;
    eventually(PATIENCE, "every grant is seen", async || {
        let granted = history.granted();
        granted.iter().filter(|owner| !is_victims(owner)).count() == crowd.len() * PATIENT + 1
    })
    .await;
    history.is_in_order();
    // Each waiter writes its log entry before the lock is granted to the next one; the victim may have died between a grant and its entry.
    let log: Vec<String> = server.query(&["LRANGE", LOG, "0", "-1"]);
    let mut granted = history.granted();
    granted.retain(|owner| log.contains(owner));
    assert_eq!(log, granted, "two had it at once");
    server.cmd(&["DEL", LOG]);
    client.close().await.expect("the server answers");
    leaves_nothing(&server).await;
}

/// The next waiter has crashed, and no client knows it yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_head_of_the_queue_is_skipped() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let held = take(&client).await;
    let mut dying = Process::start(STAND, &server.url());
    dying.expect_line("ready");
    dying.send_line("3");
    until_queued(&server, 3).await;
    let behind = tokio::spawn(client.fair_lock(NAME).acquire());
    until_queued(&server, 4).await;
    dying.kill();
    held.release().await.expect("it is ours");
    let next = tokio::time::timeout(PATIENCE, behind).await;
    let next = next
        .expect("it has its turn")
        .expect("no panic")
        .expect("the server answers");
    next.release().await.expect("it is ours");
    client.close().await.expect("the server answers");
    leaves_nothing(&server).await;
}

const PROCESSES: usize = 5;
const EACH: usize = 20;
/// The number of waiters of a process that do not give up.
const PATIENT: usize = EACH - EACH / 5;
