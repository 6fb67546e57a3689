//! Shows that the faults of the proxy happen: a proxy that injects nothing would make every test built on it pass. And that a test program
//! that is killed leaves no server and no folder.

#![cfg(feature = "redis")]
#![expect(
    clippy::disallowed_methods,
    reason = "whether a fault stalls something shows in real time"
)]

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

use redis::RedisResult;
use redis::aio::MultiplexedConnection;

use crate::support::{
    ChaosProxy, Fault, Match, PATIENCE, RedisServer, eventually, patient_connection,
};

/// Starts a server behind a proxy that applies this fault to the first `INCR`.
fn proxied(fault: Fault) -> (RedisServer, ChaosProxy) {
    let server = RedisServer::start();
    let proxy = ChaosProxy::start(server.addr());
    proxy.rule(Match::command("INCR").nth(1), fault);
    (server, proxy)
}

async fn incr(connection: &mut MultiplexedConnection) -> RedisResult<u64> {
    let mut command = redis::cmd("INCR");
    command.arg("counter").query_async(connection).await
}

async fn until_counted(server: &RedisServer, count: u64) {
    eventually(PATIENCE, "the request is executed", async || {
        server.query::<Option<u64>>(&["GET", "counter"]) == Some(count)
    })
    .await;
}

async fn until_injected(proxy: &ChaosProxy) {
    eventually(PATIENCE, "the fault happens", async || {
        proxy.injected().len() == 1
    })
    .await;
}

#[tokio::test]
async fn a_swallowed_reply_never_comes_but_the_server_has_executed() {
    let (server, proxy) = proxied(Fault::SwallowReply);
    let mut connection = patient_connection(&proxy.url()).await;
    connection.set_response_timeout(HASTE);
    assert!(incr(&mut connection).await.unwrap_err().is_timeout());
    until_counted(&server, 1).await;
    assert_eq!(proxy.unanswered(), 0);
}

#[tokio::test]
async fn a_duplicated_request_is_executed_twice_and_answered_once() {
    let (server, proxy) = proxied(Fault::DuplicateRequest);
    let mut first = patient_connection(&proxy.url()).await;
    let mut second = first.clone();
    // If the second copy's reply were forwarded, it would be taken for the other request's.
    let (first, second) = tokio::join!(incr(&mut first), incr(&mut second));
    assert_eq!((first.unwrap(), second.unwrap()), (1, 3));
    until_counted(&server, 3).await;
}

#[tokio::test]
async fn a_cut_comes_before_the_server_has_executed_or_after() {
    for (fault, executed) in [(Fault::CutBefore, 0), (Fault::CutAfter, 1)] {
        let (_server, proxy) = proxied(fault);
        let mut connection = patient_connection(&proxy.url()).await;
        let error = incr(&mut connection).await.unwrap_err();
        assert!(error.is_connection_dropped(), "{error}");
        let mut next = patient_connection(&proxy.url()).await;
        assert_eq!(incr(&mut next).await.unwrap(), executed + 1);
    }
}

#[tokio::test]
async fn a_held_request_is_delivered_after_its_client_has_disconnected() {
    let (server, proxy) = proxied(Fault::HoldRequest);
    let mut connection = patient_connection(&proxy.url()).await;
    let asking = tokio::spawn(async move { incr(&mut connection).await });
    until_injected(&proxy).await;
    asking.abort();
    let mut other = patient_connection(&proxy.url()).await;
    assert_eq!(incr(&mut other).await.unwrap(), 1, "it overtakes");
    proxy.deliver_held();
    until_counted(&server, 2).await;
}

#[tokio::test]
async fn a_held_reply_arrives_when_it_is_let_go() {
    let (server, proxy) = proxied(Fault::HoldReply);
    let mut connection = patient_connection(&proxy.url()).await;
    let asking = tokio::spawn(async move { incr(&mut connection).await });
    until_injected(&proxy).await;
    until_counted(&server, 1).await;
    assert!(!asking.is_finished());
    proxy.deliver_held();
    assert_eq!(asking.await.unwrap().unwrap(), 1);
}

#[tokio::test]
async fn a_partition_stalls_a_connection_until_it_heals() {
    let (server, proxy) = proxied(Fault::HoldReply);
    let mut connection = patient_connection(&proxy.url()).await;
    proxy.clear_rules();
    proxy.partition(true);
    let mut stalled = tokio::spawn(async move { incr(&mut connection).await });
    assert!(tokio::time::timeout(HASTE, &mut stalled).await.is_err());
    assert_eq!(server.query::<Option<u64>>(&["GET", "counter"]), None);
    proxy.partition(false);
    assert_eq!(stalled.await.unwrap().unwrap(), 1);
}

/// `scripts/matrix` reads the line from here, so that it prints the server that the tests have.
#[test]
#[expect(clippy::print_stdout, reason = "somebody reads it")]
fn a_server_reports_its_version() {
    let product = RedisServer::start().product();
    let (name, version) = product.split_once(' ').expect("it has a name");
    assert!(["Redis", "Valkey"].contains(&name), "{product}");
    assert!(version.split('.').all(|part| part.parse::<u32>().is_ok()));
    println!("server: {product}");
}

/// The test runs itself as the test that is killed.
#[tokio::test]
async fn a_test_that_is_killed_leaves_no_server_and_no_folder() {
    if let Some(note) = env::var_os(NOTE) {
        let server = RedisServer::start();
        // The file is renamed into place, so that it is never read half written.
        let note = PathBuf::from(note);
        let draft = note.with_extension("draft");
        fs::write(&draft, server.socket_path().display().to_string()).unwrap();
        fs::rename(draft, note).unwrap();
        thread::sleep(PATIENCE);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let note = folder.path().join("socket");
    let name = "support_selftest::a_test_that_is_killed_leaves_no_server_and_no_folder";
    let mut test = Command::new(env::current_exe().unwrap())
        .args(["--exact", name])
        .env(NOTE, &note)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually(PATIENCE, "the other test has a server", async || {
        note.exists()
    })
    .await;
    let socket = PathBuf::from(fs::read_to_string(&note).unwrap());
    let server = redis::Client::open(format!("redis+unix://{}", socket.display())).unwrap();
    let mut connection = server.get_multiplexed_async_connection().await.unwrap();
    test.kill().unwrap();
    test.wait().unwrap();
    eventually(PATIENCE, "the server is dead", async || {
        incr(&mut connection)
            .await
            .is_err_and(|error| !error.is_timeout())
    })
    .await;
    eventually(PATIENCE, "its folder is gone", async || {
        !socket
            .parent()
            .and_then(|folder| folder.parent())
            .unwrap()
            .exists()
    })
    .await;
}

/// The time for which a test watches for something that must not happen.
const HASTE: Duration = Duration::from_millis(150);
const NOTE: &str = "DISTLOCK_SELFTEST_NOTE";
