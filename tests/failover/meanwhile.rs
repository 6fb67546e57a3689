//! While a server grants no new locks, existing holds keep working.

use std::time::Duration;

use distlock::{Client, Error, Lease};
use tokio::time::Instant;

use super::pair::{Pair, restart};
use crate::support::{PATIENCE, RedisServer, builder, eventually, simulated};

const DELAY: Duration = Duration::from_secs(8);

#[test]
fn a_writer_may_downgrade_during_the_failover_delay() {
    simulated(async || {
        let server = RedisServer::start();
        let client = connect(&server.url()).await.expect("it is up");
        let lock = client.rw_lock("kept").write();
        let write = lock.acquire().await.expect("it is free");
        restarted(&server, &client).await;
        let read = write.downgrade().await.expect("it was ours all the while");
        read.release().await.expect("it is ours");
    });
}

#[test]
fn only_the_sole_reader_may_upgrade_during_the_failover_delay() {
    simulated(async || {
        let server = RedisServer::start();
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
        // A hold that the server has forgotten no longer belongs to the client, and may belong to another.
        server.cmd(&["DEL", "kept"]);
        let write = read.try_upgrade().await;
        assert!(!matches!(write, Ok(Some(_))), "{write:?}");
    });
}

/// The hold is renewed as on a server that was never promoted.
#[test]
fn a_promoted_server_without_memory_renews_over_a_new_connection() {
    simulated(async || {
        let pair = Pair::start();
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
    });
}

/// The error comes at once, not only after another server has taken its place and nothing works any more.
#[test]
fn a_user_denied_the_promotion_record_gets_an_error_at_once() {
    simulated(async || {
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
    });
}

/// Waits until the server is up again and grants nothing new.
async fn restarted(server: &RedisServer, client: &Client) {
    let begun = Instant::now();
    restart(server);
    eventually(PATIENCE, "it is there", async || {
        client.lock("other").try_acquire().await.is_ok()
    })
    .await;
    let other = client.lock("other").try_acquire().await;
    let other = other.expect("it is there");
    assert!(other.is_none() || begun.elapsed() > DELAY);
}

async fn connect(url: &str) -> Result<Client, Error> {
    let client = builder(url)
        .default_lease(Lease::KeepAlive(DELAY))
        .command_timeout(PATIENCE)
        .connect_timeout(PATIENCE)
        .failover_delay(DELAY);
    client.connect().await
}
