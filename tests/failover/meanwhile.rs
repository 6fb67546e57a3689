//! What goes on while a server grants nothing new: all that is somebody's already.

use std::time::{Duration, Instant};

use distlock::{Client, Error, Lease};

use super::pair::Pair;
use super::support::{PATIENCE, RedisServer, eventually};

/// A lease as long as this survives a busy machine.
const DELAY: Duration = Duration::from_secs(8);
const DURABLE: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_goes_on_as_a_reader() {
    let server = RedisServer::start_with(DURABLE);
    let client = connect(&server.url()).await.expect("it is up");
    let lock = client.rw_lock("kept").write();
    let write = lock.acquire().await.expect("it is free");
    restarted(&server, &client).await;
    let read = write.downgrade().await.expect("it was ours all the while");
    read.release().await.expect("it is ours");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_only_reader_may_write_and_nobody_else() {
    let server = RedisServer::start_with(DURABLE);
    let client = connect(&server.url()).await.expect("it is up");
    let owner = client.new_owner();
    let lock = client.rw_lock("kept");
    let read = lock.read().with_owner(&owner).acquire().await;
    let read = read.expect("it is free");
    restarted(&server, &client).await;
    let write = lock.write().with_owner(&owner).acquire().await;
    write
        .expect("nobody else reads")
        .release()
        .await
        .expect("ours");
    // What the server has forgotten is not theirs any more, and may be another's.
    server.cmd(&["DEL", "kept"]);
    let write = read.try_upgrade().await;
    assert!(!matches!(write, Ok(Some(_))), "{write:?}");
}

/// As one does that was never promoted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_server_without_memory_renews_over_a_new_connection() {
    let pair = Pair::start().await;
    pair.promote();
    let client = connect(&pair.replica.url()).await.expect("it is up");
    let lock = client.lock("kept").with_owner(&client.new_owner());
    let guard = lock.acquire().await.expect("it is waited for");
    pair.replica.config_set("maxmemory", "1");
    pair.replica.kill_normal_clients();
    let until = guard.valid_until();
    eventually(PATIENCE, "it is renewed", async || {
        assert!(guard.is_held(), "it is lost");
        guard.valid_until() > until
    })
    .await;
    eventually(PATIENCE, "it is entered again", async || {
        lock.acquire().await.is_ok()
    })
    .await;
}

/// Not when another server has taken its place, and nothing works any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_keep_the_record_is_told_at_once() {
    let server = RedisServer::start();
    let rights = ["ACL", "SETUSER", "locker", "on", ">pw", "+@all", "&*"];
    let keys = ["~kept*", "~*{kept}*"];
    server.cmd(&[&rights[..], &keys].concat());
    let addr = server.addr();
    let url = format!("redis://locker:pw@{addr}/");
    let client = connect(&url).await.expect("it is let in");
    let refused = client.lock("kept").try_acquire().await;
    assert!(
        matches!(refused, Err(Error::PermissionDenied { .. })),
        "{refused:?}"
    );
    server.cmd(&["ACL", "SETUSER", "locker", "~distlock_promoted*"]);
    let waits = client.lock("kept").try_acquire().await;
    assert!(waits.expect("it may").is_none(), "the server is young");
}

/// Until it is there again, and grants nothing new.
async fn restarted(server: &RedisServer, client: &Client) {
    let begun = Instant::now();
    server.restart();
    eventually(PATIENCE, "it is there", async || {
        client.lock("other").try_acquire().await.is_ok()
    })
    .await;
    let other = client.lock("other").try_acquire().await;
    let other = other.expect("it is there");
    assert!(other.is_none() || begun.elapsed() > DELAY);
}

async fn connect(url: &str) -> Result<Client, Error> {
    let client = Client::builder(url)
        .default_lease(Lease::KeepAlive(DELAY))
        .command_timeout(PATIENCE)
        .connect_timeout(PATIENCE)
        .failover_delay(DELAY);
    client.connect().await
}
