//! One read/write lock, a Java client and ours.

use std::time::Duration;

use distlock::{Client, Lease, LockKind, LostReason};
use tokio::time::{sleep, timeout};

use super::stage::{hash, read, write};
use super::support::java::{Java, Subscriber, rw_channel, timeout_key};
use super::support::{RedisServer, builder, eventually, paced_timeout, simulated};
use super::{LEASE, PATIENCE, assert_just_set, connect, leaves_nothing};

const THREAD: i64 = 47;
const A_MINUTE: &str = "60000";

#[test]
fn java_is_refused_what_we_hold_and_we_what_java_holds() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (connect(&server).await, Java::start(&server).await);
        for name in ["prices", "a{b}c"] {
            let lock = client.rw_lock(name);
            let writer = write(&lock, LEASE).await;
            let before = server.hgetall(name);
            for pttl in [
                java.read_lock(name, THREAD, "1000").await,
                java.write_lock(name, THREAD, "1000").await,
            ] {
                assert_just_set(pttl.expect("we write"), LEASE);
            }
            assert_eq!(java.write_unlock(name, THREAD).await, None);
            assert_eq!(java.read_unlock(name, THREAD).await, None);
            assert_eq!(server.hgetall(name), before);
            writer.release().await.unwrap();

            assert_eq!(java.write_lock(name, THREAD, A_MINUTE).await, None);
            let before = server.hgetall(name);
            assert!(lock.read().try_acquire().await.unwrap().is_none());
            assert!(lock.write().try_acquire().await.unwrap().is_none());
            assert_eq!(server.hgetall(name), before);
            assert_just_set(server.pttl(name), LEASE);
            assert_eq!(java.write_unlock(name, THREAD).await, Some(true));

            // To read, both may.
            let reader = read(&lock, LEASE).await;
            assert_eq!(java.read_lock(name, THREAD, A_MINUTE).await, None);
            let both = [(&*reader.owner(), "1"), (&*java.owner(THREAD), "1")];
            assert_eq!(server.hgetall(name), hash("read", &both));
            assert!(java.write_lock(name, 48, "1000").await.is_some());
            assert!(lock.write().try_acquire().await.unwrap().is_none());
            let seen = client.admin().inspect(name).await.unwrap().expect("held");
            assert_eq!((seen.kind, seen.holders.len()), (LockKind::Read, 2));
            reader.release().await.unwrap();
            assert!(lock.write().try_acquire().await.unwrap().is_none());
            assert_eq!(java.read_unlock(name, THREAD).await, Some(true));
            write(&lock, LEASE).await.release().await.unwrap();
        }
        leaves_nothing(&server, client).await;
    });
}

#[test]
fn javas_unlock_beside_a_reader_of_ours_leaves_it_its_hold_and_its_time() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (connect(&server).await, Java::start(&server).await);
        for name in ["prices", "a{b}c", "{test}:abc:key"] {
            let lock = client.rw_lock(name);
            let mut ear = Subscriber::start(&server, &rw_channel(name)).await;
            let me = client.new_owner();
            let reading = lock.read().with_owner(&me).with_lease(Lease::Fixed(LEASE));
            let (outer, inner) = (reading.acquire().await, reading.acquire().await);
            let (outer, inner) = (outer.unwrap(), inner.unwrap());
            for _ in 0..2 {
                assert_eq!(java.read_lock(name, THREAD, "120000").await, None);
            }
            for _ in 0..2 {
                assert_eq!(java.read_unlock(name, THREAD).await, Some(false));
            }
            assert_eq!(server.hgetall(name), hash("read", &[(&outer.owner(), "2")]));
            assert_just_set(server.pttl(name), LEASE);
            inner.release().await.unwrap();
            // Once more with what is left of it.
            assert_eq!(java.read_lock(name, THREAD, "1000").await, None);
            assert_eq!(java.read_unlock(name, THREAD).await, Some(false));
            assert_just_set(server.pttl(name), LEASE);
            assert!(ear.rest(&server).await.is_empty());
            outer.release().await.expect("it is ours");
            assert_eq!(ear.rest(&server).await, [b"0"]);
            ear.unsubscribe().await;
        }
        leaves_nothing(&server, client).await;
    });
}

#[test]
fn our_release_beside_a_java_reader_leaves_it_its_hold_and_its_time() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (connect(&server).await, Java::start(&server).await);
        let lock = client.rw_lock("prices");
        assert_eq!(java.read_lock("prices", THREAD, A_MINUTE).await, None);
        assert_eq!(java.read_lock("prices", THREAD, "5000").await, None);
        read(&lock, LEASE * 3).await.release().await.unwrap();
        let owner = java.owner(THREAD);
        assert_eq!(server.hgetall("prices"), hash("read", &[(&owner, "2")]));
        assert_just_set(server.pttl("prices"), LEASE);
        assert_eq!(java.read_unlock("prices", THREAD).await, Some(false));
        assert_eq!(java.read_unlock("prices", THREAD).await, Some(true));
        leaves_nothing(&server, client).await;
    });
}

#[test]
fn whoever_gives_it_back_the_other_is_woken_at_once() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (connect(&server).await, Java::start(&server).await);
        let lock = client.rw_lock("prices");
        // Who is not told sleeps for two seconds.
        let soon = Duration::from_millis(1500);
        let waits = async |times| {
            let asked = server.commandstats("evalsha");
            eventually(PATIENCE, "it sleeps", async || {
                server.pubsub_channels() == [rw_channel("prices")]
                    && server.commandstats("evalsha") >= asked + times
            })
            .await;
        };
        // Java's reader, our writer.
        assert_eq!(java.read_lock("prices", THREAD, A_MINUTE).await, None);
        let writer = tokio::spawn(lock.write().acquire());
        waits(1).await;
        assert_eq!(java.read_unlock("prices", THREAD).await, Some(true));
        let (writer, _) = paced_timeout(soon, writer).await.expect("it is told");
        writer.unwrap().unwrap().release().await.unwrap();
        // Java's writer, our readers.
        assert_eq!(java.write_lock("prices", THREAD, A_MINUTE).await, None);
        let readers: Vec<_> = (0..3)
            .map(|_| tokio::spawn(lock.read().acquire()))
            .collect();
        waits(1).await;
        assert_eq!(java.write_unlock("prices", THREAD).await, Some(true));
        for reader in readers {
            let (reader, _) = paced_timeout(soon, reader).await.expect("it is told");
            reader.unwrap().unwrap().release().await.unwrap();
        }
        // Ours, and Java's waiters: one wakes for a reader's, all for a writer's.
        let mut ear = Subscriber::start(&server, &rw_channel("prices")).await;
        read(&lock, LEASE).await.release().await.unwrap();
        assert_eq!(ear.message().await, b"0");
        assert_eq!(java.write_lock("prices", THREAD, A_MINUTE).await, None);
        assert_eq!(java.write_unlock("prices", THREAD).await, Some(true));
        assert_eq!(ear.message().await, b"1");
        write(&lock, LEASE).await.release().await.unwrap();
        assert_eq!(ear.message().await, b"1");
        ear.unsubscribe().await;
        leaves_nothing(&server, client).await;
    });
}

/// Who knows how long Java's watchdog lets a lock last.
async fn beside(server: &RedisServer, watchdog: Duration) -> Client {
    let builder = builder(&server.url()).redisson_watchdog_timeout(watchdog);
    // A server on a busy machine is slow to answer, and not down; but it is asked again before the lock is over.
    let builder = builder.command_timeout(watchdog / 4);
    let client = builder.connect_timeout(PATIENCE).connect().await;
    client.expect("the server is up")
}

/// Redisson's sets what is left of the whole lock to its own time-out, however long others were promised it.
#[test]
fn javas_watchdog_does_not_cost_a_reader_of_ours_its_hold() {
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
        // Now and then ours comes between the two.
        eventually(PATIENCE, "it cuts", async || {
            assert!(java.renew_read("prices", THREAD, &millis).await);
            server.pttl("prices") <= 6000
        })
        .await;
        // It dies, and what it left of the lock would end with it.
        sleep(WATCHDOG * 3 / 2).await;
        assert!(fixed.is_held() && alive.is_held());
        assert!(server.pttl("prices") > 0, "asserted anew");
        assert_eq!(
            java.write_lock("prices", 48, "1000").await.map(|_| ()),
            Some(())
        );
        assert!(lock.write().try_acquire().await.unwrap().is_none());
        // And it goes on cutting.
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
fn a_reader_that_javas_watchdog_cut_short_says_so_before_it_is_over() {
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
        // Nothing more gets through: what it relies on ends no later than the lock.
        server.stop_process();
        let lost = timeout(PATIENCE, guard.lost()).await.expect("it notices");
        assert_eq!(lost.expect("not released").reason, LostReason::Expired);
        server.continue_process();
        drop(guard);
        // A renewal that got through at last may have made it last for all that was promised.
        let promised = LEASE + PATIENCE;
        eventually(promised, "it is over", async || server.keys().is_empty()).await;
        client.close().await.unwrap();
    });
}

#[test]
fn a_java_reader_that_died_keeps_no_writer_of_ours_out() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (connect(&server).await, Java::start(&server).await);
        let lock = client.rw_lock("prices");
        // Alone: its time-outs have gone, and what another has made of the lock's time stays.
        for _ in 0..2 {
            assert_eq!(java.read_lock("prices", THREAD, "3000").await, None);
        }
        // Before it is over itself.
        assert_eq!(server.query::<u32>(&["PEXPIRE", "prices", A_MINUTE]), 1);
        eventually(PATIENCE, "it is over", async || server.keys() == ["prices"]).await;
        let seen = client.admin().inspect("prices").await.unwrap();
        assert!(seen.is_none(), "{seen:?}");
        write(&lock, LEASE).await.release().await.unwrap();
        assert!(server.keys().is_empty());
        // Beside a reader of ours, who does not see it go.
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

/// Java's time is over while the writer waits: nobody says so, and nobody has to.
#[test]
fn a_java_reader_that_dies_lets_a_writer_of_ours_in_that_waits() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (connect(&server).await, Java::start(&server).await);
        assert_eq!(java.read_lock("prices", THREAD, "700").await, None);
        server.cmd(&["PEXPIRE", "prices", A_MINUTE]);
        let writer = client.rw_lock("prices").write().acquire();
        let writer = timeout(PATIENCE, writer).await.expect("it asks anew");
        writer.unwrap().release().await.unwrap();
        leaves_nothing(&server, client).await;
    });
}

/// They know nothing of it: so it is said in the documentation.
#[test]
fn java_readers_pass_a_writer_of_ours_that_waits_and_our_readers_do_not() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (connect(&server).await, Java::start(&server).await);
        let lock = client.rw_lock("prices");
        assert_eq!(java.read_lock("prices", THREAD, A_MINUTE).await, None);
        let writer = tokio::spawn(lock.write().acquire());
        eventually(PATIENCE, "it waits", async || {
            server.pttl("distlock_writers:{prices}") > 0
        })
        .await;
        assert_eq!(java.read_lock("prices", 48, A_MINUTE).await, None);
        assert!(lock.read().try_acquire().await.unwrap().is_none());
        let ours = tokio::spawn(lock.read().acquire());
        assert_eq!(java.read_unlock("prices", THREAD).await, Some(false));
        assert!(!writer.is_finished() && !ours.is_finished());
        assert_eq!(java.read_unlock("prices", 48).await, Some(true));
        let writer = timeout(PATIENCE, writer).await.expect("its turn");
        let writer = writer.unwrap().unwrap();
        assert!(!ours.is_finished());
        // Nor does Java's unlock of its own know of it.
        assert_eq!(
            java.read_lock("prices", 48, "1000").await.map(|_| ()),
            Some(())
        );
        writer.release().await.unwrap();
        let ours = timeout(PATIENCE, ours).await.expect("its turn");
        ours.unwrap().unwrap().release().await.unwrap();
        leaves_nothing(&server, client).await;
    });
}

#[test]
fn javas_writer_that_reads_on_lets_our_readers_in() {
    simulated(async || {
        let server = RedisServer::start();
        let (client, java) = (connect(&server).await, Java::start(&server).await);
        let lock = client.rw_lock("prices");
        assert_eq!(java.write_lock("prices", THREAD, A_MINUTE).await, None);
        assert_eq!(java.read_lock("prices", THREAD, A_MINUTE).await, None);
        let reader = tokio::spawn(lock.read().acquire());
        assert!(lock.read().try_acquire().await.unwrap().is_none());
        assert_eq!(java.write_unlock("prices", THREAD).await, Some(true));
        // D18: it tells nobody. Ours asks now and then.
        let reader = timeout(PATIENCE, reader).await.expect("it asks anew");
        reader.unwrap().unwrap().release().await.unwrap();
        assert_eq!(java.read_unlock("prices", THREAD).await, Some(true));
        leaves_nothing(&server, client).await;
    });
}
