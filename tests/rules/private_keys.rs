//! 3.12 Private keys stay in the lock's slot, carry a time to live and disturb nothing.

use distlock_sim::slot_of;

use super::{attack, becomes, connect, ms, runs, take};
use crate::support::{Fault, Script};

/// 3.12: tombstones and the clients' labels expire by themselves.
#[test]
fn every_key_of_distlock_carries_a_ttl() {
    attack(async |world| {
        let builder = world.builder().command_timeout(ms(1000)).label("billing");
        let client = connect(builder).await;
        world.next(Script::Acquire, Fault::HoldRequest);
        assert!(client.lock("stock").try_acquire().await.is_err());
        world.marked("stock").await;
        let _held = take(client.lock("order")).await;
        becomes("a lock, a mark and a label are there", || {
            world.server.keys().len() == 3
        })
        .await;
        for key in world.server.keys() {
            let ttl = world.server.pttl(&key);
            assert!((1..=5 * 60_000).contains(&ttl), "`{key}`: {ttl}");
            // Tombstones last minutes, far longer than a network keeps a request.
            let remembered = !key.starts_with("distlock_undone") || ttl > 2 * 60_000;
            assert!(remembered, "`{key}`: {ttl}");
        }
    });
}

/// 3.12: the private keys of a lock are in the slot of the lock. Names are such as users choose, with and without a hash tag, and with
/// braces that are a tag by Redisson's rule but not by Redis'. (With a `}` that belongs to no tag, no tag can put other keys into the same
/// slot: such names are not for a cluster.)
#[test]
fn private_keys_share_the_slot_of_their_lock() {
    attack(async |world| {
        let client = world.short_timeout_client().await;
        world.proxy.rule(runs(Script::Acquire), Fault::HoldRequest);
        for name in [
            "stock",
            "order:42",
            "a{b}c",
            "{tag}stock",
            "a{b}{c}",
            "foo{bar",
            "{{bar}}zap",
        ] {
            assert!(client.lock(name).try_acquire().await.is_err());
            becomes("the undo has left its mark", || {
                world.server.keys().len() == 1
            })
            .await;
            let mark = world.server.keys().remove(0);
            assert_eq!(slot_of(&mark), slot_of(name), "`{mark}` of `{name}`");
            world.server.flushall();
        }
    });
}
