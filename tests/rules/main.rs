//! The rules the design was forced into, each attacked again here: a test is named after the attack
//! that worked before there was the rule, and says its number.
//!
//! The attacks need a network that misbehaves at one exact moment, so nearly all of them go through
//! the chaos proxy to a real server, and look at what that server has in the end.

#![cfg(feature = "redis")]
#![expect(clippy::disallowed_methods, reason = "tests keep their own time")]

#[path = "../support/mod.rs"]
mod support;

mod acquire;
mod background;
mod counts;
mod handoff;
mod late;
mod line;
mod listening;
mod memory;
mod owner;
mod private_keys;
mod ttl;
mod validity;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use distlock::{Client, ClientBuilder, Error, Guard, Lease, Lock};

use support::{ChaosProxy, Match, RedisServer, batch, eventually, paced_timeout};

/// A server, a network before it that misbehaves on request, and clients on either side of that.
struct World {
    server: RedisServer,
    proxy: ChaosProxy,
}

impl World {
    fn start() -> Self {
        let server = RedisServer::start();
        for script in SCRIPTS.into_iter().chain(batch::batches()) {
            // So that no rule ever meets an EVALSHA that the server answers with NOSCRIPT.
            server.cmd(&["SCRIPT", "LOAD", script]);
        }
        let proxy = ChaosProxy::start(server.addr());
        Self { server, proxy }
    }

    /// A client whose requests go through the proxy.
    async fn client(&self) -> Client {
        connect(self.builder()).await
    }

    /// The same that gives up a request after `limit`.
    async fn hasty(&self, limit: Duration) -> Client {
        connect(self.builder().command_timeout(limit)).await
    }

    fn builder(&self) -> ClientBuilder {
        Client::builder(&self.proxy.url())
    }

    /// Another client, on whom no fault falls.
    async fn other(&self) -> Client {
        connect(Client::builder(&self.server.url())).await
    }

    /// The requests through the proxy that ran this script.
    fn runs(&self, script: &str) -> Vec<Vec<String>> {
        let (hash, requests) = (hash(script), self.proxy.requests());
        let runs = requests
            .into_iter()
            .flat_map(batch::apart)
            .filter(|words| words.get(1).is_some_and(|word| *word == hash));
        runs.collect()
    }

    /// How many of those concern this owner.
    fn runs_for(&self, script: &str, owner: &str) -> usize {
        let runs = self.runs(script);
        let about = |words: &&Vec<String>| words.iter().any(|word| word == owner);
        runs.iter().filter(about).count()
    }

    /// Waits until as many faults as this have taken effect.
    async fn injected(&self, faults: usize) {
        let what = format!("{faults} faults, not {:?}", self.proxy.injected());
        eventually(PATIENCE, &what, async || {
            self.proxy.injected().len() >= faults
        })
        .await;
    }

    /// Lets go what the proxy holds, and returns once the server has run one more script.
    async fn let_a_script_go(&self) {
        let before = self.server.commandstats("evalsha");
        self.proxy.let_go();
        eventually(PATIENCE, "the held script is executed", async || {
            self.server.commandstats("evalsha") > before
        })
        .await;
    }

    /// Who holds the plain lock in this key, and how often.
    fn holder(&self, key: &str) -> Option<(String, u32)> {
        let holders = self.server.hgetall(key);
        assert!(holders.len() <= 1, "two holders of `{key}`: {holders:?}");
        let (owner, count) = holders.into_iter().next()?;
        Some((owner, count.parse().expect("a hold count is a number")))
    }

    fn count(&self, key: &str) -> u32 {
        self.holder(key).map_or(0, |(_, count)| count)
    }

    async fn free(&self, key: &str) {
        eventually(PATIENCE, "the lock is free", async || self.count(key) == 0).await;
    }

    /// How many acquires were taken back before they came.
    fn marks(&self, key: &str) -> u32 {
        self.server
            .query(&["ZCARD", &format!("distlock_undone:{{{key}}}")])
    }

    async fn marked(&self, key: &str) {
        eventually(PATIENCE, "the undo has left its mark", async || {
            self.marks(key) > 0
        })
        .await;
    }
}

/// Selects the runs of one of our scripts.
fn script(text: &str) -> Match {
    Match::script(&[&hash(text), text])
}

fn hash(text: &str) -> String {
    redis::Script::new(text).get_hash().to_owned()
}

async fn connect(builder: ClientBuilder) -> Client {
    builder.connect().await.expect("the server answers")
}

/// Acquires a lock that is free. Some have so little time for a command that a busy machine is too slow: nobody has refused
/// it then.
async fn take(lock: Lock) -> Guard {
    let taking = async {
        loop {
            match lock.acquire().await {
                Err(Error::Timeout { .. }) => {}
                taken => return taken.expect("the server answers"),
            }
        }
    };
    in_time("a free lock", taking).await
}

/// Awaits something that must come, however busy the machine is: a failure shall not hang.
async fn in_time<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, work).await;
    done.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"))
}

/// Awaits something that must come, and soon: well before the two seconds after which a waiter asks
/// without having been told.
async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = paced_timeout(SOON, work).await;
    let (done, _) = done.unwrap_or_else(|| panic!("not within {SOON:?}: {what}"));
    done
}

/// Polls `work` until `condition` holds, and panics if it is done before.
async fn pending_until<F: Future + ?Sized>(
    work: &mut Pin<Box<F>>,
    what: &str,
    condition: impl AsyncFnMut() -> bool,
) {
    tokio::select! {
        _ = work => panic!("done before {what}"),
        () = eventually(PATIENCE, what, condition) => {}
    }
}

/// Starts something that cannot be done yet, such as waiting in the line behind a hold of this client.
fn begun<T>(work: impl Future<Output = T> + Send + 'static) -> Waiting<T> {
    let mut work: Waiting<T> = Box::pin(work);
    let polled = Arc::new(Alarm::default()).poll(&mut work);
    assert!(polled.is_pending(), "there was nothing to wait for");
    work
}

type Waiting<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Notes that it was woken, so that a test can act in the very moment between that and the poll.
#[derive(Default)]
struct Alarm(AtomicBool);

impl Alarm {
    /// Polls once; from then on this alarm is what is woken.
    fn poll<F: Future + ?Sized>(self: &Arc<Self>, work: &mut Pin<Box<F>>) -> Poll<F::Output> {
        let waker = Waker::from(self.clone());
        work.as_mut().poll(&mut Context::from_waker(&waker))
    }

    fn rang(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

const fn keep_alive(millis: u64) -> Lease {
    Lease::KeepAlive(Duration::from_millis(millis))
}

const fn fixed(millis: u64) -> Lease {
    Lease::Fixed(Duration::from_millis(millis))
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const ACQUIRE: &str = concat!(
    include_str!("../../src/engine/redis/lua/format/owner.lua"),
    include_str!("../../src/engine/redis/lua/format/lock.lua"),
    include_str!("../../src/engine/redis/lua/mutex/acquire.lua"),
);
const PASS: &str = include_str!("../../src/engine/redis/lua/mutex/pass.lua");
const RELEASE: &str = include_str!("../../src/engine/redis/lua/mutex/release.lua");
const RENEW: &str = include_str!("../../src/engine/redis/lua/mutex/renew.lua");
const UNDO: &str = include_str!("../../src/engine/redis/lua/mutex/undo.lua");
const SCRIPTS: [&str; 5] = [ACQUIRE, PASS, RELEASE, RENEW, UNDO];

/// Far longer than anything takes on a busy machine; only a failure waits for it.
const PATIENCE: Duration = Duration::from_secs(20);
const SOON: Duration = Duration::from_millis(1700);
