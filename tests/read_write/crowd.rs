//! The worker's part: many tasks that read and write, wait and lose patience, upgrade and downgrade.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use distlock::{Client, Error, Guard, Lock, RwLock};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::connect;
use super::log::{Claim, Writer};
use super::support::SeededRng;
use super::support::process::{orders, say, url};

pub(crate) const ROLE: &str = "read and write";
pub(crate) const NAMES: [&str; 3] = ["a", "b{c}", "d"];
const TASKS: u64 = 8;
/// How many of a hundred want to write.
const WRITERS: u64 = 25;

/// Goes on until it is told to stop, or killed.
pub(crate) fn run() {
    let orders = orders();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be had");
    runtime.block_on(async {
        let client = connect(&url()).await;
        let redis = redis::Client::open(url()).expect("a url");
        let connection = redis.get_multiplexed_async_connection().await;
        let crowd = Arc::new(Crowd {
            log: Writer {
                process: std::process::id(),
                connection: connection.expect("the server is up"),
            },
            grants: AtomicU64::new(0),
            over: AtomicBool::new(false),
        });
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let rng = SeededRng::new(u64::from(std::process::id()) * TASKS + task);
            tasks.spawn(be_one(crowd.clone(), client.clone(), rng));
        }
        say("ready");
        let stop = tokio::task::spawn_blocking(move || orders.recv());
        stop.await.expect("no panic").expect("the test says when");
        crowd.over.store(true, Ordering::Relaxed);
        tasks.join_all().await;
        client.close().await.expect("the server is up");
        say("done");
    });
}

struct Crowd {
    log: Writer,
    grants: AtomicU64,
    over: AtomicBool,
}

async fn be_one(crowd: Arc<Crowd>, client: Client, mut rng: SeededRng) {
    while !crowd.over.load(Ordering::Relaxed) {
        let name = *rng.pick(&NAMES);
        let lock = client.rw_lock(name);
        let turn = if rng.chance(WRITERS) {
            write(&crowd, &lock, &mut rng).await
        } else {
            read(&crowd, &lock, &mut rng).await
        };
        match turn {
            // A machine that stood still for a lease, as the log says, too; or patience was over before the first answer.
            Ok(()) | Err(Error::Lost { .. } | Error::Timeout { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// In whichever way.
async fn ask<K>(side: Lock<K>, rng: &mut SeededRng) -> Result<Option<Guard<K>>, Error> {
    match rng.below(10) {
        0 => side.try_acquire().await,
        1 => side.acquire_timeout(moment(rng)).await,
        // Dropped, wherever it was.
        2 => timeout(moment(rng), side.acquire()).await.ok().transpose(),
        _ => side.acquire().await.map(Some),
    }
}

async fn read(crowd: &Crowd, lock: &RwLock, rng: &mut SeededRng) -> Result<(), Error> {
    let Some(guard) = ask(lock.read(), rng).await? else {
        return Ok(());
    };
    let grant = crowd.new_grant();
    crowd.claims(lock, grant, &guard, Claim::Reads).await;
    if rng.chance(30) {
        sleep(moment(rng)).await;
    }
    if rng.chance(10)
        && let Some(writer) = guard.try_upgrade().await?
    {
        crowd.claims(lock, grant, &writer, Claim::Writes).await;
        crowd.claims(lock, grant, &writer, Claim::Reads).await;
        give_back(writer, rng).await?;
    }
    crowd.claims(lock, grant, &guard, Claim::Nothing).await;
    give_back(guard, rng).await
}

async fn write(crowd: &Crowd, lock: &RwLock, rng: &mut SeededRng) -> Result<(), Error> {
    let Some(guard) = ask(lock.write(), rng).await? else {
        return Ok(());
    };
    let grant = crowd.new_grant();
    crowd.claims(lock, grant, &guard, Claim::Writes).await;
    if rng.chance(10) {
        sleep(moment(rng)).await;
    }
    if rng.chance(20) {
        crowd.claims(lock, grant, &guard, Claim::Reads).await;
        let guard = guard.downgrade().await?;
        crowd.claims(lock, grant, &guard, Claim::Nothing).await;
        return give_back(guard, rng).await;
    }
    crowd.claims(lock, grant, &guard, Claim::Nothing).await;
    give_back(guard, rng).await
}

impl Crowd {
    fn new_grant(&self) -> u64 {
        self.grants.fetch_add(1, Ordering::Relaxed) + 1
    }

    async fn claims<K>(&self, lock: &RwLock, grant: u64, guard: &Guard<K>, claim: Claim) {
        self.log.claim(lock.name(), grant, claim).await;
        if !guard.is_held() {
            self.log.claim(lock.name(), grant, Claim::Lost).await;
        }
    }
}

async fn give_back<K>(guard: Guard<K>, rng: &mut SeededRng) -> Result<(), Error> {
    if rng.chance(20) {
        drop(guard);
        return Ok(());
    }
    guard.release().await
}

fn moment(rng: &mut SeededRng) -> Duration {
    Duration::from_micros(rng.below(3000))
}
