//! Locks in one file, for all processes of this machine, without any server.
//!
//! | file                      | purpose                                                                 |
//! |---------------------------|-------------------------------------------------------------------------|
//! | `locks.db`, `-wal`, `-shm`| the states: load, the rules of `protocol/`, store, in one transaction   |
//! | `locks.db-clients/UUID`   | locked (`flock`) while its client lives, so that others see it end      |
//! | `locks.db-clients/UUID.bell` | a socket: a client that frees a lock wakes the lock's waiters by it  |
//!
//! Times count from the machine's start, and no hold survives its restart. A lost wakeup costs time
//! and nothing else: every waiter retries by itself.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use self::journal::JournalSource;
use self::liveness::Liveness;
use self::store::SqliteStore;
use self::wake_socket::LocalSubscribers;
use self::worker::{FileWorker, Priority};
use super::boot::BootClock;
use super::events::Events;
use super::fork_detector::ForkDetector;
use crate::engine::name_filter::NameFilter;
use crate::engine::{
    BoxFuture, ChangeFeed, Diagnostic, Engine, Page, StoreError, Subscriber, Subscription,
};
use crate::protocol::release_on::ReleaseOn;
use crate::protocol::{Channel, ClientId, Reply, Request};

mod client_dir;
mod diagnose;
mod error;
mod file_checks;
mod fork_check;
mod journal;
mod liveness;
mod lookup;
mod notifier;
mod queue_table;
mod reap;
mod replaced;
mod rows;
mod schema;
mod store;
mod wake_socket;
mod worker;

/// The file, and how a client uses it.
#[derive(Clone, Debug)]
pub struct SqliteSettings {
    /// The file.
    pub path: PathBuf,
    /// The prefix of every lock's name.
    pub prefix: Arc<str>,
    /// The client that uses the file.
    pub client: ClientId,
    /// The event, apart from the end of their leases, that ends the client's holds.
    pub release_on: ReleaseOn,
    /// How long opening it may take.
    pub connect_timeout: Duration,
    /// How long another process may lock the whole file before that is an error.
    pub busy_timeout: Duration,
    /// The clock of the leases.
    pub clock: BootClock,
    /// The emitter for the events of background tasks.
    pub events: Events,
}

/// One client's view of a file.
#[derive(Debug)]
pub struct Sqlite {
    worker: FileWorker,
    subscribers: Arc<LocalSubscribers>,
    fork_detector: ForkDetector,
    namespace_id: String,
    /// The task that polls whether holders are alive.
    liveness_task: AbortHandle,
}

impl Sqlite {
    /// Opens the file, or creates it.
    ///
    /// # Errors
    ///
    /// If it cannot be opened, is not this library's, or is on a file system where locks do not
    /// work.
    #[expect(
        clippy::disallowed_methods,
        reason = "engines may wait and start tasks; the task ends with the engine"
    )]
    pub async fn connect(
        settings: SqliteSettings,
        background: &Handle,
    ) -> Result<Arc<Self>, StoreError> {
        let subscribers = Arc::new(LocalSubscribers::default());
        let liveness = Arc::new(Liveness::default());
        let (local_subscribers, liveness_monitor) = (subscribers.clone(), liveness.clone());
        let (path, limit) = (settings.path.clone(), settings.connect_timeout);
        let prefix = settings.prefix.clone();
        let (runtime, events) = (background.clone(), settings.events.clone());
        let open =
            move || SqliteStore::open(settings, local_subscribers, liveness_monitor, runtime);
        let worker = FileWorker::start(open, events.clone());
        // After a time-out the thread ends by itself.
        let worker = tokio::time::timeout(limit, worker).await;
        let worker = worker.unwrap_or_else(|_| Err(error::open_timed_out(&path, limit)))?;
        let liveness_task = background.spawn(liveness.run(subscribers.clone(), events));
        let liveness_task = liveness_task.abort_handle();
        // All names of one file resolve to the same path.
        let path = path.canonicalize().unwrap_or(path);
        Ok(Arc::new(Self {
            namespace_id: format!("sqlite:{}/{prefix}", path.display()),
            worker,
            subscribers,
            fork_detector: ForkDetector::current(),
            liveness_task,
        }))
    }

    fn unsubscribe(&self, channel: String, weak_subscriber: &Weak<Subscriber>) {
        // A subscription in a forked child is a copy; only the parent ends it.
        if !self.fork_detector.has_forked() && self.subscribers.remove(&channel, weak_subscriber) {
            self.worker.spawn(Priority::Foreground, move |store| {
                store.unsubscribe(&channel);
            });
        }
    }
}

impl Engine for Sqlite {
    fn call(&self, request: Request) -> BoxFuture<Result<Reply, StoreError>> {
        self.worker
            .run(Priority::Foreground, move |store| store.call(&request))
    }

    fn call_background(
        self: Arc<Self>,
        requests: Vec<Request>,
    ) -> BoxFuture<Vec<Result<Reply, StoreError>>> {
        let count = requests.len();
        let replies = self.worker.run(Priority::Background, move |store| {
            Ok(store.call_all(&requests))
        });
        Box::pin(async move {
            let replies = replies.await;
            replies.unwrap_or_else(|failure| vec![Err(failure); count])
        })
    }

    fn namespace_id(&self) -> String {
        self.namespace_id.clone()
    }

    fn subscribe(self: Arc<Self>, channel: Channel) -> BoxFuture<Result<Subscription, StoreError>> {
        let engine = self.clone();
        // Created on the worker: if the caller has gone, dropping the reply unsubscribes.
        self.worker.run(Priority::Foreground, move |store| {
            let (channel, subscriber) = store.subscribe(&channel)?;
            let weak_subscriber = Arc::downgrade(&subscriber);
            Ok(Subscription::new(subscriber, move || {
                engine.unsubscribe(channel, &weak_subscriber)
            }))
        })
    }

    fn monitor(self: Arc<Self>, pattern: String) -> BoxFuture<Result<ChangeFeed, StoreError>> {
        let engine = self.clone();
        // Created on the worker, as in `subscribe`.
        self.worker.run(Priority::Foreground, move |store| {
            let (channel, subscriber, newest) = store.monitor()?;
            let weak_subscriber = Arc::downgrade(&subscriber);
            let reader = JournalSource {
                engine: engine.clone(),
                names: NameFilter::new(&store.prefix, pattern),
            };
            let subscription = Subscription::new(subscriber, move || {
                engine.unsubscribe(channel, &weak_subscriber)
            });
            Ok(ChangeFeed::new(subscription, reader, newest))
        })
    }

    fn scan(self: Arc<Self>, pattern: String, from: u64) -> BoxFuture<Result<Page, StoreError>> {
        self.worker.run(Priority::Foreground, move |store| {
            store.scan(&pattern, from)
        })
    }

    fn set_label(
        self: Arc<Self>,
        _client: Arc<str>,
        label: Option<Arc<str>>,
        ttl: Duration,
    ) -> BoxFuture<Result<(), StoreError>> {
        self.worker.run(Priority::Foreground, move |store| {
            store.set_label(label.as_deref(), ttl)
        })
    }

    fn labels(
        self: Arc<Self>,
        clients: Vec<String>,
    ) -> BoxFuture<Result<Vec<Option<String>>, StoreError>> {
        self.worker
            .run(Priority::Foreground, move |store| store.labels(&clients))
    }

    fn diagnose(self: Arc<Self>, probe: bool) -> BoxFuture<Result<Vec<Diagnostic>, StoreError>> {
        self.worker
            .run(Priority::Foreground, move |store| store.diagnose(probe))
    }

    fn close(self: Arc<Self>) -> BoxFuture<()> {
        let (closed, has_closed) = oneshot::channel();
        // The worker closes the store even if the caller does not wait for it, and after all
        // earlier requests.
        self.worker.spawn(Priority::Foreground, |store| {
            store.close();
            let _ = closed.send(());
        });
        Box::pin(async move {
            // If this fails, other clients remove what is left behind, as after a crash.
            let _ = has_closed.await;
        })
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        if !self.fork_detector.has_forked() {
            self.liveness_task.abort();
        }
    }
}
