//! Futures dropped at random moments, many at once; and what goes on afterwards: nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use distlock::Lease;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::drop_at::{DropAt, begin};
use super::fixture::{Fixture, Waiter, hold};
use super::support::{
    Fair, Family, Fenced, Plain, Player, RedisServer, SeededRng, builder, eventually, simulated,
};
use super::{A_SECOND, LEASE, PATIENCE};

/// Eight tasks of each of two clients want the same locks and lose patience after a moment.
pub(crate) async fn a_storm_of_timeouts_leaves_everything_free<F: Family>(fixture: &Fixture<F>) {
    let spots: Vec<_> = (0..3).map(|_| Spot::new(fixture.name())).collect();
    let spots = storm([&fixture.ours, &fixture.theirs], spots, 20_000).await;
    for spot in spots.iter() {
        fixture.is_gone(&spot.name).await;
    }
}

/// The same, wherever the clients are, with holds of up to that many microseconds.
pub(crate) async fn storm<F: Family>(
    clients: [&Player<F>; 2],
    spots: Vec<Spot>,
    longest: u64,
) -> Arc<Vec<Spot>> {
    let mut rng = SeededRng::from_env_or(20_260_301);
    let spots = Arc::new(spots);
    let mut tasks = JoinSet::new();
    for client in clients {
        for _ in 0..8 {
            let rng = SeededRng::new(rng.next_u64());
            tasks.spawn(be_impatient(client.clone(), spots.clone(), rng, longest));
        }
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no panic");
    }
    spots
}

/// A lock, and whether a task is sure to hold it.
pub(crate) struct Spot {
    pub(crate) name: String,
    taken: AtomicBool,
    acquired: AtomicUsize,
    given_up: AtomicUsize,
}

impl Spot {
    pub(crate) fn new(name: String) -> Self {
        Self {
            name,
            taken: AtomicBool::new(false),
            acquired: AtomicUsize::new(0),
            given_up: AtomicUsize::new(0),
        }
    }

    /// Whether it was acquired, and given up, often enough to show something.
    fn has_blown(&self) -> bool {
        let often = |count: &AtomicUsize| count.load(Ordering::Relaxed) > 10;
        often(&self.acquired) && often(&self.given_up)
    }
}

/// Goes on until every lock has seen enough.
async fn be_impatient<F: Family>(
    client: Player<F>,
    spots: Arc<Vec<Spot>>,
    mut rng: SeededRng,
    longest: u64,
) {
    for round in 0.. {
        if round >= ROUNDS && spots.iter().all(Spot::has_blown) {
            break;
        }
        let spot = rng.pick(&spots);
        let acquiring = client.lock(spot.name.as_str()).acquire();
        // On a busy machine it takes longer, and more patience, to get anything.
        let limit = Duration::from_micros(rng.below((12 * longest) << (round / ROUNDS).min(8)));
        let Ok(guard) = timeout(limit, acquiring).await else {
            spot.given_up.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        let guard = guard.expect("the store answers");
        spot.acquired.fetch_add(1, Ordering::Relaxed);
        assert!(!spot.taken.swap(true, Ordering::SeqCst), "two hold it");
        sleep(Duration::from_micros(rng.below(longest))).await;
        assert!(guard.is_held());
        spot.taken.store(false, Ordering::SeqCst);
        match rng.below(3) {
            0 => drop(guard),
            1 => guard.release().await.expect("it is ours"),
            _ => {
                let limit = Duration::from_micros(rng.below(longest));
                // Given up or not, it is released.
                let _ = timeout(limit, guard.release()).await;
            }
        }
    }
}

/// Waiters that give up and others that come: the last one out ends the subscription.
pub(crate) async fn waiters_that_give_up_stop_listening<F: Family>(fixture: &Fixture<F>) {
    let name = fixture.name();
    let guard = hold(&fixture.theirs.lock(name.as_str())).await;
    for _ in 0..100 {
        let waiting = tokio::spawn(fixture.ours.lock(name.as_str()).acquire());
        eventually(A_SECOND, "it is subscribed", async || {
            fixture.is_heard(&name)
        })
        .await;
        waiting.abort();
        eventually(A_SECOND, "it has unsubscribed", async || {
            !fixture.is_heard(&name)
        })
        .await;
    }
    guard.release().await.expect("it is theirs");
    fixture.is_gone(&name).await;
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

/// A caller that loses interest says nothing about the connection, however long ago the last answer was.
#[test]
fn calls_that_are_dropped_do_not_cost_the_connection() {
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

/// Were the client kept alive by anything, its connections would live on.
#[test]
fn a_client_that_is_dropped_after_all_this_leaves_no_connection() {
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

/// The ids of the connections to the server.
fn connections(server: &RedisServer) -> Vec<String> {
    let list: String = server.query(&["CLIENT", "LIST"]);
    let ids = list.lines().filter_map(|line| line.split(' ').next());
    ids.map(ToOwned::to_owned).collect()
}

/// How often each task tries at least.
const ROUNDS: u32 = 60;
