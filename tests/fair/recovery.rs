//! The cost of a request after a key of the queue was evicted or deleted, and how soon the keys agree again.
//!
//! The tests count rather than measure times: a request is one script, and the server counts the commands that it runs.

use distlock::{Client, Fair, Guard};
use tokio::task::{JoinHandle, JoinSet};

use super::cost::stats;
use super::support::{RedisServer, eventually};
use super::{
    ALIVE, CHANNEL, NAME, PATIENCE, QUEUE, TIMEOUT, connect, leaves_nothing, line, take,
    until_queued,
};

/// Every waiter is notified after the loss, so that all of them send a request, without waiting for their next poll.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_costs_no_more_with_many_waiters_whichever_key_was_lost() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let held = take(&client).await;
    let mut waiting = JoinSet::new();
    for _ in 0..CROWD {
        waiting.spawn(client.fair_lock(NAME).acquire());
    }
    until_queued(&server, CROWD).await;
    eventually(PATIENCE, "all of them are subscribed", async || {
        server.pubsub_channels().len() == CROWD
    })
    .await;
    for lost in [
        &[QUEUE][..],
        &[TIMEOUT],
        &[ALIVE],
        &[QUEUE, TIMEOUT],
        &[TIMEOUT, ALIVE],
    ] {
        for key in lost {
            server.cmd(&["DEL", key]);
        }
        let before = ScriptCost::now(&server);
        let notified: usize = server.query(&["EVAL", NOTIFY_ALL, "0", CHANNEL]);
        assert_eq!(notified, CROWD);
        eventually(PATIENCE, "the keys agree again", async || {
            agree(&server, CROWD)
        })
        .await;
        let spent = ScriptCost::now(&server).since(&before);
        let each = spent.commands / spent.questions;
        eprintln!(
            "{lost:?} lost: {} questions, {each} commands each",
            spent.questions
        );
        assert!(
            each <= MOST_ON_AVERAGE,
            "{lost:?}: {each} commands a question"
        );
    }
    waiting.shutdown().await;
    held.release().await.expect("it is ours");
    client.close().await.expect("the server answers");
    leaves_nothing(&server).await;
}

/// A waiter at the head repairs entries that belong to no waiter, a part with each request.
#[tokio::test]
async fn every_request_repairs_a_bounded_part_until_the_keys_agree() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let held = take(&client).await;
    let (waiting, owner) = wait(&server, &client).await;
    // A request examines a part of the queue that the clock chooses, and sees a duplicate only if both entries are in it or it begins with
    // one: the documented bound is for entries that belong to no waiter.
    for (damage, script, bound) in [
        ("entries without a score", ENTRIES, 100),
        ("scores without an entry", SCORES, 100),
        ("marks without an entry", MARKS, 100),
        (
            "entries with a score that are there twice",
            DUPLICATES,
            5_000,
        ),
    ] {
        let () = server.query(&["EVAL", script, "3", QUEUE, TIMEOUT, ALIVE]);
        assert!(!agree(&server, 1), "{damage}: no damage was done");
        let (mut questions, mut most) = (0, 0);
        while !is_repaired(&server) {
            let before = ScriptCost::now(&server);
            ask(&server, &owner).await;
            let spent = ScriptCost::now(&server).since(&before);
            most = most.max(spent.commands / spent.questions);
            questions += spent.questions;
            assert!(questions < bound, "{damage}: not repaired");
        }
        eprintln!("{damage}: repaired by {questions} questions of {most} commands at most");
        assert!(most <= MOST, "{damage}: {most} commands in one question");
        assert_eq!(line(&server)[0], owner, "{damage}");
        for key in [QUEUE, TIMEOUT] {
            let () = server.query(&["EVAL", REMOVE_JAVA, "1", key]);
        }
    }
    held.release().await.expect("it is ours");
    granted(waiting).await.release().await.expect("it is ours");
    client.close().await.expect("the server answers");
    leaves_nothing(&server).await;
}

/// The release removes a part of them, and a live waiter proceeds at once.
#[tokio::test]
async fn a_thousand_crashed_waiters_are_removed_by_bounded_calls() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let held = take(&client).await;
    let (waiting, owner) = wait(&server, &client).await;
    let () = server.query(&["EVAL", CRASHED, "3", QUEUE, TIMEOUT, ALIVE, &owner]);
    assert_eq!(server.query::<usize>(&["LLEN", QUEUE]), 1_001);
    let before = ScriptCost::now(&server);
    held.release().await.expect("it is ours");
    let guard = granted(waiting).await;
    assert_eq!(guard.owner(), owner);
    let spent = ScriptCost::now(&server).since(&before);
    eprintln!("{} commands in {} calls", spent.commands, spent.questions);
    assert!(spent.commands <= spent.questions * MOST);
    guard.release().await.expect("it is ours");
    client.close().await.expect("the server answers");
    leaves_nothing(&server).await;
}

/// Starts one waiter and waits until it is subscribed.
async fn wait(server: &RedisServer, client: &Client) -> (Waiting, String) {
    let waiting = tokio::spawn(client.fair_lock(NAME).acquire());
    until_queued(server, 1).await;
    eventually(PATIENCE, "it is subscribed", async || {
        server.pubsub_channels().len() == 1
    })
    .await;
    (waiting, line(server).remove(0))
}

/// Notifies a waiter, and waits until it has sent a request.
async fn ask(server: &RedisServer, owner: &str) {
    let asked = ScriptCost::now(server).questions;
    server.cmd(&["PUBLISH", &format!("{CHANNEL}:{owner}"), "2"]);
    eventually(PATIENCE, "it asks", async || {
        ScriptCost::now(server).questions > asked
    })
    .await;
}

async fn granted(waiting: Waiting) -> Guard<Fair> {
    let granted = tokio::time::timeout(PATIENCE, waiting).await;
    let granted = granted.expect("it has its turn").expect("no panic");
    granted.expect("the server answers")
}

/// Returns whether this many waiters have one entry, one score and one mark each.
fn agree(server: &RedisServer, waiters: usize) -> bool {
    let sizes: Vec<usize> = server.query(&["EVAL", SIZES, "3", QUEUE, TIMEOUT, ALIVE]);
    sizes == [waiters; 4]
}

/// Returns whether every entry has a score, every score an entry, and every mark both.
fn is_repaired(server: &RedisServer) -> bool {
    let sizes: Vec<usize> = server.query(&["EVAL", SIZES, "3", QUEUE, TIMEOUT, ALIVE]);
    sizes[0] == sizes[1] && sizes[1] == sizes[2] && sizes[3] == 1
}

/// The cost of scripts since the server started.
struct ScriptCost {
    questions: u64,
    commands: u64,
}

impl ScriptCost {
    fn now(server: &RedisServer) -> Self {
        let mut stats = stats(server);
        let questions = stats.remove("evalsha").unwrap_or_default();
        let commands = stats.into_iter().filter(|(command, _)| {
            // These are the commands of the test itself and of connections.
            !["info", "publish", "eval", "subscribe", "unsubscribe"].contains(&&**command)
        });
        Self {
            questions,
            commands: commands.map(|(_, calls)| calls).sum(),
        }
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            questions: self.questions - before.questions,
            commands: self.commands - before.commands,
        }
    }
}

type Waiting = JoinHandle<Result<Guard<Fair>, distlock::Error>>;

const CROWD: usize = 400;
/// The maximum number of commands of one request, while keys disagree.
const MOST: u64 = 700;
const MOST_ON_AVERAGE: u64 = 250;
const NOTIFY_ALL: &str = "
local channels = redis.call('PUBSUB', 'CHANNELS', ARGV[1] .. ':*')
for _, channel in ipairs(channels) do
  redis.call('PUBLISH', channel, '2')
end
return #channels";
/// Counts the entries, the different entries, the scores and the marks.
const SIZES: &str = "
local owners, different = redis.call('LRANGE', KEYS[1], 0, -1), 0
local seen = {}
for _, owner in ipairs(owners) do
  different = different + (seen[owner] and 0 or 1)
  seen[owner] = true
end
return {#owners, different, redis.call('ZCARD', KEYS[2]), redis.call('ZCARD', KEYS[3])}";
const ENTRIES: &str = "
for number = 1, 1000 do
  redis.call('RPUSH', KEYS[1], '71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:' .. number)
end";
const SCORES: &str = "
for number = 1, 1000 do
  redis.call('ZADD', KEYS[2], 99999999999999, '71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:' .. number)
end";
const MARKS: &str = "
for number = 1, 1000 do
  redis.call('ZADD', KEYS[3], number, '71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:' .. number)
end";
/// The state of the queue after Redisson's waiters have queued again because their scores were lost.
const DUPLICATES: &str = "
for number = 1, 120 do
  local owner = '71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:' .. number % 60
  redis.call('RPUSH', KEYS[1], owner)
  redis.call('ZADD', KEYS[2], 99999999999999, owner)
end";
/// Adds crashed waiters in front of the one live waiter.
const CRASHED: &str = "
for number = 1, 1000 do
  local owner = '71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:' .. number
  redis.call('RPUSH', KEYS[1], owner)
  redis.call('ZADD', KEYS[2], 99999999999999, owner)
  redis.call('ZADD', KEYS[3], number, owner)
end
redis.call('LREM', KEYS[1], 0, ARGV[1])
redis.call('RPUSH', KEYS[1], ARGV[1])";
/// Removes all but the waiters of this library.
const REMOVE_JAVA: &str = "
local list = redis.call('TYPE', KEYS[1]).ok == 'list'
for number = 0, 1000 do
  local owner = '71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:' .. number
  if list then
    redis.call('LREM', KEYS[1], 0, owner)
  else
    redis.call('ZREM', KEYS[1], owner)
  end
end";
