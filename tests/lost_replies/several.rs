//! Several locks asked for in one call, whose request or reply is lost: nothing of it stays held, or comes to be held later.

use distlock::{Client, Error, MultiLock};

use super::corners::proxied;
use super::support::{ChaosProxy, Fault, Match, Plain, eventually};
use super::world::World;
use super::{LEASE, PATIENCE};

/// In one slot, so that a cluster, too, is asked for all in one call.
const NAMES: [&str; 3] = ["{all}:c", "{all}:a", "{all}:b"];

#[tokio::test]
async fn several_locks_whose_common_reply_is_lost_are_all_given_back() {
    for fault in [Fault::HoldReply, Fault::CutAfter, Fault::CutBefore] {
        let (world, proxy, lock) = begin().await;
        proxy.rule(Match::command("EVALSHA").nth(1), fault);
        let got = lock.try_acquire().await;
        let in_doubt = matches!(got, Err(Error::Timeout { .. } | Error::Unavailable { .. }));
        assert!(in_doubt, "{got:?}");
        proxy.clear_rules();
        none_is_held(&world).await;
        proxy.let_go();
        let again = lock.acquire().await;
        again.expect("all are free").release().await.expect("ours");
    }
}

#[tokio::test]
async fn several_locks_asked_for_in_a_call_that_comes_too_late_are_refused() {
    for waits in [false, true] {
        let (world, proxy, lock) = begin().await;
        proxy.rule(Match::command("EVALSHA").nth(1), Fault::HoldRequest);
        let got = match waits {
            false => lock.try_acquire().await,
            true => lock.acquire_timeout(LEASE).await,
        };
        assert!(matches!(got, Err(Error::Timeout { .. })), "{got:?}");
        proxy.clear_rules();
        // Each is marked as undone before the call arrives.
        let mark = |name: &str| format!("distlock_undone:{name}");
        eventually(PATIENCE, "all are undone", async || {
            let keys = world.server.keys();
            NAMES.iter().all(|name| keys.contains(&mark(name)))
        })
        .await;
        let before = world.server.commandstats("evalsha");
        proxy.let_go();
        eventually(PATIENCE, "it has come", async || {
            world.server.commandstats("evalsha") > before
        })
        .await;
        for name in NAMES {
            assert!(world.holds(name).await.is_empty(), "a ghost holds `{name}`");
        }
    }
}

/// A server that knows the script, and the locks behind a proxy.
async fn begin() -> (World<Plain>, ChaosProxy, MultiLock) {
    let (world, proxy, client) = proxied::<Plain>(|builder| builder).await;
    let client: Client = (*client).clone();
    let lock = MultiLock::new(NAMES.map(|name| client.lock(name).into()));
    let guard = lock.acquire().await.expect("the network is whole");
    guard.release().await.expect("ours");
    (world, proxy, lock)
}

async fn none_is_held(world: &World<Plain>) {
    for name in NAMES {
        eventually(PATIENCE, "it is free", async || {
            world.holds(name).await.is_empty()
        })
        .await;
    }
}
