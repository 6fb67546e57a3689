//! Each caller gets its own answer, in company as alone; trouble with one key is one caller's.

use std::collections::BTreeMap;

use distlock::{Error, Guard};

use super::PATIENCE;
use super::company::{Answer, Call, Company, ended, said};
use super::mix::begin;
use super::support::{Fault, Match, RedisServer, Script, SeededRng, eventually};

#[tokio::test]
async fn each_caller_gets_its_own_answer_and_never_a_neighbours() {
    let mut rng = SeededRng::from_env_or(0x6261_7463);
    let company = Company::start().await;
    for round in 0..ROUNDS {
        let mut ours = BTreeMap::new();
        let mut calls: Vec<Call<(String, Option<Guard>)>> = Vec::new();
        for number in 0..MANY {
            let name = format!("{round}-{number}");
            match rng.below(3) {
                0 => {
                    let theirs = format!("5b3e1d7c-0000-4000-8000-000000000000:{number}");
                    company.server.cmd(&["HSET", &name, &theirs, "1"]);
                    company.server.cmd(&["PEXPIRE", &name, "60000"]);
                }
                1 => drop(ours.insert(name.clone(), company.hold(&name).await)),
                _ => {}
            }
            let lock = company.client.lock(name.as_str());
            let held = ours.remove(&name);
            calls.push(Box::pin(async move {
                match held {
                    Some(guard) => guard.release().await.map(|()| (name, None)),
                    None => lock.try_acquire().await.map(|got| (name, got)),
                }
                .expect("the server answers")
            }));
        }
        let before: Vec<_> = (0..MANY)
            .map(|number| company.holds(&format!("{round}-{number}")))
            .collect();
        let answers = company.together(calls).await;
        for ((name, got), before) in answers.into_iter().zip(before) {
            let ours = before.keys().any(|owner| !owner.starts_with("5b3e1d7c-"));
            match got {
                Some(guard) => {
                    assert!(before.is_empty(), "`{name}` was {before:?}");
                    assert_eq!(guard.name(), name);
                    assert_eq!(company.holds(&name), said(&guard));
                    guard.release().await.expect("it is ours");
                }
                None if ours => assert!(company.holds(&name).is_empty(), "`{name}`"),
                None => {
                    assert!(!before.is_empty(), "`{name}` was free");
                    assert_eq!(company.holds(&name), before);
                }
            }
        }
    }
}

#[tokio::test]
async fn what_frees_a_lock_comes_before_what_takes_it() {
    let company = Company::start().await;
    let mut calls: Vec<Call<(String, Answer)>> = Vec::new();
    let mut giving: Vec<Call<(String, Answer)>> = Vec::new();
    for number in 0..5 {
        let name = format!("stock-{number}");
        let held = company.hold(&name).await;
        // Past the line of those who wait here.
        let taking = company.client.lock(name.as_str()).try_acquire();
        let again = name.clone();
        giving.push(Box::pin(async {
            (again, held.release().await.map(|()| None))
        }));
        calls.push(Box::pin(async { (name, taking.await) }));
    }
    calls.append(&mut giving);
    let answers = company.together(calls).await;
    let (taken, given) = answers.split_at(5);
    for (name, answer) in given {
        assert!(matches!(answer, Ok(None)), "{name}: {answer:?}");
    }
    for (name, answer) in taken {
        let Ok(Some(guard)) = answer else {
            panic!("`{name}` is given back in the same breath, but: {answer:?}");
        };
        assert_eq!(company.holds(name), said(guard));
    }
}

#[tokio::test]
async fn a_bad_key_of_any_sort_costs_only_its_own_caller_anything() {
    let company = Company::start().await;
    let mut names: Vec<String> = (0..8).map(|number| format!("good-{number}")).collect();
    for (at, (bad, command)) in BAD.iter().enumerate() {
        names.insert(2 * at, (*bad).to_owned());
        if !bad.contains("held") {
            company.server.cmd(command);
        }
    }
    let mut calls: Vec<Call<Answer>> = Vec::new();
    let mut in_line = Vec::new();
    for name in &names {
        if !name.contains("held") {
            let acquiring = company.acquire(name);
            calls.push(Box::pin(async { acquiring.await.map(Some) }));
            continue;
        }
        let held = company.hold(name).await;
        if name.contains("line") {
            let mut waiting = company.acquire(name);
            assert!(begin(waiting.as_mut()), "it is held");
            in_line.push(waiting);
        }
        let (_, command) = BAD.iter().find(|(bad, _)| bad == name).expect("a bad one");
        company.server.cmd(&["DEL", name]);
        company.server.cmd(command);
        calls.push(Box::pin(async { held.release().await.map(|()| None) }));
    }
    let answers = company.together(calls).await;
    for (name, answer) in names.iter().zip(answers) {
        match answer {
            Ok(Some(guard)) => {
                assert!(name.starts_with("good"), "{name}");
                assert_eq!(company.holds(name), said(&guard));
                assert!(company.server.pttl(name) > 0, "{name} has no end");
                guard.release().await.expect("it is ours");
            }
            Ok(None) => panic!("{name} was given back"),
            Err(error) => {
                assert!(!name.starts_with("good"), "{name}: {error}");
                assert!(matches!(error, Error::WrongKind { .. }), "{name}: {error}");
            }
        }
    }
}

/// A name and what makes it bad.
const BAD: &[(&str, &[&str])] = &[
    ("text", &["SET", "text", "theirs"]),
    ("list", &["RPUSH", "list", "theirs"]),
    ("data", &["HSET", "data", "sku", "1"]),
    ("mark", &["SET", "distlock_undone:{mark}", "theirs"]),
    ("held", &["SET", "held", "theirs"]),
    ("held-in-line", &["SET", "held-in-line", "theirs"]),
];

#[tokio::test]
async fn keys_we_may_not_touch_cost_only_their_own_callers_anything_even_if_the_network_fails_then()
{
    // Every call of such a batch is made again by itself: first to last, that is where the fault falls.
    for (harmed, fault) in [
        (None, Fault::DuplicateRequest),
        (Some("ok-held"), Fault::CutAfter),
        (Some("ok-held"), Fault::CutBefore),
        (Some("not-held"), Fault::CutAfter),
        (Some("ok-held-too"), Fault::HoldReply),
        (Some("ok-1"), Fault::HoldReply),
        (Some("ok-2"), Fault::HoldRequest),
        (Some("not-2"), Fault::HoldReply),
        (Some("ok-3"), Fault::DuplicateRequest),
        (Some("ok-3"), Fault::CutAfter),
    ] {
        let company = worker(|builder| builder.command_timeout(PATIENCE / 8)).await;
        company.server.cmd(&["ACL", "SETUSER", "worker", "~not-*"]);
        let mut kept = Vec::new();
        for name in ["ok-held", "not-held", "ok-held-too"] {
            kept.push((name, company.hold(name).await));
        }
        company
            .server
            .cmd(&[&["ACL", "SETUSER", "worker", "resetkeys"], KEYS].concat());
        let mut calls: Vec<Call<(String, Answer)>> = Vec::new();
        for (name, guard) in kept {
            calls.push(Box::pin(async move {
                (name.to_owned(), guard.release().await.map(|()| None))
            }));
        }
        for name in ["ok-1", "not-1", "ok-2", "not-2", "ok-3"] {
            let acquiring = company.acquire(name);
            calls.push(Box::pin(async move {
                (name.to_owned(), acquiring.await.map(Some))
            }));
        }
        let calls = company.set_off(calls).await;
        // The batch itself has arrived already.
        if let Some(name) = harmed {
            let alone = Match::command("EVALSHA").arg(3, name);
            company.proxy.rule(alone.nth(1), fault);
        }
        company.proxy.partition(false);
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
                Err(Error::Timeout { .. } | Error::Unavailable { .. }) if harmed.is_some() => {}
                Err(error) => panic!("{fault:?}: {name}: {error}"),
            }
        }
        if fault == Fault::DuplicateRequest {
            assert_eq!(guards.len(), 3, "those we may touch are ours");
        }
        let faults = usize::from(harmed.is_some());
        assert_eq!(company.proxy.injected().len(), faults, "{fault:?}");
        let settled = async || {
            for name in [
                "ok-held",
                "ok-held-too",
                "ok-1",
                "not-1",
                "ok-2",
                "not-2",
                "ok-3",
            ] {
                let said = guards.get(name).map(said).unwrap_or_default();
                company.becomes(name, &said).await;
            }
        };
        settled().await;
        company.proxy.let_go();
        // Behind whatever was let go.
        eventually(PATIENCE, "the network is whole", async || {
            company.client.lock("ok-last").try_acquire().await.is_ok()
        })
        .await;
        settled().await;
    }
}

#[tokio::test]
async fn callers_who_go_while_each_call_is_made_by_itself_leave_nothing_behind() {
    let company = worker(|builder| builder).await;
    let names = ["ok-1", "not-1", "ok-2", "ok-3", "not-2", "ok-4"];
    let calls = names.map(|name| company.acquire(name)).into_iter();
    let calls = company.set_off(calls.collect()).await;
    let alone = Match::words(|words| Script::Acquire.runs(words)).arg(3, "ok-2");
    company.proxy.rule(alone.nth(1), Fault::HoldReply);
    // Not the batch itself, which has arrived already.
    company.proxy.partition(false);
    eventually(PATIENCE, "they are made one by one", async || {
        company.proxy.injected().len() == 1
    })
    .await;
    calls.iter().for_each(tokio::task::JoinHandle::abort);
    for call in calls {
        drop(call.await);
    }
    company.proxy.let_go();
    for name in names {
        company.becomes(name, &BTreeMap::new()).await;
    }
    let guard = company.hold("ok-3").await;
    assert_eq!(company.holds("ok-3"), said(&guard));
}

/// A client that may touch nothing but `ok-…`.
async fn worker(build: impl FnOnce(distlock::ClientBuilder) -> distlock::ClientBuilder) -> Company {
    let server = RedisServer::start();
    let user = ["ACL", "SETUSER", "worker", "on", ">secret", "+@all", "&*"];
    server.cmd(&[&user, KEYS].concat());
    Company::on(server, "worker:secret@", build).await
}

const KEYS: &[&str] = &["~ok-*", "~first", "~distlock*"];
const ROUNDS: usize = 8;
const MANY: usize = 60;
