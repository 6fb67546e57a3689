//! Data of other programs under a lock's name, or under a name beside it: it is refused and left as it is.

use std::time::Duration;

use distlock::{Client, Error, Lease, LostReason};
use redis::Value;

use super::support::{RedisServer, simulated};
use super::wrong_kind::assert_wrong_kind;
use super::{PATIENCE, connect};

const OWNER: &str = "71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:47";

/// Returns the content of a key: its bytes, and whether it expires.
fn content(server: &RedisServer, name: &str) -> (Vec<Value>, bool) {
    (server.contents(name), server.pttl(name) > 0)
}

/// Tries every way to acquire or to free the lock of this name.
async fn try_everything(client: &Client, name: &str, with_scripts: bool) {
    for error in [
        client.lock(name).try_acquire().await.map(drop),
        client.lock(name).acquire_timeout(PATIENCE).await.map(drop),
        client.fenced_lock(name).acquire().await.map(drop),
        client.simple_lock(name).try_acquire().await.map(drop),
    ] {
        assert_wrong_kind(name, error.expect_err("another program's data"));
    }
    let forced = client.admin().force_release(name).await;
    assert_wrong_kind(name, forced.expect_err("no lock"));
    if !with_scripts {
        return;
    }
    let both = client.rw_lock(name);
    for error in [
        client.fair_lock(name).acquire().await.map(drop),
        both.read().try_acquire().await.map(drop),
        both.read().acquire().await.map(drop),
        both.write().try_acquire().await.map(drop),
        both.write().acquire_timeout(PATIENCE).await.map(drop),
    ] {
        assert_wrong_kind(name, error.expect_err("another program's data"));
    }
}

/// A hash with a time to live was waited for, and a hash with a field `mode` was taken for a read/write lock.
#[test]
fn hashes_of_other_programs_are_rejected_by_every_lock_and_unchanged() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let unscripted = connect(&format!("{}?scripts=off", server.url())).await;
        let big = "x".repeat(1 << 20);
        let writer = format!("{OWNER}:write");
        let expire_time = format!("ud7oMS5PBmvHcVqJ9iOa5w:{OWNER}:expire_time");
        for fields in [
            &["visits", "7"][..],
            &["mode", "eco", "updated_at", "1763463000"],
            &["mode", "production", "theme", "dark", "limit", "7"],
            &["mode", "read", "size", "4096", "path", "/x"],
            &["mode", "write", "level", "inf"],
            &["mode", "read"],
            &["mode", "read", OWNER, "1e9"],
            &["mode", "write", &writer, "1", "size", "1"],
            &[OWNER, "1", "visits", "7"],
            &[OWNER, "{\"cart\": []}"],
            &["blob", &big],
            &[
                "ud7oMS5PBmvHcVqJ9iOa5w",
                OWNER,
                &expire_time,
                "1763463000000",
            ],
        ] {
            for end in [false, true] {
                server.cmd(&[&["HSET", "data"], fields].concat());
                if end {
                    server.cmd(&["PEXPIRE", "data", "600000"]);
                }
                let before = content(&server, "data");
                try_everything(&client, "data", true).await;
                // Without scripts the value of a field is not read.
                if fields[0] != OWNER || fields.len() > 2 {
                    try_everything(&unscripted, "data", false).await;
                }
                assert_eq!(content(&server, "data"), before, "{:.60?}", fields[0]);
                server.cmd(&["DEL", "data"]);
            }
        }
        let left = server.keys();
        assert!(left.iter().all(|key| key.starts_with("distlock_undone:")));
    });
}

/// The clients wait for Redisson's transactions, its negative thread ids, and a lock that has lost its time to live.
#[test]
fn locks_of_redisson_are_waited_for() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let unscripted = connect(&format!("{}?scripts=off", server.url())).await;
        let client_id = &OWNER[..36];
        let transaction = "00112233445566778899aabbccddeeff";
        for rest in ["47", "-47", &format!("47:{transaction}")] {
            let owner = format!("{client_id}:{rest}");
            server.cmd(&["HSET", "lock", &owner, "2"]);
            assert!(client.lock("lock").try_acquire().await.unwrap().is_none());
            assert!(
                client
                    .fair_lock("lock")
                    .try_acquire()
                    .await
                    .unwrap()
                    .is_none()
            );
            assert!(
                client
                    .fenced_lock("lock")
                    .try_acquire()
                    .await
                    .unwrap()
                    .is_none()
            );
            assert!(
                unscripted
                    .lock("lock")
                    .try_acquire()
                    .await
                    .unwrap()
                    .is_none()
            );
            assert!(client.admin().force_release("lock").await.unwrap());
            let writer = match rest.split_once(':') {
                Some((thread, id)) => format!("{client_id}:{thread}:write:{id}"),
                None => format!("{owner}:write"),
            };
            server.cmd(&["HSET", "lock", "mode", "write", &writer, "1"]);
            let both = client.rw_lock("lock");
            assert!(both.read().try_acquire().await.unwrap().is_none());
            assert!(both.write().try_acquire().await.unwrap().is_none());
            server.cmd(&["DEL", "lock"]);
        }
    });
}

#[test]
fn a_long_string_is_no_simple_lock_and_unchanged() {
    simulated(async || {
        let server = RedisServer::start();
        let long = "x".repeat(300);
        server.cmd(&["SET", "page", &long]);
        server.cmd(&["SET", "token", "a lock of another library"]);
        for url in [server.url(), format!("{}?scripts=off", server.url())] {
            let client = connect(&url).await;
            let page = client.simple_lock("page");
            assert_wrong_kind("page", page.try_acquire().await.unwrap_err());
            assert_wrong_kind("page", page.acquire().await.unwrap_err());
            let forced = client.admin().force_release("page").await;
            assert_wrong_kind("page", forced.unwrap_err());
            let theirs = client.simple_lock("token").try_acquire().await;
            assert!(theirs.unwrap().is_none());
        }
        assert_eq!(server.query::<String>(&["GET", "page"]), long);
    });
}

/// Permits that had expired by another program's scores were removed, and its counter raised.
#[test]
fn zsets_of_other_programs_are_rejected_by_semaphores_and_unchanged() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let id: distlock::PermitId = "00112233445566778899aabbccddeeff".parse().unwrap();
        for members in [
            &["1795000000", "order-1", "1795000100", "order-2"][..],
            &["5", "0123456789abcdef"],
            &["1763463000123", "order-1"],
            &["1763463000123456", "0123456789abcdef"],
        ] {
            for number in [Some("17"), None] {
                server.cmd(&[&["ZADD", "{orders}:timeout"], members].concat());
                if let Some(number) = number {
                    server.cmd(&["SET", "orders", number]);
                }
                let before = content(&server, "{orders}:timeout");
                let semaphore = client.semaphore("orders");
                for refused in [
                    semaphore.permit().try_acquire().await.map(drop),
                    semaphore.permits(3).acquire().await.map(drop),
                    semaphore
                        .clone()
                        .with_permits(5)
                        .permit()
                        .acquire()
                        .await
                        .map(drop),
                    semaphore.set_total(4).await.map(drop),
                    semaphore.try_set(4).await.map(drop),
                    semaphore.release(id).await.map(drop),
                    semaphore.delete().await.map(drop),
                ] {
                    assert_wrong_kind("orders", refused.expect_err("no permits"));
                }
                assert_eq!(content(&server, "{orders}:timeout"), before);
                let after: Option<String> = server.query(&["GET", "orders"]);
                assert_eq!(after.as_deref(), number);
                server.cmd(&["DEL", "orders", "{orders}:timeout"]);
            }
        }
    });
}

/// Nothing proves that these are permits: the number is missing, and distlock has recorded no client.
#[test]
fn a_zset_of_permits_without_a_number_is_rejected_and_unchanged() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let id: distlock::PermitId = "00112233445566778899aabbccddeeff".parse().unwrap();
        for (late, later) in [
            ("1763463000123", "1763463000124"),
            ("1763463000123", "4102444800000"),
            ("4102444800000", "4102444800001"),
        ] {
            server.cmd(&[
                "ZADD",
                "{traces}:timeout",
                late,
                "0123456789abcdef",
                later,
                "fedcba9876543210",
            ]);
            let before = content(&server, "{traces}:timeout");
            let semaphore = client.semaphore("traces");
            let of_five = semaphore.clone().with_permits(5);
            for refused in [
                semaphore.permit().try_acquire().await.map(drop),
                semaphore.permits(3).acquire().await.map(drop),
                of_five.permit().try_acquire().await.map(drop),
                of_five.permits(2).acquire().await.map(drop),
                semaphore.set_total(4).await.map(drop),
                semaphore.try_set(4).await.map(drop),
                semaphore.release(id).await.map(drop),
                semaphore.delete().await.map(drop),
                semaphore.count().await.map(drop),
            ] {
                assert_wrong_kind("traces", refused.expect_err("nobody's permits"));
            }
            let forced = client.admin().force_release("traces").await;
            assert!(!forced.expect("nothing is held under the name"));
            assert_eq!(content(&server, "{traces}:timeout"), before);
            assert_eq!(server.query::<i64>(&["EXISTS", "traces"]), 0);
            server.cmd(&["DEL", "{traces}:timeout"]);
        }
    });
}

#[test]
fn strings_that_are_no_numbers_are_rejected_by_all_counters_and_unchanged() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let big = "1".repeat(1 << 20);
        for text in ["", "1e3", "0x10", "inf", " 7", "7.5", &big] {
            server.cmd(&["SET", "data", text]);
            for refused in [
                client
                    .semaphore("data")
                    .permit()
                    .try_acquire()
                    .await
                    .map(drop),
                client.semaphore("data").set_total(3).await.map(drop),
                client
                    .counting_semaphore("data")
                    .try_acquire(1)
                    .await
                    .map(drop),
                client
                    .counting_semaphore("data")
                    .set_available(3)
                    .await
                    .map(drop),
                client.latch("data").try_set(3).await.map(drop),
                client.latch("data").count_down().await.map(drop),
                client.latch("data").delete().await.map(drop),
            ] {
                assert_wrong_kind("data", refused.expect_err("no number"));
            }
            assert_eq!(server.query::<String>(&["GET", "data"]), text);
        }
    });
}

/// The type of a key beside the lock is checked before anything is written.
#[test]
fn an_auxiliary_key_of_another_type_is_detected_before_a_grant() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        for (name, beside) in [
            ("writes", "distlock_writers:{writes}"),
            ("plain", "distlock_undone:{plain}"),
            ("token", "redisson_lock_token:{token}"),
        ] {
            server.cmd(&["RPUSH", beside, "theirs"]);
            let granted = match name {
                "writes" => client.rw_lock(name).write().acquire().await.map(drop),
                "token" => client.fenced_lock(name).acquire().await.map(drop),
                _ => client.lock(name).acquire().await.map(drop),
            };
            assert_wrong_kind(name, granted.expect_err("it cannot be had"));
            assert_eq!(server.pttl(name), -2, "{name} is held by nobody");
        }
        server.cmd(&["RPUSH", "distlock_clients:{permits}", "theirs"]);
        let semaphore = client.semaphore("permits").with_permits(2);
        let granted = semaphore.permit().acquire().await.map(drop);
        assert_wrong_kind("permits", granted.expect_err("it cannot be had"));
        let count = semaphore.count().await.unwrap();
        assert_eq!(count.out, 0, "held by nobody");
    });
}

/// A lock may have the name of the promotion record, and so may another program's string: the client does without the record.
#[test]
fn foreign_data_in_the_promotion_record_is_no_error_and_unchanged() {
    simulated(async || {
        let server = RedisServer::start();
        let record = include_str!("../../src/engine/redis/lua/promoted.lua");
        for write in [
            &["HSET", "distlock_promoted", OWNER, "1"][..],
            &["SET", "distlock_promoted", "theirs"],
        ] {
            server.cmd(write);
            let before = content(&server, "distlock_promoted");
            let call = ["EVAL", record, "1", "distlock_promoted", "abc", "60000"];
            assert_eq!(server.query::<i64>(&call), 0, "known since now");
            assert_eq!(content(&server, "distlock_promoted"), before);
            server.cmd(&["DEL", "distlock_promoted"]);
        }
    });
}

/// A server executes nothing else while it runs a script: the script runs few commands for many permits.
#[test]
fn thousands_of_permits_are_acquired_renewed_and_released_by_few_commands() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let semaphore = client.semaphore("exports").with_permits(5000);
        let lease = Lease::KeepAlive(Duration::from_secs(9));
        let held = semaphore
            .permits(4096)
            .with_lease(lease)
            .acquire()
            .await
            .unwrap();
        let till = held.valid_until();
        let renewed = async {
            while held.valid_until() <= till {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, renewed)
            .await
            .expect("it is renewed");
        held.release().await.unwrap();
        let count = semaphore.count().await.unwrap();
        assert_eq!((count.available, count.out), (5000, 0));
        for command in ["zadd", "zrem", "zscore", "zmscore"] {
            let calls = server.commandstats(command);
            assert!(calls < 200, "{calls} calls of {command}");
        }
        let too_many = semaphore.permits(4097).acquire().await.unwrap_err();
        assert!(
            matches!(too_many, Error::InvalidOption { .. }),
            "{too_many:?}"
        );
        assert!(too_many.to_string().contains("4096"), "{too_many}");
    });
}

/// Each hold of a reader is a key of its own.
#[test]
fn a_reader_that_holds_the_lock_too_often_is_refused() {
    simulated(async || {
        let client = Client::connect("memory:").await.unwrap();
        let me = client.new_owner();
        let reading = client.rw_lock("nested").read().with_owner(&me);
        let mut guards = Vec::new();
        for _ in 0..300 {
            guards.push(reading.acquire().await.unwrap());
        }
        let refused = reading.acquire().await.unwrap_err();
        assert!(
            matches!(refused, Error::InvalidOption { .. }),
            "{refused:?}"
        );
        assert!(refused.to_string().contains("300"), "{refused}");
        guards.pop().unwrap().release().await.unwrap();
        let again = reading.acquire().await;
        again
            .expect("there is room for one more")
            .release()
            .await
            .unwrap();
    });
}

#[test]
fn many_readers_cost_a_bounded_number_of_commands() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let crowd = "redis.call('HSET', KEYS[1], 'mode', 'read') \
        for i = 1, 20000 do \
            local owner = ARGV[1] .. ':' .. i \
            redis.call('HSET', KEYS[1], owner, 1) \
            if i % 2 == 0 then \
                redis.call('SET', '{' .. KEYS[1] .. '}:' .. owner .. ':rwlock_timeout:1', 1, 'PX', 600000) \
            end \
        end \
        redis.call('PEXPIRE', KEYS[1], 600000)";
        server.cmd(&["EVAL", crowd, "1", "crowd", &OWNER[..36]]);
        let calls =
            || ["pttl", "hdel", "hget", "hmget"].map(|command| server.commandstats(command));
        let before: u64 = calls().iter().sum();
        let lock = client.rw_lock("crowd");
        assert!(lock.write().try_acquire().await.unwrap().is_none());
        let reader = lock
            .read()
            .try_acquire()
            .await
            .unwrap()
            .expect("others read, too");
        reader.release().await.unwrap();
        let after: u64 = calls().iter().sum();
        assert!(after - before < 1000, "{} commands", after - before);
        assert!(client.admin().force_release("crowd").await.unwrap());
        assert_eq!(server.pttl("crowd"), -2);
    });
}

/// One foreign field among thousands is rarely part of a sample.
#[test]
fn many_readers_with_a_field_of_another_program_are_not_force_released() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let crowd = "redis.call('HSET', KEYS[1], 'mode', 'read', 'cursor', '7') \
        for i = 1, 5000 do redis.call('HSET', KEYS[1], ARGV[1] .. ':' .. i, 1) end";
        server.cmd(&["EVAL", crowd, "1", "crowd", &OWNER[..36]]);
        for _ in 0..5 {
            let forced = client.admin().force_release("crowd").await;
            assert!(matches!(forced, Err(Error::WrongKind { .. })), "{forced:?}");
        }
        assert_eq!(server.query::<u64>(&["HLEN", "crowd"]), 5002);
    });
}

#[test]
fn a_hold_replaced_by_another_hash_is_lost_and_the_hash_unchanged() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let lease = Lease::KeepAlive(Duration::from_secs(9));
        let both = client.rw_lock("replaced").read().with_lease(lease);
        let guard = both.acquire().await.unwrap();
        server.cmd(&["DEL", "replaced"]);
        server.cmd(&["HSET", "replaced", "mode", "read", "size", "1"]);
        let lost = tokio::time::timeout(PATIENCE, guard.lost()).await.unwrap();
        assert_eq!(lost.map(|lost| lost.reason), Some(LostReason::TakenOver));
        drop(guard);
        client.close().await.ok();
        assert_eq!(server.hgetall("replaced").len(), 2);
        assert_eq!(server.pttl("replaced"), -1);
    });
}

/// A count that another program wrote stopped the script in the middle of a batch.
#[test]
fn a_bad_count_costs_no_other_read_lock_its_renewal() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let lease = Lease::KeepAlive(Duration::from_secs(6));
        let read = |name: &str| client.rw_lock(name).read().with_lease(lease).acquire();
        let spoilt = read("spoilt").await.expect("it is free");
        let good = read("good").await.expect("it is free");
        server.cmd(&["HSET", "spoilt", &spoilt.owner(), "abc"]);
        let lost = tokio::time::timeout(PATIENCE, spoilt.lost()).await;
        lost.expect("the holder is notified");
        // It is renewed in the same call, or after it.
        assert!(good.is_held());
        assert!(server.pttl("good") > 0);
        good.release().await.expect("it is held");
    });
}

/// Only a sample of a large hash is checked first; other fields that are found later must not be taken for crashed readers.
#[test]
fn a_large_hash_with_owners_and_other_fields_is_unchanged() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let mut hset = vec!["HSET".to_owned(), "people".to_owned()];
        hset.extend(["mode", "read", "name", "Ann", "email", "ann@example.org"].map(String::from));
        for number in 0..399 {
            hset.push(format!("71b96ce8-2746-4c1e-9f3b-0a5c1c0f9c11:{number}"));
            hset.push("1".into());
        }
        let hset: Vec<_> = hset.iter().map(|word| &**word).collect();
        server.cmd(&hset);
        let before = content(&server, "people");
        for _ in 0..20 {
            // The call is refused, or finds the lock busy if the sample contained owners only.
            let _ = client.rw_lock("people").write().try_acquire().await;
        }
        assert_eq!(content(&server, "people"), before);
    });
}
