//! Permits of processes that are killed while they acquire and release them.

use std::time::Duration;

use distlock::{Client, Lease, Semaphore};

use super::support::SeededRng;
use super::support::process::{say, url};
use super::{LEASE, PATIENCE, Process, RedisServer, connect, eventually};

pub(crate) const ROLE: &str = "permits";

const TOTAL: u32 = 7;
const SEMAPHORE: &str = "exports";

/// The test runs on the server and on a file, where the permits of a process return as soon as it has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_of_killed_processes_expire_and_none_is_duplicated() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().expect("there is room");
    let mut dice = SeededRng::from_env_or(0x9e27_0175);
    for url in [
        server.url(),
        format!("sqlite:{}/locks.db", folder.path().display()),
    ] {
        let client = connect(&url).await;
        let semaphore = client.semaphore(SEMAPHORE);
        semaphore.set_total(TOTAL).await.expect("it is new");
        let mut workers = Vec::new();
        for _ in 0..12 {
            if workers.len() == 3 {
                let mut dead: Process = workers.remove(0);
                dead.kill();
            }
            workers.push(Process::start(ROLE, &url));
            workers.last().expect("one was added").expect_line("spins");
            tokio::time::sleep(Duration::from_millis(dice.below(60))).await;
            all_are_there(&semaphore).await;
        }
        for worker in &mut workers {
            worker.kill();
        }
        drop(workers);
        let all = semaphore.permits(TOTAL).acquire_timeout(PATIENCE).await;
        let all = all.expect("the store answers").expect("all come back");
        all.release().await.expect("they are ours");
        let count = semaphore.count().await.expect("the store answers");
        assert_eq!((count.available, count.out), (TOTAL.into(), 0));
        client.close().await.expect("the store answers");
    }
    eventually(PATIENCE, "nothing stays but the number", async || {
        let keys = server.keys();
        let marks = |key: &&String| key.starts_with("distlock_undone:");
        keys.iter().filter(|key| !marks(key)).count() == 1
    })
    .await;
}

/// Checks that the permits of all holders together are the total.
async fn all_are_there(semaphore: &Semaphore) {
    let count = semaphore.count().await.expect("the store answers");
    let out = i64::try_from(count.out).expect("there are few");
    assert_eq!(count.available + out, i64::from(TOTAL), "{count:?}");
    assert!(count.available >= 0, "{count:?}");
}

/// The worker's part: it runs until it is killed.
pub(crate) async fn spin() {
    let client = connect(&url()).await;
    let mut dice = SeededRng::new(std::process::id().into());
    let tasks: Vec<_> = (0..6)
        .map(|_| tokio::spawn(take(client.clone(), SeededRng::new(dice.next_u64()))))
        .collect();
    say("spins");
    for task in tasks {
        task.await.expect("it goes on until it is killed");
    }
}

async fn take(client: Client, mut dice: SeededRng) {
    loop {
        let count = 1 + u32::try_from(dice.below(4)).expect("a small number");
        let permits = client.semaphore(SEMAPHORE).permits(count);
        let permits = permits.with_lease(Lease::KeepAlive(LEASE));
        let patience = Duration::from_millis(dice.below(50));
        let held = tokio::time::timeout(patience, permits.acquire()).await;
        let Ok(held) = held else { continue };
        let held = held.expect("the store answers");
        tokio::time::sleep(Duration::from_millis(dice.below(5))).await;
        match dice.below(2) {
            0 => drop(held),
            _ => held.release().await.expect("it is kept alive"),
        }
    }
}
