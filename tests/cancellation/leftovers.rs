//! No renewal, subscription or connection goes on after its futures were dropped.

use std::time::Duration;

use distlock::Lease;
use tokio::time::sleep;

use super::drop_at::{DropAt, begin};
use super::fixture::{Fixture, Waiter, hold};
use super::{A_SECOND, LEASE, PATIENCE};
use crate::support::{
    Fair, Family, Fenced, Plain, Player, RedisServer, builder, eventually, simulated,
};

/// Waiters give up and others come: the last to leave ends the subscription.
pub(crate) async fn waiters_that_give_up_unsubscribe<F: Family>(fixture: &Fixture<F>) {
    let name = fixture.name();
    let guard = hold(&fixture.theirs.lock(name.as_str())).await;
    for _ in 0..100 {
        let waiting = tokio::spawn(fixture.ours.lock(name.as_str()).acquire());
        eventually(A_SECOND, "it is subscribed", async || {
            fixture.is_subscribed(&name)
        })
        .await;
        waiting.abort();
        eventually(A_SECOND, "it has unsubscribed", async || {
            !fixture.is_subscribed(&name)
        })
        .await;
    }
    guard.release().await.expect("it is theirs");
    fixture.assert_gone(&name).await;
}

mod a_dropped_call_is_not_renewed {
    use super::*;

    #[test]
    fn of_plain_locks() {
        simulated(drop_calls::<Plain>);
    }

    #[test]
    fn of_fenced_locks() {
        simulated(drop_calls::<Fenced>);
    }

    #[test]
    fn of_fair_locks() {
        simulated(drop_calls::<Fair>);
    }
}

async fn drop_calls<F: Family>() {
    const LEASE: Duration = Duration::from_secs(6);
    let server = RedisServer::start();
    let client = builder(&server.url()).default_lease(Lease::KeepAlive(LEASE));
    let client = client.connect().await.expect("the server runs");
    let client = Player::<F>::new(client);
    let calls = || server.commandstats("evalsha");
    let lock = |name: &str| client.lock(name);

    let guard = hold(&lock("held")).await;
    let before = calls();
    sleep(LEASE * 2).await;
    assert!(calls() >= before + 4, "it is renewed");
    guard.release().await.expect("it is ours");

    for at in DropAt::every().take(8) {
        drop(at.run_alone(lock("acquire").acquire()).await);
        drop(at.run_alone(lock("run").run(async |_| ())).await);
        let guard = hold(&lock("release")).await;
        drop(at.run_alone(guard.release()).await);
        let guard = hold(&lock("queue")).await;
        let mut waiting = Box::pin(lock("queue").acquire());
        assert!(begin(waiting.as_mut()));
        guard.release().await.expect("it is ours");
        drop(waiting);
    }
    eventually(A_SECOND, "everything is released", async || {
        let stays = ["distlock_undone:", "redisson_lock_token:"];
        let keys = server.keys();
        keys.iter()
            .all(|key| stays.iter().any(|stays| key.starts_with(stays)))
    })
    .await;
    let before = calls();
    sleep(LEASE * 10).await;
    assert_eq!(calls(), before, "something is still renewed");
}

/// A dropped call is no evidence against the connection, however long ago the last reply was.
#[test]
fn dropped_calls_do_not_close_the_connection() {
    simulated(async || {
        let server = RedisServer::start();
        let client = builder(&server.url()).command_timeout(A_SECOND);
        let client = client.connect().await.expect("the server runs");
        let lock = client.lock("stock");
        drop(hold(&lock).await);
        eventually(A_SECOND, "it is released", async || {
            server.keys().is_empty()
        })
        .await;
        let before = connections(&server);
        assert_eq!(before.len(), 2);
        for _ in 0..20 {
            let guard = hold(&lock).await;
            sleep(A_SECOND * 3 / 2).await;
            let mut releasing = Box::pin(guard.release());
            assert!(begin(releasing.as_mut()));
            drop(releasing);
            eventually(A_SECOND, "it is released", async || {
                server.keys().is_empty()
            })
            .await;
        }
        assert_eq!(connections(&server), before);
    });
}

/// If anything kept the client alive, its connections would live on.
#[test]
fn a_client_dropped_after_cancelled_calls_leaves_no_connection() {
    simulated(async || {
        let server = RedisServer::start();
        let client = builder(&server.url()).default_lease(Lease::KeepAlive(LEASE));
        let client = client.handoff_limit(1).connect().await;
        let client = client.expect("the server runs");
        let lock = client.lock("stock");
        for at in DropAt::every().take(6) {
            let guard = hold(&lock).await;
            let next = Waiter::start(&lock);
            drop(at.run_alone(guard.release()).await);
            drop(next.turn().await);
            let guard = hold(&lock).await;
            let entered = client.lock("entered").with_owner(&client.new_owner());
            let outer = hold(&entered).await;
            drop(at.run_alone(entered.acquire()).await);
            drop(at.run_alone(lock.acquire_timeout(A_SECOND)).await);
            drop((guard, outer));
        }
        assert!(connections(&server).len() >= 2);
        drop((client, lock));
        eventually(PATIENCE, "every connection is closed", async || {
            connections(&server).is_empty()
        })
        .await;
        let keys = server.keys();
        let left = keys.iter().find(|key| !key.starts_with("distlock_undone:"));
        assert_eq!(left, None);
    });
}

/// Returns the ids of the connections to the server.
fn connections(server: &RedisServer) -> Vec<String> {
    let list: String = server.query(&["CLIENT", "LIST"]);
    let ids = list.lines().filter_map(|line| line.split(' ').next());
    ids.map(ToOwned::to_owned).collect()
}
