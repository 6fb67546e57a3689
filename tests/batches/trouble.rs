//! A server that refuses requests: no memory, no scripts, no permission, no writing.

use std::collections::BTreeMap;

use distlock::Error;

use super::PATIENCE;
use super::fixture::{Answer, BatchFixture, becomes, begun, ended, gives, is_silence, said};
use crate::support::batch::is_batch;
use crate::support::{Fault, Match, RedisServer, simulated};

#[test]
fn errors_in_a_batch_are_those_of_single_calls() {
    const TROUBLES: [(&str, &str); 5] = [
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
        ("a replica", "a master"),
        ("ACL SETUSER worker -pexpire", ALL),
        ("ACL SETUSER worker resetchannels", ALL),
        ("ACL SETUSER worker -evalsha -eval", ALL),
    ];
    const ALL: &str = "ACL SETUSER worker on >secret +@all ~* &*";
    const TAKEN: [&str; 3] = ["take-alone", "take-1", "take-2"];
    const GIVEN: [&str; 3] = ["give-alone", "give-1", "give-2"];
    fn order(server: &RedisServer, words: &str) {
        let read_only = Some(distlock_sim::Fault::ReadOnly);
        match words {
            "a replica" => server.simulated().set_fault(read_only),
            "a master" => server.simulated().set_fault(None),
            _ => drop(server.cmd(&words.split(' ').collect::<Vec<_>>())),
        }
    }
    /// Returns the result of a call, without the name in it.
    fn kind(name: &str, answer: &Answer) -> String {
        match answer {
            Ok(guard) => guard.is_some().to_string(),
            Err(error) => error.to_string().replace(name, "…"),
        }
    }
    simulated(async || {
        for (trouble, remedy) in TROUBLES {
            let server = RedisServer::start();
            order(&server, ALL);
            let fixture = BatchFixture::with(server, "worker:secret@", PATIENCE / 2).await;
            let mut calls = Vec::new();
            for name in GIVEN {
                calls.push(gives(fixture.hold(name).await));
            }
            order(&fixture.server, trouble);
            calls.extend(TAKEN.map(|name| fixture.tries(name)));
            let (take, give) = (calls.remove(3).await, calls.remove(0).await);
            let stays = matches!(give.1, Err(Error::PermissionDenied { .. }));
            let [take, give] = [take, give].map(|(name, answer)| kind(&name, &answer));
            for (name, answer) in fixture.together(calls).await {
                let alone = if name.starts_with("take") {
                    &take
                } else {
                    &give
                };
                // A release frees memory, so a server short of memory admits calls behind it.
                let granted = trouble.contains("maxmemory") && matches!(answer, Ok(Some(_)));
                let same = kind(&name, &answer) == *alone;
                assert!(same || granted, "{trouble}: {answer:?}, but alone {alone}");
            }
            // An acquire that was refused halfway is undone as soon as possible.
            order(&fixture.server, remedy);
            fixture.settle(&TAKEN, &BTreeMap::new()).await;
            // A lock that the user may not release stays for its lease.
            if !stays {
                fixture.settle(&GIVEN, &BTreeMap::new()).await;
            }
        }
    });
}

#[test]
fn a_server_crash_with_a_batch_in_flight_leaves_nothing_behind() {
    simulated(async || {
        let fixture = BatchFixture::start().await;
        let names = ["take-1", "take-2", "give-1"];
        let mut calls = vec![gives(fixture.hold(names[2]).await)];
        calls.extend(names[..2].iter().map(|name| fixture.tries(name)));
        let calls = fixture.start_call(calls).await;
        fixture.server.kill();
        fixture.proxy.partition(false);
        for (name, answer) in ended(calls).await {
            assert!(matches!(answer, Err(Error::Unavailable { .. })), "{name}");
        }
        fixture.server.restart();
        // The server has lost its data, and requests under way change nothing.
        fixture.settle(&names, &BTreeMap::new()).await;
        for name in names {
            drop(fixture.hold(name).await);
        }
    });
}

#[test]
fn each_call_of_a_batch_gets_the_right_reply_out_of_memory() {
    simulated(async || {
        for frees in [false, true] {
            let fixture = BatchFixture::start().await;
            let [nested, in_part] = ["nested", "in-part"].map(|name| {
                let owner = fixture.client.new_owner();
                fixture.client.lock(name).with_owner(&owner)
            });
            let mut kept = vec![nested.acquire().await.unwrap()];
            kept.push(in_part.acquire().await.unwrap());
            let mut given = vec![in_part.acquire().await.unwrap()];
            given.extend([fixture.hold("given").await, fixture.hold("passed").await]);
            let next = begun(fixture.acquires("passed"));
            fixture.hold_as_stranger("busy");
            fixture.server.config_set("maxmemory", "1");

            let mut calls = ["free-1", "busy", "free-2"]
                .map(|name| fixture.tries(name))
                .into();
            if frees {
                let again = nested.try_acquire();
                Vec::push(
                    &mut calls,
                    Box::pin(async { ("nested".to_owned(), again.await) }),
                );
                calls.extend(given.into_iter().map(gives));
            } else {
                kept.extend(given);
            }
            for (name, answer) in fixture.together(calls).await {
                match (&*name, answer) {
                    ("free-1" | "free-2", Err(Error::OutOfMemory { .. })) => {
                        assert!(fixture.holds(&name).is_empty(), "{name}");
                    }
                    ("nested" | "free-1" | "free-2", Ok(Some(guard))) if frees => {
                        assert_eq!(fixture.holds(&name), said(&guard));
                        assert!(fixture.server.pttl(&name) > 0, "{name} has no end");
                        kept.push(guard);
                    }
                    ("busy" | "in-part" | "given" | "passed", Ok(None)) => {}
                    (_, answer) => panic!("{name}: {answer:?}"),
                }
            }
            if frees {
                assert_eq!(fixture.holds("in-part"), said(&kept[1]));
                assert_eq!(kept[0].hold_count(), 2, "nested");
                assert!(fixture.holds("given").is_empty());
                let (_, next) = next.await;
                let next = next.expect("it was passed on").expect("it is free");
                assert_eq!(fixture.holds("passed"), said(&next));
            }
            for guard in kept {
                guard.release().await.expect("giving back needs no memory");
            }
        }
    });
}

#[test]
fn a_batch_succeeds_on_a_server_that_has_forgotten_its_scripts() {
    simulated(async || {
        for (nth, fault) in [
            // The batch is sent by its hash, which the server does not know, then by its text.
            (1, Fault::CutAfter),
            (1, Fault::HoldReply),
            (2, Fault::CutAfter),
            (2, Fault::CutBefore),
            (2, Fault::DuplicateRequest),
            (2, Fault::HoldReply),
            (2, Fault::HoldRequest),
            (3, Fault::CutAfter),
        ] {
            let fixture = BatchFixture::with(RedisServer::start(), "", PATIENCE / 8).await;
            fixture.proxy.rule(Match::words(is_batch).nth(nth), fault);
            let mut calls = vec![gives(fixture.hold("given").await)];
            calls.push(gives(fixture.hold("passed").await));
            let next = tokio::spawn(begun(fixture.acquires("passed")));
            calls.extend(["free-1", "free-2", "free-3"].map(|name| fixture.acquires(name)));
            let calls = fixture.start_call(calls).await;
            fixture.server.script_flush();
            fixture.proxy.partition(false);
            let mut answers = ended(calls).await;
            let first = answers
                .iter()
                .filter(|(_, answer)| matches!(answer, Ok(Some(_))));
            if nth == 3 {
                assert_eq!(first.count(), 3, "nothing went wrong");
                assert_eq!(fixture.batches(), [5, 5], "by hash, then by text");
            }
            answers.extend(ended(vec![next]).await);
            let mut guards = BTreeMap::new();
            for (name, answer) in answers {
                match answer {
                    Ok(guard) => guards.extend(guard.map(|guard| (name, guard))),
                    Err(error) => {
                        assert!(is_silence(&error) && nth < 3, "{fault:?}: {name}: {error}");
                        assert_ne!(fault, Fault::DuplicateRequest);
                    }
                }
            }
            let faults = usize::from(nth < 3);
            becomes("it comes to pass", || {
                fixture.proxy.injected().len() == faults
            })
            .await;
            let names = ["free-1", "free-2", "free-3", "given", "passed"];
            fixture.settle(&names, &guards).await;
        }
    });
}
