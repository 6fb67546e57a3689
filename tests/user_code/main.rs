//! Application code that the library calls, wakers and `tracing` subscribers, may panic or block: other locks stay renewed, their holders
//! are notified of a loss, and `close()` returns in time.

#![cfg(all(feature = "redis", feature = "sqlite"))]
#![expect(
    clippy::disallowed_methods,
    reason = "whether a lease is renewed shows in real time"
)]

#[path = "../support/mod.rs"]
mod support;

#[cfg(feature = "blocking")]
mod blocking;
mod pipe;
mod quorum;
mod subscribers;
mod wakers;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use distlock::{Client, ClientBuilder, Guard, Lease, LostReason};
use tokio::time::timeout;

use self::support::{PATIENCE, RedisServer, eventually};

/// Renewed every ten seconds; a machine that stands still for twenty costs no lock.
const LEASE: Duration = Duration::from_secs(30);

static SERVER: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);

/// A store to run a test on; the names of its locks are the test's own.
struct Store {
    url: String,
    _folder: Option<tempfile::TempDir>,
}

impl Store {
    fn redis() -> Self {
        let url = SERVER.url();
        Self { url, _folder: None }
    }

    /// Returns a store whose replies come from a task on the library's thread.
    fn redis_without_scripts() -> Self {
        let url = format!("{}?scripts=off", SERVER.url());
        Self { url, _folder: None }
    }

    fn sqlite() -> Self {
        let folder = tempfile::tempdir().expect("there is room");
        let url = format!("sqlite:{}", folder.path().join("locks.db").display());
        let _folder = Some(folder);
        Self { url, _folder }
    }

    /// Returns a store that runs on the caller's runtime, which is the library's own for blocking calls.
    fn memory() -> Self {
        let url = "memory:".into();
        Self { url, _folder: None }
    }

    fn builder(&self) -> ClientBuilder {
        Client::builder(&self.url)
            .default_lease(Lease::KeepAlive(LEASE))
            .command_timeout(PATIENCE)
            .connect_timeout(PATIENCE)
    }
}

/// The behaviour of the application's code when it is called.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Behaviour {
    Panics,
    /// The code blocks until the test releases it.
    Blocks,
}

/// Code that misbehaves when it is called, and counts the calls.
#[derive(Debug)]
struct Misbehaviour {
    manner: Behaviour,
    calls: AtomicUsize,
    released: Mutex<bool>,
    changed: Condvar,
}

impl Misbehaviour {
    const fn new(manner: Behaviour) -> Self {
        Self {
            manner,
            calls: AtomicUsize::new(0),
            released: Mutex::new(false),
            changed: Condvar::new(),
        }
    }

    fn call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if self.manner == Behaviour::Panics {
            panic!("the application's code panics");
        }
        let released = self.released.lock().unwrap_or_else(PoisonError::into_inner);
        // Longer than any test: one that does not release the code does not hang for ever.
        let limit = 3 * PATIENCE;
        let _ = self
            .changed
            .wait_timeout_while(released, limit, |released| !*released);
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    fn release(&self) {
        *self.released.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }
}

/// Waits until a lock has been renewed by a request that was sent after this began.
async fn stays_renewed(guard: &Guard) {
    let begun = Instant::now();
    eventually(PATIENCE, "it is renewed", async || {
        guard.check().expect("it is renewed in time");
        guard.valid_until() > begun + LEASE
    })
    .await;
}

/// Acquires a lock, has another client remove it, and waits until its holder is notified: at the next renewal, without the holder's doing.
async fn a_loss_is_notified(store: &Store, client: &Client, test: &str) {
    let name = &*format!("{test} removed");
    let guard = client.lock(name).acquire().await.expect("it is free");
    let other = store.builder().connect().await.expect("the store is up");
    other.admin().force_release(name).await.expect("it is held");
    let lost = timeout(PATIENCE, guard.lost()).await;
    let lost = lost.expect("the holder is notified").expect("it is lost");
    assert_eq!(lost.reason, LostReason::Removed);
    other.close().await.expect("it has given everything back");
}

/// Waits for a lock that another client holds, and acquires it.
async fn a_release_is_noticed(store: &Store, client: &Client, test: &str) {
    let name = &*format!("{test} waited for");
    let other = store.builder().connect().await.expect("the store is up");
    let held = other.lock(name).acquire().await.expect("it is free");
    let waiting = tokio::spawn({
        let lock = client.lock(name);
        async move { lock.acquire().await }
    });
    // The lock is released by the drop of a guard: cleanup has work as well.
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(held);
    let got = timeout(PATIENCE, waiting).await.expect("it is not missed");
    let got = got.expect("it does not panic").expect("it is free");
    drop(got);
    other.close().await.expect("it has given everything back");
}

/// Closes the client, which releases its holds.
async fn closes(client: Client) {
    // The limit of `close` is five seconds; a reply within it is `Ok`.
    let closed = timeout(PATIENCE, client.close()).await;
    closed
        .expect("it returns")
        .expect("it gives everything back");
}
