//! A server that has become a replica: the client opens another connection, which may lead to the new master.

use std::collections::BTreeSet;

use distlock::{Error, MultiLock};

use super::PATIENCE;
use super::fixture::{BatchFixture, Call, becomes};
use crate::support::{RedisServer, simulated};

#[test]
fn a_call_with_a_read_only_error_closes_its_connection() {
    simulated(async || {
        for parameters in ["", "?scripts=off"] {
            let fixture = BatchFixture::with(RedisServer::start(), parameters, PATIENCE / 2).await;
            let used = demoted(&fixture).await;
            let (_, answer) = fixture.tries("alone").await;
            assert!(
                matches!(answer, Err(Error::Unavailable { .. })),
                "{answer:?}"
            );
            is_given_up(&fixture, &used).await;
        }
    });
}

#[test]
fn a_batch_with_a_read_only_error_closes_its_connection() {
    simulated(async || {
        let fixture = BatchFixture::start().await;
        // The call under way does not write, and so does not fail.
        fixture.hold_as_stranger("first");
        let used = demoted(&fixture).await;
        let calls = ["one", "two", "three"].map(|name| fixture.tries(name));
        for (name, answer) in fixture.together(calls.into()).await {
            assert!(matches!(answer, Err(Error::Unavailable { .. })), "{name}");
        }
        is_given_up(&fixture, &used).await;
    });
}

#[test]
fn several_locks_with_a_read_only_error_close_their_connection() {
    simulated(async || {
        let fixture = BatchFixture::start().await;
        let used = demoted(&fixture).await;
        let several = ["one", "two"].map(|name| fixture.client.lock(name).into());
        let error = MultiLock::new(several).try_acquire().await;
        let error = error.expect_err("it cannot write");
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        is_given_up(&fixture, &used).await;
    });
}

/// Makes the server a replica, and returns the connections that the client has.
async fn demoted(fixture: &BatchFixture) -> BTreeSet<String> {
    let guard = fixture.hold("before").await;
    guard.release().await.expect("it is ours");
    let fault = Some(distlock_sim::Fault::ReadOnly);
    fixture.server.simulated().set_fault(fault);
    connections(fixture)
}

async fn is_given_up(fixture: &BatchFixture, used: &BTreeSet<String>) {
    becomes("a connection is given up", || {
        !used.is_subset(&connections(fixture))
    })
    .await;
}

fn connections(fixture: &BatchFixture) -> BTreeSet<String> {
    let list: String = fixture.server.query(&["CLIENT", "LIST", "TYPE", "normal"]);
    let id = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    list.lines().map(id).collect()
}

/// One of the names also has the prefix that servers put in front of a script's error.
#[test]
fn a_name_that_looks_like_the_error_of_a_replica_costs_no_other_call_its_reply() {
    const BAD: [&str; 3] = [
        "a: READONLY b",
        "READONLY You can't write against a read only replica.",
        "@user_script: 1: -READONLY You can't write against a read only replica.",
    ];
    simulated(async || {
        let fixture = BatchFixture::start().await;
        for name in BAD {
            let counter = format!("redisson_lock_token:{{{name}}}");
            fixture.server.cmd(&["SET", &counter, "no number"]);
        }
        let names = [
            "good 1", BAD[0], "good 2", BAD[1], "good 3", BAD[2], "good 4",
        ];
        let calls = names.map(|name| {
            let lock = fixture.client.fenced_lock(name);
            let acquired: Call<_> = Box::pin(async move { lock.try_acquire().await });
            acquired
        });
        let answers = fixture.together(calls.into()).await;
        for (name, answer) in names.into_iter().zip(answers) {
            if BAD.contains(&name) {
                let error = answer.expect_err("its counter is no number");
                assert!(matches!(error, Error::WrongKind { .. }), "{error:?}");
            } else {
                let guard = answer.expect("nothing is wrong with it");
                assert!(guard.is_some(), "{name} is free");
            }
        }
    });
}
