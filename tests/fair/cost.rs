//! The cost of a hand-off for the server: the same for any length of the queue.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use distlock::Client;
use tokio::task::JoinSet;

use super::history::History;
use super::support::{RedisServer, eventually};
use super::{ALIVE, NAME, PATIENCE, QUEUE, TIMEOUT, connect, leaves_nothing, take, until_queued};

/// The other queue entries are only written, as if their waiters had just sent a request: the requests that waiters send every few seconds
/// are not part of a hand-off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_off_takes_the_same_commands_with_10_and_with_10_000_queued() {
    let server = RedisServer::start();
    let mut costs = [Cost::new(), Cost::new()];
    // On a busy machine a waiter sends an additional request now and then: the least of several rounds is the cost of a hand-off.
    for round in 0..ROUNDS {
        for (least, behind) in costs.iter_mut().zip([10, 10_000]) {
            let cost = hand_offs(&server, behind).await;
            let total = |cost: &Cost| cost.values().sum::<u64>();
            if round == 0 || total(&cost) < total(least) {
                *least = cost;
            }
        }
        if costs[0] == costs[1] {
            break;
        }
    }
    let each = |cost: &Cost| cost.values().sum::<u64>() as f64 / TURNS as f64;
    let [few, many] = [each(&costs[0]), each(&costs[1])];
    eprintln!(
        "{few:.1} commands a hand-off with 10 behind, {many:.1} with 10,000: {:?}",
        costs[1]
    );
    assert_eq!(costs[0], costs[1]);
    for command in costs[0].keys() {
        assert!(
            !WHOLE_LINE.contains(&command.as_str()),
            "{command} looks through the line"
        );
    }
}

/// All of the waiters are real, are in one process, and send a request every three seconds. Prints the totals.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long unless built with --release"]
async fn a_queue_of_10_000_real_waiters_is_served_in_order_by_one_message_each() {
    for crowd in [10, 100, 1_000, 10_000] {
        real_line(crowd).await;
    }
}

/// The same test with fewer waiters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_of_500_real_waiters_is_served_in_order_by_one_message_each() {
    real_line(500).await;
}

async fn real_line(crowd: usize) {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let held = take(&client).await;
    let history = History::start(&server).await;
    let mut waiting = JoinSet::new();
    for _ in 0..crowd {
        waiting.spawn(turn(client.clone()));
    }
    until_queued(&server, crowd).await;
    eventually(PATIENCE, "all of them listen", async || {
        server.pubsub_channels().len() == crowd
    })
    .await;
    let (messages, asked) = (server.commandstats("publish"), asks(&server));
    let (begun, spent) = (Instant::now(), processor_time(&server));
    held.release().await.expect("it is ours");
    let mut turns = Vec::new();
    while let Some(turn) = waiting.join_next().await {
        turns.push(turn.expect("no panic"));
    }
    let (took, spent) = (begun.elapsed(), processor_time(&server) - spent);
    eventually(PATIENCE, "every grant is seen", async || {
        history.granted().len() == crowd
    })
    .await;
    history.is_in_order();
    turns.sort();
    let order: Vec<String> = turns.into_iter().map(|(_, owner)| owner).collect();
    assert_eq!(order, history.granted());
    let messages = server.commandstats("publish") - messages;
    // A waiter that has lost its place is notified again, and so is the next one.
    if history.silent().is_empty() {
        assert_eq!(messages, crowd as u64 + 1, "one for each hand-off");
    }
    let asked = asks(&server) - asked;
    let each = |time: Duration| time.as_secs_f64() * 1e6 / crowd as f64;
    eprintln!(
        "{crowd} waiters: {took:.1?} in all, {:.0} µs a hand-off, {:.0} µs of the server's processor, {:.1} questions each",
        each(took),
        each(spent),
        asked as f64 / crowd as f64,
    );
    client.close().await.expect("the server answers");
    leaves_nothing(&server).await;
}

async fn turn(client: Client) -> (Instant, String) {
    let guard = client
        .fair_lock(NAME)
        .acquire()
        .await
        .expect("the server answers");
    let had_it = (Instant::now(), guard.owner());
    guard.release().await.expect("it is ours");
    had_it
}

/// Returns the number of requests: each one reads the length of the queue.
fn asks(server: &RedisServer) -> u64 {
    server.commandstats("llen")
}

/// The number of times each command was run.
pub(crate) type Cost = BTreeMap<String, u64>;

/// Returns the commands of some hand-offs with this many waiters behind them.
async fn hand_offs(server: &RedisServer, behind: usize) -> Cost {
    let client = connect(&server.url()).await;
    let held = take(&client).await;
    let mut waiting = JoinSet::new();
    let asked = asks(server);
    for _ in 0..TURNS {
        waiting.spawn(turn(client.clone()));
    }
    until_queued(server, TURNS).await;
    eventually(PATIENCE, "all of them listen", async || {
        server.pubsub_channels().len() == TURNS
    })
    .await;
    // Each waiter sends another request when it has subscribed, and then sleeps.
    eventually(PATIENCE, "all of them sleep", async || {
        asks(server) >= asked + 2 * TURNS as u64
    })
    .await;
    add_queue_entries(server, behind);
    let before = stats(server);
    held.release().await.expect("it is ours");
    while let Some(turn) = waiting.join_next().await {
        turn.expect("no panic");
    }
    let mut cost = stats(server);
    for (command, count) in before {
        let now = cost.entry(command).or_default();
        *now -= count;
    }
    cost.retain(|command, count| *count > 0 && !BESIDE.contains(&command.as_str()));
    assert_eq!(server.query::<usize>(&["LLEN", QUEUE]), behind);
    client.close().await.expect("the server answers");
    server.flushall();
    cost
}

/// Adds this many entries to the queue, in the form that real waiters have.
fn add_queue_entries(server: &RedisServer, count: usize) {
    let stood: usize = server.query(&[
        "EVAL",
        STAND,
        "3",
        QUEUE,
        TIMEOUT,
        ALIVE,
        &count.to_string(),
    ]);
    assert_eq!(stood, TURNS + count);
}

pub(crate) fn stats(server: &RedisServer) -> Cost {
    let info: String = server.query(&["INFO", "commandstats"]);
    let lines = info.lines().filter_map(|line| {
        let (command, numbers) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let calls = numbers.split(',').next()?.parse().ok()?;
        Some((command.to_owned(), calls))
    });
    lines.collect()
}

/// Returns the processor time that a server has used since it started.
fn processor_time(server: &RedisServer) -> Duration {
    let info: String = server.query(&["INFO", "cpu"]);
    let spent = info.lines().filter_map(|line| {
        let main = line.starts_with("used_cpu_sys:") || line.starts_with("used_cpu_user:");
        main.then(|| line.split_once(':')?.1.parse::<f64>().ok())?
    });
    Duration::from_secs_f64(spent.sum())
}

const TURNS: usize = 20;
const ROUNDS: usize = 20;
/// Commands whose cost grows with the queue. LRANGE and ZRANGE read the few entries at its ends.
const WHOLE_LINE: [&str; 5] = ["lrem", "lpos", "linsert", "zrevrange", "zrangebyscore"];
/// Commands that do not belong to a hand-off: how requests are batched and when waiters unsubscribe depends on timing, and the test itself
/// polls.
const BESIDE: [&str; 6] = [
    "evalsha",
    "eval",
    "subscribe",
    "unsubscribe",
    "info",
    "script|load",
];
const STAND: &str = "
local now = redis.call('TIME')[1] * 1000
for number = 1, ARGV[1] do
  local owner = '71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:' .. number
  redis.call('RPUSH', KEYS[1], owner)
  redis.call('ZADD', KEYS[2], now + 600000, owner)
  redis.call('ZADD', KEYS[3], now + 600000, owner)
end
return redis.call('LLEN', KEYS[1])";
