//! 3.7 Release needs no memory.

use distlock::Error;

use super::{PATIENCE, RENEW, World, eventually, keep_alive, take};

/// 3.7: the server is at `maxmemory` and refuses whatever might grow; giving back must still work,
/// wholly, in part and in the background, and so must keeping what one has.
#[tokio::test]
async fn release_works_when_redis_is_out_of_memory() {
    let world = World::start();
    let client = world.client().await;
    let me = client.new_owner();
    let nested = client.lock("nested").with_owner(&me);
    let outer = take(nested.clone()).await;
    let (inner, innermost) = (take(nested.clone()).await, take(nested.clone()).await);
    let plain = take(client.lock("plain")).await;
    let dropped = take(client.lock("dropped")).await;
    let kept = take(client.lock("kept").with_lease(keep_alive(6000))).await;

    world.server.config_set("maxmemory-policy", "noeviction");
    world.server.config_set("maxmemory", "1");
    let full = world.server.try_query::<()>(&["SET", "k", "v"]);
    assert!(full.is_err_and(|error| error.to_string().contains("OOM")));
    let refused = client.lock("one more").try_acquire().await;
    assert!(
        matches!(refused, Err(Error::OutOfMemory { .. })),
        "{refused:?}"
    );

    innermost.release().await.expect("in part");
    assert_eq!(world.holder("nested"), Some((outer.owner(), 2)));
    drop(inner);
    eventually(PATIENCE, "in part, in the background", async || {
        world.count("nested") == 1
    })
    .await;
    let renewals = world.runs_for(RENEW, &kept.owner());
    eventually(PATIENCE, "what is held is renewed", async || {
        world.runs_for(RENEW, &kept.owner()) > renewals + 3
    })
    .await;
    assert!(kept.is_held());
    plain.release().await.expect("wholly");
    assert_eq!(world.holder("plain"), None);
    drop(dropped);
    world.free("dropped").await;
    outer.release().await.expect("wholly");
    assert_eq!(world.holder("nested"), None);

    world.server.config_set("maxmemory", "0");
    take(nested).await.release().await.expect("as before");
    kept.release().await.expect("it is ours");
}

/// 3.7: the undo of an acquire frees memory where there is a hold, and must not fail for want of it
/// where there is none: its mark is what refuses the request that still comes.
#[tokio::test]
async fn an_undo_works_when_redis_is_out_of_memory() {
    use super::support::Fault;
    use super::{ACQUIRE, ms, script};

    let world = World::start();
    // Each alone on its connection, so that each is a request of its own.
    let (client, other) = (world.hasty(ms(1000)).await, world.hasty(ms(1000)).await);
    world
        .proxy
        .rule(script(ACQUIRE).arg(3, "done").nth(1), Fault::HoldReply);
    world
        .proxy
        .rule(script(ACQUIRE).arg(3, "stalled").nth(1), Fault::HoldRequest);
    let (done, stalled) = tokio::join!(
        client.lock("done").try_acquire(),
        other.lock("stalled").try_acquire(),
    );
    world.server.config_set("maxmemory", "1");
    assert!(done.is_err() && stalled.is_err(), "no replies");
    world.free("done").await;
    world.marked("stalled").await;
    world.server.config_set("maxmemory", "0");
    world.let_a_script_go().await;
    assert_eq!(world.holder("stalled"), None, "a ghost");
}
