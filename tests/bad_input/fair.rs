//! The fair lock of a user without some of the rights that it needs.

use std::time::Duration;

use tokio::time::Instant;

use distlock::{Client, Error, LockKind};
use tokio::task::JoinSet;

use super::memory_limit::{assert_out_of_memory, fill};
use super::permissions::can_do_everything;
use super::stage::{Broken, Stage};
use super::support::rights::user;
use super::support::{RedisServer, rights, simulated};
use super::wrong_kind::assert_wrong_kind;
use super::{IN_VAIN, PATIENCE, connect};

/// The id of an owner that does not exist.
const NOBODY: &str = "5b3e1d7c-0000-4000-8000-000000000000:1";

#[test]
fn a_user_with_the_rights_of_fair_locks_can_use_them() {
    simulated(async || {
        let rules = [rights::commands(), rights::of_fair_locks()].concat();
        can_do_everything(&rules, "", |client| client.fair_lock("needed")).await;
    });
}

#[test]
fn a_user_with_the_rights_of_lookups_sees_the_queue() {
    simulated(async || {
        let server = RedisServer::start();
        for seeing in [false, true] {
            let mut rules = with_only("", "needed");
            if seeing {
                rules.extend(rights::of_seeing_the_line().map(str::to_owned));
            }
            let client = limited(&server, &rules).await;
            let held = client.fair_lock("needed").acquire().await.expect("free");
            let waiting = tokio::spawn(client.fair_lock("needed").acquire());
            until_queued(&server, "redisson_lock_queue:{needed}", 1).await;
            let seen = client.admin().inspect("needed").await.expect("it may look");
            let seen = seen.expect("it is held");
            assert_eq!(seen.holders[0].owner, held.owner());
            assert_eq!(seen.waiting.len(), usize::from(seeing));
            assert_eq!(seen.kind == LockKind::Fair, seeing);
            waiting.abort();
            until_queued(&server, "redisson_lock_queue:{needed}", 0).await;
            held.release().await.expect("it is ours");
        }
    });
}

/// A request writes, and a server short of memory refuses writes of a client that has not freed memory first.
#[test]
fn a_queued_waiter_keeps_its_position_on_a_server_out_of_memory() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, other) = (connect(&server.url()).await, connect(&server.url()).await);
        let held = client.fair_lock("full").acquire().await.expect("free");
        let waiting = tokio::spawn(other.fair_lock("full").acquire());
        until_queued(&server, "redisson_lock_queue:{full}", 1).await;
        fill(&server);
        let too_late = client.fair_lock("full").acquire().await;
        assert_out_of_memory("full", too_late.map(drop).expect_err("no place is left"));
        // The waiter has sent another request by then.
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert!(!waiting.is_finished(), "it waits");
        until_queued(&server, "redisson_lock_queue:{full}", 1).await;
        held.release().await.expect("it needs no memory");
        let next = waiting.await.expect("no panic").expect("it is its turn");
        next.release().await.expect("it is its own");
    });
}

/// Entries that are not owner ids were removed as if waiters had crashed.
#[test]
fn a_queue_of_another_program_is_rejected_and_unchanged() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let (queue, timeout) = (
            "redisson_lock_queue:{orders}",
            "redisson_lock_timeout:{orders}",
        );
        for (key, make) in [
            (queue, &["RPUSH", queue, "order-1", "order-2"][..]),
            (queue, &["SET", queue, "theirs"]),
            (timeout, &["ZADD", timeout, "1763463000", "order-1"]),
            (timeout, &["ZADD", timeout, "9999999999999", "order-1"]),
        ] {
            let lock = client.fair_lock("orders");
            let owner = client.new_owner();
            let held = lock.with_owner(&owner).acquire().await.expect("free");
            let given_up = client.fair_lock("orders").acquire_timeout(IN_VAIN).await;
            assert!(given_up.expect("it may wait").is_none());
            server.cmd(&["DEL", queue, timeout]);
            server.cmd(make);
            let before = server.contents(key);
            let again = client.fair_lock("orders").with_owner(&owner).acquire();
            let again = again.await.expect("it is held by this owner");
            for refused in [
                client.fair_lock("orders").try_acquire().await.map(drop),
                client.fair_lock("orders").acquire().await.map(drop),
            ] {
                assert_wrong_kind("orders", refused.expect_err("another program's data"));
            }
            again.release().await.expect("it is ours");
            held.release().await.expect("it is ours");
            let refused = client.fair_lock("orders").acquire().await;
            assert_wrong_kind("orders", refused.expect_err("another program's data"));
            server.cmd(&["HSET", "orders", NOBODY, "1"]);
            let forced = client.admin().force_release("orders").await;
            assert!(forced.expect("it is a lock"));
            assert_eq!(server.contents(key), before, "{make:?}");
            server.cmd(&["DEL", key]);
        }
    });
}

/// Redisson's thread ids may be negative, and its transactions have an id after them. The timeouts are of any size: Redisson subtracts a
/// waiter's wait from the timeouts of the others.
#[test]
fn waiters_of_redisson_are_no_foreign_data() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let held = client.fair_lock("java").acquire().await.expect("free");
        let client_id = &NOBODY[..36];
        for (rest, end) in [
            ("47", "9999999999999"),
            ("-47", "9.2233720368547758e+18"),
            ("47:00112233445566778899aabbccddeeff", "-9000000000000"),
        ] {
            let owner = format!("{client_id}:{rest}");
            server.cmd(&["RPUSH", "redisson_lock_queue:{java}", &owner]);
            server.cmd(&["ZADD", "redisson_lock_timeout:{java}", end, &owner]);
        }
        let given_up = client.fair_lock("java").acquire_timeout(IN_VAIN).await;
        assert!(given_up.expect("it may wait").is_none());
        held.release().await.expect("it is ours");
        let turn = client.fair_lock("java").try_acquire().await;
        assert!(turn.expect("it may ask").is_none(), "others are first");
        until_queued(&server, "redisson_lock_queue:{java}", 3).await;
    });
}

/// Runs everything that can happen in a queue, with each of the rights missing: some call fails, or cannot leave the queue. With all of
/// them, none does.
#[test]
fn each_of_the_rights_is_required() {
    simulated(async || {
        let server = std::sync::Arc::new(RedisServer::start());
        let mut all = JoinSet::new();
        for (number, missing) in ["nothing"]
            .into_iter()
            .chain(rights::of_fair_locks())
            .enumerate()
        {
            let server = server.clone();
            all.spawn(async move {
                let name = format!("needed-{number}");
                let rules = with_only(missing, &name);
                let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
                let stage = Stage::new(&server, &rules, ["", &name], "").await;
                let played = everything(&stage.expect("it is let in")).await;
                match played {
                    Ok(()) => assert_eq!(missing, "nothing", "it is for nothing"),
                    Err(Broken::Told(error)) => {
                        let is_told = matches!(error, Error::PermissionDenied { .. });
                        assert!(is_told && missing != "nothing", "{missing}: {error}");
                    }
                    Err(Broken::Seen(what)) => assert_eq!(missing, "+lrem", "{what}"),
                }
            });
        }
        all.join_all().await;
    });
}

/// Waits in a queue that has to be repaired, is skipped and comes back, gives up, and acquires the lock.
pub(crate) async fn everything(stage: &Stage<'_>) -> Result<(), Broken> {
    let lock = stage.client.fair_lock(&*stage.name);
    let server = stage.server;
    let held = lock.acquire().await?;
    let timeout = stage.beside("redisson_lock_timeout");
    let queue = stage.beside("redisson_lock_queue");
    server.cmd(&["ZADD", &timeout, "9999999999999", NOBODY]);
    let mut waiting = tokio::spawn(lock.acquire());
    tokio::select! {
        told = &mut waiting => told.expect("no panic")?.release().await?,
        () = until_queued(server, &queue, 1) => {}
    }
    // Redisson does this with a waiter whose time has expired.
    let owner: String = server.query(&["LPOP", &queue]);
    server.cmd(&["ZREM", &timeout, &owner]);
    tokio::select! {
        told = &mut waiting => told.expect("no panic")?.release().await?,
        () = until_queued(server, &queue, 1) => {}
    }
    let hasty = lock.acquire_timeout(IN_VAIN).await?;
    assert!(hasty.is_none(), "it is held");
    let left = || server.query::<usize>(&["LLEN", &queue]) == 1;
    stage.until("it leaves the line", left).await?;
    held.release().await?;
    let next = tokio::time::timeout(PATIENCE, waiting).await;
    let next = next.map_err(|_| Broken::Seen("it has its turn"))?;
    next.expect("no panic")?.release().await?;
    Ok(())
}

/// Waits until the queue has this length.
async fn until_queued(server: &RedisServer, queue: &str, length: usize) {
    let until = Instant::now() + PATIENCE * 2;
    while server.query::<usize>(&["LLEN", queue]) != length {
        assert!(Instant::now() < until, "not {length} in `{queue}`");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns the rights that a fair lock of this name needs, without one of them.
fn with_only(missing: &str, name: &str) -> Vec<String> {
    let rules = [rights::commands(), rights::of_fair_locks()].concat();
    let rules = rules.into_iter().filter(|rule| *rule != missing);
    let others = ["~distlock_undone:*", "&redisson_lock__channel:*"];
    let mut rules: Vec<String> = rules.chain(others).map(str::to_owned).collect();
    rules.push(format!("~{name}"));
    rules
}

async fn limited(server: &RedisServer, rules: &[String]) -> Client {
    let mut all = vec!["resetkeys", "resetchannels", "-@all"];
    all.extend(rules.iter().map(String::as_str));
    connect(&user(server, &all)).await
}
