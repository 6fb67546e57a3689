//! The warning about a server that may evict locks: it is logged once.

use super::connect;
use super::event_log::EventLog;
use super::support::RedisServer;

const EVICTING: [&str; 7] = [
    "allkeys-lfu",
    "allkeys-lru",
    "allkeys-random",
    "volatile-lfu",
    "volatile-lru",
    "volatile-random",
    "volatile-ttl",
];

#[tokio::test]
async fn every_eviction_policy_but_none_is_warned_of_once_at_connect() {
    let event_log = EventLog::open();
    let server = RedisServer::start();
    for policy in EVICTING {
        server.config_set("maxmemory-policy", policy);
        let client = connect(&server.url()).await;
        for _ in 0..3 {
            client
                .lock("evicted")
                .acquire()
                .await
                .unwrap()
                .release()
                .await
                .unwrap();
        }
        // Nor is it repeated when a new connection has to be made.
        server.kill_normal_clients();
        let _ = client.lock("evicted").try_acquire().await;
        client
            .lock("evicted")
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        client.close().await.unwrap();
        let warnings = event_log.lines_with(&["WARN", &format!("{policy}\"")]);
        assert_eq!(warnings.len(), 1, "{policy}: {warnings:?}");
        assert!(
            warnings[0].contains("noeviction"),
            "no way out: {warnings:?}"
        );
    }
}

#[tokio::test]
async fn a_server_that_evicts_nothing_is_not_warned_of() {
    let event_log = EventLog::open();
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    client
        .lock("noeviction's")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    // Events are being recorded here; a warning would be, too.
    assert!(!event_log.lines_with(&["noeviction's"]).is_empty());
    assert_eq!(
        event_log.lines_with(&["policy=\"noeviction\""]),
        Vec::<String>::new()
    );
}
