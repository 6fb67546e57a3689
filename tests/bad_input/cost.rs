//! The cost of the most expensive call to a server: every command of its script counts.

use std::time::Duration;

use distlock::{Client, Lease};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;

use super::support::RedisServer;
use super::{PATIENCE, connect};

/// Counts with `MONITOR` how many commands each script runs.
pub(crate) struct Scripts<'a> {
    server: &'a RedisServer,
    lines: Lines<BufReader<UnixStream>>,
}

impl<'a> Scripts<'a> {
    pub(crate) async fn watch(server: &'a RedisServer) -> Self {
        let stream = UnixStream::connect(server.socket_path()).await;
        let mut stream = stream.expect("the server runs");
        let asked = stream.write_all(b"MONITOR\r\n").await;
        asked.expect("it listens");
        let mut lines = BufReader::new(stream).lines();
        let agreed = lines.next_line().await.expect("it answers");
        assert_eq!(agreed.as_deref(), Some("+OK"));
        Self { server, lines }
    }

    /// Returns the number of commands of the most expensive call since the last call of this function.
    pub(crate) async fn most(&mut self) -> u64 {
        self.server.cmd(&["ECHO", LAST]);
        let (mut most, mut running) = (0, 0);
        loop {
            let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await;
            let line = line.expect("it is seen").expect("it is readable");
            let line = line.expect("the server runs");
            if line.contains(" lua] ") {
                running += 1;
                most = u64::max(most, running);
            } else {
                running = 0;
            }
            if line.contains(LAST) {
                return most;
            }
        }
    }
}

const LAST: &str = "so much for that";
const MOST_COMMANDS: u64 = 1000;
/// How many times one owner may hold a read lock.
const MOST_READS: u32 = 300;
const UUID: &str = "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11";

/// Adds readers that hold the lock `times` times each: crashed ones, whose leases have expired, or live ones.
fn add_readers(server: &RedisServer, lock: &str, readers: u32, times: u32, crashed: bool) {
    let script = "
        redis.call('HSETNX', KEYS[1], 'mode', 'read')
        for i = 1, tonumber(ARGV[2]) do
          local owner = ARGV[1] .. ':' .. i
          redis.call('HSET', KEYS[1], owner, ARGV[3])
          for number = 1, ARGV[4] == '1' and 0 or tonumber(ARGV[3]) do
            redis.call('SET', '{' .. KEYS[1] .. '}:' .. owner .. ':rwlock_timeout:' .. number, 1, 'PX', 600000)
          end
        end
        redis.call('PEXPIRE', KEYS[1], 600000)";
    let crashed = u8::from(crashed).to_string();
    let (readers, times) = (readers.to_string(), times.to_string());
    server.cmd(&["EVAL", script, "1", lock, UUID, &readers, &times, &crashed]);
}

/// Makes an owner hold the lock the maximum number of times, each with a key of its own, though it has one guard.
fn hold_often(server: &RedisServer, lock: &str, owner: &str) {
    let script = "
        redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
        for number = 1, tonumber(ARGV[2]) do
          redis.call('SET', '{' .. KEYS[1] .. '}:' .. ARGV[1] .. ':rwlock_timeout:' .. number, 1, 'PX', 600000)
        end";
    server.cmd(&["EVAL", script, "1", lock, owner, &MOST_READS.to_string()]);
}

async fn client(server: &RedisServer) -> Client {
    connect(&server.url()).await
}

/// Crowds of readers, as pairs of readers and holds per reader: as many readers as one call examines, more, and fewer that hold the lock
/// often.
const CROWDS: [(u32, u32); 6] = [(150, 1), (200, 1), (250, 1), (500, 1), (150, 4), (5, 300)];

/// The script stops at the first reader, regardless of how many there are.
#[tokio::test]
async fn a_request_of_a_writer_costs_the_same_for_any_number_of_readers() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.rw_lock("crowd");
    let mut scripts = Scripts::watch(&server).await;
    for readers in [20, 200, 480, 2_000] {
        add_readers(&server, "crowd", readers, 1, false);
        scripts.most().await;
        let asked = lock.write().try_acquire().await;
        assert!(asked.expect("it is up").is_none(), "{readers} read");
        let most = scripts.most().await;
        assert!(most < 100, "{readers} readers: {most} commands");
        server.flushall();
    }
}

#[tokio::test]
async fn no_call_of_a_read_write_lock_runs_more_than_a_thousand_commands() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let fixed = Lease::Fixed(Duration::from_secs(300));
    let lock = client.rw_lock("crowd");
    let mut scripts = Scripts::watch(&server).await;
    let mut wrong = Vec::new();
    for (readers, times) in CROWDS {
        for crashed in [true, false] {
            let mut costs = Vec::new();
            let crowd = || add_readers(&server, "crowd", readers, times, crashed);
            macro_rules! cost {
                ($what:literal, $done:expr) => {{
                    scripts.most().await;
                    let done = $done;
                    costs.push(($what, scripts.most().await));
                    done
                }};
            }
            crowd();
            let write = lock.write().with_lease(fixed);
            let held = cost!("write", write.try_acquire().await).expect("it is up");
            drop(held);
            server.flushall();

            crowd();
            let writer = client.new_owner();
            let write = lock.write().with_owner(&writer);
            cost!("second write", write.try_acquire().await).expect("it is up");
            server.flushall();

            crowd();
            cost!("look", client.admin().inspect("crowd").await).expect("it is a lock");
            let forced = cost!("force", client.admin().force_release("crowd").await);
            assert!(forced.expect("it is a lock"));

            // The release of an owner that holds the lock often.
            let me = client.new_owner();
            let read = lock.read().with_owner(&me).with_lease(fixed);
            let held = read.acquire().await.expect("it is free");
            crowd();
            hold_often(&server, "crowd", &held.owner());
            let longer = held.extend(Duration::from_secs(900));
            cost!("renewal", longer.await).expect("it is held");
            cost!("look", client.admin().inspect("crowd").await).expect("it is a lock");
            let again = cost!("re-entry", read.try_acquire().await).expect("it is up");
            let again = again.expect("it is held");
            cost!("partial release", again.release().await).expect("it is held");
            hold_often(&server, "crowd", &held.owner());
            cost!("last release", held.release().await).expect("it is held");
            server.flushall();

            // The acquire of an owner that crashed and comes back.
            let held = read.acquire().await.expect("it is free");
            crowd();
            server.cmd(&["HSET", "crowd", &held.owner(), "300"]);
            let time = format!("{{crowd}}:{}:rwlock_timeout:1", held.owner());
            server.cmd(&["DEL", &time]);
            let longer = held.extend(Duration::from_secs(900));
            let _ = cost!("late renewal", longer.await);
            drop(held);
            server.flushall();
            let what = (readers, times, crashed);
            eprintln!("{what:?}: {costs:?}");
            costs.retain(|(_, commands)| *commands > MOST_COMMANDS);
            wrong.extend((!costs.is_empty()).then_some((what, costs)));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Renews a hundred guards of one permit each, first of one semaphore, then each of its own.
#[tokio::test]
async fn renewals_of_many_permits_run_a_limited_number_of_commands() {
    for semaphores in [1, 100] {
        let server = RedisServer::start();
        let client = client(&server).await;
        let lease = Lease::KeepAlive(Duration::from_secs(6));
        let mut held = Vec::new();
        for number in 0..100 {
            let name = format!("permits-{}", number % semaphores);
            let semaphore = client.semaphore(name);
            semaphore.try_set(100).await.expect("it is made");
            let permit = semaphore.permit().with_lease(lease).acquire().await;
            held.push(permit.expect("enough are free"));
        }
        let mut scripts = Scripts::watch(&server).await;
        let renewed = held.iter().map(|permit| permit.valid_until());
        let last = renewed.max().expect("there are some");
        let all_renewed = async {
            while held.iter().any(|permit| permit.valid_until() <= last) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let renewed = tokio::time::timeout(PATIENCE, all_renewed).await;
        renewed.expect("all are renewed");
        let most = scripts.most().await;
        eprintln!("{semaphores} semaphores: {most} commands");
        assert!(
            most >= 100,
            "the renewals did not travel together: {most} commands"
        );
        assert!(most <= MOST_COMMANDS, "{most} commands");
    }
}

/// The number of locks of one client that are renewed in one batch, of crashed readers in each, and of the client's holds of each.
const RENEWED: [(usize, u32, usize); 4] = [(60, 150, 1), (100, 1, 1), (100, 0, 1), (100, 0, 3)];

#[tokio::test]
async fn renewals_of_many_crowded_locks_run_a_limited_number_of_commands() {
    for (locks, crashed, times) in RENEWED {
        let server = RedisServer::start();
        let client = client(&server).await;
        let owner = client.new_owner();
        let lease = Lease::KeepAlive(Duration::from_secs(6));
        let names: Vec<_> = (0..locks).map(|number| format!("crowd-{number}")).collect();
        let mut held = Vec::new();
        for name in &names {
            let lock = client.rw_lock(name.as_str()).read().with_owner(&owner);
            let lock = lock.with_lease(lease);
            for _ in 0..times {
                held.push(lock.acquire().await.expect("it is free"));
            }
        }
        let mut scripts = Scripts::watch(&server).await;
        // The holder's own leases have expired, as if its renewals had been late. They expire in all locks at the same moment, so that no
        // renewal comes between.
        let script = "
            for number, lock in ipairs(KEYS) do
              for i = 1, tonumber(ARGV[2]) do
                redis.call('HSET', lock, ARGV[1] .. ':' .. i, 1)
              end
              for time = 1, 3 do
                redis.call('DEL', '{' .. lock .. '}:' .. ARGV[2 + number] .. ':rwlock_timeout:' .. time)
              end
            end";
        let (count, crashed_text) = (locks.to_string(), crashed.to_string());
        let owners: Vec<_> = held
            .iter()
            .step_by(times)
            .map(|held| held.owner().to_string())
            .collect();
        let mut words = vec!["EVAL", script, &count];
        words.extend(names.iter().map(String::as_str));
        words.extend([UUID, &crashed_text]);
        words.extend(owners.iter().map(String::as_str));
        server.cmd(&words);
        // The commands that prepare this belong to a script as well.
        scripts.most().await;
        for held in &held {
            let lost = tokio::time::timeout(PATIENCE, held.lost()).await;
            lost.expect("it is told");
        }
        let most = scripts.most().await;
        eprintln!("{locks} locks, {crashed} crashed, held {times} times: {most} commands");
        assert!(most <= MOST_COMMANDS, "{most} commands");
        if crashed == 0 {
            // Not even the field `mode` remains: alone it would be no lock, but foreign data to every client.
            let left = names.iter().filter(|name| server.pttl(name) != -2);
            assert_eq!(left.count(), 0);
        }
    }
}
