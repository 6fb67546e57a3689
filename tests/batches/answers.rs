//! Each caller gets its own reply, in a batch as alone; an error with one key reaches one caller.

use std::collections::BTreeMap;

use distlock::Error;
use tokio::task::{JoinSet, yield_now};

use super::PATIENCE;
use super::fixture::{BatchFixture, Call, becomes, begun, ended, gives, said};
use crate::support::{Fault, Match, RedisServer, Script, simulated, world};

#[test]
fn each_caller_gets_its_own_reply_and_never_that_of_another() {
    const ROUNDS: usize = 20;
    const MANY: usize = 60;
    simulated(async || {
        let fixture = BatchFixture::start().await;
        for round in 0..ROUNDS {
            let (mut calls, mut before) = (Vec::new(), Vec::new());
            for number in 0..MANY {
                let name = format!("{round}-{number}");
                let sort = world().below(3);
                if sort == 0 {
                    fixture.hold_as_stranger(&name);
                }
                calls.push(match sort {
                    1 => gives(fixture.hold(&name).await),
                    _ => fixture.tries(&name),
                });
                before.push((sort, fixture.holds(&name)));
            }
            let answers = fixture.together(calls).await;
            for ((name, got), (sort, before)) in answers.into_iter().zip(before) {
                match (sort, got.expect("the server answers")) {
                    (0, None) => assert_eq!(fixture.holds(&name), before),
                    (1, None) => assert!(fixture.holds(&name).is_empty(), "`{name}`"),
                    (2, Some(guard)) => {
                        assert_eq!(guard.name(), name);
                        assert_eq!(fixture.holds(&name), said(&guard));
                        guard.release().await.expect("it is ours");
                    }
                    (_, got) => panic!("`{name}` was {before:?}, and then {got:?}"),
                }
            }
        }
    });
}

#[test]
fn releases_are_sent_before_acquires() {
    simulated(async || {
        let fixture = BatchFixture::start().await;
        let (mut calls, mut giving) = (Vec::new(), Vec::new());
        for number in 0..5 {
            let name = format!("stock-{number}");
            giving.push(gives(fixture.hold(&name).await));
            // A try overtakes the queue of this client.
            calls.push(fixture.tries(&name));
        }
        calls.append(&mut giving);
        for (number, (name, answer)) in fixture.together(calls).await.into_iter().enumerate() {
            let guard = answer.expect("the server answers");
            assert_eq!(guard.is_some(), number < 5, "`{name}`");
        }
    });
}

#[test]
fn a_bad_key_of_any_kind_fails_only_its_own_caller() {
    /// A name and the command that makes it bad.
    const BAD: &[(&str, &[&str])] = &[
        ("text", &["SET", "text", "theirs"]),
        ("list", &["RPUSH", "list", "theirs"]),
        ("data", &["HSET", "data", "sku", "1"]),
        ("mark", &["SET", "distlock_undone:{mark}", "theirs"]),
        ("held", &["SET", "held", "theirs"]),
        ("held-in-line", &["SET", "held-in-line", "theirs"]),
    ];
    simulated(async || {
        let fixture = BatchFixture::start().await;
        let (mut calls, mut in_line) = (Vec::new(), Vec::new());
        for (number, (bad, command)) in BAD.iter().enumerate() {
            if bad.starts_with("held") {
                calls.push(gives(fixture.hold(bad).await));
                in_line.extend(bad.ends_with("line").then(|| begun(fixture.acquires(bad))));
                fixture.server.cmd(&["DEL", bad]);
            } else {
                calls.push(fixture.acquires(bad));
            }
            fixture.server.cmd(command);
            calls.push(fixture.acquires(&format!("good-{number}")));
        }
        for (name, answer) in fixture.together(calls).await {
            if !name.starts_with("good") {
                assert!(matches!(answer, Err(Error::WrongKind { .. })), "{name}");
                continue;
            }
            let guard = answer
                .expect("nothing is wrong with it")
                .expect("it is free");
            assert_eq!(fixture.holds(&name), said(&guard));
            assert!(fixture.server.pttl(&name) > 0, "{name} has no end");
            guard.release().await.expect("it is ours");
        }
    });
}

#[test]
fn denied_keys_fail_only_their_own_callers_even_if_the_network_fails_then() {
    const NAMES: [&str; 7] = [
        "ok-held",
        "ok-held-too",
        "ok-1",
        "not-1",
        "ok-2",
        "not-2",
        "ok-3",
    ];
    simulated(async || {
        // Every call of such a batch is retried by itself: the fault hits one of them, from the first to the last.
        for (harmed, fault) in [
            ("", Fault::DuplicateRequest),
            ("ok-held", Fault::CutAfter),
            ("ok-held", Fault::CutBefore),
            ("not-held", Fault::CutAfter),
            ("ok-held-too", Fault::HoldReply),
            ("ok-1", Fault::HoldReply),
            ("ok-2", Fault::HoldRequest),
            ("not-2", Fault::HoldReply),
            ("ok-3", Fault::DuplicateRequest),
            ("ok-3", Fault::CutAfter),
        ] {
            let fixture = worker().await;
            fixture
                .server
                .cmd(&["ACL", "SETUSER", "worker", "~not-held"]);
            let mut calls = Vec::new();
            for name in ["ok-held", "not-held", "ok-held-too"] {
                calls.push(gives(fixture.hold(name).await));
            }
            fixture
                .server
                .cmd(&[&["ACL", "SETUSER", "worker", "resetkeys"], KEYS].concat());
            calls.extend(NAMES[2..].iter().map(|name| fixture.acquires(name)));
            let calls = fixture.start_call(calls).await;
            // The rule does not match the batch itself, which has arrived already.
            let alone = Match::command("EVALSHA").arg(3, harmed);
            fixture.proxy.rule(alone.nth(1), fault);
            fixture.proxy.partition(false);
            let mut guards = BTreeMap::new();
            for (name, answer) in ended(calls).await {
                match answer {
                    Ok(guard) => {
                        assert!(name.starts_with("ok"), "{fault:?}: {name}");
                        guards.extend(guard.map(|guard| (name, guard)));
                    }
                    Err(Error::PermissionDenied { .. }) => {
                        assert!(name.starts_with("not"), "{fault:?}: {name}");
                    }
                    Err(Error::Timeout { .. } | Error::Unavailable { .. })
                        if !harmed.is_empty() => {}
                    Err(error) => panic!("{fault:?}: {name}: {error}"),
                }
            }
            if fault == Fault::DuplicateRequest {
                assert_eq!(guards.len(), 3, "those we may touch are ours");
            }
            let faults = fixture.proxy.injected().len();
            assert_eq!(faults, usize::from(!harmed.is_empty()), "{fault:?}");
            fixture.settle(&NAMES, &guards).await;
        }
    });
}

#[test]
fn callers_dropped_while_calls_are_sent_one_by_one_leave_nothing_behind() {
    simulated(async || {
        let fixture = worker().await;
        let names = ["ok-1", "not-1", "ok-2", "ok-3", "not-2", "ok-4"];
        let calls = names.map(|name| fixture.acquires(name)).into();
        let calls = fixture.start_call(calls).await;
        let alone = Match::words(|words| Script::Acquire.runs(words)).arg(3, "ok-2");
        fixture.proxy.rule(alone.nth(1), Fault::HoldReply);
        // The rule does not match the batch itself, which has arrived already.
        fixture.proxy.partition(false);
        becomes("they are made one by one", || {
            fixture.proxy.injected().len() == 1
        })
        .await;
        // One call already has a reply at this point.
        calls.into_iter().for_each(|call| call.abort());
        fixture.settle(&names, &BTreeMap::new()).await;
        let guard = fixture.hold("ok-3").await;
        assert_eq!(fixture.holds("ok-3"), said(&guard));
    });
}

/// Returns a client that may touch only `ok-…`.
async fn worker() -> BatchFixture {
    let server = RedisServer::start();
    let user = ["ACL", "SETUSER", "worker", "on", ">secret", "+@all", "&*"];
    server.cmd(&[&user, KEYS].concat());
    BatchFixture::with(server, "worker:secret@", PATIENCE / 8).await
}

const KEYS: &[&str] = &["~ok-*", "~first", "~distlock*"];

#[test]
fn many_callers_need_few_calls_and_one_needs_two() {
    simulated(async || {
        let fixture = BatchFixture::start().await;
        let calls = || fixture.server.commandstats("evalsha");
        let before = calls();
        let guard = fixture.hold("one").await;
        guard.release().await.expect("it is ours");
        assert_eq!(calls() - before, 2);

        let before = calls();
        let mut cycles = JoinSet::new();
        for number in 0..256 {
            let lock = fixture.client.lock(format!("many-{number}"));
            cycles.spawn(async move {
                for _ in 0..10 {
                    let guard = lock.acquire().await.expect("it is free");
                    guard.release().await.expect("it is ours");
                }
            });
        }
        cycles.join_all().await;
        let calls = calls() - before;
        assert!(calls <= 256 * 10 * 2 / 16, "{calls} calls");
    });
}

#[test]
fn calls_queued_behind_calls_in_flight_are_batched_and_all_get_a_turn() {
    const CROWD: usize = 40;
    simulated(async || {
        let fixture = BatchFixture::start().await;
        let before = fixture.server.commandstats("evalsha");
        fixture.server.stop_process();
        let mut calls: Vec<Call> = Vec::new();
        for number in 0..CROWD {
            calls.push(begun(fixture.acquires(&format!("crowd-{number}"))));
            // Each call is sent, if it may be, before the next one comes.
            for _ in 0..10 {
                yield_now().await;
            }
        }
        fixture.server.continue_process();
        for call in calls {
            let (name, answer) = call.await;
            let guard = answer.expect("it gets a turn").expect("it is free");
            assert_eq!(guard.name(), name);
        }
        let calls = fixture.server.commandstats("evalsha") - before;
        assert!(calls <= CROWD as u64 / 2, "{calls} calls for {CROWD}");
    });
}
