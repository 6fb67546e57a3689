//! A server in trouble: no memory, no scripts, no right to do something, no writing.

use std::collections::BTreeMap;

use distlock::Error;

use super::PATIENCE;
use super::company::{Answer, Call, Company, ended, said};
use super::mix::begin;
use super::support::batch::is_batch;
use super::support::{Fault, Match, RedisServer, eventually};

#[tokio::test]
async fn trouble_is_the_same_in_company_as_alone() {
    let forbid = |right: &'static [&'static str]| {
        move |server: &RedisServer| {
            drop(server.cmd(&[&["ACL", "SETUSER", "worker"], right].concat()))
        }
    };
    let troubles: [Trouble<'_>; 6] = [
        ("no memory", &|server| server.config_set("maxmemory", "1")),
        ("no replicas", &|server| {
            server.config_set("min-replicas-to-write", "3")
        }),
        ("a replica", &|server| {
            drop(server.cmd(&["REPLICAOF", "127.0.0.1", "1"]))
        }),
        ("no ends", &forbid(&["-pexpire"])),
        ("no messages", &forbid(&["resetchannels"])),
        ("no scripts", &forbid(&["-evalsha", "-eval"])),
    ];
    for (trouble, make) in troubles {
        let server = RedisServer::start();
        let user = "ACL SETUSER worker on >secret +@all ~* &*";
        server.cmd(&user.split(' ').collect::<Vec<_>>());
        let company = Company::on(server, "worker:secret@", |builder| builder).await;
        let mut held = Vec::new();
        for name in ["give-alone", "give-1", "give-2"] {
            held.push(company.hold(name).await);
        }
        make(&company.server);
        let mut calls: Vec<Call<Answer>> = Vec::new();
        for name in ["take-alone", "take-1", "take-2"] {
            let acquiring = company.client.lock(name).try_acquire();
            calls.push(Box::pin(acquiring));
        }
        for guard in held {
            calls.push(Box::pin(async { guard.release().await.map(|()| None) }));
        }
        let (take_alone, give_alone) = (calls.remove(0), calls.remove(2));
        let alone = (take_alone.await, give_alone.await);
        let answers = company.together(calls).await;
        // Behind one that frees, a server short of memory lets others through.
        let exempt = trouble == "no memory";
        for (answer, alone) in answers.iter().zip([&alone.0, &alone.0, &alone.1, &alone.1]) {
            let same = kind(answer) == kind(alone);
            let granted = exempt && matches!(answer, Ok(Some(_)));
            assert!(
                same || granted,
                "{trouble}: {answer:?}, but alone {alone:?}"
            );
        }
        eprintln!("{trouble}: {:?} and {:?}", kind(&alone.0), kind(&alone.1));
        // Whatever was refused in the middle is taken back as soon as it can be.
        company.server.cmd(&["REPLICAOF", "NO", "ONE"]);
        company.server.config_set("maxmemory", "0");
        company.server.config_set("min-replicas-to-write", "0");
        let user = "ACL SETUSER worker +@all ~* &*";
        company.server.cmd(&user.split(' ').collect::<Vec<_>>());
        let given = !matches!(alone.1, Err(Error::PermissionDenied { .. }));
        drop((answers, alone));
        for name in NAMES {
            // What may not be given back stays for its lease.
            if given || name.starts_with("take") {
                company.becomes(name, &BTreeMap::new()).await;
            }
        }
    }
}

#[tokio::test]
async fn a_server_that_dies_with_a_batch_under_way_leaves_nothing_behind() {
    let company = Company::start().await;
    let held = company.hold("give-1").await;
    let mut calls: Vec<Call<Answer>> = Vec::new();
    for name in ["take-1", "take-2"] {
        calls.push(Box::pin(company.client.lock(name).try_acquire()));
    }
    calls.push(Box::pin(async { held.release().await.map(|()| None) }));
    let calls = company.set_off(calls).await;
    company.server.kill();
    company.proxy.partition(false);
    for answer in ended(calls).await {
        let error = answer.expect_err("nobody is there to answer");
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    }
    company.server.restart();
    // It has forgotten everything, and what was under way comes to nothing.
    for name in ["take-1", "take-2", "give-1"] {
        eventually(PATIENCE, "it can be had again", async || {
            company.client.lock(name).try_acquire().await.is_ok()
        })
        .await;
        company.becomes(name, &BTreeMap::new()).await;
    }
}

const NAMES: [&str; 6] = [
    "take-alone",
    "take-1",
    "take-2",
    "give-alone",
    "give-1",
    "give-2",
];

/// A name, and what makes it.
type Trouble<'a> = (&'a str, &'a dyn Fn(&RedisServer));

/// What a call came to, without the names in it.
fn kind(answer: &Answer) -> String {
    match answer {
        Ok(guard) => format!("{}", guard.is_some()),
        Err(error) => {
            let text = error.to_string();
            NAMES
                .iter()
                .fold(text, |text, name| text.replace(name, "…"))
        }
    }
}

#[tokio::test]
async fn without_memory_each_call_of_a_batch_is_answered_rightly() {
    for frees in [false, true] {
        let company = Company::start().await;
        let nested = company.client.new_owner();
        let nested = company.client.lock("nested").with_owner(&nested);
        let in_part = company.client.new_owner();
        let in_part = company.client.lock("in-part").with_owner(&in_part);
        let mut kept = vec![nested.acquire().await.unwrap()];
        kept.push(in_part.acquire().await.unwrap());
        let second = in_part.acquire().await.unwrap();
        let (given, passed) = (company.hold("given").await, company.hold("passed").await);
        let mut next = company.acquire("passed");
        assert!(begin(next.as_mut()), "it is held");
        let theirs = "5b3e1d7c-0000-4000-8000-000000000000:1";
        company.server.cmd(&["HSET", "busy", theirs, "1"]);
        company.server.cmd(&["PEXPIRE", "busy", "60000"]);
        company.server.config_set("maxmemory", "1");

        let mut calls: Vec<Call<(&str, Answer)>> = Vec::new();
        for name in ["free-1", "busy", "free-2"] {
            let taking = company.client.lock(name).try_acquire();
            calls.push(Box::pin(async move { (name, taking.await) }));
        }
        if frees {
            let again = nested.try_acquire();
            calls.push(Box::pin(async { ("nested", again.await) }));
            for (name, guard) in [("in-part", second), ("given", given), ("passed", passed)] {
                let giving = async move { (name, guard.release().await.map(|()| None)) };
                calls.push(Box::pin(giving));
            }
        } else {
            kept.extend([second, given, passed]);
        }
        for (name, answer) in company.together(calls).await {
            match (name, answer) {
                ("free-1" | "free-2", Err(Error::OutOfMemory { .. })) => {
                    assert!(company.holds(name).is_empty(), "{name}");
                }
                ("nested", Ok(Some(guard))) => {
                    assert_eq!(company.holds(name), said(&guard));
                    assert_eq!(guard.hold_count(), 2);
                    kept.push(guard);
                }
                ("free-1" | "free-2", Ok(Some(guard))) if frees => {
                    assert_eq!(company.holds(name), said(&guard));
                    assert!(company.server.pttl(name) > 0, "{name} has no end");
                    kept.push(guard);
                }
                ("busy", Ok(None)) => {}
                ("in-part" | "given" | "passed", Ok(None)) => {}
                (name, answer) => panic!("{name}: {answer:?}"),
            }
        }
        if frees {
            assert_eq!(company.holds("in-part"), said(&kept[1]));
            assert!(company.holds("given").is_empty());
            let next = tokio::time::timeout(PATIENCE, next).await;
            let next = next.expect("it gets its turn").expect("it was passed on");
            assert_eq!(company.holds("passed"), said(&next));
        }
        for guard in kept {
            guard.release().await.expect("giving back needs no memory");
        }
    }
}

#[tokio::test]
async fn a_server_that_has_forgotten_its_scripts_answers_a_batch_all_the_same() {
    for (nth, fault) in [
        // The batch by its hash, which the server does not know, then by its text.
        (1, Fault::CutAfter),
        (1, Fault::HoldReply),
        (2, Fault::CutAfter),
        (2, Fault::CutBefore),
        (2, Fault::DuplicateRequest),
        (2, Fault::HoldReply),
        (2, Fault::HoldRequest),
        (3, Fault::CutAfter),
    ] {
        let company = Company::on(RedisServer::start(), "", |builder| {
            builder.command_timeout(PATIENCE / 8)
        });
        let company = company.await;
        let batch = Match::words(is_batch);
        company.proxy.rule(batch.nth(nth), fault);
        let (given, passed) = (company.hold("given").await, company.hold("passed").await);
        let mut next = company.acquire("passed");
        assert!(begin(next.as_mut()), "it is held");
        let mut calls: Vec<Call<(&str, Answer)>> = Vec::new();
        for name in ["free-1", "free-2", "free-3"] {
            let taking = company.acquire(name);
            calls.push(Box::pin(async move { (name, taking.await.map(Some)) }));
        }
        for (name, guard) in [("given", given), ("passed", passed)] {
            let giving = async move { (name, guard.release().await.map(|()| None)) };
            calls.push(Box::pin(giving));
        }
        let calls = company.set_off(calls).await;
        company.server.script_flush();
        company.proxy.partition(false);
        let mut guards = BTreeMap::new();
        for (name, answer) in ended(calls).await {
            match answer {
                Ok(guard) => guards.extend(guard.map(|guard| (name, guard))),
                Err(Error::Timeout { .. } | Error::Unavailable { .. }) if nth < 3 => {
                    assert_ne!(fault, Fault::DuplicateRequest);
                }
                Err(error) => panic!("{fault:?}: {name}: {error}"),
            }
        }
        if nth == 3 {
            assert_eq!(guards.len(), 3, "nothing went wrong");
            assert_eq!(company.batches(), [5, 5], "by hash, then by text");
        } else {
            // What is doubled is noted when the second has gone, too.
            let what = format!("{fault:?} comes to pass");
            eventually(PATIENCE, &what, async || {
                company.proxy.injected().len() == 1
            })
            .await;
        }
        let next = tokio::time::timeout(PATIENCE, next).await;
        match next.expect("it gets its turn") {
            Ok(guard) => drop(guards.insert("passed", guard)),
            Err(Error::Timeout { .. } | Error::Unavailable { .. }) if nth < 3 => {}
            Err(error) => panic!("{fault:?}: {error}"),
        }
        let settled = async || {
            for name in ["free-1", "free-2", "free-3", "given", "passed"] {
                let said = guards.get(name).map(said).unwrap_or_default();
                company.becomes(name, &said).await;
            }
        };
        settled().await;
        company.proxy.let_go();
        eventually(PATIENCE, "the network is whole", async || {
            company.client.lock("last").try_acquire().await.is_ok()
        })
        .await;
        settled().await;
    }
}
