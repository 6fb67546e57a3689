//! The read/write lock where foreign data lives under its name, or where its user does not have all rights.

use std::time::Duration;

use distlock::{Client, Error, Lease, LockKind, RwLock};
use tokio::task::{JoinSet, LocalSet};

use super::memory_limit::{assert_out_of_memory, fill};
use super::permissions::{assert_denied, can_do_everything};
use super::support::rights::user;
use super::support::{RedisServer, eventually, rights, simulated};
use super::wrong_kind::assert_wrong_kind;
use super::{IN_VAIN, PATIENCE, connect};

const LEASE: Duration = Duration::from_secs(6);

#[test]
fn a_user_with_the_required_rights_can_write() {
    simulated(async || {
        let rules = rights();
        let rules: Vec<_> = rules.iter().map(String::as_str).collect();
        can_do_everything(&rules, "", |client| client.rw_lock("needed").write()).await;
    });
}

#[test]
fn a_user_with_the_required_rights_can_read_upgrade_and_downgrade() {
    simulated(async || {
        let server = RedisServer::start();
        let (one, other) = (limited(&server, "").await, limited(&server, "").await);
        everything(&one, &other, "needed")
            .await
            .expect("it may do all of it");
        // The tombstones of undone requests stay for a while.
        let keys = server.keys();
        assert!(keys.iter().all(|key| key.starts_with("distlock_undone:")));
    });
}

/// Any missing right is reported, and nothing is left behind for longer than a lease.
#[test]
fn a_user_without_one_of_the_rights_gets_an_error_and_leaves_nothing_behind() {
    simulated(async || {
        // In groups: most of the time is spent waiting for leases to expire.
        let mut missing = rights();
        while !missing.is_empty() {
            let some = missing.split_off(missing.len().saturating_sub(AT_A_TIME));
            let (here, mut all) = (LocalSet::new(), JoinSet::new());
            for missing in some {
                all.spawn_local_on(is_told_so(missing), &here);
            }
            here.run_until(all.join_all()).await;
        }
    });
}

async fn is_told_so(missing: String) {
    let server = RedisServer::start();
    let its_own = rights::of_rw_locks("needed");
    let client = limited(&server, &missing).await;
    let other = connect(&server.url()).await;
    match everything(&client, &other, "needed").await {
        Ok(()) => assert!(!its_own.contains(&missing), "{missing} is for nothing"),
        Err(denied) => {
            let is_told = matches!(denied, Error::PermissionDenied { .. });
            assert!(is_told, "{missing}: {denied:?}");
        }
    }
    client.close().await.ok();
    let what = format!("nothing is left, without {missing}");
    eventually(PATIENCE, &what, async || {
        let keys = server.keys();
        keys.iter().all(|key| key.starts_with("distlock_undone:"))
    })
    .await;
}

#[test]
fn a_user_denied_the_keys_of_readers_gets_an_error_and_holds_nothing() {
    simulated(async || {
        let server = RedisServer::start();
        let rules = [
            "resetkeys",
            "~prices",
            "~distlock_undone:*",
            "~distlock_writers:*",
        ];
        let client = connect(&user(&server, &rules)).await;
        let lock = client.rw_lock("prices");
        assert_denied(lock.read().acquire().await.unwrap_err(), "prices", "key");
        assert_eq!(server.pttl("prices"), -2, "{:?}", server.hgetall("prices"));
    });
}

#[test]
fn a_lock_of_another_kind_is_reported_or_waited_for_and_unchanged() {
    simulated(async || {
        let server = RedisServer::start();
        let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
        let lock = other.rw_lock("taken");
        let is_left_alone = async |what: &str| {
            let before = server.contents("taken");
            for refused in [
                lock.read().try_acquire().await.map(drop),
                lock.write().try_acquire().await.map(drop),
                lock.read().acquire().await.map(drop),
                lock.write().acquire().await.map(drop),
                lock.write().acquire_timeout(LEASE).await.map(drop),
            ] {
                assert_wrong_kind("taken", refused.expect_err(what));
            }
            let after = server.contents("taken");
            assert_eq!(before, after, "{what} was changed");
        };
        let guard = one.lock("taken").acquire().await.unwrap();
        is_left_alone("plain").await;
        guard.release().await.expect("it is ours");
        let guard = one.fenced_lock("taken").acquire().await.unwrap();
        is_left_alone("fenced").await;
        guard.release().await.expect("it is ours");
        let guard = one.fair_lock("taken").acquire().await.unwrap();
        is_left_alone("fair").await;
        guard.release().await.expect("it is ours");
        let guard = one.simple_lock("taken").acquire().await.unwrap();
        is_left_alone("simple").await;
        guard.release().await.expect("it is ours");
        for make in [
            ["RPUSH", "taken", "theirs"].as_slice(),
            &["SADD", "taken", "theirs"],
            &["ZADD", "taken", "1", "theirs"],
            &["HSET", "taken", "visits", "7"],
        ] {
            server.cmd(make);
            is_left_alone(make[0]).await;
            server.cmd(&["DEL", "taken"]);
        }
    });
}

#[test]
fn other_kinds_of_locks_wait_for_a_read_write_lock_or_report_it_and_leave_it_unchanged() {
    simulated(async || {
        let server = RedisServer::start();
        let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
        let lock = one.rw_lock("taken");
        let lease = Lease::Fixed(LEASE * 20);
        for kind in [LockKind::Read, LockKind::Write] {
            let (mut reader, mut writer) = (None, None);
            if kind == LockKind::Read {
                reader = Some(lock.read().with_lease(lease).acquire().await.unwrap());
            } else {
                writer = Some(lock.write().with_lease(lease).acquire().await.unwrap());
            }
            let before = server.hgetall("taken");
            for refused in [
                other
                    .lock("taken")
                    .try_acquire()
                    .await
                    .map(|got| got.is_some()),
                other
                    .lock("taken")
                    .acquire_timeout(IN_VAIN)
                    .await
                    .map(|got| got.is_some()),
                other
                    .fenced_lock("taken")
                    .try_acquire()
                    .await
                    .map(|got| got.is_some()),
                other
                    .fair_lock("taken")
                    .try_acquire()
                    .await
                    .map(|got| got.is_some()),
                other
                    .fair_lock("taken")
                    .acquire_timeout(IN_VAIN)
                    .await
                    .map(|got| got.is_some()),
                other
                    .simple_lock("taken")
                    .try_acquire()
                    .await
                    .map(|got| got.is_some()),
            ] {
                match refused {
                    Ok(granted) => assert!(!granted, "two hold it"),
                    Err(error) => assert_wrong_kind("taken", error),
                }
            }
            assert_eq!(server.hgetall("taken"), before);
            let seen = other.admin().inspect("taken").await.unwrap();
            assert_eq!(seen.map(|seen| seen.kind), Some(kind));
            if let Some(guard) = reader {
                guard.release().await.expect("it is ours");
            }
            if let Some(guard) = writer {
                guard.release().await.expect("it is ours");
            }
            assert_eq!(server.pttl("taken"), -2);
        }
    });
}

#[test]
fn an_overwritten_hold_is_lost_and_the_new_data_unchanged() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let lock = client.rw_lock("trampled");
        let alive = Lease::KeepAlive(LEASE);
        let reader = lock.read().with_lease(alive).acquire().await.unwrap();
        server.cmd(&["SET", "trampled", "theirs"]);
        let lost = tokio::time::timeout(PATIENCE, reader.lost()).await;
        assert!(lost.expect("it is told").is_some());
        drop(reader);
        server.cmd(&["DEL", "trampled"]);
        let writer = lock.write().with_lease(alive).acquire().await.unwrap();
        server.cmd(&["DEL", "trampled"]);
        server.cmd(&["HSET", "trampled", "visits", "7"]);
        let lost = tokio::time::timeout(PATIENCE, writer.lost()).await;
        assert!(lost.expect("it is told").is_some());
        drop(writer);
        client.close().await.ok();
        assert_eq!(server.hgetall("trampled")["visits"], "7");
        assert_eq!(server.pttl("trampled"), -1);
    });
}

/// The time of a read hold is a key of its own, and none of them may have to be created anew.
#[test]
fn a_server_out_of_memory_grants_nothing_but_renews_and_releases_holds() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let me = client.new_owner();
        let alive = Lease::KeepAlive(LEASE);
        let nested = client.rw_lock("nested");
        let reading = nested.read().with_owner(&me).with_lease(alive);
        let (outer, inner) = (reading.acquire().await, reading.acquire().await);
        let (outer, inner) = (outer.unwrap(), inner.unwrap());
        let fixed = nested.read().with_lease(Lease::Fixed(LEASE * 20));
        let fixed = fixed.acquire().await.unwrap();
        let written = client.rw_lock("written");
        let writing = written.write().with_owner(&me).with_lease(alive);
        let (above, beneath) = (writing.acquire().await, writing.acquire().await);
        let (above, beneath) = (above.unwrap(), beneath.unwrap());
        let dropped = client.rw_lock("dropped").read().acquire().await.unwrap();
        fill(&server);

        let free = client.rw_lock("free");
        assert_out_of_memory("free", free.read().acquire().await.unwrap_err());
        assert_out_of_memory("free", free.write().try_acquire().await.unwrap_err());
        assert!(written.read().try_acquire().await.unwrap().is_none());
        tokio::time::sleep(LEASE * 3 / 2).await;
        for (held, risk) in [
            (outer.is_held(), outer.at_risk()),
            (fixed.is_held(), fixed.at_risk()),
            (above.is_held(), above.at_risk()),
        ] {
            assert!(held, "it was renewed");
            assert_eq!(risk, None);
        }
        for lease in [alive, Lease::Fixed(LEASE / 3)] {
            let again = reading.clone().with_lease(lease).acquire().await;
            let again = again.expect("who reads may enter again");
            again.release().await.expect("and leave");
        }
        fixed.extend(LEASE * 30).await.expect("it needs no memory");
        inner.release().await.expect("nor does a part");
        beneath.release().await.expect("of either");
        outer.release().await.expect("nor the whole");
        above.release().await.expect("of either");
        fixed.release().await.expect("it is ours");
        drop(dropped);
        eventually(PATIENCE, "everything is free", async || {
            let mut keys = server.keys();
            // A writer that was refused is undone, and the tombstone stays for a while.
            keys.retain(|key| !key.starts_with("blob:") && !key.starts_with("distlock_undone:"));
            keys.is_empty()
        })
        .await;
    });
}

const AT_A_TIME: usize = 64;

/// Returns all rights that a read/write lock of this name needs.
fn rights() -> Vec<String> {
    let plain = rights::commands().into_iter().map(ToOwned::to_owned);
    let keys = ["~needed", "~distlock_undone:*", "&redisson_lock__channel:*"];
    let keys = keys.map(ToOwned::to_owned);
    let mut rules: Vec<_> = plain.chain(keys).collect();
    rules.extend(rights::of_rw_locks("needed"));
    rules
}

/// Connects a client with all of these rights except one.
async fn limited(server: &RedisServer, missing: &str) -> Client {
    let all = rights();
    let mut rules = vec!["resetkeys", "resetchannels", "-@all"];
    let left = all.iter().map(String::as_str);
    rules.extend(left.filter(|rule| *rule != missing));
    connect(&user(server, &rules)).await
}

/// Runs everything that can be done with a lock of both sides.
pub(crate) async fn everything(client: &Client, other: &Client, name: &str) -> Result<(), Error> {
    let (lock, theirs): (RwLock, RwLock) = (client.rw_lock(name), other.rw_lock(name));
    let me = client.new_owner();
    // No hold may expire meanwhile, although a waiter waits in vain.
    let lasts = 2 * LEASE;
    let lease = Lease::Fixed(lasts);
    let reading = lock.read().with_owner(&me).with_lease(lease);
    let (outer, inner) = (reading.acquire().await?, reading.acquire().await?);
    inner.release().await?;
    client.admin().inspect(name).await?;
    outer.extend(lasts).await?;
    let writer = outer.try_upgrade().await?.expect("nobody else reads");
    writer.extend(lasts).await?;
    writer.release().await?;
    // Others read: the writer waits, gives up, and learns so from the reply of the store.
    let reader = theirs.read().with_lease(lease).acquire().await?;
    outer.release().await?;
    let none = lock.write().acquire_timeout(IN_VAIN).await?;
    assert!(none.is_none(), "somebody reads");
    let waiting = tokio::spawn(lock.write().with_lease(lease).acquire());
    tokio::time::sleep(Duration::from_millis(100)).await;
    reader.release().await?;
    let writer = waiting.await.expect("no panic")?;
    writer.downgrade().await?.release().await?;
    // Cancelled before the reply.
    let cancelled = tokio::spawn(lock.read().with_lease(lease).acquire());
    tokio::task::yield_now().await;
    cancelled.abort();
    let _ = cancelled.await;
    let forced = lock.read().with_lease(lease).acquire().await?;
    client.admin().force_release(name).await?;
    drop(forced);
    client.close().await
}
