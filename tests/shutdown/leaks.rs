//! Threads and sockets end with their client.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use distlock::{Client, Lease};

use super::support::{RedisServer, eventually};
use super::{COMPANY, PATIENCE, connect};

/// The library's own threads and this process's sockets, each by its identifier.
#[derive(Debug)]
struct Census {
    threads: BTreeSet<String>,
    sockets: BTreeSet<String>,
}

impl Census {
    fn take() -> Self {
        let threads = entries("/proc/self/task").filter(|task| {
            let name = fs::read_to_string(Path::new(task).join("comm"));
            name.is_ok_and(|name| name.trim() == "distlock")
        });
        let sockets = entries("/proc/self/fd").filter_map(|fd| fs::read_link(fd).ok());
        let sockets = sockets.map(|target| target.display().to_string());
        Self {
            threads: threads.collect(),
            sockets: sockets
                .filter(|target| target.starts_with("socket:"))
                .collect(),
        }
    }

    /// Returns the threads and sockets that are there now and were not there then.
    fn since(before: &Self) -> Self {
        let now = Self::take();
        Self {
            threads: now.threads.difference(&before.threads).cloned().collect(),
            sockets: now.sockets.difference(&before.sockets).cloned().collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.threads.is_empty() && self.sockets.is_empty()
    }
}

fn entries(folder: &str) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).expect("this is Linux");
    entries.filter_map(|entry| Some(entry.ok()?.path().display().to_string()))
}

/// Waits until one new thread for each client has begun, each with a connection.
async fn seen(before: &Census, clients: usize) {
    eventually(PATIENCE, "every client has its thread", async || {
        let there = Census::since(before);
        there.threads.len() == clients && there.sockets.len() >= clients
    })
    .await;
}

/// Waits until the lease of each lock has been renewed at the server.
async fn renewed(server: &RedisServer, names: &[&str]) {
    for name in names {
        // As if most of the lease had passed: the next renewal restores it.
        server.cmd(&["PEXPIRE", name, "20000"]);
    }
    eventually(PATIENCE, "leases are renewed", async || {
        names.iter().all(|name| server.pttl(name) > 21_000)
    })
    .await;
}

async fn all_gone(before: &Census) {
    eventually(PATIENCE, "no thread or socket is left", async || {
        Census::since(before).is_empty()
    })
    .await;
}

#[tokio::test]
async fn connecting_and_closing_leaks_no_thread_and_no_socket() {
    let _alone = COMPANY.write().await;
    let server = RedisServer::start();
    let before = Census::take();
    for round in 0..50 {
        let client = connect(&server.url()).await;
        let other = connect(&server.url()).await;
        let guard = client.lock("round").acquire().await.unwrap();
        let waiting = tokio::spawn(other.lock("round").acquire());
        eventually(PATIENCE, "it waits", async || {
            !server.pubsub_channels().is_empty()
        })
        .await;
        seen(&before, 2).await;
        guard.release().await.unwrap();
        drop(waiting.await.unwrap().unwrap());
        // Some are closed, some are merely dropped.
        if round % 2 == 0 {
            client.close().await.unwrap();
            other.close().await.unwrap();
        }
    }
    all_gone(&before).await;
    assert_eq!(server.pubsub_channels(), Vec::<String>::new());
}

#[tokio::test]
async fn a_failed_attempt_to_connect_leaks_nothing() {
    let _alone = COMPANY.write().await;
    let server = RedisServer::start_with(&["--requirepass", "secret"]);
    let before = Census::take();
    for _ in 0..20 {
        let url = format!("redis://:wrong@127.0.0.1:{}/", server.port());
        assert!(Client::connect(&url).await.is_err());
        assert!(Client::connect("redis://127.0.0.1:1/").await.is_err());
        // The connection attempt is dropped half-way.
        let connecting = Client::connect(&url);
        let _ = tokio::time::timeout(Duration::from_micros(200), connecting).await;
    }
    all_gone(&before).await;
}

#[tokio::test]
async fn guards_outlive_their_client_and_the_last_one_frees_everything() {
    let _alone = COMPANY.write().await;
    let server = RedisServer::start();
    let before = Census::take();
    let lease = Lease::KeepAlive(Duration::from_secs(30));
    let client = connect(&server.url()).await;
    let first = client
        .lock("first")
        .with_lease(lease)
        .acquire()
        .await
        .unwrap();
    let second = client
        .lock("second")
        .with_lease(lease)
        .acquire()
        .await
        .unwrap();
    drop(client);
    renewed(&server, &["first", "second"]).await;
    assert!(first.is_held() && second.is_held());
    assert_eq!(server.keys(), ["first", "second"]);
    seen(&before, 1).await;
    first.release().await.unwrap();
    renewed(&server, &["second"]).await;
    assert!(second.is_held());
    drop(second);
    eventually(PATIENCE, "the lock is free", async || {
        server.keys().is_empty()
    })
    .await;
    all_gone(&before).await;
}

#[tokio::test]
async fn a_forgotten_guard_and_a_lost_one_keep_nothing_alive() {
    let _alone = COMPANY.write().await;
    let server = RedisServer::start();
    let before = Census::take();
    let client = connect(&server.url()).await;
    let lease = Lease::Fixed(Duration::from_secs(4));
    let forgotten = client
        .lock("forgotten")
        .with_lease(lease)
        .acquire()
        .await
        .unwrap();
    let lost = client
        .lock("lost")
        .with_lease(lease)
        .acquire()
        .await
        .unwrap();
    let (view, signal) = (lost.held(), lost.lost());
    seen(&before, 1).await;
    forgotten.forget();
    assert!(signal.await.is_some());
    drop((client, lost));
    assert!(!view.is_held());
    drop(view);
    all_gone(&before).await;
}
