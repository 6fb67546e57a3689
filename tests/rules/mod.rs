//! The rules that attacks forced on the design, each attacked again: a test is named after the attack that worked before the rule existed,
//! and gives the rule's number.
//!
//! The attacks need a network that misbehaves at one exact moment, so they go through the chaos proxy, and check the final state of the
//! server. Attacks that the sweeps of `lost_replies`, `conformance` or `waiting` make are not repeated here.

mod acquire;
mod background;
mod handoff;
mod late;
mod listening;
mod owner;
mod private_keys;
mod validity;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use distlock::{Client, ClientBuilder, Error, Guard, Lease, Lock};

use crate::support::{ChaosProxy, Fault, Match, RedisServer, Script, batch, builder, eventually};

/// A server, a network before it that misbehaves on request, and clients on either side of that network.
struct World {
    server: RedisServer,
    proxy: ChaosProxy,
}

/// Plays an attack in a world of its own.
fn attack<F>(attack: F)
where
    F: AsyncFnOnce(&World) + Copy + Send + 'static,
{
    crate::support::simulated(async move || {
        let server = RedisServer::start();
        // The scripts are loaded first, so that no rule ever meets an EVALSHA that the server answers with NOSCRIPT.
        Script::load_all(&server);
        let proxy = ChaosProxy::start(server.addr());
        attack(&World { server, proxy }).await;
    });
}

impl World {
    fn builder(&self) -> ClientBuilder {
        builder(&self.proxy.url())
    }

    /// Returns a client whose requests go through the proxy.
    async fn client(&self) -> Client {
        connect(self.builder()).await
    }

    /// Returns such a client with a command time-out of one second.
    async fn short_timeout_client(&self) -> Client {
        connect(self.builder().command_timeout(ms(1000))).await
    }

    /// Returns another client, which suffers no fault.
    async fn other(&self) -> Client {
        connect(builder(&self.server.url())).await
    }

    /// Sets a fault for the next run of a script.
    fn next(&self, script: Script, fault: Fault) {
        self.proxy.rule(runs(script).nth(1), fault);
    }

    /// Returns the runs of a script that came through the proxy.
    fn runs(&self, script: Script) -> Vec<Vec<String>> {
        let calls = self.proxy.requests().into_iter().flat_map(batch::apart);
        calls.filter(|words| script.runs(words)).collect()
    }

    /// Returns how many of them concern this owner.
    fn runs_for(&self, script: Script, owner: &str) -> usize {
        let runs = self.runs(script);
        let about = |words: &&Vec<String>| words.iter().any(|word| word == owner);
        runs.iter().filter(about).count()
    }

    /// Polls `work` until as many faults as this have taken effect.
    async fn until_injected<F: Future + ?Sized>(&self, work: &mut Pin<Box<F>>, faults: usize) {
        pending_until(work, "the fault takes effect", || {
            self.proxy.injected().len() >= faults
        })
        .await;
    }

    /// Waits until as many faults as this have taken effect.
    async fn injected(&self, faults: usize) {
        let what = format!("{faults} faults, not {:?}", self.proxy.injected());
        becomes(&what, || self.proxy.injected().len() >= faults).await;
    }

    /// Lets go of what the proxy holds, and returns once the server has run one more script.
    async fn let_a_script_go(&self) {
        let before = self.server.commandstats("evalsha");
        self.proxy.deliver_held();
        becomes("the held script is executed", || {
            self.server.commandstats("evalsha") > before
        })
        .await;
    }

    /// Returns the holder of the plain lock in this key, and its hold count.
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
        becomes("the lock is free", || self.count(key) == 0).await;
    }

    /// Waits until an acquire was undone before it arrived.
    async fn marked(&self, key: &str) {
        let marks = format!("distlock_undone:{{{key}}}");
        becomes("the undo has left its mark", || {
            self.server.query::<u32>(&["ZCARD", &marks]) > 0
        })
        .await;
    }
}

/// Selects the runs of a script.
fn runs(script: Script) -> Match {
    Match::words(move |words| script.runs(words))
}

async fn connect(builder: ClientBuilder) -> Client {
    builder.connect().await.expect("the server answers")
}

/// Acquires a lock that is free.
async fn take(lock: Lock) -> Guard {
    let taken = soon("a free lock", lock.acquire()).await;
    taken.expect("the server answers")
}

/// Acquires the lock once more, or for the first time if it is free.
async fn enter(lock: &Lock) -> Guard {
    let entered = lock.try_acquire().await.expect("the server answers");
    entered.expect("the owner holds it, or it is free")
}

async fn becomes(what: &str, condition: impl Fn() -> bool) {
    eventually(PATIENCE, what, async || condition()).await;
}

/// Awaits something that must come soon: well before the two seconds after which a waiter polls without having been notified.
async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(SOON, work).await;
    done.unwrap_or_else(|_| panic!("not within {SOON:?}: {what}"))
}

/// Polls `work` until `condition` holds, and panics if it is done before.
async fn pending_until<F: Future + ?Sized>(
    work: &mut Pin<Box<F>>,
    what: &str,
    condition: impl Fn() -> bool,
) {
    tokio::select! {
        _ = work => panic!("done before {what}"),
        () = becomes(what, condition) => {}
    }
}

/// Starts a call that cannot complete yet, such as waiting in the queue behind a hold of this client.
fn begun<T>(work: impl Future<Output = T> + Send + 'static) -> Waiting<T> {
    let mut work: Waiting<T> = Box::pin(work);
    let polled = Arc::new(Alarm::default()).poll(&mut work);
    assert!(polled.is_pending(), "there was nothing to wait for");
    work
}

type Waiting<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type Acquiring = Waiting<Result<Guard, Error>>;

/// A waker that records the wake, so that a test can act in the very moment between the wake and the poll.
#[derive(Default)]
struct Alarm(AtomicBool);

impl Alarm {
    /// Polls once; the future's next wake is recorded by this alarm.
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
    Lease::KeepAlive(ms(millis))
}

const fn fixed(millis: u64) -> Lease {
    Lease::Fixed(ms(millis))
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Upper bound for any wait; only a failure waits this long.
const PATIENCE: Duration = ms(20_000);
const SOON: Duration = ms(900);
