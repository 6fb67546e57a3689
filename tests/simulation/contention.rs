//! Several clients contend for one lock while the network, the server and they themselves misbehave.

use std::time::Duration;

use distlock::{Client, FencingToken, Guard, Lease, Lock};
use distlock_sim::{Counts, Faults};
use tokio::time::{Instant, sleep, timeout};

use crate::judge::{Claim, Ledger, Summary};
use crate::seeds;
use crate::world::{World, simulate};

const CLIENTS: u64 = 4;
/// How long things go wrong.
const TROUBLE: Duration = Duration::from_secs(60);
/// How long afterwards everybody may take to be served again.
const RECOVERY: Duration = Duration::from_secs(120);
const LEASE: Duration = Duration::from_secs(3);
/// Longer than anything that the library leaves in the store.
const LONG: Duration = Duration::from_secs(3 * 3600);

/// The faults, of the network and others: chosen anew for each seed, since faults hide one another.
#[derive(Clone, Copy, Debug)]
struct Mix {
    faults: Faults,
    restarts: bool,
    stalls: bool,
    partitions: bool,
}

impl Mix {
    fn of(world: &World) -> Self {
        // Each fault in about half of all seeds.
        let some = |most: u64| match world.percent(50) {
            true => u32::try_from(world.below(most)).expect("it is small"),
            false => 0,
        };
        Self {
            faults: Faults {
                cut: some(20_000),
                cut_after: some(20_000),
                stall: some(10_000),
                black_hole: some(3_000),
                refuse: some(100_000),
                ignore: some(20_000),
            },
            restarts: world.percent(40),
            stalls: world.percent(40),
            partitions: world.percent(40),
        }
    }
}

/// A fault that breaks a promise, so that a judge has to see it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Sabotage {
    None,
    /// The server forgets everything when it restarts.
    Forgets,
    /// Somebody leaves a key behind.
    Orphan,
    /// The server does not come back.
    StaysDown,
}

/// Restarts, stalls and partitions, until it is dropped.
async fn misbehave(world: &World, mix: Mix, sabotage: Sabotage) {
    world.network.set_faults(mix.faults);
    loop {
        sleep(Duration::from_secs(1) + world.up_to(Duration::from_secs(9))).await;
        match world.below(3) {
            _ if sabotage == Sabotage::Forgets => world.server.restart(false),
            0 if mix.restarts => {
                world.server.kill();
                sleep(world.up_to(Duration::from_secs(2))).await;
                world.server.revive();
            }
            1 if mix.stalls => world.server.stall(world.up_to(Duration::from_secs(6))),
            2 if mix.partitions => {
                let client = format!("client-{}", world.below(CLIENTS));
                match world.percent(50) {
                    true => world.network.block(&client, "redis"),
                    false => world.network.block("redis", &client),
                }
                sleep(world.up_to(Duration::from_secs(8))).await;
                world.network.heal();
            }
            _ => {}
        }
    }
}

/// One kind of lock, with the way in which its guards share it and what is to be set up before.
trait Subject: Copy + Send + Sync + 'static {
    type Kind: Send + Sync + 'static;
    const CLAIM: Claim;

    fn lock(client: &Client) -> Lock<Self::Kind>;

    fn prepare(_world: &World) {}

    /// Whether a lock of this kind leaves the key in the store when nobody has it.
    fn leaves(_key: &str) -> bool {
        false
    }

    fn token(_guard: &Guard<Self::Kind>) -> Option<FencingToken> {
        None
    }
}

async fn acquire_and_hold<S: Subject>(world: &World, client: &Client, name: &str, ledger: &Ledger) {
    let lock = S::lock(client).with_lease(Lease::KeepAlive(LEASE));
    let got = match world.below(10) {
        0 => lock.try_acquire().await,
        // The caller gives up and drops the future, wherever that may be.
        1..=3 => match timeout(world.up_to(Duration::from_secs(1)), lock.acquire()).await {
            Ok(got) => got.map(Some),
            Err(_) => return,
        },
        4..=7 => {
            lock.acquire_timeout(world.up_to(Duration::from_secs(8)))
                .await
        }
        _ => lock.acquire().await.map(Some),
    };
    let guard = match got {
        Ok(Some(guard)) => guard,
        Ok(None) => return,
        Err(error) => return ledger.error(&error),
    };
    let entry = ledger.enter(name, S::CLAIM, &guard);
    if let Some(token) = S::token(&guard) {
        ledger.token(token);
    }
    let longest = if world.percent(5) { 6000 } else { 300 };
    let work = sleep(world.up_to(Duration::from_millis(longest)));
    let lost = tokio::select! {
        () = work => false,
        _ = guard.lost() => true,
    };
    if lost {
        ledger.loss();
        if guard.is_held() {
            ledger.violation(format!("{name} was told of a loss of what it held"));
        }
    } else if !guard.is_held()
        && timeout(Duration::from_millis(100), guard.lost())
            .await
            .is_err()
    {
        ledger.violation(format!("{name} was not told that its lock was lost"));
    }
    ledger.leave(entry);
    match world.percent(25) {
        true => drop(guard),
        false => {
            if let Err(error) = guard.release().await {
                ledger.error(&error);
            }
        }
    }
}

async fn contend<S: Subject>(world: World, sabotage: Sabotage) -> Played {
    let ledger = Ledger::default();
    let mix = Mix::of(&world);
    let mut clients = Vec::new();
    S::prepare(&world);
    for number in 0..CLIENTS {
        let name = format!("client-{number}");
        let client = world.client(&name).connect().await;
        clients.push((name, client.expect("nothing is wrong yet")));
    }
    let end = Instant::now() + TROUBLE;
    let workers: Vec<_> = clients
        .iter()
        .cloned()
        .flat_map(|client| [client.clone(), client])
        .map(|(name, client)| {
            let (world, ledger) = (world.clone(), ledger.clone());
            tokio::spawn(async move {
                while Instant::now() < end {
                    acquire_and_hold::<S>(&world, &client, &name, &ledger).await;
                    sleep(world.up_to(Duration::from_millis(50))).await;
                }
            })
        })
        .collect();
    tokio::select! {
        () = misbehave(&world, mix, sabotage) => {}
        () = tokio::time::sleep_until(end) => {}
    }
    world.network.set_faults(Faults::default());
    world.network.heal();
    match sabotage {
        Sabotage::StaysDown => world.server.kill(),
        _ => world.server.revive(),
    }
    for worker in workers {
        match timeout(RECOVERY, worker).await {
            Ok(ended) => ended.expect("a worker does not panic"),
            Err(_) => ledger.violation(format!(
                "a call has not ended {RECOVERY:?} after all trouble: {mix:?}"
            )),
        }
    }
    // Everybody is served again. A connection that fell into a black hole is noticed by a call that fails.
    for (name, client) in &clients {
        let served = timeout(RECOVERY, async {
            let lock = S::lock(client);
            while let Err(error) = lock.acquire().await {
                ledger.error(&error);
            }
        });
        if served.await.is_err() {
            ledger.violation(format!("{name} was not served again: {mix:?}"));
        }
    }
    for (_, client) in clients {
        if let Err(error) = client.close().await {
            ledger.error(&error);
        }
    }
    if sabotage == Sabotage::Orphan {
        world
            .server
            .call(&[b"SET", b"distlock_client:orphan", b"1"]);
    }
    sleep(LONG).await;
    for (_, key, state) in world.server.keyspace() {
        let key = String::from_utf8_lossy(&key).into_owned();
        if !S::leaves(&key) {
            ledger.violation(format!("`{key}` was left behind: {state:?}; {mix:?}"));
        }
    }
    Played {
        summary: ledger.summary(),
        counts: world.network.counts(),
        trace: world.network.trace(),
    }
}

/// The result of a seed.
#[derive(Debug, Eq, PartialEq)]
struct Played {
    summary: Summary,
    counts: Counts,
    /// Of every message, with its time.
    trace: u64,
}

/// Only where all that is random is seeded.
#[cfg(tokio_unstable)]
#[test]
fn a_seed_repeats_every_byte() {
    for seed in seeds() {
        let replay = format!("scripts/simulate --seed {seed} a_seed_repeats_every_byte");
        let [first, second] = [0; 2].map(|_| {
            simulate(seed, &replay, |world| {
                contend::<OfFair>(world, Sabotage::None)
            })
        });
        assert_eq!(first, second, "seed {seed}");
    }
}

/// The judges are no judges if they see nothing. Some of these seeds must be found wrong, by the judge whose matter it is.
#[test]
fn the_judges_see_what_they_are_there_for() {
    for (sabotage, judged) in [
        (Sabotage::Forgets, "was granted Alone as"),
        (Sabotage::Orphan, "was left behind"),
        (Sabotage::StaysDown, "was not served again"),
    ] {
        let replay = "scripts/simulate the_judges_see";
        let seen = (1..=5).any(|seed| {
            let scenario = move |world| contend::<OfPlain>(world, sabotage);
            let violations = simulate(seed, replay, scenario).summary.violations;
            violations
                .iter()
                .any(|violation| violation.contains(judged))
        });
        assert!(seen, "{sabotage:?} was not seen");
    }
}

fn play<S: Subject>(name: &str) {
    let (mut sum, mut faults) = (Summary::default(), 0);
    for seed in seeds() {
        let replay = format!("scripts/simulate --seed {seed} {name}");
        let Played {
            summary, counts, ..
        } = simulate(seed, &replay, |world| contend::<S>(world, Sabotage::None));
        let violations = summary.violations;
        assert!(
            violations.is_empty(),
            "{violations:#?}; replay it with: {replay}"
        );
        sum.grants += summary.grants;
        sum.errors += summary.errors;
        sum.losses += summary.losses;
        faults += counts.faults;
    }
    let Summary {
        grants,
        errors,
        losses,
        ..
    } = sum;
    eprintln!(
        "{name}: {} seeds, {grants} grants, {errors} errors, {losses} losses, {faults} faults of the network, 0 violations",
        seeds().count()
    );
    assert!(grants > 0, "nothing was ever granted");
}

macro_rules! subjects {
    ($($test:ident: $subject:ident, $kind:ty, $claim:expr, $lock:expr $(, $more:item)*;)*) => {$(
        #[derive(Clone, Copy)]
        struct $subject;

        impl Subject for $subject {
            type Kind = $kind;
            const CLAIM: Claim = $claim;

            fn lock(client: &Client) -> Lock<$kind> {
                let lock: fn(&Client) -> Lock<$kind> = $lock;
                lock(client)
            }

            $($more)*
        }

        #[test]
        fn $test() {
            play::<$subject>(stringify!($test));
        }
    )*};
}

subjects! {
    plain: OfPlain, distlock::Plain, Claim::Alone, |client| client.lock("stock");
    fair: OfFair, distlock::Fair, Claim::Alone, |client| client.fair_lock("stock");
    simple: OfSimple, distlock::Simple, Claim::Alone, |client| client.simple_lock("stock");
    fenced: OfFenced, distlock::Fenced, Claim::Alone, |client| client.fenced_lock("stock"),
        fn leaves(key: &str) -> bool { key.contains("token") },
        fn token(guard: &Guard<distlock::Fenced>) -> Option<FencingToken> { Some(guard.token()) };
    write: OfWrite, distlock::Write, Claim::Alone, |client| client.rw_lock("stock").write();
    permits: OfPermits, distlock::Permit, Claim::OneOf(2), |client| client.semaphore("stock").permit(),
        fn prepare(world: &World) { world.server.call(&[b"SET", b"stock", b"2"]); },
        fn leaves(key: &str) -> bool { key == "stock" };
    read: OfRead, distlock::Read, Claim::Shared, |client| client.rw_lock("stock").read();
}
