//! One read/write lock, a Java client and distlock, in the cases that depend on Java's times. `scripts/interop` plays the rest with the
//! real one.

use std::time::Duration;

use distlock::{Client, Lease, LostReason};
use tokio::time::{sleep, timeout};

use super::stage::{read, write};
use super::support::java::{Java, timeout_key};
use super::support::{RedisServer, builder, eventually, simulated};
use super::{LEASE, PATIENCE, assert_just_set, connect, leaves_nothing};

const THREAD: i64 = 47;
const A_MINUTE: &str = "60000";

/// Connects a client that knows Redisson's watchdog timeout.
async fn beside(server: &RedisServer, watchdog: Duration) -> Client {
    let builder = builder(&server.url()).redisson_watchdog_timeout(watchdog);
    // A server on a busy machine replies late although it is not down; but the timeout must allow a retry before the lease expires.
    let builder = builder.command_timeout(watchdog / 4);
    let client = builder.connect_timeout(PATIENCE).connect().await;
    client.expect("the server is up")
}

/// Redisson's watchdog sets the time to live of the whole lock to its own timeout, however long the leases of other holders are.
#[test]
fn redissons_watchdog_does_not_cost_our_reader_its_hold() {
    simulated(async || {
        const WATCHDOG: Duration = Duration::from_secs(6);
        let server = RedisServer::start();
        let java = Java::start(&server).await;
        let client = beside(&server, WATCHDOG).await;
        let lock = client.rw_lock("prices");
        let fixed = read(&lock, LEASE).await;
        let alive = lock.read().with_lease(Lease::KeepAlive(LEASE));
        let alive = alive.acquire().await.unwrap();
        assert_just_set(server.pttl("prices"), LEASE);
        let millis = WATCHDOG.as_millis().to_string();
        assert_eq!(java.read_lock("prices", THREAD, &millis).await, None);
        // A renewal of distlock's client sometimes comes between the two commands.
        eventually(PATIENCE, "it cuts", async || {
            assert!(java.renew_read("prices", THREAD, &millis).await);
            server.pttl("prices") <= 6000
        })
        .await;
        // The Java client crashes, and the rest of the lock would expire with it.
        sleep(WATCHDOG * 3 / 2).await;
        assert!(fixed.is_held() && alive.is_held());
        assert!(server.pttl("prices") > 0, "asserted anew");
        assert_eq!(
            java.write_lock("prices", 48, "1000").await.map(|_| ()),
            Some(())
        );
        assert!(lock.write().try_acquire().await.unwrap().is_none());
        // And Java's watchdog goes on shortening the time to live.
        assert_eq!(java.read_lock("prices", 49, &millis).await, None);
        for _ in 0..4 {
            assert!(java.renew_read("prices", 49, &millis).await);
            sleep(WATCHDOG / 3).await;
        }
        assert!(fixed.is_held() && alive.is_held());
        assert_eq!(java.read_unlock("prices", 49).await, Some(false));
        fixed.release().await.expect("it is ours");
        alive.release().await.expect("it is ours");
        assert!(server.keys().is_empty(), "{:?}", server.keys());
        leaves_nothing(&server, client).await;
    });
}

#[test]
fn a_reader_shortened_by_redissons_watchdog_is_lost_before_it_expires() {
    simulated(async || {
        const WATCHDOG: Duration = Duration::from_secs(8);
        let server = RedisServer::start();
        let java = Java::start(&server).await;
        let client = beside(&server, WATCHDOG).await;
        let guard = read(&client.rw_lock("prices"), LEASE).await;
        assert!(guard.remaining() <= WATCHDOG, "{:?}", guard.remaining());
        let millis = WATCHDOG.as_millis().to_string();
        assert_eq!(java.read_lock("prices", THREAD, &millis).await, None);
        assert!(java.renew_read("prices", THREAD, &millis).await);
        // No further renewal arrives: the end of the hold that the client relies on is no later than that of the lock.
        server.stop_process();
        let lost = timeout(PATIENCE, guard.lost()).await.expect("it notices");
        assert_eq!(lost.expect("not released").reason, LostReason::Expired);
        server.continue_process();
        drop(guard);
        // A renewal that arrived in the end may have extended the lock to the full lease.
        let promised = LEASE + PATIENCE;
        eventually(promised, "it is over", async || server.keys().is_empty()).await;
        client.close().await.unwrap();
    });
}

#[test]
fn a_crashed_redisson_reader_excludes_no_writer_of_ours() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (connect(&server).await, Java::start(&server).await);
        let lock = client.rw_lock("prices");
        // Without other readers: its timeouts have expired, and the longer time to live that another client has set stays.
        for _ in 0..2 {
            assert_eq!(java.read_lock("prices", THREAD, "3000").await, None);
        }
        // Set before the lock expires by itself.
        assert_eq!(server.query::<u32>(&["PEXPIRE", "prices", A_MINUTE]), 1);
        eventually(PATIENCE, "it is over", async || server.keys() == ["prices"]).await;
        let seen = client.admin().inspect("prices").await.unwrap();
        assert!(seen.is_none(), "{seen:?}");
        write(&lock, LEASE).await.release().await.unwrap();
        assert!(server.keys().is_empty());
        // Beside a reader of this library, which is not notified when the Java reader expires.
        let reader = read(&lock, LEASE).await;
        assert_eq!(java.read_lock("prices", THREAD, "50").await, None);
        let key = timeout_key("prices", &java.owner(THREAD), 1);
        eventually(PATIENCE, "it is over", async || server.pttl(&key) == -2).await;
        assert_eq!(server.hgetall("prices").len(), 3, "the field stays");
        let writer = reader.try_upgrade().await.unwrap();
        writer.expect("alone").release().await.unwrap();
        let waiting = tokio::spawn(lock.write().acquire());
        reader.release().await.unwrap();
        let writer = timeout(PATIENCE, waiting).await.expect("it is let in");
        writer.unwrap().unwrap().release().await.unwrap();
        leaves_nothing(&server, client).await;
    });
}
