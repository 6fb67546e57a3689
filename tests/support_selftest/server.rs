//! The server fixture.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use std::{env, fs, thread};

use nix::unistd::Pid;

use super::support::port::Port;
use super::support::redis::PROGRAM;
use super::support::{RedisServer, eventually};
use super::{HASTE, PATIENCE, connect, counter, incr, patient};

#[tokio::test]
async fn a_server_can_be_looked_into() {
    let server = RedisServer::start();
    server.cmd(&["SET", "b", "1", "PX", "60000"]);
    server.cmd(&["HSET", "a", "field", "value"]);
    assert_eq!(server.keys(), ["a", "b"]);
    assert_eq!(server.hgetall("a")["field"], "value");
    assert!((1..=60_000).contains(&server.pttl("b")));
    assert_eq!((server.pttl("a"), server.pttl("none")), (-1, -2));
    assert_eq!(server.commandstats("HSET"), 1);
    assert_eq!(server.commandstats("zadd"), 0);

    server.config_set("maxmemory", "5mb");
    let (_, maxmemory): (String, u64) = server.query(&["CONFIG", "GET", "maxmemory"]);
    assert_eq!(maxmemory, 5 * 1024 * 1024);

    let sha: String = server.query(&["SCRIPT", "LOAD", "return 1"]);
    assert_eq!(server.query::<u64>(&["EVALSHA", &sha, "0"]), 1);
    server.script_flush();
    assert!(server.try_query::<u64>(&["EVALSHA", &sha, "0"]).is_err());

    server.flushall();
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[tokio::test]
async fn a_server_is_reached_by_port_and_by_socket() {
    let server = RedisServer::start();
    assert_eq!(
        server.url(),
        format!("redis://127.0.0.1:{}/", server.port())
    );
    incr(&mut patient(&server.url()).await).await.unwrap();
    let socket = format!("redis+unix://{}", server.socket_path().display());
    assert_eq!(incr(&mut patient(&socket).await).await.unwrap(), 2);
}

#[test]
fn a_server_takes_further_arguments() {
    let server = RedisServer::start_with(&["--maxmemory", "3mb", "--requirepass", "secret"]);
    let (_, maxmemory): (String, u64) = server.query(&["CONFIG", "GET", "maxmemory"]);
    assert_eq!(maxmemory, 3 * 1024 * 1024);
}

#[test]
#[should_panic(expected = "no-such-option")]
fn a_server_that_cannot_start_says_why() {
    RedisServer::start_with(&["--no-such-option", "1"]);
}

#[test]
fn servers_started_at_once_do_not_meet() {
    let servers = thread::scope(|scope| {
        let starting: Vec<_> = (0..6).map(|_| scope.spawn(RedisServer::start)).collect();
        starting
            .into_iter()
            .map(|one| one.join().unwrap())
            .collect::<Vec<_>>()
    });
    for server in &servers {
        server.cmd(&["INCR", "counter"]);
    }
    // The threads that started them are gone; the servers must not be, and each has a counter of
    // its own.
    assert!(servers.iter().all(|server| counter(server) == 1));
    let ports: BTreeSet<u16> = servers.iter().map(RedisServer::port).collect();
    assert_eq!(ports.len(), servers.len());
}

#[tokio::test]
async fn a_killed_server_is_gone_until_it_is_restarted_empty() {
    let server = RedisServer::start();
    let (url, pid) = (server.url(), server.pid());
    let mut connection = patient(&url).await;
    incr(&mut connection).await.unwrap();

    server.kill();
    server.kill();
    assert!(incr(&mut connection).await.is_err());
    assert!(connect(&url, PATIENCE).await.is_err());

    server.restart();
    assert_ne!(server.pid(), pid);
    assert_eq!(server.url(), url);
    assert_eq!(incr(&mut patient(&url).await).await.unwrap(), 1);
}

/// Another test's server was started there, and the restart waited for its end in vain.
#[cfg(target_os = "linux")]
#[test]
fn the_port_of_a_killed_server_goes_to_no_other_test() {
    let server = RedisServer::start();
    server.kill();
    assert!(Port::claim(server.port()).is_none());
    let port = server.port();
    drop(server);
    assert!(Port::claim(port).is_some());
}

#[test]
fn a_restart_waits_for_its_port() {
    let server = RedisServer::start();
    server.kill();
    let squatter = TcpListener::bind(server.addr()).unwrap();
    thread::scope(|scope| {
        let restarting = scope.spawn(|| server.restart());
        thread::sleep(HASTE);
        assert!(!restarting.is_finished());
        drop(squatter);
    });
    server.cmd(&["PING"]);
}

#[tokio::test]
async fn a_stopped_server_answers_once_it_continues() {
    let server = RedisServer::start();
    let mut connection = patient(&server.url()).await;
    server.stop_process();
    server.stop_process();
    let mut answer = tokio::spawn(async move { incr(&mut connection).await });
    assert!(tokio::time::timeout(HASTE, &mut answer).await.is_err());
    server.continue_process();
    assert_eq!(answer.await.unwrap().unwrap(), 1);

    server.stop_process();
    let started = Instant::now();
    drop(server);
    assert!(
        started.elapsed() < PATIENCE,
        "a stopped server can be killed, too"
    );
}

#[tokio::test]
async fn listeners_and_the_others_are_killed_apart() {
    let server = RedisServer::start();
    let mut normal = patient(&server.url()).await;
    let mut listener = redis::Client::open(server.url())
        .unwrap()
        .get_async_pubsub()
        .await
        .unwrap();
    listener.subscribe("channel").await.unwrap();
    assert_eq!(server.pubsub_channels(), ["channel"]);

    assert_eq!(server.kill_pubsub_clients(), 1);
    eventually(PATIENCE, "nobody listens", async || {
        server.pubsub_channels().is_empty()
    })
    .await;
    assert_eq!(incr(&mut normal).await.unwrap(), 1);

    assert_eq!(server.kill_normal_clients(), 1);
    assert!(incr(&mut normal).await.is_err());
}

/// Runs itself with another program, which is told by the one setting it changes.
#[test]
fn the_server_that_is_named_is_the_one_that_runs() {
    if env::var_os(NOTE).is_some() {
        let server = RedisServer::start();
        let (_, clients): (String, u64) = server.query(&["CONFIG", "GET", "maxclients"]);
        assert_eq!(clients, 77);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let named = folder.path().join("named");
    let usual = env::var(PROGRAM).unwrap_or_else(|_| "redis-server".to_owned());
    let script = format!("#!/bin/sh\nexec '{usual}' \"$@\" --maxclients 77\n");
    fs::write(&named, script).unwrap();
    fs::set_permissions(&named, fs::Permissions::from_mode(0o755)).unwrap();
    let with = |program: &Path| {
        let mut test = Command::new(env::current_exe().unwrap());
        test.args([
            "--exact",
            "support_selftest::server::the_server_that_is_named_is_the_one_that_runs",
        ]);
        test.env(NOTE, "").env(PROGRAM, program);
        test.output().unwrap()
    };
    let ran = with(&named);
    assert!(ran.status.success(), "{ran:?}");
    assert!(String::from_utf8_lossy(&ran.stdout).contains("1 passed"));
    // Nothing is started in its place.
    assert!(!with(&folder.path().join("missing")).status.success());
}

/// `scripts/matrix` reads it from here, so that what it prints is what the tests have.
#[test]
#[expect(clippy::print_stdout, reason = "somebody reads it")]
fn a_server_says_which_it_is() {
    let product = RedisServer::start().product();
    let (name, version) = product.split_once(' ').expect("it has a name");
    assert!(["Redis", "Valkey"].contains(&name), "{product}");
    assert!(version.split('.').all(|part| part.parse::<u32>().is_ok()));
    println!("server: {product}");
}

/// Runs itself as the test that is killed. Without `setpriv` nothing could keep this promise.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_server_dies_with_a_test_that_is_killed() {
    if let Some(note) = env::var_os(NOTE) {
        let server = RedisServer::start();
        // Renamed into place, so that it is never read half written.
        let note = PathBuf::from(note);
        let draft = note.with_extension("draft");
        fs::write(&draft, server.pid().to_string()).unwrap();
        fs::rename(draft, note).unwrap();
        thread::sleep(PATIENCE);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let note = folder.path().join("pid");
    let mut test = Command::new(env::current_exe().unwrap())
        .args([
            "--exact",
            "support_selftest::server::a_server_dies_with_a_test_that_is_killed",
        ])
        .env(NOTE, &note)
        // What it cannot tidy up any more goes with this folder.
        .env("TMPDIR", folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = || Some(Pid::from_raw(fs::read_to_string(&note).ok()?.parse().ok()?));
    eventually(PATIENCE, "the other test has a server", async || {
        pid().is_some()
    })
    .await;
    let server = pid().unwrap();
    assert!(!is_dead(server));

    test.kill().unwrap();
    test.wait().unwrap();
    eventually(PATIENCE / 2, "the server is dead", async || is_dead(server)).await;
}

/// An orphan that nobody reaps stays in the table as a zombie; in a container that can be for ever.
fn is_dead(pid: Pid) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return true;
    };
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| rest.trim_start().starts_with('Z'))
}

const NOTE: &str = "DISTLOCK_SELFTEST_NOTE";
