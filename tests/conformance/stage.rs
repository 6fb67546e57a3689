//! Where a case is played: clients on one shared store, and patience.

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

/// Far longer than anything here takes; who waits so long waits for ever.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// The same for a case as a whole: some ask hundreds of times.
const LONGEST: Duration = Duration::from_secs(300);

/// Sooner than a waiter asks by itself: who has the lock by then was told of its release.
const SOON: Duration = Duration::from_millis(1500);

/// How often something is tried on a real server, where a busy machine may keep an attempt from being quick. Without a message no
/// attempt is quick. Under simulated time there is one attempt ([`Stage::tries`]).
pub(crate) const TRIES: usize = 40;

/// Long enough to see that somebody waits, for what comes at once when it comes at all.
const A_WHILE: Duration = Duration::from_millis(60);

/// Long enough for a waiter to have asked, listened and asked again: from then on it sleeps.
pub(crate) const ASLEEP: Duration = Duration::from_millis(250);

/// What a case comes to; a failed assertion panics.
pub(crate) type Played = Result<(), Error>;

/// One store, empty but for what other cases keep under names of their own, and a kind of lock.
pub(crate) struct Stage<F = Plain> {
    family: PhantomData<fn() -> F>,
    url: String,
    prefix: String,
    runtime: fn() -> std::io::Result<Runtime>,
    store: Store,
}

/// Where its locks are.
enum Store {
    Memory,
    File {
        _folder: TempDir,
    },
    /// And what a client needs to be let in, in a folder.
    Real {
        server: Arc<Servers>,
        _folder: Option<TempDir>,
    },
    /// Made by the first who asks for it, by whose runtime its time passes.
    Simulated(LazyLock<World>),
}

impl<F: Family> Stage<F> {
    /// A store in memory, under paused time.
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

    /// A file of the case's own, in real time.
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

    /// A simulated server, under paused time, unless the environment asks for a real one.
    pub(crate) fn redis(case: &str) -> Self {
        if real_servers() {
            return Self::real_redis(case);
        }
        Self::simulated(case, format!("redis://{HOST}:{PORT}/"), || {
            let world = new_world();
            // As on a real one.
            for script in scripts() {
                ask(&world, &["SCRIPT", "LOAD", script]);
            }
            world
        })
    }

    /// The same, where a server runs no scripts for us.
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

    /// A real server, in real time.
    pub(crate) fn real_redis(case: &str) -> Self {
        let server = shared_server();
        // Known before the case begins: a question that is polled once and left alone could not send a
        // script again.
        server.make_known(scripts());
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

    /// A real server, over a connection that nobody else can read.
    pub(crate) fn redis_over_tls(case: &str) -> Self {
        let (server, authority) = shared_tls_server();
        // As on any.
        server.make_known(scripts());
        let folder = TempDir::with_prefix("distlock-").expect("there is room");
        let ca = folder.path().join("ca.pem");
        std::fs::write(&ca, authority).expect("the folder is ours");
        let url = format!("{}?ca={}", server.url(), ca.display());
        Self::on(case, server, url, Some(folder))
    }

    /// A real server that runs no scripts for us.
    pub(crate) fn real_redis_without_scripts(case: &str) -> Self {
        let server = shared_server();
        server.cmd(&WITHOUT_SCRIPTS);
        let url = server.url().replace("://", "://plain:secret@");
        Self::on(case, server, format!("{url}?scripts=off"), None)
    }

    /// Whether it is a real server, whose answers take as long as the machine lets them.
    pub(crate) const fn is_real(&self) -> bool {
        matches!(self.store, Store::Real { .. })
    }

    /// Runs an async case to its end.
    pub(crate) fn play(self, case: impl AsyncFnOnce(&Self) -> Played) {
        let runtime = (self.runtime)().expect("a runtime can be made");
        let played = runtime.block_on(async { timeout(LONGEST, case(&self)).await });
        match played {
            Ok(result) => result.expect("a case ends well"),
            Err(_) => panic!("somebody waits for ever"),
        }
    }

    /// Runs a case of the blocking API to its end.
    pub(crate) fn call(self, case: fn(&Self) -> Played) {
        let (ended, end) = mpsc::channel::<()>();
        let played = thread::spawn(move || {
            // Nothing is sent: the channel closes when this goes, be it by a panic.
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

    /// Another client of the store.
    pub(crate) async fn client(&self) -> Result<Player<F>, Error> {
        self.connect(self.builder()).await
    }

    /// Another client with these options.
    pub(crate) async fn connect(&self, builder: ClientBuilder) -> Result<Player<F>, Error> {
        Ok(Player::new(builder.connect().await?))
    }

    /// Two of them.
    pub(crate) async fn clients(&self) -> Result<(Player<F>, Player<F>), Error> {
        Ok((self.client().await?, self.client().await?))
    }

    /// Options for another client. A server on a busy machine is slow to answer, and not down.
    pub(crate) fn builder(&self) -> ClientBuilder {
        let builder = match &self.store {
            Store::Simulated(world) => world.client_of(&self.url, "client"),
            Store::Memory | Store::File { .. } | Store::Real { .. } => Client::builder(&self.url),
        };
        builder
            .command_timeout(PATIENCE / 2)
            .connect_timeout(PATIENCE / 2)
    }

    /// How late something may come that need not be told of: exactly where time is paused, while a
    /// server's time is the machine's.
    pub(crate) const fn slack(&self) -> Duration {
        if self.is_paused() { SOON } else { PATIENCE }
    }

    /// How many of those who watch would hear of a lock, where the store can say.
    pub(crate) fn patterns(&self, name: &str) -> Option<u64> {
        let channel = format!("redisson_lock__channel:{{{name}}}");
        let question = ["PUBLISH", &*channel, "0"];
        match &self.store {
            Store::Memory | Store::File { .. } => None,
            Store::Real { server, .. } => match &**server {
                // Nobody hears of more than one lock there.
                Servers::Cluster(..) => None,
                server => Some(server.query(&question)),
            },
            Store::Simulated(world) => Some(number(&ask(world, &question))),
        }
    }

    /// Whether the store tells who watches of every grant and every end, or of releases only.
    pub(crate) const fn tells_all(&self) -> bool {
        matches!(self.store, Store::Memory | Store::File { .. })
    }

    /// Whether the store tells who watches of releases: if not, what is over between two looks is not told.
    pub(crate) fn tells_releases(&self) -> bool {
        !self.is_cluster()
    }

    /// Whether the store can have no lock of that name: in a cluster all that belongs to one has to be in one slot.
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

    /// How many attempts a case has to be quick: one under simulated time, which does not depend on the speed of the machine.
    pub(crate) const fn tries(&self) -> usize {
        if self.is_paused() { 1 } else { TRIES }
    }

    /// A wait in vain, which ends with none. On a real server it is repeated if a busy machine kept its last reply back until the
    /// wait was over.
    pub(crate) async fn in_vain<T>(
        &self,
        mut wait: impl AsyncFnMut() -> Result<Option<T>, Error>,
    ) -> Played {
        let mut tries = self.tries();
        loop {
            tries -= 1;
            match wait().await {
                Err(Error::Timeout { .. }) if tries > 0 => {}
                other => return other.map(|got| assert!(got.is_none(), "it is not free")),
            }
        }
    }

    /// Takes this long without an await, as code does that computes or blocks its thread.
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

    /// A name that no other case uses.
    pub(crate) fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// How many clients listen for releases of a lock, where the store can say: one for all its waiters, or for each.
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

/// Who may do everything but run scripts.
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

/// What the server of a world says.
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

/// Begins something that cannot end at once, without waiting for it: whoever is begun first is first
/// in line.
pub(crate) async fn begun<F: Future>(future: F) -> Pin<Box<F>> {
    let (future, answer) = asked(future).await;
    assert!(answer.is_none(), "it should have had to wait");
    future
}

/// Polls it once: a question is then under way, or already answered, where the store is in memory.
pub(crate) async fn asked<F: Future>(future: F) -> (Pin<Box<F>>, Option<F::Output>) {
    let mut future = Box::pin(future);
    let answer = poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(answer) => Poll::Ready(Some(answer)),
        Poll::Pending => Poll::Ready(None),
    });
    let answer = answer.await;
    (future, answer)
}

/// Whether it goes on waiting, for as long as one can see.
pub(crate) async fn waits<F: Future>(future: &mut Pin<Box<F>>) -> bool {
    timeout(A_WHILE, future).await.is_err()
}

/// Its end, which may take a while but must come.
pub(crate) async fn in_time<F: Future>(future: F) -> F::Output {
    let end = timeout(PATIENCE, future).await;
    end.expect("it should not have to wait for ever")
}

/// Plays a round, which returns how long a waiter waited that must be woken by a message. Without the message no round is quick. With
/// it, a round on a real server may still be slow on a busy machine, so that one quick round of many is enough there. The wait is
/// measured from before the waiter asked, so that it cannot be quick by chance.
pub(crate) async fn soon<F: Family>(
    stage: &Stage<F>,
    mut round: impl AsyncFnMut() -> Result<Duration, Error>,
) -> Played {
    let mut waited = Vec::new();
    for _ in 0..stage.tries() {
        waited.push(round().await?);
        if waited.iter().any(|waited| *waited < SOON) {
            return Ok(());
        }
    }
    panic!("no waiter was notified: {waited:?}");
}

/// The same for the blocking API, whose clients always run in real time.
#[cfg(feature = "blocking")]
pub(crate) fn soon_blocking(mut round: impl FnMut() -> Result<Duration, Error>) -> Played {
    let mut waited = Vec::new();
    for _ in 0..TRIES {
        waited.push(round()?);
        if waited.iter().any(|waited| *waited < SOON) {
            return Ok(());
        }
    }
    panic!("no waiter was notified: {waited:?}");
}

/// What the store knows of a lock that is held.
pub(crate) async fn seen(by: &Client, name: &str) -> Result<LockInfo, Error> {
    let seen = by.admin().inspect(name).await?;
    Ok(seen.expect("the lock is held"))
}

/// How often the store says its only owner holds a lock; 0 if nobody does.
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
