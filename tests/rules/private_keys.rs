//! 3.12 Private keys of ours stay in the lock's slot, carry a time to live and disturb nothing.

use super::support::{Fault, eventually};
use super::{ACQUIRE, PATIENCE, World, connect, ms, script, take};

/// 3.12: the marks of undone acquires and the clients' labels go by themselves.
#[tokio::test]
async fn every_key_of_ours_carries_a_ttl() {
    let world = World::start();
    let client = connect(world.builder().command_timeout(ms(1000)).label("billing")).await;
    world.proxy.rule(script(ACQUIRE).nth(1), Fault::HoldRequest);
    assert!(client.lock("stock").try_acquire().await.is_err());
    world.marked("stock").await;
    let _held = take(client.lock("order")).await;
    eventually(
        PATIENCE,
        "a lock, a mark and a label are there",
        async || world.server.keys().len() == 3,
    )
    .await;
    for key in world.server.keys() {
        let ttl = world.server.pttl(&key);
        assert!((1..=5 * 60_000).contains(&ttl), "`{key}`: {ttl}");
        // Far longer than a network keeps a request: minutes.
        let remembered = !key.starts_with("distlock_undone") || ttl > 2 * 60_000;
        assert!(remembered, "`{key}`: {ttl}");
    }
}

/// 3.12: where Redis Cluster would put a lock, its private keys are, too. Names as users choose them,
/// with and without a hash tag, and with braces that Redisson's rule takes for one but Redis does not.
/// (A `}` that belongs to no tag leaves nothing that could be done by a tag: such names are not for a
/// cluster.)
#[tokio::test]
async fn private_keys_share_the_slot_of_their_lock() {
    let names = [
        "stock",
        "order:42",
        "a{b}c",
        "{tag}stock",
        "a{b}{c}",
        "foo{bar",
        "{{bar}}zap",
    ];
    let world = World::start();
    let client = world.hasty(ms(600)).await;
    let mut apart = Vec::new();
    for name in names {
        world.proxy.clear_rules();
        world.proxy.rule(script(ACQUIRE), Fault::HoldRequest);
        assert!(client.lock(name).try_acquire().await.is_err());
        eventually(PATIENCE, "the undo has left its mark", async || {
            world.server.keys().len() == 1
        })
        .await;
        let mark = &world.server.keys()[0];
        if slot(mark) != slot(name) {
            apart.push(format!(
                "`{name}` is in slot {}, `{mark}` in {}",
                slot(name),
                slot(mark)
            ));
        }
        world.server.flushall();
    }
    assert!(apart.is_empty(), "{}", apart.join("; "));
}

/// Redis Cluster's: only what stands between the first `{` and the next `}` counts, if that is
/// anything.
fn slot(key: &str) -> u16 {
    let tag = key.find('{').and_then(|open| {
        let rest = &key[open + 1..];
        rest.find('}').map(|close| &rest[..close])
    });
    let counts = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    let mut crc = 0u16;
    for byte in counts.bytes() {
        crc ^= u16::from(byte) << 8;
        for _ in 0..8 {
            let carry = crc & 0x8000 != 0;
            crc <<= 1;
            if carry {
                crc ^= 0x1021;
            }
        }
    }
    crc % 16_384
}

#[test]
fn slots_are_computed_as_the_cluster_specification_does() {
    // The check value of the specification, and keys whose slots are well known.
    assert_eq!(slot("123456789"), 0x31C3);
    assert_eq!(slot("foo"), 12_182);
    assert_eq!(slot("foo{hash_tag}"), slot("hash_tag"));
    assert_ne!(slot("foo{}{bar}"), slot("bar"));
    assert_eq!(slot("foo{{bar}}zap"), slot("{bar"));
}
