//! The worker's part: many tasks that read and write, wait and lose patience, upgrade and downgrade.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use distlock::{Client, Error, Guard, Lock, RwLock};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::connect;
use super::log::{Claim, Writer};
use super::support::process::{orders, runtime, say, url};
use super::support::{Rights, SeededRng, patient_connection};

pub(crate) const ROLE: &str = "read and write";
pub(crate) const NAMES: [&str; 3] = ["a", "b{c}", "d"];
pub(crate) const TASKS: usize = 8;
/// How often it is looked whether anything runs.
const TICK: Duration = Duration::from_millis(10);
/// So long nothing ran, or the server did not: a few such pieces in a row cost a lock its [`LEASE`](super::LEASE).
const STILL: Duration = Duration::from_millis(500);
/// How many of a hundred want to write.
const WRITERS: u64 = 25;

/// Goes on until it is told to stop, or killed.
pub(crate) fn run() {
    let orders = orders();
    runtime().block_on(async {
        let client = connect(&url()).await;
        // Whoever stands still for a while is to say so afterwards, and not to give up.
        let connection = patient_connection(&Rights::from_env().own(&url())).await;
        let crowd = Arc::new(Crowd {
            log: Writer {
                process: std::process::id(),
                connection,
            },
            grants: AtomicU64::new(0),
            over: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        });
        let mut tasks = JoinSet::new();
        for task in 0..TASKS as u64 {
            let rng = SeededRng::new(u64::from(std::process::id()) * TASKS as u64 + task);
            tasks.spawn(be_one(crowd.clone(), client.clone(), rng));
        }
        let ticking = tokio::spawn(tell_when_it_stood_still(crowd.clone()));
        say("ready");
        let stop = tokio::task::spawn_blocking(move || orders.recv());
        stop.await.expect("no panic").expect("the test says when");
        crowd.over.store(true, Ordering::Relaxed);
        tasks.join_all().await;
        crowd.ended.store(true, Ordering::Relaxed);
        ticking.await.expect("no panic");
        client.close().await.expect("the server is up");
        say("done");
    });
}

struct Crowd {
    log: Writer,
    grants: AtomicU64,
    /// Nobody is to begin another turn.
    over: AtomicBool,
    /// Everybody has ended its last one.
    ended: AtomicBool,
}

async fn be_one(crowd: Arc<Crowd>, client: Client, mut rng: SeededRng) {
    while !crowd.over.load(Ordering::Relaxed) {
        let name = *rng.pick(&NAMES);
        let lock = client.rw_lock(name);
        let grant = crowd.new_grant();
        let turn = if rng.chance(WRITERS) {
            write(&crowd, &lock, grant, &mut rng).await
        } else {
            read(&crowd, &lock, grant, &mut rng).await
        };
        match turn {
            // Patience may be over before the first answer.
            Ok(()) | Err(Error::Timeout { .. }) => {}
            Err(Error::Lost { .. }) => crowd.log.claim(name, grant, Claim::Late).await,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Goes on until everyone has ended, so that what stood still at the end is told, too.
async fn tell_when_it_stood_still(crowd: Arc<Crowd>) {
    let mut ended = false;
    while !ended {
        ended = crowd.ended.load(Ordering::Relaxed);
        let since = Instant::now();
        sleep(TICK).await;
        crowd.log.ping().await;
        if since.elapsed() >= STILL {
            crowd.log.stood_still().await;
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

async fn read(crowd: &Crowd, lock: &RwLock, grant: u64, rng: &mut SeededRng) -> Result<(), Error> {
    let Some(guard) = ask(lock.read(), rng).await? else {
        return Ok(());
    };
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

async fn write(crowd: &Crowd, lock: &RwLock, grant: u64, rng: &mut SeededRng) -> Result<(), Error> {
    let Some(guard) = ask(lock.write(), rng).await? else {
        return Ok(());
    };
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
