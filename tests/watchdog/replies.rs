//! A server that is up but cannot renew just now says so, and the hold goes on until it can.

use std::io::Write;
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;

use distlock::{Error, Guard};
use tracing_subscriber::fmt::MakeWriter;

use super::{
    COMMAND, LEASE, PATIENCE, RedisServer, connect, connect_with, eventually, renewed, taken,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_busy_with_a_script_does_not_end_a_hold() {
    let server = Arc::new(RedisServer::start_with(&["--lua-time-limit", "20"]));
    let client = connect(&server.url()).await;
    let guard = client.lock("busy").acquire().await.unwrap();
    renewed(&guard).await;

    let script = thread::spawn({
        let server = server.clone();
        move || server.try_query::<()>(&["EVAL", "while true do end", "0"])
    });
    refused_with(&guard, "BUSY").await;
    assert!(guard.is_held());
    server.cmd(&["SCRIPT", "KILL"]);

    renewed(&guard).await;
    assert_eq!(guard.at_risk(), None);
    script.join().unwrap().expect_err("it was killed");
    assert!(server.pttl("busy") > 0);
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_has_become_a_replica_does_not_end_a_hold() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let guard = client.lock("readonly").acquire().await.unwrap();
    renewed(&guard).await;

    // Nobody listens there, so it keeps its data and waits for a master.
    server.cmd(&["REPLICAOF", "127.0.0.1", "1"]);
    refused_with(&guard, "READONLY").await;
    assert!(guard.is_held());
    server.cmd(&["REPLICAOF", "NO", "ONE"]);

    renewed(&guard).await;
    assert_eq!(guard.at_risk(), None);
    guard.release().await.unwrap();
    assert_eq!(server.pttl("readonly"), -2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_loads_its_data_after_a_restart_does_not_end_a_hold() {
    // Slow enough for the watchdog to meet it meanwhile and ask, which it does at once, and quick enough to be done long before
    // the lease is over: sixty keys, a tenth of a second each. Few and long pauses, since each is longer on a busy machine; and
    // each key is so long that the server looks whether somebody asks.
    let server = Arc::new(RedisServer::start_with(&[
        "--dbfilename",
        "dump.rdb",
        "--rdbcompression",
        "no",
        "--key-load-delay",
        "100000",
        "--loading-process-events-interval-bytes",
        "1024",
    ]));
    let fill = "for i = 1, 60 do redis.call('SET', 'filler-' .. i, string.rep('x', 2000)) end";
    server.cmd(&["EVAL", fill, "0"]);
    // What is said before somebody listens is not heard.
    LazyLock::force(&LOG);
    let client = connect_with(&server.url(), 20 * LEASE, COMMAND).await;
    let guard = taken(&client.lock("loading")).await;

    // A busy machine may be done before it has asked; then it is done again.
    for round in 0.. {
        assert!(round < 5, "nobody asked while the data was loaded");
        let before = guard.valid_until();
        server.cmd(&["SAVE"]);
        let restart = thread::spawn({
            let server = server.clone();
            move || server.restart()
        });
        eventually(3 * PATIENCE, "the server is up again", async || {
            guard.check().expect("it is no loss");
            restart.is_finished()
        })
        .await;
        restart.join().unwrap();
        let dump = server.hgetall("loading");
        assert!(dump.contains_key(&guard.owner()), "the restart kept it");
        eventually(PATIENCE, "it is renewed", async || {
            guard.check().expect("it is no loss");
            guard.valid_until() > before && guard.at_risk().is_none()
        })
        .await;
        if was_refused_with(&guard, "LOADING") {
            break;
        }
    }
    drop(guard);
    eventually(PATIENCE, "it is given back", async || {
        server.pttl("loading") == -2
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_out_of_memory_refuses_new_locks_but_renews_and_releases_old_ones() {
    let server = RedisServer::start_with(&["--maxmemory-policy", "noeviction"]);
    let client = connect(&server.url()).await;
    let owner = client.new_owner();
    let lock = client.lock("oom").with_owner(&owner);
    let outer = lock.acquire().await.unwrap();
    let inner = lock.acquire().await.unwrap();
    let dropped = client.lock("oom-dropped").acquire().await.unwrap();

    server.config_set("maxmemory", "1");
    // The scripts must be loaded anew at the worst time, too.
    server.script_flush();
    let error = client.lock("oom-new").try_acquire().await.unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
    renewed(&outer).await;
    renewed(&outer).await;
    assert_eq!(outer.at_risk(), None);

    inner.release().await.unwrap();
    assert_eq!(server.hgetall("oom")[&outer.owner()], "1");
    renewed(&outer).await;
    outer.release().await.unwrap();
    drop(dropped);
    eventually(PATIENCE, "both are given back", async || {
        server.keys().is_empty()
    })
    .await;
}

/// Waits until a renewal of this lock has failed with such an answer.
async fn refused_with(guard: &Guard, code: &str) {
    eventually(
        PATIENCE,
        &format!("a renewal is answered {code}"),
        async || {
            guard.check().expect("it is no loss");
            was_refused_with(guard, code)
        },
    )
    .await;
    assert!(guard.at_risk().is_some());
}

fn was_refused_with(guard: &Guard, code: &str) -> bool {
    let name = format!("\"{}\"", guard.name());
    let log = LOG.text();
    log.lines()
        .any(|line| line.contains("at risk") && line.contains(&name) && line.contains(code))
}

/// What the library says of itself: the only place where the server's words are to be seen.
static LOG: LazyLock<Log> = LazyLock::new(|| {
    let log = Log::default();
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(log.clone())
        .init();
    log
});

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(line)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
