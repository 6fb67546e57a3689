//! 3.4 Times to live only grow, and every lock key has one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::support::{Fault, SeededRng, eventually, patient_connection};
use super::{
    ACQUIRE, PATIENCE, RENEW, SCRIPTS, World, begun, connect, fixed, in_time, keep_alive, ms,
};
use super::{script, soon, take};

/// 3.4: an inner hold that is kept alive on a short lease, inside an outer one with a long fixed lease.
/// Five seconds and ten minutes in the field; here the short one is shorter still, to see it renewed.
#[tokio::test]
async fn an_inner_keep_alive_of_5_s_does_not_cut_an_outer_fixed_600_s() {
    let world = World::start();
    let client = world.client().await;
    let me = client.new_owner();
    let lock = client.lock("stock").with_owner(&me);
    let outer = take(lock.clone().with_lease(fixed(600_000))).await;
    let unharmed = |when: &str| {
        let ttl = world.server.pttl("stock");
        assert!(ttl > 580_000, "{when}: {ttl} ms are left");
        let left = outer.remaining();
        assert!(left > Duration::from_secs(580), "{when}: {left:?} are left");
    };
    unharmed("before");
    let inner = take(lock.with_lease(keep_alive(300))).await;
    unharmed("entered again");
    eventually(PATIENCE, "the inner hold is renewed", async || {
        world.runs_for(RENEW, &outer.owner()) >= 2
    })
    .await;
    unharmed("renewed");
    inner.release().await.expect("it is ours");
    unharmed("partly released");
    outer.release().await.expect("it is ours");
}

/// 3.4: a partial release keeps the lease that was asked for. Redisson's puts the lease of whoever
/// locked last in its place, or thirty seconds.
#[tokio::test]
async fn a_partial_release_keeps_the_lease_that_was_asked_for() {
    let world = World::start();
    let client = world.client().await;
    let me = client.new_owner();
    let lock = client.lock("stock").with_owner(&me);
    let outer = take(lock.clone().with_lease(fixed(20_000))).await;
    let inner = take(lock.clone().with_lease(fixed(600_000))).await;
    let valid_until = outer.valid_until();
    inner.release().await.expect("it is ours");
    assert!(world.server.pttl("stock") > 580_000);
    assert!(outer.valid_until() + ms(50) >= valid_until);

    let inner = take(lock.with_lease(fixed(20_000))).await;
    drop(inner);
    eventually(PATIENCE, "the inner hold is given back", async || {
        world.count("stock") == 1
    })
    .await;
    assert!(world.server.pttl("stock") > 570_000);
}

/// 3.8: the server's clock decides inside scripts. Nothing that we send is a time of day, which might
/// be another on every machine.
#[tokio::test]
async fn no_request_carries_our_wall_clock() {
    let world = World::start();
    let client = connect(world.builder().handoff_limit(0).command_timeout(ms(1000))).await;
    let me = client.new_owner();
    let lock = client.lock("stock").with_owner(&me);
    let outer = take(lock.clone().with_lease(keep_alive(9000))).await;
    let inner = take(lock).await;
    eventually(PATIENCE, "it is renewed", async || {
        !world.runs(RENEW).is_empty()
    })
    .await;
    inner.release().await.expect("it is ours");
    outer.release().await.expect("it is ours");
    let first = take(client.lock("stock")).await;
    let next = begun(client.lock("stock").acquire());
    first.release().await.expect("it is ours");
    drop(soon("its turn", next).await.expect("it is free"));
    world.proxy.rule(script(ACQUIRE).nth(1), Fault::HoldRequest);
    assert!(client.lock("order").try_acquire().await.is_err());
    world.marked("order").await;

    for script in SCRIPTS {
        assert!(!world.runs(script).is_empty(), "not run: {script}");
        for word in world.runs(script).iter().flatten() {
            let number: u128 = word.parse().unwrap_or(0);
            assert!(number < 1_000_000_000, "a time of day? {word}");
        }
    }
}

/// 3.4: a lock key never exists without a time to live, whatever happens around it: looked at between
/// any two scripts for as long as they come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_key_never_exists_without_a_ttl() {
    const ENOUGH: u32 = 100;
    const NAMES: [&str; 3] = ["one", "two", "three"];
    let world = World::start();
    let done = AtomicBool::new(false);
    let held = Arc::new(AtomicU32::new(0));
    let lua = "local n = 0
        for _, key in ipairs(KEYS) do
          local ttl = redis.call('PTTL', key)
          if ttl == -1 then return -1 end
          if ttl > 0 then n = n + 1 end
        end
        return n";
    let mut eyes = patient_connection(&world.server.own_url()).await;
    let looking = async {
        let look = redis::Script::new(lua);
        while !done.load(Ordering::Relaxed) {
            let mut look = look.prepare_invoke();
            for name in NAMES {
                look.key(name).key(format!("distlock_undone:{{{name}}}"));
            }
            let seen: i64 = look.invoke_async(&mut eyes).await.expect("it looks");
            assert_ne!(seen, -1, "a key without a time to live");
            held.fetch_add(u32::try_from(seen).expect("a count"), Ordering::Relaxed);
        }
    };
    let mut rng = SeededRng::from_env_or(34);
    let clients = [world.client().await, world.other().await];
    let started = Instant::now();
    let working = (0..6).map(|worker| {
        let client = clients[worker % 2].clone();
        let (mut rng, held) = (SeededRng::new(rng.next_u64()), held.clone());
        tokio::spawn(async move {
            let me = client.new_owner();
            // For longer on a machine too busy to show much.
            let hardly = || held.load(Ordering::Relaxed) <= ENOUGH;
            let longest = || if hardly() { PATIENCE / 2 } else { ms(1200) };
            while started.elapsed() < longest() {
                let lease = *rng.pick(&[fixed(15), fixed(200), keep_alive(60), keep_alive(300)]);
                let name = *rng.pick(&NAMES);
                let lock = client.lock(name).with_lease(lease).with_owner(&me);
                // Short leases end by themselves in between, which is an error here or there.
                let Ok(Some(outer)) = lock.acquire_timeout(ms(100)).await else {
                    continue;
                };
                let inner = lock.try_acquire().await;
                match rng.below(4) {
                    0 => drop(outer),
                    1 => outer.forget(),
                    2 => drop((inner, outer.release().await)),
                    _ => {
                        let dropped = tokio::time::timeout(ms(1), outer.release()).await;
                        drop((inner, dropped));
                    }
                }
            }
        })
    });
    let working: Vec<_> = working.collect();
    let finish = async {
        for worker in working {
            in_time("its end", worker).await.expect("no panic");
        }
        done.store(true, Ordering::Relaxed);
    };
    tokio::join!(looking, finish);
    let held = held.load(Ordering::Relaxed);
    eprintln!("looked at a held lock {held} times");
    assert!(held > ENOUGH, "there was hardly anything to see: {held}");
}
