//! A thousand waiters of five processes: first come, first served, whatever becomes of some of them.

use std::collections::HashSet;
use std::time::Duration;

use super::monitor::Monitor;
use super::support::process::Process;
use super::support::{RedisServer, SeededRng, eventually};
use super::worker::{ENOUGH, LOG, STAND, come};
use super::{NAME, PATIENCE, arrivals, connect, leaves_nothing, line, take, until_in_line};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_waiters_of_five_processes_get_it_in_the_order_in_which_they_came() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let held = take(&client).await;
    let arrivals = arrivals(&server).await;
    let mut crowd = gather(&server, false);
    until_in_line(&server, CROWD).await;
    let came = all_of(&arrivals).await;
    assert_eq!(line(&server), came);

    held.release().await.expect("it is ours");
    until_in_line(&server, 0).await;
    for process in &mut crowd {
        assert_eq!(process.hear("done"), format!("{EACH} 0"));
        process.ended_well();
    }
    let turns = turns(&server);
    let owners: Vec<&str> = turns.iter().map(|turn| &*turn.owner).collect();
    assert_eq!(owners, came, "not in the order in which they came");
    let all = turns[CROWD - 1].millis - turns[0].millis;
    eprintln!(
        "{CROWD} turns in {all} ms, the longest pause {:?}",
        longest_pause(&turns)
    );
    server.cmd(&["DEL", LOG]);
    client.close().await.expect("the server answers");
    leaves_nothing(&server).await;
    assert!(server.keys().is_empty(), "{:?}", server.keys());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_left_keep_their_order_when_a_process_is_killed_and_one_in_five_gives_up() {
    let mut dice = SeededRng::from_env_or(0xfa17_0001);
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let held = take(&client).await;
    let arrivals = arrivals(&server).await;
    let mut crowd = gather(&server, true);
    let came = all_of(&arrivals).await;
    // Half of those who are to.
    eventually(PATIENCE, "who gives up leaves the line", async || {
        line(&server).len() <= CROWD - CROWD / 10
    })
    .await;
    let gave_up = CROWD - line(&server).len();

    held.release().await.expect("it is ours");
    let early = 50 + dice.below(100);
    eventually(PATIENCE, "some have had their turn", async || {
        server.query::<u64>(&["LLEN", LOG]) > early
    })
    .await;
    let mut killed = crowd.swap_remove(usize::try_from(dice.below(5)).expect("it is small"));
    killed.kill();
    let lost = line(&server).len();
    until_in_line(&server, 0).await;
    let (mut served, mut late) = (0, 0);
    for process in &mut crowd {
        let (had_it, gave_up) = outcome(process);
        served += had_it;
        late += gave_up;
    }

    let turns = turns(&server);
    let dead = turns.len() - served;
    let pause = longest_pause(&turns);
    eprintln!(
        "{gave_up} gave up before the first turn, {late} in all; {lost} stood in line at the kill; {served} of the others \
         served, {dead} of the killed; the longest pause {pause:?}"
    );
    assert_eq!(
        served + late,
        4 * EACH,
        "each of the others has had its turn or given up"
    );
    assert!(late >= EACH / 4, "one in five was to give up");
    let mut places = turns.iter().map(|turn| {
        let place = came.iter().position(|owner| *owner == turn.owner);
        place.expect("it stood in line")
    });
    assert!(
        places.by_ref().is_sorted(),
        "not in the order in which they came"
    );
    server.cmd(&["DEL", LOG]);
    client.close().await.expect("the server answers");
    leaves_nothing(&server).await;
}

/// The one who is next has died, and nobody knows it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_in_line_that_was_killed_is_passed_over() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let held = take(&client).await;
    let mut dying = Process::start(STAND, &server.url());
    dying.hear("ready");
    dying.tell(&come(3, 0, false));
    until_in_line(&server, 3).await;
    let behind = tokio::spawn(client.fair_lock(NAME).acquire());
    until_in_line(&server, 4).await;
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

/// Five processes, all of whose tasks come at once.
fn gather(server: &RedisServer, impatient: bool) -> Vec<Process> {
    let mut crowd: Vec<Process> = (0..PROCESSES)
        .map(|_| Process::start(STAND, &server.url()))
        .collect();
    for process in &crowd {
        process.hear("ready");
    }
    for (seed, process) in (0..).zip(&mut crowd) {
        process.tell(&come(EACH, seed, impatient));
        process.tell(ENOUGH);
    }
    crowd
}

/// Waits until all have come. They are mixed, and each comes once.
async fn all_of(arrivals: &Monitor<String>) -> Vec<String> {
    eventually(PATIENCE, "everybody has come", async || {
        arrivals.seen().len() == CROWD
    })
    .await;
    let came = arrivals.seen();
    let client = |owner: &String| owner.split(':').next().map(str::to_owned);
    let clients: HashSet<_> = came.iter().map(client).collect();
    assert_eq!(clients.len(), PROCESSES);
    let changes = came
        .windows(2)
        .filter(|two| client(&two[0]) != client(&two[1]));
    let changes = changes.count();
    eprintln!("{CROWD} came from {PROCESSES} processes, another one's {changes} times");
    assert!(changes >= PROCESSES, "one after the other: {changes}");
    came
}

/// How many of its tasks had their turn, and how many gave up.
fn outcome(process: &mut Process) -> (usize, usize) {
    let done = process.hear("done");
    process.ended_well();
    let (served, late) = done.split_once(' ').expect("two numbers");
    (
        served.parse().expect("a number"),
        late.parse().expect("a number"),
    )
}

struct Turn {
    owner: String,
    millis: u64,
}

/// What those who had the lock have written down.
fn turns(server: &RedisServer) -> Vec<Turn> {
    let log: Vec<String> = server.query(&["LRANGE", LOG, "0", "-1"]);
    let turns = log.iter().map(|line| {
        let (owner, millis) = line.split_once(' ').expect("an owner and a time");
        let (owner, millis) = (owner.to_owned(), millis.parse().expect("a number"));
        Turn { owner, millis }
    });
    turns.collect()
}

fn longest_pause(turns: &[Turn]) -> Duration {
    let pauses = turns.windows(2).map(|two| two[1].millis - two[0].millis);
    Duration::from_millis(pauses.max().unwrap_or(0))
}

const PROCESSES: usize = 5;
const EACH: usize = 200;
const CROWD: usize = PROCESSES * EACH;
