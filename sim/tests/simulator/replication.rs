//! Replicas: their lag, the replies of `WAIT`, and the writes that a promotion loses.

use std::time::Duration;

use distlock_sim::{Clock, Server, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::{Instant, sleep};

use super::{call, connect};

fn pair() -> (Server, Server) {
    let master = Server::new(Clock::new(), 1);
    let replica = master.replica(2, LAG);
    (master, replica)
}

/// Sends a request and waits for the whole reply, which comes at once.
async fn ask(stream: &mut DuplexStream, request: &str) -> String {
    let request = format!("{request}\r\n");
    let sent = stream.write_all(request.as_bytes()).await;
    sent.expect("the server reads");
    let mut buffer = [0; 4096];
    let length = stream.read(&mut buffer).await.expect("it answers");
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}

#[tokio::test(start_paused = true)]
async fn a_replica_has_a_write_after_its_lag() {
    let (master, replica) = pair();
    call(&master, "SET a 1 PX 60000");
    sleep(LAG - Duration::from_millis(1)).await;
    assert_eq!(call(&replica, "GET a"), Value::Nil);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(call(&replica, "GET a"), Value::bulk("1"));
    assert_eq!(call(&replica, "PTTL a"), call(&master, "PTTL a"));
    let mut stream = connect(&replica);
    let reply = ask(&mut stream, "SET a 2").await;
    assert!(reply.starts_with("-READONLY "), "{reply}");
}

#[tokio::test(start_paused = true)]
async fn a_promotion_loses_unreplicated_writes() {
    let (master, replica) = pair();
    call(&master, "SET old 1");
    sleep(LAG).await;
    call(&master, "SET new 1");
    replica.promote();
    sleep(LAG).await;
    assert_eq!(
        call(&replica, "MGET old new"),
        Value::Array(vec![Value::bulk("1"), Value::Nil])
    );
    let mut stream = connect(&replica);
    assert_eq!(ask(&mut stream, "SET new 2").await, "+OK\r\n");
    master.follow(&replica, LAG);
    assert_eq!(call(&master, "GET new"), Value::bulk("2"));
}

#[tokio::test(start_paused = true)]
async fn wait_returns_when_the_replica_has_the_write() {
    let (master, replica) = pair();
    let mut stream = connect(&master);
    assert_eq!(ask(&mut stream, "SET a 1").await, "+OK\r\n");
    let begun = Instant::now();
    assert_eq!(ask(&mut stream, "WAIT 1 1000").await, ":1\r\n");
    assert_eq!(begun.elapsed(), LAG);
    assert_eq!(call(&replica, "GET a"), Value::bulk("1"));
    let begun = Instant::now();
    assert_eq!(ask(&mut stream, "WAIT 2 1000").await, ":1\r\n");
    assert_eq!(begun.elapsed(), Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_partitioned_replica_acknowledges_nothing() {
    let (master, replica) = pair();
    replica.cut_replication(true);
    let mut stream = connect(&master);
    assert_eq!(ask(&mut stream, "SET a 1").await, "+OK\r\n");
    assert_eq!(ask(&mut stream, "WAIT 1 1000").await, ":0\r\n");
    assert_eq!(call(&replica, "GET a"), Value::Nil);
    replica.cut_replication(false);
    assert_eq!(call(&replica, "GET a"), Value::bulk("1"));
}

#[tokio::test(start_paused = true)]
async fn master_and_replica_report_their_roles() {
    let (master, replica) = pair();
    let role = |server: &Server| match call(server, "ROLE") {
        Value::Array(fields) => fields,
        other => panic!("{other:?}"),
    };
    assert_eq!(role(&master)[0], Value::bulk("master"));
    assert_eq!(role(&replica)[0], Value::bulk("slave"));
    let info = |server: &Server| match call(server, "INFO replication") {
        Value::Verbatim(text) => text,
        other => panic!("{other:?}"),
    };
    assert!(
        info(&master).contains("role:master\r\n"),
        "{}",
        info(&master)
    );
    assert!(
        info(&master).contains("connected_slaves:1\r\n"),
        "{}",
        info(&master)
    );
    assert!(
        info(&replica).contains("master_link_status:up\r\n"),
        "{}",
        info(&replica)
    );
    let field = |text: &str, name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = lines
            .find(|(field, _)| *field == name)
            .expect("it is there");
        value.to_owned()
    };
    let before = field(&info(&master), "master_replid");
    assert_eq!(field(&info(&replica), "master_replid"), before);
    replica.promote();
    assert_eq!(field(&info(&replica), "master_replid2"), before);
    assert_ne!(field(&info(&replica), "master_replid"), before);
}

const LAG: Duration = Duration::from_millis(30);
