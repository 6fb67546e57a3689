//! A crowd of clients that read and write, wait and lose patience, upgrade and downgrade, and some of which are killed.
//!
//! Every task claims what it holds after the grant, and gives the claim up before the release, so that claims never say
//! more than the lock does. A claim that another contradicts is a violation.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use distlock::{Client, Error, Guard, Lock, RwLock};
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio::time::{Instant, sleep, timeout};

use super::{LEASE, PATIENCE, connect};
use crate::support::{ChaosProxy, RedisServer, SeededRng, eventually, simulated, world};

#[test]
fn nobody_writes_beside_another_whoever_is_killed_and_everyone_gets_on() {
    simulated(async || LocalSet::new().run_until(crowd()).await);
}

async fn crowd() {
    let server = RedisServer::start();
    let log = Rc::<RefCell<Log>>::default();
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        clients.push(Member::start(&server, &log, number).await);
    }
    for number in 0..KILLS {
        // Long enough for the end of what the one before held.
        sleep(2 * LEASE + world().up_to(Duration::from_secs(1))).await;
        let victim = usize::try_from(world().below(CLIENTS)).expect("a few");
        clients.swap_remove(victim).kill(&log);
        clients.push(Member::start(&server, &log, CLIENTS + number).await);
    }
    // What the killed clients held ends with its lease; then every client gets on.
    sleep(2 * LEASE).await;
    log.borrow_mut().grants.clear();
    sleep(2 * LEASE).await;
    log.borrow_mut().is_over = true;
    for member in clients {
        for task in member.tasks {
            let ended = timeout(PATIENCE, task).await;
            ended.expect("it gets its last turn").expect("no panic");
        }
        for writes in [false, true] {
            let grants = log.borrow().grants.get(&(member.number, writes)).copied();
            assert!(grants > Some(10), "{grants:?} of {}", member.number);
        }
        let closed = member.client.close().await;
        closed.expect("the server is up");
    }
    let log = log.take();
    assert!(log.claims.values().all(BTreeMap::is_empty));
    assert!(
        log.total > 1_000 && log.together > 2,
        "{} grants",
        log.total
    );
    // After a kill, all wait for no longer than its leases last, and until those that missed a message ask again.
    assert!(log.longest < 2 * LEASE, "{:?}", log.longest);
    // What the killed clients held ends with their leases, and the others gave back what they held.
    eventually(PATIENCE, "nothing is left", async || {
        let mut keys = server.keys();
        keys.retain(|key| !key.starts_with("distlock_undone:"));
        keys.is_empty()
    })
    .await;
}

/// One client and its tasks.
struct Member {
    number: u64,
    client: Client,
    proxy: ChaosProxy,
    tasks: Vec<JoinHandle<()>>,
}

impl Member {
    async fn start(server: &RedisServer, log: &Rc<RefCell<Log>>, number: u64) -> Self {
        let proxy = ChaosProxy::start(server.addr());
        let client = connect(&proxy.url()).await;
        let task = |task| {
            let rng = SeededRng::new(world().below(u64::MAX));
            let me = (number, task);
            spawn_local(be_one(log.clone(), client.clone(), me, rng))
        };
        Self {
            number,
            proxy,
            tasks: (0..TASKS).map(task).collect(),
            client,
        }
    }

    /// The server hears nothing of it any more, but for what is under way.
    fn kill(self, log: &RefCell<Log>) {
        let mut log = log.borrow_mut();
        for claims in log.claims.values_mut() {
            claims.retain(|(client, _), _| *client != self.number);
        }
        self.proxy.refuse(true);
        self.proxy.cut_all();
        for task in &self.tasks {
            assert!(!task.is_finished(), "it panicked");
            task.abort();
        }
        log.killed.push(self.proxy);
    }
}

/// What all tasks claim, and what came of it.
#[derive(Default)]
struct Log {
    is_over: bool,
    /// What a task claims of a lock: whether it writes.
    claims: BTreeMap<&'static str, BTreeMap<Task, bool>>,
    total: u64,
    /// The most that have read at once.
    together: usize,
    /// How many grants each client had lately, for reading and for writing.
    grants: BTreeMap<(u64, bool), u64>,
    last: Option<Instant>,
    /// The longest time without a grant.
    longest: Duration,
    /// They refuse what the killed clients still try.
    killed: Vec<ChaosProxy>,
}

/// The number of a client, and that of its task.
type Task = (u64, u64);

impl Log {
    fn claim(&mut self, name: &'static str, me: Task, writes: bool) {
        let claims = self.claims.entry(name).or_default();
        let before = claims.remove(&me);
        let alone = !writes && !claims.values().any(|writes| *writes);
        assert!(
            claims.is_empty() || alone,
            "{me:?} holds `{name}` ({writes}) beside {claims:?}"
        );
        claims.insert(me, writes);
        self.together = self.together.max(claims.len());
        if before.is_none() {
            self.total += 1;
            *self.grants.entry((me.0, writes)).or_default() += 1;
            let now = Instant::now();
            let last = self.last.replace(now).unwrap_or(now);
            self.longest = self.longest.max(now - last);
        }
    }
}

/// Reads and writes in turns until it is told to stop, or killed.
async fn be_one(log: Rc<RefCell<Log>>, client: Client, me: Task, mut rng: SeededRng) {
    while !log.borrow().is_over {
        let name = *rng.pick(&NAMES);
        let turn = Turn {
            log: &log,
            lock: client.rw_lock(name),
            name,
            me,
        };
        let ended = match rng.chance(WRITERS) {
            true => turn.write(&mut rng).await,
            false => turn.read(&mut rng).await,
        };
        // Patience may be over before the first answer.
        let ended = matches!(ended, Ok(()) | Err(Error::Timeout { .. }));
        assert!(ended, "{me:?} on `{name}`: no living client loses a lock");
    }
}

struct Turn<'a> {
    log: &'a RefCell<Log>,
    lock: RwLock,
    name: &'static str,
    me: Task,
}

impl Turn<'_> {
    async fn read(&self, rng: &mut SeededRng) -> Result<(), Error> {
        let Some(guard) = ask(self.lock.read(), rng).await? else {
            return Ok(());
        };
        self.claims(&guard, false);
        if rng.chance(30) {
            sleep(moment(rng)).await;
        }
        if rng.chance(10)
            && let Some(writer) = guard.try_upgrade().await?
        {
            self.claims(&writer, true);
            sleep(moment(rng)).await;
            self.claims(&writer, false);
            give_back(writer, rng).await?;
        }
        self.holds_nothing();
        give_back(guard, rng).await
    }

    async fn write(&self, rng: &mut SeededRng) -> Result<(), Error> {
        let Some(guard) = ask(self.lock.write(), rng).await? else {
            return Ok(());
        };
        self.claims(&guard, true);
        if rng.chance(10) {
            sleep(moment(rng)).await;
        }
        if rng.chance(20) {
            self.claims(&guard, false);
            let guard = guard.downgrade().await?;
            sleep(moment(rng)).await;
            self.holds_nothing();
            return give_back(guard, rng).await;
        }
        self.holds_nothing();
        give_back(guard, rng).await
    }

    fn claims<K>(&self, guard: &Guard<K>, writes: bool) {
        assert!(guard.is_held());
        self.log.borrow_mut().claim(self.name, self.me, writes);
    }

    fn holds_nothing(&self) {
        let mut log = self.log.borrow_mut();
        let claims = log.claims.entry(self.name).or_default();
        claims.remove(&self.me);
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

async fn give_back<K>(guard: Guard<K>, rng: &mut SeededRng) -> Result<(), Error> {
    if rng.chance(20) {
        drop(guard);
        return Ok(());
    }
    guard.release().await
}

fn moment(rng: &mut SeededRng) -> Duration {
    Duration::from_millis(rng.below(30))
}

#[test]
fn a_claim_that_cannot_be_true_is_found_out() {
    fn is_true(claims: &[(u64, bool)]) -> bool {
        let claims = claims.to_vec();
        let made = std::panic::catch_unwind(move || {
            let mut log = Log::default();
            for (task, writes) in claims {
                log.claim("a", (0, task), writes);
            }
        });
        made.is_ok()
    }
    assert!(is_true(&[(1, false), (2, false), (3, false)]));
    assert!(is_true(&[(1, false), (1, true), (1, false), (2, false)]));
    assert!(!is_true(&[(1, false), (2, true)]));
    assert!(!is_true(&[(1, true), (2, false)]));
    assert!(!is_true(&[(1, true), (2, true)]));
    assert!(!is_true(&[(1, false), (2, false), (1, true)]));
}

const NAMES: [&str; 3] = ["a", "b{c}", "d"];
const CLIENTS: u64 = 4;
const TASKS: u64 = 4;
const KILLS: u64 = 4;
/// How many turns of a hundred want to write.
const WRITERS: u64 = 25;
