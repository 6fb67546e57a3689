//! Several processes contend for the lock while servers are killed, hang and come back without their memory, and processes crash. A judge
//! sees every grant.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use distlock::{Lease, QuorumHeld, QuorumLock};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use super::{NAME, Stage};
use crate::support::transport::HOST;
use crate::support::{RedisServer, simulated, world};

const LEASE: Duration = Duration::from_millis(1500);
const PROCESSES: usize = 4;

thread_local! {
    /// The last grant of each live process.
    static HELD: RefCell<BTreeMap<usize, QuorumHeld>> = const { RefCell::new(BTreeMap::new()) };
    /// The number of the next process. No two processes have the same, since a machine that has crashed stays cut off.
    static NUMBERS: Cell<usize> = const { Cell::new(0) };
    static GRANTS: Cell<usize> = const { Cell::new(0) };
    static OVERLAPS: Cell<usize> = const { Cell::new(0) };
}

/// The judge: checks at a grant that no other process may count on the lock.
fn granted(process: usize, held: QuorumHeld) {
    GRANTS.set(GRANTS.get() + 1);
    HELD.with_borrow_mut(|all| {
        all.retain(|_, held| held.is_held());
        if !all.is_empty() && held.is_held() {
            OVERLAPS.set(OVERLAPS.get() + 1);
        }
        all.insert(process, held);
    });
}

fn up_to(milliseconds: u64) -> Duration {
    world().up_to(Duration::from_millis(milliseconds))
}

/// A process on a machine of its own.
struct Process {
    number: usize,
    working: JoinHandle<()>,
}

impl Process {
    fn name(number: usize) -> String {
        format!("process-{number}")
    }

    async fn start(stage: &Stage, longest_lease: Duration) -> Self {
        let number = NUMBERS.replace(NUMBERS.get() + 1);
        let mut members = Vec::new();
        for server in &stage.servers {
            let client = world().client_of(&server.url(), &Self::name(number));
            let client = client.lazy_connect(true).connect().await;
            members.push(client.expect("the server need not be up").lock(NAME).into());
        }
        let lock = QuorumLock::new(members)
            .with_lease(Lease::KeepAlive(LEASE))
            .with_longest_lease(longest_lease);
        let working = tokio::spawn(async move {
            loop {
                let wait = Duration::from_millis(50) + up_to(500);
                if let Ok(Some(guard)) = lock.acquire_timeout(wait).await {
                    granted(number, guard.held());
                    let enough = Instant::now() + up_to(2500);
                    tokio::select! {
                        () = sleep_until(enough) => {}
                        _ = guard.lost() => {}
                    }
                    if world().percent(50) {
                        drop(guard);
                    } else {
                        drop(guard.release().await);
                    }
                }
                sleep(up_to(50)).await;
            }
        });
        Self { number, working }
    }

    /// Crashes the process: nothing that it sends arrives any more, and it counts on no hold.
    fn crash(self) {
        let name = Self::name(self.number);
        world().network.block(&name, HOST);
        world().network.block(HOST, &name);
        HELD.with_borrow_mut(|all| all.remove(&self.number));
        self.working.abort();
    }
}

/// Disturbs the servers: never more than two at a time are down or hang, but in turn each one is, and has then lost its memory.
async fn disturb(servers: &[RedisServer]) {
    let pick = |count: usize| usize::try_from(world().below(count as u64)).expect("it is small");
    let mut order: Vec<_> = servers.iter().collect();
    let [a, b, c] = [(); 3].map(|()| order.swap_remove(pick(order.len())));
    // A grant now comes from the other three, one of which forgets it when these are back.
    a.kill();
    let hangs = world().percent(30);
    if hangs {
        b.stop_process()
    } else {
        b.kill()
    }
    sleep(Duration::from_millis(600) + up_to(900)).await;
    a.restart();
    if hangs {
        b.continue_process()
    } else {
        b.restart()
    }
    sleep(up_to(100)).await;
    c.restart();
    // Wait until most have votes again.
    sleep(Duration::from_secs(2) + up_to(1000)).await;
}

/// Lets processes contend; returns after `rounds` disturbances how often the lock was granted, and how often to two at once.
async fn contend(rounds: usize, longest_lease: Duration) -> (usize, usize) {
    GRANTS.set(0);
    OVERLAPS.set(0);
    HELD.take();
    let stage = Stage::new();
    let mut processes = Vec::new();
    for _ in 0..PROCESSES {
        processes.push(Process::start(&stage, longest_lease).await);
    }
    sleep(LEASE).await;
    for _ in 0..rounds {
        disturb(&stage.servers).await;
        processes.remove(0).crash();
        processes.push(Process::start(&stage, longest_lease).await);
    }
    processes.into_iter().for_each(Process::crash);
    (GRANTS.get(), OVERLAPS.get())
}

/// `DISTLOCK_SEEDS` plays more than one seed.
#[test]
fn no_two_clients_hold_it_while_servers_and_holders_crash_and_restart_empty() {
    simulated(async || {
        let (grants, overlaps) = contend(20, LEASE).await;
        eprintln!("{grants} grants");
        assert!(grants > 40, "{grants} grants show little");
        assert_eq!(overlaps, 0);
    });
}

/// The judge must detect the violation that it exists for.
#[test]
fn two_clients_hold_it_where_servers_vote_right_after_their_restart() {
    simulated(async || {
        let mut overlaps = 0;
        for _ in 0..20 {
            overlaps += contend(10, Duration::ZERO).await.1;
            if overlaps > 0 {
                return;
            }
        }
        panic!("no overlap was seen");
    });
}
