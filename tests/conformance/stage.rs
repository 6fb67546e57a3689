//! The stage of a case: one store that its clients share, and generous time-outs.

use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use distlock::{Client, ClientBuilder, Error, LockInfo};
use distlock_sim::Value;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::store::{real_servers, scripts, shared_server, shared_tls_server};
pub(crate) use crate::support::family::{
    Fair, Family, Fenced, Plain, Player, Semaphore, Simple, Write,
};
use crate::support::{SeededRng, Servers};
use crate::world::{HOST, PORT, World};

/// Upper bound for any step of a case; a call that waits this long is assumed to wait for ever.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Upper bound for a whole case: some send hundreds of requests.
const LONGEST: Duration = Duration::from_secs(300);

/// Less than a waiter's own poll interval: a waiter that has the lock by then was notified of the release.
const SOON: Duration = Duration::from_millis(1500);

/// How often a step is tried on a real server, where a busy machine may keep an attempt from being quick. Without a message
/// no attempt is quick. Under simulated time there is one attempt ([`Stage::tries`]).
pub(crate) const TRIES: usize = 40;

/// Long enough to see that a future waits, if it would otherwise complete at once.
const A_WHILE: Duration = Duration::from_millis(60);

/// Long enough for a waiter to have polled, subscribed and polled again: from then on it sleeps.
pub(crate) const ASLEEP: Duration = Duration::from_millis(250);

/// The result of a case; a failed assertion panics.
pub(crate) type CaseResult = Result<(), Error>;

/// A kind of lock, and one store, which is empty except for the locks of other cases under names of their own.
pub(crate) struct Stage<F = Plain> {
    family: PhantomData<fn() -> F>,
    url: String,
    prefix: String,
    runtime: fn() -> std::io::Result<Runtime>,
    store: Store,
}

/// The store of a stage's locks.
enum Store {
    Memory,
    File {
        _folder: TempDir,
    },
    /// A real server, and the folder with the certificate that a client needs to connect.
    Real {
        server: Arc<Servers>,
        _folder: Option<TempDir>,
    },
    /// A simulated world. The first use makes it, and its time is that of the current runtime.
    Simulated(LazyLock<World>),
}

impl<F: Family> Stage<F> {
    /// Makes a stage with a store in memory, under paused time.
    pub(crate) fn memory(case: &str) -> Self {
        let own = unique(case);
        Self {
            family: PhantomData,
            url: format!("memory:{own}"),
            prefix: format!("{own}/"),
            runtime: paused,
            store: Store::Memory,
        }
    }

    /// Makes a stage with a file of the case's own, in real time.
    pub(crate) fn sqlite(case: &str) -> Self {
        let folder = TempDir::with_prefix("distlock-").expect("there is room");
        Self {
            family: PhantomData,
            url: format!("sqlite:{}/locks.db", folder.path().display()),
            prefix: format!("{}/", unique(case)),
            runtime: real,
            store: Store::File { _folder: folder },
        }
    }

    /// Makes a stage with a simulated server, under paused time, unless the environment asks for a real one.
    pub(crate) fn redis(case: &str) -> Self {
        if real_servers() {
            return Self::real_redis(case);
        }
        Self::simulated(case, format!("redis://{HOST}:{PORT}/"), || {
            let world = new_world();
            // Load the scripts, as on a real server.
            for script in scripts() {
                ask(&world, &["SCRIPT", "LOAD", script]);
            }
            world
        })
    }

    /// Makes the same stage, with a server that runs no scripts for its clients.
    pub(crate) fn redis_without_scripts(case: &str) -> Self {
        if real_servers() {
            return Self::real_redis_without_scripts(case);
        }
        let url = format!("redis://plain:secret@{HOST}:{PORT}/?scripts=off");
        Self::simulated(case, url, || {
            let world = new_world();
            ask(&world, &WITHOUT_SCRIPTS);
            world
        })
    }

    fn simulated(case: &str, url: String, world: fn() -> World) -> Self {
        Self {
            family: PhantomData,
            url,
            prefix: format!("{}/", unique(case)),
            runtime: paused,
            store: Store::Simulated(LazyLock::new(world)),
        }
    }

    /// Makes a stage with a real server, in real time.
    pub(crate) fn real_redis(case: &str) -> Self {
        let server = shared_server();
        // Load the scripts before the case begins: a request that is polled once and then left alone could not send a script
        // again.
        server.load_all(scripts());
        let url = server.url();
        Self::on(case, server, url, None)
    }

    fn on(case: &str, server: Arc<Servers>, url: String, folder: Option<TempDir>) -> Self {
        Self {
            family: PhantomData,
            url,
            prefix: format!("{}/", unique(case)),
            runtime: real,
            store: Store::Real {
                server,
                _folder: folder,
            },
        }
    }

    /// Makes a stage with a real server, over an encrypted connection.
    pub(crate) fn redis_over_tls(case: &str) -> Self {
        let (server, authority) = shared_tls_server();
        // Load the scripts, as on every server.
        server.load_all(scripts());
        let folder = TempDir::with_prefix("distlock-").expect("there is room");
        let ca = folder.path().join("ca.pem");
        std::fs::write(&ca, authority).expect("the folder is ours");
        let url = format!("{}?ca={}", server.url(), ca.display());
        Self::on(case, server, url, Some(folder))
    }

    /// Makes a stage with a real server that runs no scripts for its clients.
    pub(crate) fn real_redis_without_scripts(case: &str) -> Self {
        let server = shared_server();
        server.cmd(&WITHOUT_SCRIPTS);
        let url = server.url().replace("://", "://plain:secret@");
        Self::on(case, server, format!("{url}?scripts=off"), None)
    }

    /// Returns whether the server is real: its replies then take as long as the machine needs.
    pub(crate) const fn is_real(&self) -> bool {
        matches!(self.store, Store::Real { .. })
    }

    /// Runs an async case to its end.
    pub(crate) fn play(self, case: impl AsyncFnOnce(&Self) -> CaseResult) {
        let runtime = (self.runtime)().expect("a runtime can be made");
        let played = runtime.block_on(async { timeout(LONGEST, case(&self)).await });
        match played {
            Ok(result) => result.expect("a case ends well"),
            Err(_) => panic!("somebody waits for ever"),
        }
    }

    /// Runs a case of the blocking API to its end.
    pub(crate) fn call(self, case: fn(&Self) -> CaseResult) {
        let (ended, end) = mpsc::channel::<()>();
        let played = thread::spawn(move || {
            // The channel carries no message: it closes when this sender is dropped, also by a panic.
            let _ended = ended;
            case(&self)
        });
        let end = end.recv_timeout(LONGEST);
        if end == Err(mpsc::RecvTimeoutError::Timeout) {
            panic!("somebody waits for ever");
        }
        match played.join() {
            Ok(result) => result.expect("a case ends well"),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Connects another client to the store.
    pub(crate) async fn client(&self) -> Result<Player<F>, Error> {
        self.connect(self.builder()).await
    }

    /// Connects another client with these options.
    pub(crate) async fn connect(&self, builder: ClientBuilder) -> Result<Player<F>, Error> {
        Ok(Player::new(builder.connect().await?))
    }

    /// Connects two clients.
    pub(crate) async fn clients(&self) -> Result<(Player<F>, Player<F>), Error> {
        Ok((self.client().await?, self.client().await?))
    }

    /// Returns the options of another client. A server on a busy machine is slow to reply, but not down.
    pub(crate) fn builder(&self) -> ClientBuilder {
        let builder = match &self.store {
            Store::Simulated(world) => world.client_of(&self.url, "client"),
            Store::Memory | Store::File { .. } | Store::Real { .. } => Client::builder(&self.url),
        };
        builder
            .command_timeout(PATIENCE / 2)
            .connect_timeout(PATIENCE / 2)
    }

    /// Returns how late an event may be that needs no message: paused time is exact, while a server's time is the machine's.
    pub(crate) const fn slack(&self) -> Duration {
        if self.is_paused() { SOON } else { PATIENCE }
    }

    /// Returns how many watches a message about this lock would reach, if the store can tell.
    pub(crate) fn patterns(&self, name: &str) -> Option<u64> {
        let channel = format!("redisson_lock__channel:{{{name}}}");
        let question = ["PUBLISH", &*channel, "0"];
        match &self.store {
            Store::Memory | Store::File { .. } => None,
            Store::Real { server, .. } => match &**server {
                // In a cluster there is no subscription to more than one lock.
                Servers::Cluster(..) => None,
                server => Some(server.query(&question)),
            },
            Store::Simulated(world) => Some(number(&ask(world, &question))),
        }
    }

    /// Returns whether the store reports every grant and every end to a watch, or releases only.
    pub(crate) const fn tells_all(&self) -> bool {
        matches!(self.store, Store::Memory | Store::File { .. })
    }

    /// Returns whether the store reports releases to a watch: if not, a watch misses holds that end between two scans.
    pub(crate) fn tells_releases(&self) -> bool {
        !self.is_cluster()
    }

    /// Returns whether the store refuses the name: in a cluster all keys of a lock have to be in one slot.
    pub(crate) fn refuses(&self, name: &str) -> bool {
        let tagged = |(_, behind): (&str, &str)| behind.find('}').is_some_and(|length| length > 0);
        self.is_cluster() && name.contains(['{', '}']) && !name.split_once('{').is_some_and(tagged)
    }

    fn is_cluster(&self) -> bool {
        matches!(&self.store, Store::Real { server, .. } if matches!(**server, Servers::Cluster(..)))
    }

    const fn is_paused(&self) -> bool {
        matches!(self.store, Store::Memory | Store::Simulated(_))
    }

    /// Returns how many attempts a case has to be quick: one under simulated time, which does not depend on the speed of the
    /// machine.
    pub(crate) const fn tries(&self) -> usize {
        if self.is_paused() { 1 } else { TRIES }
    }

    /// Runs a wait that must end without the lock. On a real server it is repeated if a busy machine delayed the last reply
    /// until the wait was over.
    pub(crate) async fn in_vain<T>(
        &self,
        mut wait: impl AsyncFnMut() -> Result<Option<T>, Error>,
    ) -> CaseResult {
        let mut tries = self.tries();
        loop {
            tries -= 1;
            match wait().await {
                Err(Error::Timeout { .. }) if tries > 0 => {}
                other => return other.map(|got| assert!(got.is_none(), "it is not free")),
            }
        }
    }

    /// Takes this long without an await, like code that computes or blocks its thread.
    pub(crate) fn block(&self, time: Duration) {
        if !self.is_paused() {
            return thread::sleep(time);
        }
        // The first poll moves the paused clock.
        let mut advance = std::pin::pin!(tokio::time::advance(time));
        let _ = advance
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
    }

    /// Returns a name that no other case uses.
    pub(crate) fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Returns how many clients subscribe to the releases of a lock, if the store can tell: one subscription of a client
    /// serves all its waiters, or each waiter has its own.
    pub(crate) fn listeners(&self, name: &str) -> Option<u64> {
        let channel = format!("redisson_lock__channel:{{{name}}}");
        let shared = format!("redisson_rwlock:{{{name}}}");
        let permits = format!("redisson_sc:{{{name}}}");
        let each = format!("{channel}:*");
        let (server, is_cluster) = match &self.store {
            Store::Memory | Store::File { .. } => return None,
            Store::Simulated(world) => {
                let Value::Array(all) =
                    ask(world, &["PUBSUB", "NUMSUB", &channel, &shared, &permits])
                else {
                    panic!("channels and their numbers");
                };
                let Value::Array(each) = ask(world, &["PUBSUB", "CHANNELS", &each]) else {
                    panic!("channels");
                };
                let all = all.chunks(2).map(|pair| number(&pair[1]));
                return Some(all.sum::<u64>() + each.len() as u64);
            }
            Store::Real { server, .. } => (server, self.is_cluster()),
        };
        let (count, channels) = if is_cluster {
            ("SHARDNUMSUB", "SHARDCHANNELS")
        } else {
            ("NUMSUB", "CHANNELS")
        };
        let mut listeners = 0;
        for server in server.masters() {
            let all: Vec<(String, u64)> =
                server.query(&["PUBSUB", count, &channel, &shared, &permits]);
            let each: Vec<String> = server.query(&["PUBSUB", channels, &each]);
            listeners += all.iter().map(|(_, count)| count).sum::<u64>() + each.len() as u64;
        }
        Some(listeners)
    }
}

/// Makes a user that may run every command except scripts.
const WITHOUT_SCRIPTS: [&str; 9] = [
    "ACL",
    "SETUSER",
    "plain",
    "on",
    ">secret",
    "~*",
    "&*",
    "+@all",
    "-@scripting",
];

fn new_world() -> World {
    World::new(SeededRng::from_env_or(1).next_u64())
}

/// Sends a command to the server of a world and returns the reply.
fn ask(world: &World, question: &[&str]) -> Value {
    let words: Vec<&[u8]> = question.iter().map(|word| word.as_bytes()).collect();
    let answer = world.server.call(&words);
    assert!(
        !matches!(answer, Value::Error(_)),
        "{question:?}: {answer:?}"
    );
    answer
}

fn number(answer: &Value) -> u64 {
    match answer {
        Value::Integer(number) => u64::try_from(*number).expect("it counts"),
        other => panic!("this is no number: {other:?}"),
    }
}

/// Begins a call that cannot complete at once, without waiting for it: the calls queue in the order in which they begin.
pub(crate) async fn begun<F: Future>(future: F) -> Pin<Box<F>> {
    let (future, answer) = asked(future).await;
    assert!(answer.is_none(), "it should have had to wait");
    future
}

/// Polls a call once: its request is then under way, or already answered, if the store is in memory.
pub(crate) async fn asked<F: Future>(future: F) -> (Pin<Box<F>>, Option<F::Output>) {
    let mut future = Box::pin(future);
    let answer = poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(answer) => Poll::Ready(Some(answer)),
        Poll::Pending => Poll::Ready(None),
    });
    let answer = answer.await;
    (future, answer)
}

/// Returns whether a call still waits after a while.
pub(crate) async fn waits<F: Future>(future: &mut Pin<Box<F>>) -> bool {
    timeout(A_WHILE, future).await.is_err()
}

/// Waits for the end of a call, which may take a while but must come.
pub(crate) async fn in_time<F: Future>(future: F) -> F::Output {
    let end = timeout(PATIENCE, future).await;
    end.expect("it should not have to wait for ever")
}

/// Runs a round, which returns how long a waiter waited that must be notified by a message. Without the message no round is
/// quick. With it, a round on a real server may still be slow on a busy machine, so that one quick round of many is enough
/// there. The wait is measured from before the waiter's first request, so that it cannot be quick by chance.
pub(crate) async fn soon<F: Family>(
    stage: &Stage<F>,
    mut round: impl AsyncFnMut() -> Result<Duration, Error>,
) -> CaseResult {
    let mut waited = Vec::new();
    for _ in 0..stage.tries() {
        waited.push(round().await?);
        if waited.iter().any(|waited| *waited < SOON) {
            return Ok(());
        }
    }
    panic!("no waiter was notified: {waited:?}");
}

/// Runs rounds of the blocking API in the same way; its clients always run in real time.
#[cfg(feature = "blocking")]
pub(crate) fn soon_blocking(mut round: impl FnMut() -> Result<Duration, Error>) -> CaseResult {
    let mut waited = Vec::new();
    for _ in 0..TRIES {
        waited.push(round()?);
        if waited.iter().any(|waited| *waited < SOON) {
            return Ok(());
        }
    }
    panic!("no waiter was notified: {waited:?}");
}

/// Returns the store's state of a lock that is held.
pub(crate) async fn seen(by: &Client, name: &str) -> Result<LockInfo, Error> {
    let seen = by.admin().inspect(name).await?;
    Ok(seen.expect("the lock is held"))
}

/// Returns the hold count of a lock's only owner according to the store; 0 if the lock is free.
pub(crate) async fn count_seen(by: &Client, name: &str) -> Result<u64, Error> {
    let seen = by.admin().inspect(name).await?;
    Ok(seen.map_or(0, |lock| {
        assert_eq!(lock.holders.len(), 1, "a plain lock has one owner");
        lock.holders[0].hold_count
    }))
}

fn paused() -> std::io::Result<Runtime> {
    let mut paused = Builder::new_current_thread();
    paused.enable_all().start_paused(true).build()
}

fn real() -> std::io::Result<Runtime> {
    let mut real = Builder::new_multi_thread();
    real.worker_threads(2).enable_all().build()
}

fn unique(case: &str) -> String {
    static STAGES: AtomicU64 = AtomicU64::new(0);
    format!("{case}-{}", STAGES.fetch_add(1, Ordering::Relaxed))
}
