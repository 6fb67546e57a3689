//! Futures dropped at random moments, many at once; and what goes on afterwards: nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use distlock::{Client, Lease};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::acquiring::hold;
use super::polls::{At, begin, never_mind};
use super::stage::{Behind, Stage};
use super::support::{
    Fair, Family, Fenced, Plain, Player, RedisServer, SeededRng, Several, Simple, Write,
    eventually, heavy,
};
use super::{LEASE, SOON};

mod a_storm_of_timeouts_leaves_everything_free {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn on_redis() {
        storm(&Stage::<Plain>::redis().await).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn on_redis_of_simple_locks() {
        storm(&Stage::<Simple>::redis().await).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn on_redis_of_fenced_locks() {
        storm(&Stage::<Fenced>::redis().await).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn on_redis_of_fair_locks() {
        storm(&Stage::<Fair>::redis().await).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn on_redis_of_writers() {
        storm(&Stage::<Write>::redis().await).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn on_redis_of_several_permits() {
        storm(&Stage::<Several>::redis().await).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn on_redis_without_scripts() {
        storm(&Stage::<Plain>::redis_without_scripts().await).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn on_redis_without_scripts_of_simple_locks() {
        storm(&Stage::<Simple>::redis_without_scripts().await).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn in_memory() {
        storm(&Stage::<Plain>::memory().await).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn in_memory_of_fair_locks() {
        storm(&Stage::<Fair>::memory().await).await;
    }
}

/// Eight tasks of each of two clients want the same locks and lose patience after a moment.
async fn storm<F: Family>(stage: &Stage<F>) {
    let _heavy = heavy().await;
    let mut rng = SeededRng::from_env_or(20_260_301);
    stage.is_at_rest();
    let spots: Vec<_> = (0..NAMES).map(|_| Spot::new(stage.name())).collect();
    let spots = Arc::new(spots);
    let mut tasks = JoinSet::new();
    for client in [&stage.ours, &stage.theirs] {
        for _ in 0..8 {
            let rng = SeededRng::new(rng.next_u64());
            tasks.spawn(be_impatient(client.clone(), spots.clone(), rng));
        }
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no panic");
    }
    for spot in spots.iter() {
        let [got, gave_up] = [&spot.got, &spot.gave_up].map(|n| n.load(Ordering::Relaxed));
        eprintln!(
            "`{}`: acquired {got} times, given up {gave_up} times",
            spot.name
        );
        assert!(spot.has_blown(), "a storm that does not blow");
        stage.is_gone(&spot.name).await;
    }
    let Some(server) = &stage.server else { return };
    assert_eq!(server.pubsub_channels(), [""; 0]);
}

/// A lock, and whether somebody is sure to hold it.
struct Spot {
    name: String,
    taken: AtomicBool,
    got: AtomicUsize,
    gave_up: AtomicUsize,
}

impl Spot {
    fn new(name: String) -> Self {
        Self {
            name,
            taken: AtomicBool::new(false),
            got: AtomicUsize::new(0),
            gave_up: AtomicUsize::new(0),
        }
    }

    fn has_blown(&self) -> bool {
        let often = |count: &AtomicUsize| count.load(Ordering::Relaxed) > 10;
        often(&self.got) && often(&self.gave_up)
    }
}

async fn be_impatient<F: Family>(client: Player<F>, spots: Arc<Vec<Spot>>, mut rng: SeededRng) {
    for round in 0..12 * ROUNDS {
        // On a busy machine it takes longer, and more patience, to get anything.
        if round >= ROUNDS && spots.iter().all(Spot::has_blown) {
            break;
        }
        let spot = rng.pick(&spots);
        let patience = Duration::from_micros(rng.below(6000 << (round / ROUNDS).min(8)));
        let acquiring = client.lock(spot.name.as_str()).acquire();
        let Ok(guard) = timeout(patience, acquiring).await else {
            spot.gave_up.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        let guard = guard.expect("the store answers");
        spot.got.fetch_add(1, Ordering::Relaxed);
        assert!(!spot.taken.swap(true, Ordering::SeqCst), "two hold it");
        sleep(Duration::from_micros(rng.below(500))).await;
        assert!(guard.is_held());
        spot.taken.store(false, Ordering::SeqCst);
        match rng.below(3) {
            0 => drop(guard),
            1 => guard.release().await.expect("it is ours"),
            _ => {
                let patience = Duration::from_micros(rng.below(500));
                // Given up or not, it is released.
                let _ = timeout(patience, guard.release()).await;
            }
        }
    }
}

mod waiters_that_give_up_stop_listening {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_plain_locks() {
        give_up_over_and_over(&Stage::<Plain>::redis().await).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_fair_locks() {
        give_up_over_and_over(&Stage::<Fair>::redis().await).await;
    }
}

/// Waiting and giving up again: the last one out stops listening.
async fn give_up_over_and_over<F: Family>(stage: &Stage<F>) {
    stage.is_at_rest();
    let name = stage.name();
    let guard = hold(&stage.theirs.lock(name.as_str())).await;
    for _ in 0..100 {
        let waiting = tokio::spawn(stage.ours.lock(name.as_str()).acquire());
        eventually(SOON, "it listens", async || stage.listened_to(&name)).await;
        waiting.abort();
        eventually(SOON, "it has stopped listening", async || {
            !stage.listened_to(&name)
        })
        .await;
    }
    guard.release().await.expect("it is theirs");
    stage.is_gone(&name).await;
}

/// With all kinds side by side: they mostly wait.
#[tokio::test]
async fn what_was_dropped_is_not_renewed() {
    tokio::join!(
        let_go_of::<Plain>(),
        let_go_of::<Fenced>(),
        let_go_of::<Fair>()
    );
}

async fn let_go_of<F: Family>() {
    // A machine may stand still for a second or two.
    const LEASE: Duration = Duration::from_secs(6);
    let server = RedisServer::start();
    let client = Client::builder(&server.url()).default_lease(Lease::KeepAlive(LEASE));
    let client = client.connect().await.expect("the server runs");
    let client = Player::<F>::new(client);
    let calls = || server.commandstats("evalsha");
    let lock = |name: &str| client.lock(name);

    let guard = hold(&lock("held")).await;
    let before = calls();
    eventually(LEASE * 5, "it is renewed", async || calls() >= before + 4).await;
    guard.release().await.expect("it is ours");

    for at in At::places().take(4) {
        // Whether it came to its end or not: it is dropped here.
        drop(at.hit(lock("acquire").acquire(), never_mind).await);
        drop(
            at.hit(lock("run").run(async |_| never_mind().await), never_mind)
                .await,
        );
        let guard = hold(&lock("release")).await;
        drop(at.hit(guard.release(), never_mind).await);
        let guard = hold(&lock("line")).await;
        let mut waiting = Box::pin(lock("line").acquire());
        assert!(begin(waiting.as_mut()));
        guard.release().await.expect("it is ours");
        drop(waiting);
    }
    let stays = |key: &String| {
        let stays = ["distlock_undone:", "redisson_lock_token:"];
        stays.iter().any(|stays| key.starts_with(stays))
    };
    eventually(SOON, "everything is given back", async || {
        server.keys().iter().all(stays)
    })
    .await;
    // All that was under way has arrived when its connection answers.
    hold(&lock("last"))
        .await
        .release()
        .await
        .expect("it is ours");
    let before = calls();
    // Would be renewed every third of it.
    sleep(LEASE).await;
    assert_eq!(calls(), before, "something is still renewed");
}

/// A caller that loses interest says nothing about the connection, however long ago the last answer was.
#[tokio::test]
async fn calls_that_are_dropped_do_not_cost_the_connection() {
    // A machine may stand still for a second or two.
    const PATIENCE: Duration = Duration::from_secs(4);
    let server = RedisServer::start();
    let client = Client::builder(&server.url()).command_timeout(PATIENCE);
    let client = client.connect().await.expect("the server runs");
    let lock = client.lock("stock");
    // Has every connection made that the client uses.
    drop(hold(&lock).await);
    eventually(SOON, "it is released", async || server.keys().is_empty()).await;
    let before = connections(&server);
    assert_eq!(before.len(), 2);
    for _ in 0..2 {
        let guard = hold(&lock).await;
        sleep(PATIENCE * 3 / 2).await;
        let mut releasing = Box::pin(guard.release());
        assert!(begin(releasing.as_mut()));
        drop(releasing);
        eventually(SOON, "it is released", async || server.keys().is_empty()).await;
    }
    hold(&lock).await.release().await.expect("it is ours");
    assert_eq!(connections(&server), before);
}

/// Had anything kept the client alive, its threads and connections would live on.
#[tokio::test]
async fn a_client_that_is_dropped_after_all_this_leaves_no_connection() {
    let server = RedisServer::start();
    let client = Client::builder(&server.url()).default_lease(Lease::KeepAlive(LEASE));
    let client = client.handoff_limit(1).connect().await;
    let client = client.expect("the server runs");
    let lock = client.lock("stock");
    for at in At::places().take(6) {
        let guard = hold(&lock).await;
        let behind = Behind::wait(&lock);
        drop(at.hit(guard.release(), never_mind).await);
        drop(behind.gets_its_turn().await);
        let guard = hold(&lock).await;
        let owner = client.new_owner();
        let entered = client.lock("entered").with_owner(&owner);
        let outer = hold(&entered).await;
        drop(at.hit(entered.acquire(), never_mind).await);
        drop(at.hit(lock.acquire_timeout(A_MOMENT), never_mind).await);
        drop((guard, outer));
    }
    assert!(connections(&server).len() >= 2);
    drop((client, lock));
    eventually(SOON, "every connection is closed", async || {
        connections(&server).is_empty()
    })
    .await;
    assert_eq!(
        server
            .keys()
            .iter()
            .find(|key| !key.starts_with("distlock_undone:")),
        None
    );
}

/// The ids of the connections to the server's port. The fixture itself uses the socket in the file system.
fn connections(server: &RedisServer) -> Vec<String> {
    let list: String = server.query(&["CLIENT", "LIST"]);
    let lines = list
        .lines()
        .filter(|line| line.contains(" addr=127.0.0.1:"));
    let ids = lines.filter_map(|line| line.split(' ').next());
    ids.map(ToOwned::to_owned).collect()
}

/// Enough for a few polls.
const A_MOMENT: Duration = Duration::from_millis(50);
const NAMES: usize = 3;
const ROUNDS: u64 = 60;
