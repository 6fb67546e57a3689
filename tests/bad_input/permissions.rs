//! Users without some of the rights: the error names the missing one, and nothing is left behind.

use std::time::Duration;

use distlock::{Change, Client, Error, Lease, Lock};

use super::support::rights::user;
use super::support::{RedisServer, builder, eventually, rights, simulated};
use super::{IN_VAIN, PATIENCE, checked_message_of, connect};

/// Connects a client with all rights except those that these ACL rules deny.
async fn without(server: &RedisServer, rules: &[&str]) -> Client {
    connect(&user(server, rules)).await
}

/// Checks the error of a missing permission: it is typed, about this lock, and names what is missing.
pub(crate) fn assert_denied(error: Error, name: &str, missing: &str) {
    let error = checked_message_of(name, error);
    assert!(matches!(error, Error::PermissionDenied { .. }), "{error:?}");
    let text = error.to_string().to_lowercase();
    assert!(text.contains(missing), "`{missing}` is not in {text}");
    assert!(!error.is_transient());
}

async fn gone(server: &RedisServer, name: &str) {
    eventually(PATIENCE, &format!("`{name}` is free"), async || {
        !server.keys().contains(&name.to_owned())
    })
    .await;
}

#[test]
fn a_user_denied_scripts_gets_an_error_at_acquire() {
    simulated(async || {
        let server = RedisServer::start();
        for (rules, missing) in [
            (&["-evalsha", "-evalsha_ro"][..], "evalsha"),
            (&["-eval", "-eval_ro"], "eval"),
            (&["-@scripting"], "evalsha"),
        ] {
            // A server before 7.0 has no such commands, and refuses a rule about them.
            let is_known =
                |rule: &&str| !rule.ends_with("_ro") || server.knows(rule.trim_start_matches('-'));
            let rules: Vec<&str> = rules.iter().copied().filter(is_known).collect();
            let client = without(&server, &rules).await;
            let lock = client.lock("scripts");
            assert_denied(lock.acquire().await.unwrap_err(), "scripts", missing);
            assert_denied(lock.try_acquire().await.unwrap_err(), "scripts", missing);
            let inspected = client.admin().inspect("scripts").await;
            assert_denied(inspected.unwrap_err(), "scripts", missing);
        }
        assert_eq!(server.keys(), Vec::<String>::new());
    });
}

#[test]
fn a_user_denied_a_command_inside_a_script_gets_an_error_at_acquire() {
    simulated(async || {
        let server = RedisServer::start();
        for command in ["hset", "pexpire", "exists"] {
            let client = without(&server, &[&format!("-{command}")]).await;
            let lock = client
                .lock(command)
                .with_lease(Lease::Fixed(Duration::from_secs(600)));
            assert_denied(lock.acquire().await.unwrap_err(), command, "command");
            // All effects of the script before it was stopped are undone.
            gone(&server, command).await;
        }
    });
}

#[test]
fn a_user_denied_the_key_gets_an_error_at_acquire() {
    simulated(async || {
        let server = RedisServer::start();
        let client = without(&server, &["resetkeys", "~mine:*"]).await;
        assert_denied(
            client.lock("theirs").acquire().await.unwrap_err(),
            "theirs",
            "key",
        );
        let admin = client.admin();
        assert_denied(admin.inspect("theirs").await.unwrap_err(), "theirs", "key");
        assert_denied(
            admin.force_release("theirs").await.unwrap_err(),
            "theirs",
            "key",
        );
        assert_eq!(server.keys(), Vec::<String>::new());
    });
}

#[test]
fn a_user_denied_publish_gets_an_error_at_release_and_the_lock_is_free() {
    simulated(async || {
        let server = RedisServer::start();
        let cases: [(&[&str], &str); 2] = [
            (&["-publish"], "command"),
            (&["resetchannels", "&other"], "channel"),
        ];
        for (rules, missing) in cases {
            let client = without(&server, rules).await;
            let guard = client.lock("publish").acquire().await.unwrap();
            assert_eq!(server.keys(), ["publish"]);
            assert_denied(guard.release().await.unwrap_err(), "publish", missing);
            gone(&server, "publish").await;
            // A dropped guard cannot report an error; the lock must become free all the same.
            let guard = client.lock("publish").acquire().await.unwrap();
            assert_eq!(server.keys(), ["publish"]);
            drop(guard);
            gone(&server, "publish").await;
            // And the next waiter must not wait for a message that never comes.
            let guard = client.lock("publish").acquire().await.unwrap();
            let waiting = tokio::spawn(client.lock("publish").try_acquire());
            assert!(waiting.await.unwrap().unwrap().is_none());
            let next = tokio::spawn(client.lock("publish").acquire());
            tokio::task::yield_now().await;
            drop(guard);
            let next = tokio::time::timeout(PATIENCE, next).await.unwrap().unwrap();
            drop(next.unwrap());
            gone(&server, "publish").await;
        }
    });
}

#[test]
fn a_user_denied_deletion_gets_an_error_at_release_and_the_lease_expires() {
    simulated(async || {
        let server = RedisServer::start();
        let client = without(&server, &["-hdel"]).await;
        let lease = Lease::KeepAlive(Duration::from_secs(6));
        let guard = client
            .lock("delete")
            .with_lease(lease)
            .acquire()
            .await
            .unwrap();
        assert_denied(guard.release().await.unwrap_err(), "delete", "command");
        // The lock is not renewed any more.
        gone(&server, "delete").await;
    });
}

#[test]
fn a_user_denied_subscriptions_gets_an_error_when_it_has_to_wait() {
    simulated(async || {
        let server = RedisServer::start();
        let holder = connect(&server.url()).await;
        let held = holder.lock("listen").acquire().await.unwrap();
        let cases: [(&[&str], &str); 2] = [
            (&["-subscribe"], "subscribe"),
            (&["resetchannels", "&other"], "channel"),
        ];
        for (rules, missing) in cases {
            let client = without(&server, rules).await;
            let lock = client.lock("listen");
            assert!(lock.try_acquire().await.unwrap().is_none());
            let waiting = tokio::time::timeout(PATIENCE, lock.acquire()).await;
            assert_denied(waiting.expect("it is told").unwrap_err(), "listen", missing);
            // A waiter in poll mode needs no right to subscribe.
            let polling = lock.with_wait(distlock::Wait::Poll(distlock::Backoff::default()));
            let waited = polling.acquire_timeout(IN_VAIN).await;
            // On a busy machine the reply may be missing when the wait limit is reached.
            let in_vain = matches!(waited, Ok(None) | Err(Error::Timeout { .. }));
            assert!(in_vain, "{waited:?}");
        }
        held.release().await.unwrap();
    });
}

#[test]
fn a_holder_whose_rights_are_revoked_is_notified_in_time() {
    simulated(async || {
        let server = RedisServer::start();
        server.cmd(&[
            "ACL", "SETUSER", "once", "on", ">secret", "~*", "&*", "+@all",
        ]);
        let client = connect(&format!("redis://once:secret@127.0.0.1:{}/", server.port())).await;
        let lease = Lease::KeepAlive(Duration::from_secs(9));
        let guard = client
            .lock("once")
            .with_lease(lease)
            .acquire()
            .await
            .unwrap();
        server.cmd(&["ACL", "SETUSER", "once", "-evalsha"]);
        eventually(PATIENCE, "it is warned", async || guard.at_risk().is_some()).await;
        assert!(guard.is_held(), "at risk, not lost");
        let lost = tokio::time::timeout(PATIENCE, guard.lost()).await.unwrap();
        assert!(lost.is_some());
        assert!(!guard.is_held());
    });
}

#[test]
fn a_user_with_only_the_required_rights_can_do_everything() {
    simulated(async || {
        let commands = rights::commands();
        can_do_everything(&commands, "", |client| client.lock("needed")).await;
    });
}

#[test]
fn a_user_with_the_rights_of_simple_locks_can_use_them() {
    simulated(async || {
        let commands = [rights::commands(), rights::of_simple_locks()].concat();
        can_do_everything(&commands, "", |client| client.simple_lock("needed")).await;
    });
}

#[test]
fn a_user_with_the_rights_of_fenced_locks_can_use_them() {
    simulated(async || {
        let with_scripts = rights::of_fenced_locks();
        for (plain, fenced, parameters) in [
            (rights::commands(), with_scripts, ""),
            (rights::without_scripts(), Vec::new(), "?scripts=off"),
        ] {
            let rules = [plain, fenced, vec!["~redisson_lock_token:*"]].concat();
            can_do_everything(&rules, parameters, |client| client.fenced_lock("needed")).await;
        }
    });
}

#[test]
fn a_user_denied_the_token_counter_gets_an_error_and_holds_nothing() {
    simulated(async || {
        let server = RedisServer::start();
        for parameters in ["", "?scripts=off"] {
            let address = user(&server, &["resetkeys", "~stock", "~distlock_undone:*"]);
            let client = connect(&(address + parameters)).await;
            let refused = client.fenced_lock("stock").acquire().await.unwrap_err();
            assert_denied(refused, "stock", "key");
            assert_eq!(server.keys(), Vec::<String>::new());
            // A plain lock has no token.
            let plain = client.lock("stock").acquire().await.unwrap();
            plain.release().await.unwrap();
        }
    });
}

#[test]
fn a_user_with_the_rights_without_scripts_can_use_locks() {
    simulated(async || {
        let commands = rights::without_scripts();
        assert!(!commands.iter().any(|command| command.contains("eval")));
        can_do_everything(&commands, "?scripts=off", |client| client.lock("needed")).await;
        can_do_everything(&commands, "?scripts=off", |client| {
            client.simple_lock("needed")
        })
        .await;
    });
}

/// Runs everything that can be done with one lock, by users with these commands only.
pub(crate) async fn can_do_everything<K: 'static>(
    commands: &[&str],
    parameters: &str,
    needed: impl Fn(&Client) -> Lock<K>,
) {
    let server = RedisServer::start();
    let mut rules = vec!["resetkeys", "resetchannels", "-@all"];
    rules.extend(commands);
    rules.extend(["~needed", "~distlock_undone:*", "&redisson_lock__channel:*"]);
    let address = || user(&server, &rules) + parameters;
    let (first, second) = (connect(&address()).await, connect(&address()).await);
    let me = first.new_owner();
    let lock = needed(&first).with_owner(&me);
    let lock = lock.with_lease(Lease::KeepAlive(Duration::from_secs(6)));
    let (outer, inner) = (lock.acquire().await.unwrap(), lock.acquire().await.unwrap());
    let waiting = tokio::spawn(needed(&second).acquire());
    eventually(PATIENCE, "it waits", async || {
        !server.pubsub_channels().is_empty()
    })
    .await;
    let till = outer.valid_until() + Duration::from_secs(3);
    eventually(PATIENCE, "it is renewed", async || {
        assert!(outer.is_held());
        outer.valid_until() > till && outer.at_risk().is_none()
    })
    .await;
    assert!(first.admin().inspect("needed").await.unwrap().is_some());
    inner.release().await.unwrap();
    outer.release().await.unwrap();
    let next = tokio::time::timeout(PATIENCE, waiting)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert!(first.admin().force_release("needed").await.unwrap());
    drop(next);
    // Cancelled before the reply.
    let cancelled = tokio::spawn(needed(&first).acquire());
    cancelled.abort();
    let _ = cancelled.await;
    gone(&server, "needed").await;
}

/// A label and a listing need a few more rights.
#[test]
fn a_user_with_the_rights_of_labels_and_lists_can_use_them() {
    simulated(async || {
        let server = RedisServer::start();
        let mut rules = vec!["resetkeys", "-@all", "+scan"];
        rules.extend(rights::commands());
        rules.extend(rights::of_labels());
        rules.extend(["~needed", "~distlock_undone:*", "~distlock_client:*"]);
        let mut words = vec!["ACL", "SETUSER", "operator", "on", ">secret", "&*"];
        words.extend(rules);
        server.cmd(&words);
        let url = format!("redis://operator:secret@127.0.0.1:{}/", server.port());
        let client = builder(&url).label("billing").connect().await;
        let client = client.unwrap();
        let guard = client.lock("needed").acquire().await.unwrap();
        eventually(PATIENCE, "its label is seen", async || {
            let listed = client.admin().list("*").await.unwrap();
            assert_eq!(listed.len(), 1);
            listed[0].holders[0].label.as_deref() == Some("billing")
        })
        .await;
        guard.release().await.unwrap();
        client.close().await.unwrap();
        assert_eq!(server.keys(), Vec::<String>::new());
    });
}

#[test]
fn a_user_denied_pattern_subscriptions_can_still_watch() {
    simulated(async || {
        let server = RedisServer::start();
        let rules = ["resetchannels", "&redisson_lock__channel:{stock}"];
        for rules in [&rules[..], &["-psubscribe"]] {
            let client = without(&server, rules).await;
            let mut watch = client.admin().watch("*");
            let held = client.lock("stock").acquire().await.expect("it is free");
            let mut next = async || {
                let next = tokio::time::timeout(PATIENCE, watch.next()).await;
                let event = next.expect("in time").expect("it may look");
                (event.owner, event.change)
            };
            let owner = Some(held.owner());
            assert_eq!(next().await, (owner.clone(), Change::Held));
            held.release().await.expect("it is ours");
            assert_eq!(next().await, (owner, Change::Released));
        }
    });
}

#[test]
fn a_user_with_only_the_required_rights_is_notified_of_every_release() {
    simulated(async || {
        let server = RedisServer::start();
        let rules = ["-ping", "resetchannels", "&redisson_lock__channel:*"];
        let client = without(&server, &rules).await;
        let mark = client
            .lock("stock mark")
            .acquire()
            .await
            .expect("it is free");
        let mut watch = client.admin().watch("stock*");
        let held = watch.next().await.expect("it may look");
        assert_eq!(held.owner, Some(mark.owner()));
        let mut next = async || {
            let next = tokio::time::timeout(PATIENCE, watch.next()).await;
            let event = next.expect("in time").expect("it may look");
            (event.owner, event.change)
        };
        for _ in 0..3 {
            let held = client.lock("stock").acquire().await.expect("it is free");
            let owner = Some(held.owner());
            assert_eq!(next().await, (owner.clone(), Change::Granted));
            held.release().await.expect("it is ours");
            assert_eq!(next().await, (owner, Change::Released));
        }
    });
}
