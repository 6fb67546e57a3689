//! Names that differ by braces alone (`x`, `{x}`): Redisson derives the same auxiliary keys from both.

use std::collections::BTreeMap;
use std::time::Duration;

use distlock::{Client, Error, Lease};
use redis::Value;

use super::support::{RedisServer, builder, eventually, simulated};
use super::{PATIENCE, checked_message, connect};

/// Every kind whose auxiliary keys would be shared.
const KINDS: [&str; 5] = ["fair", "read", "write", "semaphore", "counting"];

#[test]
fn a_name_with_the_auxiliary_keys_of_another_is_rejected_while_that_one_exists() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        for (first, second) in [("x", "{x}"), ("{x}", "x")] {
            for kind in KINDS {
                hold(&client, kind, first).await.expect("it is free");
                let before = contents(&server);
                for other in KINDS {
                    let refused = hold(&client, other, second).await;
                    let refused =
                        checked_message(refused.expect_err("its auxiliary keys are shared"));
                    assert!(
                        matches!(refused, Error::WrongKind { .. }),
                        "{kind}, then {other}: {refused:?}"
                    );
                    let text = refused.to_string();
                    let named = [first, second].map(|name| text.contains(&format!("`{name}`")));
                    assert_eq!(named, [true; 2], "{text}");
                    assert_eq!(contents(&server), before, "{kind}, then {other}");
                }
                server.flushall();
                hold(&client, kind, second).await.expect("it is free");
                server.flushall();
            }
        }
    });
}

/// The raw keys count: the other client has no prefix.
#[test]
fn a_key_prefix_is_part_of_the_name_that_is_compared() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let builder = builder(&server.url()).key_prefix("app:");
        let prefixed = builder.command_timeout(PATIENCE).connect().await;
        let prefixed = prefixed.expect("the server is up");
        for kind in KINDS {
            hold(&prefixed, kind, "x").await.expect("it is free");
            let refused = hold(&client, kind, "{app:x}").await;
            assert!(matches!(refused, Err(Error::WrongKind { .. })), "{kind}");
            hold(&client, kind, "x").await.expect("another key");
            server.flushall();
            hold(&client, kind, "{app:x}").await.expect("it is free");
            let refused = hold(&prefixed, kind, "x").await;
            assert!(matches!(refused, Err(Error::WrongKind { .. })), "{kind}");
            server.flushall();
        }
    });
}

/// A query for `{y}` does not report the permits of `y`, and a number is not set where it could not be used.
#[test]
fn permits_are_reported_for_the_name_that_has_a_number() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let (plain, braced) = (client.semaphore("y"), client.semaphore("{y}"));
        plain.set_total(2).await.expect("it is new");
        let _permit = plain.permit().acquire().await.expect("two are free");
        let refused = braced.count().await;
        assert!(
            matches!(refused, Err(Error::WrongKind { .. })),
            "{refused:?}"
        );
        assert!(
            client
                .admin()
                .inspect("{y}")
                .await
                .expect("it is up")
                .is_none()
        );
        let refused = braced.try_set(1).await;
        assert!(
            matches!(refused, Err(Error::WrongKind { .. })),
            "{refused:?}"
        );
        let count = plain.count().await.expect("it is up");
        assert_eq!((count.available, count.out), (1, 1));
    });
}

/// A permit of `y` that expires is not one of `{y}`, although both are made by another program.
#[test]
fn two_semaphores_that_share_their_permits_add_no_permit() {
    simulated(async || {
        const AGE: &str = "
        local permits = redis.call('ZRANGE', KEYS[1], 0, -1)
        redis.call('ZADD', KEYS[1], 1763463000123, permits[1])
        return #permits";
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let (plain, braced) = (client.semaphore("y"), client.semaphore("{y}"));
        plain.set_total(1).await.expect("it is new");
        let refused = braced.set_total(1).await;
        assert!(
            matches!(refused, Err(Error::WrongKind { .. })),
            "{refused:?}"
        );
        let lease = Lease::Fixed(Duration::from_secs(600));
        let permit = plain.permit().with_lease(lease).acquire().await;
        permit.expect("there is one").forget();
        server.cmd(&["SET", "{y}", "1"]);
        // The lease expired long ago.
        assert_eq!(server.query::<i64>(&["EVAL", AGE, "1", "{y}:timeout"]), 1);
        for semaphore in [&braced, &plain] {
            let refused = semaphore.permit().try_acquire().await;
            assert!(matches!(refused, Err(Error::WrongKind { .. })));
        }
        assert_eq!(server.query::<i64>(&["GET", "{y}"]), 1);
        assert_eq!(server.query::<i64>(&["GET", "y"]), 0);
    });
}

/// Java has set both numbers, and a permit of `{y}` is late: no operation on `y` gains that permit.
#[test]
fn no_operation_takes_a_late_permit_of_the_other_name() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await;
        let semaphore = client.semaphore("y");
        let lease = Lease::Fixed(Duration::from_secs(600));
        for way in [
            "extended",
            "released",
            "dropped",
            "by its id",
            "forced",
            "deleted",
        ] {
            semaphore.set_total(2).await.expect("it is new");
            let permit = semaphore.permit().with_lease(lease);
            let held = permit.acquire().await.expect("there are two");
            server.cmd(&["SET", "{y}", "0"]);
            server.cmd(&["ZADD", "{y}:timeout", "1763463000123", "0123456789abcdef"]);
            let available = || server.query::<i64>(&["GET", "y"]);
            let mut after = 1;
            match way {
                "extended" => {
                    let extended = held.extend(Duration::from_secs(900)).await;
                    extended.expect("it is held");
                }
                "released" => {
                    held.release().await.expect("it is held");
                    after = 2;
                }
                "dropped" => {
                    drop(held);
                    after = 2;
                    eventually(PATIENCE, "it is given back", async || available() == 2).await;
                }
                _ => {
                    let refused = match way {
                        "by its id" => semaphore.release(held.permit_ids()[0]).await.map(drop),
                        "forced" => client.admin().force_release("y").await.map(drop),
                        _ => semaphore.delete().await.map(drop),
                    };
                    let refused = refused.expect_err("the permits may be the other's");
                    assert!(
                        matches!(refused, Error::WrongKind { .. }),
                        "{way}: {refused:?}"
                    );
                }
            }
            assert_eq!(available(), after, "{way}");
            assert_eq!(server.query::<i64>(&["GET", "{y}"]), 0, "{way}");
            let late =
                server.query::<Option<String>>(&["ZSCORE", "{y}:timeout", "0123456789abcdef"]);
            assert!(late.is_some(), "{way}");
            server.flushall();
        }
    });
}

/// Makes a lock, a semaphore or a counter of this kind, and leaves it.
async fn hold(client: &Client, kind: &str, name: &str) -> Result<(), Error> {
    let lease = Lease::Fixed(Duration::from_secs(600));
    match kind {
        "fair" => {
            let lock = client.fair_lock(name).with_lease(lease);
            let taken = lock.try_acquire().await?;
            taken.expect("nobody else has it").forget();
        }
        "read" => {
            let lock = client.rw_lock(name).read().with_lease(lease);
            let taken = lock.try_acquire().await?;
            taken.expect("nobody else has it").forget();
        }
        "write" => {
            let lock = client.rw_lock(name).write().with_lease(lease);
            let taken = lock.try_acquire().await?;
            taken.expect("nobody else has it").forget();
        }
        "semaphore" => {
            let permits = client.semaphore(name).with_permits(2).permits(1);
            let taken = permits.with_lease(lease).try_acquire().await?;
            taken.expect("there are two").forget();
        }
        _ => {
            client.counting_semaphore(name).try_set(2).await?;
        }
    }
    Ok(())
}

/// Returns every key with its content, except tombstones of undone requests.
fn contents(server: &RedisServer) -> BTreeMap<String, Vec<Value>> {
    let mut keys = server.keys();
    keys.retain(|key| !key.starts_with("distlock_undone:"));
    let keys = keys.into_iter();
    keys.map(|key| {
        let contents = server.contents(&key);
        (key, contents)
    })
    .collect()
}
