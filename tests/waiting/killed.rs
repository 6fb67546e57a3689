//! A process that is killed: its locks expire, and its queue entries are skipped.

use std::time::Duration;

use distlock::{Client, Lease};
use tokio::time::{Instant, sleep};

use super::{connect, granted, release, until_listeners};
use crate::support::transport::HOST;
use crate::support::{PATIENCE, RedisServer, eventually, simulated, world};

const LEASE: Duration = Duration::from_secs(6);
const DYING: &str = "dying";

/// Returns a client of a process that ends abruptly: nothing that it sends arrives any more.
async fn client_of_a_dying_process(server: &RedisServer) -> Client {
    let builder = world().client_of(&server.url(), DYING);
    let client = builder.default_lease(Lease::KeepAlive(LEASE)).connect();
    client.await.expect("the server is up")
}

#[test]
fn a_killed_holder_frees_its_lock_within_its_lease_and_a_quarter_of_a_second() {
    simulated(async || {
        let server = RedisServer::start();
        let (holder, waiter) = (
            client_of_a_dying_process(&server).await,
            connect(&server.url()).await,
        );
        let held = holder.lock("a").acquire().await.unwrap();
        let waiting = tokio::spawn(waiter.lock("a").acquire());
        until_listeners(&server, "a", 1).await;
        sleep(2 * LEASE).await;
        assert!(held.is_held() && !waiting.is_finished(), "it is renewed");
        world().network.block(DYING, HOST);
        let killed = Instant::now();
        release(granted(waiting).await).await;
        let took = killed.elapsed();
        assert!(took <= LEASE + Duration::from_millis(250), "{took:?}");
        held.forget();
    });
}

/// The store keeps a silent waiter in the queue for ten seconds, and the other waiters poll every three.
#[test]
fn a_killed_waiter_of_a_fair_lock_is_skipped_after_some_ten_seconds() {
    simulated(async || {
        let server = RedisServer::start();
        let (dying, client) = (
            client_of_a_dying_process(&server).await,
            connect(&server.url()).await,
        );
        let queued = || server.query::<usize>(&["LLEN", "redisson_lock_queue:{a}"]);
        let held = client.fair_lock("a").acquire().await.unwrap();
        for number in 1..=3 {
            tokio::spawn(dying.fair_lock("a").acquire());
            eventually(PATIENCE, "it queues", async || queued() == number).await;
        }
        let behind = tokio::spawn(client.fair_lock("a").acquire());
        eventually(PATIENCE, "it queues", async || queued() == 4).await;
        world().network.block(DYING, HOST);
        let killed = Instant::now();
        held.release().await.unwrap();
        behind.await.unwrap().unwrap().release().await.unwrap();
        let took = killed.elapsed().as_secs();
        assert!((3..=13).contains(&took), "{took} s");
    });
}
