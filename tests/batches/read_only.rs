//! A server that has become a replica: the client looks for another connection, which may lead to the
//! new master.

use std::collections::BTreeSet;

use distlock::{Error, Guard, MultiLock};

use super::PATIENCE;
use super::company::{Call, Company, ended};
use super::mix::begin;
use super::support::{RedisServer, eventually};

#[tokio::test]
async fn a_call_that_may_not_write_gives_its_connection_up() {
    for (parameters, command) in [("", "evalsha"), ("?scripts=off", "exec")] {
        let server = RedisServer::start();
        let company = Company::at(server, "", parameters, |builder| builder).await;
        let used = demoted(&company, command).await;
        refused(company.acquire("alone").await);
        eventually(PATIENCE, "it is given up", async || {
            !connections(&company).contains(&used)
        })
        .await;
    }
}

#[tokio::test]
async fn a_batch_that_may_not_write_gives_its_connection_up() {
    let company = Company::start().await;
    let used = demoted(&company, "evalsha").await;
    let calls = ["one", "two", "three"].map(|name| company.acquire(name));
    for answer in beside_one_that_only_looks(&company, calls.into()).await {
        refused(answer);
    }
    eventually(PATIENCE, "it is given up", async || {
        !connections(&company).contains(&used)
    })
    .await;
}

#[tokio::test]
async fn several_locks_that_may_not_be_written_give_their_connection_up() {
    let company = Company::start().await;
    let used = demoted(&company, "evalsha").await;
    let client = &company.client;
    let several = MultiLock::new(["one", "two"].map(|name| client.lock(name).into()));
    let error = several.try_acquire().await.expect_err("it cannot write");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    eventually(PATIENCE, "it is given up", async || {
        !connections(&company).contains(&used)
    })
    .await;
}

/// Also with what servers put in front of an error of a script.
#[tokio::test]
async fn a_name_that_looks_like_the_error_of_a_replica_costs_no_other_call_its_reply() {
    let company = Company::start().await;
    let bad = [
        "a: READONLY b",
        "READONLY You can't write against a read only replica.",
        "@user_script: 1: -READONLY You can't write against a read only replica.",
    ];
    for name in bad {
        let counter = format!("redisson_lock_token:{{{name}}}");
        company.server.cmd(&["SET", &counter, "no number"]);
    }
    let names = [
        "good 1", bad[0], "good 2", bad[1], "good 3", bad[2], "good 4",
    ];
    let calls = names.map(|name| {
        let lock = company.client.fenced_lock(name);
        let acquired: Call<_> = Box::pin(async move { lock.try_acquire().await });
        acquired
    });
    let answers = company.together(calls.into()).await;
    for (name, answer) in names.into_iter().zip(answers) {
        if bad.contains(&name) {
            let error = answer.expect_err("its counter is no number");
            assert!(matches!(error, Error::WrongKind { .. }), "{error:?}");
        } else {
            let guard = answer.expect("nothing is wrong with it");
            assert!(guard.is_some(), "{name} is free");
        }
    }
}

/// Makes a replica of the server, and says which connection the client asks on: with this command last.
async fn demoted(company: &Company, command: &str) -> String {
    let theirs = "5b3e1d7c-0000-4000-8000-000000000000:1";
    company.server.cmd(&["HSET", "busy", theirs, "1"]);
    let guard = company.hold("before").await;
    guard.release().await.expect("it is ours");
    let list: String = company.server.query(&["CLIENT", "LIST", "TYPE", "normal"]);
    let command = format!("cmd={command}");
    let mut asks = list.lines().filter(|line| line.contains(&command));
    let (used, others) = (asks.next().map(id), asks.next());
    assert_eq!(others, None, "nothing was done in the background");
    let used = used.expect("it was asked just now");
    company.server.cmd(&["REPLICAOF", "127.0.0.1", "1"]);
    used
}

fn connections(company: &Company) -> BTreeSet<String> {
    let list: String = company.server.query(&["CLIENT", "LIST", "TYPE", "normal"]);
    list.lines().map(id).collect()
}

fn id(line: &str) -> String {
    line.split(' ').next().unwrap_or_default().to_owned()
}

fn refused(answer: Result<Guard, Error>) {
    let error = answer.expect_err("it cannot write");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}

/// Makes these calls in one batch while one is under way that does not write, and so has no trouble.
async fn beside_one_that_only_looks(
    company: &Company,
    calls: Vec<Call<Result<Guard, Error>>>,
) -> Vec<Result<Guard, Error>> {
    let mut look = Box::pin(company.client.lock("busy").try_acquire());
    company.proxy.partition(true);
    company.proxy.clear_requests();
    assert!(begin(look.as_mut()), "nothing is answered now");
    let look = tokio::spawn(look);
    let many = calls.len();
    let calls = calls.into_iter().map(|mut call| {
        assert!(begin(call.as_mut()), "nothing is answered now");
        tokio::spawn(call)
    });
    let calls = calls.collect();
    eventually(PATIENCE, "they travel together", async || {
        company.batches().contains(&many)
    })
    .await;
    company.proxy.partition(false);
    let looked = look.await.expect("no panic").expect("it only looks");
    assert!(looked.is_none(), "it is busy");
    ended(calls).await
}
