//! Shutdown: every hold is released, and nothing panics or blocks, in whatever order things end.

#![cfg(feature = "redis")]
#![expect(clippy::disallowed_methods, reason = "tests keep their own time")]

#[path = "../support/mod.rs"]
mod support;

mod late_drops;
mod leaks;
mod no_runtime;
mod process_exit;
mod runtime_gone;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use distlock::Client;
use tokio::runtime::Runtime;
use tokio::sync::RwLock;

use support::RedisServer;

/// Every test holds it shared; the tests that count the threads and sockets of the process hold it exclusively.
static COMPANY: RwLock<()> = RwLock::const_new(());

/// Connects with long timeouts: a server on a busy machine replies late although it is not down.
async fn connect(url: &str) -> Client {
    let builder = Client::builder(url).command_timeout(PATIENCE);
    let client = builder.connect_timeout(PATIENCE).connect().await;
    client.expect("the store is up")
}

/// Builds a runtime that can be shut down.
fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime can be had")
}

/// Runs a test on a store of each kind, each with a runtime that has a client on it. A failure on one does not keep the test from running
/// on the other.
fn on_every_store(test: impl Fn(&Store, Runtime, Client)) {
    let stores = [None, Some(RedisServer::start())].map(|server| {
        let url = match &server {
            None => format!("memory:{}", fresh_number()),
            Some(server) => server.url(),
        };
        let (store, runtime) = (Store { url, server }, runtime());
        let client = runtime.block_on(connect(&store.url));
        let tried = catch_unwind(AssertUnwindSafe(|| test(&store, runtime, client)));
        tried.inspect_err(|_| eprintln!("that was on {}", store.url))
    });
    for tried in stores {
        tried.unwrap_or_else(|panic| resume_unwind(panic));
    }
}

struct Store {
    url: String,
    server: Option<RedisServer>,
}

impl Store {
    /// Returns whether the lock is held.
    fn holds(&self, name: &str) -> bool {
        match &self.server {
            Some(server) => server.keys().contains(&name.to_owned()),
            None => {
                let look = async { connect(&self.url).await.admin().inspect(name).await };
                runtime().block_on(look).expect("memory can say").is_some()
            }
        }
    }

    /// Waits until the lock is free, for much less than its lease.
    fn is_freed(&self, name: &str) {
        let begun = Instant::now();
        while self.holds(name) {
            assert!(
                begun.elapsed() < PATIENCE,
                "{}: `{name}` is still held",
                self.url
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Runs an action that must not block, and prints how long it took.
fn at_once<T>(what: &str, act: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let done = act();
    let took = begun.elapsed();
    // An action that blocks here blocks for good, or for as long as a server may take to reply.
    assert!(took < PATIENCE / 3, "{what} took {took:?}");
    done
}

/// Returns a new number: memory stores are shared by name within the process.
fn fresh_number() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Upper bound for any wait on a busy machine; only a failure waits this long.
const PATIENCE: Duration = Duration::from_secs(120);
