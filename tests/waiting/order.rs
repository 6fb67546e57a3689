//! A thousand waiters of five processes for a fair lock: first come, first served, whatever becomes of some of them.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::{Client, Error, Fair, Guard, Lease};
use tokio::task::JoinSet;

use super::{connect, ended};
use crate::support::transport::HOST;
use crate::support::{CommandMonitor, PATIENCE, RedisServer, Script, eventually, simulated, world};

const NAME: &str = "stock";
const QUEUE: &str = "redisson_lock_queue:{stock}";
const PROCESSES: usize = 5;
const EACH: usize = 200;
const CROWD: usize = PROCESSES * EACH;
/// The lease of a killed holder, less than the patience of the test.
const LEASE: Lease = Lease::KeepAlive(Duration::from_secs(10));

/// A server whose lock is held, and the waiters of five processes, which all arrive at once.
struct WaiterProcesses {
    server: RedisServer,
    held: Guard<Fair>,
    /// Waiters in the order in which the server learned of them.
    came: Vec<String>,
    /// Waiters in the order in which they held the lock.
    turns: Arc<Mutex<Vec<String>>>,
    processes: Vec<JoinSet<bool>>,
}

impl WaiterProcesses {
    /// Starts the waiters. If `is_impatient`, every fifth of them gives up after some seconds.
    async fn gather(is_impatient: bool) -> Self {
        let server = RedisServer::start();
        let held = connect(&server.url()).await.fair_lock(NAME).acquire().await;
        let held = held.expect("it is free");
        Script::load_all(&server);
        let witness = CommandMonitor::start(&server).await;
        let turns = Arc::<Mutex<Vec<String>>>::default();
        let mut processes = Vec::new();
        for process in 0..PROCESSES {
            let builder = world().client_of(&server.url(), &name_of(process));
            let client = builder.default_lease(LEASE).connect().await;
            let client = client.expect("the server is up");
            let begin = |number: usize| {
                let hasty = is_impatient && number.is_multiple_of(5);
                // The shortest time suffices for every waiter to have queued at all.
                let patience = Duration::from_secs(3) + world().up_to(Duration::from_secs(4));
                turn(client.clone(), turns.clone(), hasty.then_some(patience))
            };
            processes.push((0..EACH).map(begin).collect());
        }
        let mut came = Vec::new();
        eventually(PATIENCE, "every waiter has come", async || {
            let mut known = HashSet::from([held.owner()]);
            came = witness.owners(NAME, Script::Acquire);
            came.retain(|owner| known.insert(owner.clone()));
            came.len() == CROWD
        })
        .await;
        Self {
            server,
            held,
            came,
            turns,
            processes,
        }
    }

    fn queued(&self) -> Vec<String> {
        self.server.query(&["LRANGE", QUEUE, "0", "-1"])
    }
}

fn name_of(process: usize) -> String {
    format!("process-{process}")
}

/// Waits for one turn, and returns whether it came in time.
async fn turn(client: Client, turns: Arc<Mutex<Vec<String>>>, patience: Option<Duration>) -> bool {
    let lock = client.fair_lock(NAME);
    let guard = match patience {
        Some(patience) => lock.acquire_timeout(patience).await,
        None => lock.acquire().await.map(Some),
    };
    let guard = match guard {
        // The deadline fell while a request was under way.
        Err(Error::Timeout { .. }) if patience.is_some() => None,
        guard => guard.expect("the store answers"),
    };
    let Some(guard) = guard else { return false };
    let note = |owner| turns.lock().map(|mut turns| turns.push(owner));
    note(guard.owner()).expect("no panic");
    guard.release().await.expect("it is ours");
    true
}

#[test]
fn a_thousand_waiters_of_five_processes_get_it_in_arrival_order() {
    simulated(async || {
        let crowd = WaiterProcesses::gather(false).await;
        assert_eq!(crowd.queued(), crowd.came);
        crowd.held.release().await.expect("it is ours");
        for process in crowd.processes {
            assert!(ended(process).await.into_iter().all(|served| served));
        }
        let turns = crowd.turns.lock().expect("no panic");
        assert_eq!(*turns, crowd.came, "not in the order in which they came");
    });
}

#[test]
fn remaining_waiters_keep_their_order_when_a_process_is_killed_and_one_in_five_gives_up() {
    simulated(async || {
        let mut crowd = WaiterProcesses::gather(true).await;
        eventually(PATIENCE, "half of the impatient give up", async || {
            crowd.queued().len() <= CROWD - CROWD / 10
        })
        .await;
        let early = usize::try_from(50 + world().below(100)).expect("it is small");
        let victim = usize::try_from(world().below(5)).expect("it is small");
        let turns = crowd.turns.clone();
        let had_it = || turns.lock().expect("no panic").clone();

        crowd.held.release().await.expect("it is ours");
        eventually(PATIENCE, "some have had their turn", async || {
            had_it().len() > early
        })
        .await;
        world().network.block(&name_of(victim), HOST);
        let mut killed = crowd.processes.swap_remove(victim);
        killed.abort_all();
        let mut late = 0;
        for process in crowd.processes {
            let served = ended(process).await;
            assert_eq!(served.len(), EACH);
            late += served.iter().filter(|served| !**served).count();
        }

        let turns = had_it();
        let places = turns.iter().map(|owner| {
            let place = crowd.came.iter().position(|came| came == owner);
            place.expect("it stood in line")
        });
        assert!(places.is_sorted(), "not in the order in which they came");
        // The waiters of the killed process had their turns before the others.
        assert!(turns.len() >= (PROCESSES - 1) * EACH - late);
        assert!(late >= EACH / 4, "one in five was to give up");
    });
}
