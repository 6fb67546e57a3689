//! User code that blocks every thread of its runtime does not cost it its locks.

use std::sync::mpsc;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use distlock::Guard;

use super::{LEASE, SHARED, connect};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_kept_while_every_worker_of_the_runtime_is_blocked_for_two_leases() {
    let client = connect(&SHARED.url()).await;
    let guard = client.lock("workers").acquire().await.unwrap();
    let witness = Witness::start(&guard);

    // Both workers meet at the barrier, so neither can be free to run anything else.
    let met = Arc::new(Barrier::new(2));
    let blocked: Vec<_> = (0..2)
        .map(|_| {
            let met = met.clone();
            tokio::spawn(async move {
                met.wait();
                thread::sleep(2 * LEASE);
            })
        })
        .collect();
    for worker in blocked {
        worker.await.unwrap();
    }

    witness.assert_held_throughout(&guard);
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "current_thread")]
async fn a_lock_is_kept_while_the_only_thread_of_the_runtime_is_blocked_for_two_leases() {
    let client = connect(&SHARED.url()).await;
    let guard = client.lock("thread").acquire().await.unwrap();
    let witness = Witness::start(&guard);

    thread::sleep(2 * LEASE);

    witness.assert_held_throughout(&guard);
    guard.release().await.unwrap();
}

#[test]
fn a_lock_is_kept_after_the_runtime_that_acquired_it_has_gone() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let guard = runtime.block_on(async {
        let client = connect(&SHARED.url()).await;
        client.lock("orphan").acquire().await.unwrap()
    });
    drop(runtime);
    let witness = Witness::start(&guard);

    thread::sleep(2 * LEASE);

    witness.assert_held_throughout(&guard);
}

/// Looks into the server from a thread and a connection of its own.
struct Witness {
    since: Instant,
    stop: mpsc::Sender<()>,
    looking: thread::JoinHandle<u32>,
}

impl Witness {
    fn start(guard: &Guard) -> Self {
        let (name, owner) = (guard.name().to_owned(), guard.owner());
        let (stop, stopped) = mpsc::channel();
        let looking = thread::spawn(move || {
            let mut looks = 0;
            loop {
                let holders = SHARED.hgetall(&name);
                let holder = holders.get(&owner).map(String::as_str);
                assert_eq!(holder, Some("1"), "after {looks} looks");
                looks += 1;
                if stopped.recv_timeout(Duration::from_millis(20)).is_ok() {
                    return looks;
                }
            }
        });
        Self {
            since: Instant::now(),
            stop,
            looking,
        }
    }

    fn assert_held_throughout(self, guard: &Guard) {
        assert!(self.since.elapsed() >= 2 * LEASE);
        guard.check().expect("it is still held");
        assert!(guard.valid_until() > self.since + 2 * LEASE, "by renewals");
        let _ = self.stop.send(());
        let looks = self.looking.join().expect("held at every look");
        eprintln!("held at each of {looks} looks");
        assert!(looks >= 10, "only {looks} looks");
    }
}
