//! The abilities that only the simulated server has: virtual time, faults, restarts.

use std::time::Duration;

use distlock_sim::{Clock, Fault, Server, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::{Instant, sleep};

use super::{call, connect};

fn server() -> Server {
    Server::new(Clock::new(), 1)
}

/// Sends a request, and returns the reply of the next millisecond.
async fn ask(stream: &mut DuplexStream, request: &str) -> String {
    stream
        .write_all(format!("{request}\r\n").as_bytes())
        .await
        .expect("the server reads");
    sleep(Duration::from_millis(1)).await;
    said(stream).await
}

async fn said(stream: &mut DuplexStream) -> String {
    let mut buffer = vec![0; 65536];
    tokio::select! {
        biased;
        read = stream.read(&mut buffer) => {
            let length = read.unwrap_or(0);
            String::from_utf8_lossy(&buffer[..length]).into_owned()
        }
        () = std::future::ready(()) => "nothing".to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_expires_in_virtual_time() {
    let server = server();
    call(&server, "SET lock a PX 30000");
    sleep(Duration::from_millis(29_999)).await;
    assert_eq!(call(&server, "GET lock"), Value::bulk("a"));
    sleep(Duration::from_millis(2)).await;
    assert_eq!(call(&server, "GET lock"), Value::Nil);
}

#[tokio::test(start_paused = true)]
async fn a_stalled_server_replies_to_everything_afterwards() {
    let server = server();
    let mut stream = connect(&server);
    assert_eq!(ask(&mut stream, "PING").await, "+PONG\r\n");
    server.stall(Duration::from_secs(5));
    let begun = Instant::now();
    assert_eq!(ask(&mut stream, "SET a 1").await, "nothing");
    assert_eq!(ask(&mut stream, "GET a").await, "nothing");
    let mut buffer = [0; 64];
    let length = stream.read(&mut buffer).await.expect("it answers");
    assert_eq!(&buffer[..length], b"+OK\r\n$1\r\n1\r\n");
    assert_eq!(begun.elapsed(), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_restart_closes_connections_and_forgets_scripts() {
    let server = server();
    let mut stream = connect(&server);
    assert_eq!(ask(&mut stream, "SET a 1").await, "+OK\r\n");
    let id = server.run_id();
    let hash = server.call(&[b"SCRIPT", b"LOAD", b"return 1"]);
    let Value::Bulk(hash) = hash else {
        panic!("{hash:?}");
    };
    server.restart(true);
    assert_ne!(server.run_id(), id);
    assert_eq!(
        stream.read(&mut [0; 8]).await.expect("an end is no error"),
        0
    );
    assert_eq!(call(&server, "GET a"), Value::bulk("1"));
    let reply = server.call(&[b"EVALSHA", &hash, b"0"]);
    assert_eq!(
        reply,
        Value::Error("NOSCRIPT No matching script. Please use EVAL.".to_owned())
    );
    server.restart(false);
    assert_eq!(call(&server, "DBSIZE"), Value::Integer(0));
}

#[tokio::test(start_paused = true)]
async fn a_killed_server_accepts_no_connection_until_it_is_revived() {
    let server = server();
    let mut stream = connect(&server);
    assert_eq!(ask(&mut stream, "PING").await, "+PONG\r\n");
    server.kill();
    assert_eq!(
        stream.read(&mut [0; 8]).await.expect("an end is no error"),
        0
    );
    let mut stream = connect(&server);
    assert_eq!(
        stream.read(&mut [0; 8]).await.expect("an end is no error"),
        0
    );
    server.revive();
    let mut stream = connect(&server);
    assert_eq!(ask(&mut stream, "PING").await, "+PONG\r\n");
}

#[tokio::test(start_paused = true)]
async fn each_fault_rejects_the_same_requests_as_redis() {
    let server = server();
    let mut stream = connect(&server);
    let write = "EVAL return(redis.call('set',KEYS[1],'1')) 1 k";
    let free = "EVAL redis.call('del',KEYS[1])return(redis.call('set',KEYS[1],'1')) 1 k";
    let oom = "OOM command not allowed when used memory > 'maxmemory'.";
    let cases = [
        (
            Fault::Loading,
            "GET k",
            "-LOADING Redis is loading the dataset in memory\r\n",
        ),
        (
            Fault::Loading,
            "TTL a",
            "-LOADING Redis is loading the dataset in memory\r\n",
        ),
        (Fault::Loading, "PUBLISH a b", ":0\r\n"),
        (
            Fault::Busy,
            "PING",
            "-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.\r\n",
        ),
        (Fault::Busy, "MULTI", "+OK\r\n"),
        (Fault::Busy, "DISCARD", "+OK\r\n"),
        (Fault::OutOfMemory, "GET k", "$-1\r\n"),
        (Fault::OutOfMemory, "SET k 1", &format!("-{oom}\r\n")),
        (Fault::OutOfMemory, free, "+OK\r\n"),
        (
            Fault::ReadOnly,
            "SET k 1",
            "-READONLY You can't write against a read only replica.\r\n",
        ),
        (Fault::ReadOnly, "PUBLISH a b", ":0\r\n"),
        (
            Fault::NoPermission,
            "GET k",
            "-NOPERM this user has no permissions to run the 'get' command\r\n",
        ),
    ];
    for (fault, request, expected) in cases {
        server.set_fault(Some(fault));
        assert_eq!(
            ask(&mut stream, request).await,
            expected,
            "{fault:?} {request}"
        );
    }
    server.set_fault(Some(Fault::OutOfMemory));
    let reply = ask(&mut stream, write).await;
    assert!(reply.starts_with(&format!("-{oom} script: ")), "{reply}");
    server.set_fault(None);
    assert_eq!(ask(&mut stream, "SET k 1").await, "+OK\r\n");
}

#[tokio::test(start_paused = true)]
async fn a_watched_key_that_expires_ends_the_transaction() {
    let server = server();
    let mut stream = connect(&server);
    call(&server, "SET k 1 PX 10");
    assert_eq!(ask(&mut stream, "WATCH k").await, "+OK\r\n");
    assert_eq!(ask(&mut stream, "MULTI").await, "+OK\r\n");
    assert_eq!(ask(&mut stream, "PING").await, "+QUEUED\r\n");
    sleep(Duration::from_millis(20)).await;
    assert_eq!(ask(&mut stream, "EXEC").await, "*-1\r\n");
}

#[tokio::test(start_paused = true)]
async fn wait_for_missing_replicas_takes_the_whole_timeout() {
    let server = server();
    let mut stream = connect(&server);
    let begun = Instant::now();
    assert_eq!(ask(&mut stream, "WAIT 1 1000").await, "nothing");
    let mut buffer = [0; 64];
    let length = stream.read(&mut buffer).await.expect("it answers");
    assert_eq!(&buffer[..length], b":0\r\n");
    assert_eq!(begun.elapsed(), Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_monitor_receives_commands_of_other_clients_and_commands_are_counted() {
    let server = server();
    let (mut monitor, mut other) = (connect(&server), connect(&server));
    assert_eq!(ask(&mut monitor, "MONITOR").await, "+OK\r\n");
    ask(&mut other, "SET lock a\"b").await;
    ask(&mut other, "AUTH secret").await;
    let shown = said(&mut monitor).await;
    assert!(
        shown.ends_with("] \"SET\" \"lock\" \"a\\\"b\"\r\n"),
        "{shown}"
    );
    call(&server, "EVAL return{redis.call('get','lock')} 0");
    let Value::Verbatim(stats) = call(&server, "INFO commandstats") else {
        panic!("a text");
    };
    for counted in [
        "cmdstat_get:calls=1",
        "cmdstat_set:calls=1",
        "cmdstat_eval:calls=1",
    ] {
        assert!(stats.contains(counted), "{stats}");
    }
}
