//! Locks in one file, for all processes of this machine, without any server.
//!
//! | file                      | what it is for                                                          |
//! |---------------------------|-------------------------------------------------------------------------|
//! | `locks.db`, `-wal`, `-shm`| the states: load, the rules of `protocol/`, store, in one transaction   |
//! | `locks.db-clients/UUID`   | locked (`flock`) while its client lives, so that others see it end      |
//! | `locks.db-clients/UUID.bell` | a socket: whoever frees a lock rings at those who wait for it        |
//!
//! Times are the machine's since it started, and nothing is held over a restart. A bell that is not heard costs time
//! and nothing else: every waiter asks again by itself.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use self::bell::Ears;
use self::journal::Reader;
use self::liveness::Liveness;
use self::store::Store;
use self::worker::{Priority, Worker};
use super::boot::BootClock;
use super::events::Events;
use super::process::Process;
use crate::engine::names::Names;
use crate::engine::{Answer, Ear, Engine, Failure, Feed, Finding, Listener, Page};
use crate::protocol::holds_end_with::HoldsEndWith;
use crate::protocol::{Channel, ClientId, Reply, Request};

mod bell;
mod examine;
mod failure;
mod folder;
mod forked;
mod gone;
mod journal;
mod line;
mod liveness;
mod lookup;
mod messenger;
mod removed;
mod rows;
mod schema;
mod store;
mod trust;
mod worker;

/// Which file, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The file.
    pub path: PathBuf,
    /// Goes before every lock's name.
    pub prefix: Arc<str>,
    /// Who uses it.
    pub client: ClientId,
    /// With what its holds end.
    pub holds_end_with: HoldsEndWith,
    /// How long opening it may take.
    pub connect_timeout: Duration,
    /// How long another process may have the file to itself before that is trouble.
    pub patience: Duration,
    /// The clock that leases end by.
    pub clock: BootClock,
    /// Where background tasks emit their events.
    pub events: Events,
}

/// One client's view of a file.
#[derive(Debug)]
pub struct Sqlite {
    worker: Worker,
    ears: Arc<Ears>,
    process: Process,
    place: String,
    /// The task that looks whether holders are still there.
    watching: AbortHandle,
}

impl Sqlite {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    ///
    /// If it cannot be opened, is not ours, or is somewhere that locks do not work.
    #[expect(
        clippy::disallowed_methods,
        reason = "engines may wait and start tasks; this ends with the engine"
    )]
    pub async fn connect(settings: Settings, background: &Handle) -> Result<Arc<Self>, Failure> {
        let ears = Arc::new(Ears::default());
        let liveness = Arc::new(Liveness::default());
        let (heard_by, noted_by) = (ears.clone(), liveness.clone());
        let (path, limit) = (settings.path.clone(), settings.connect_timeout);
        let prefix = settings.prefix.clone();
        let (runtime, events) = (background.clone(), settings.events.clone());
        let open = move || Store::open(settings, heard_by, noted_by, runtime);
        let worker = Worker::start(open, events.clone());
        // After a time-out the thread ends by itself.
        let worker = tokio::time::timeout(limit, worker).await;
        let worker = worker.unwrap_or_else(|_| Err(failure::too_slow(&path, limit)))?;
        let watching = background.spawn(liveness.keep(ears.clone(), events));
        let watching = watching.abort_handle();
        // All names of a file come to one.
        let path = path.canonicalize().unwrap_or(path);
        Ok(Arc::new(Self {
            place: format!("sqlite:{}/{prefix}", path.display()),
            worker,
            ears,
            process: Process::current(),
            watching,
        }))
    }

    fn stop_listening(&self, channel: String, gone: &Weak<Ear>) {
        // Not a forked child's to see to.
        if !self.process.has_forked() && self.ears.remove(&channel, gone) {
            self.worker.tell(Priority::Foreground, move |store| {
                store.stop_listening(&channel);
            });
        }
    }
}

impl Engine for Sqlite {
    fn call(&self, request: Request) -> Answer<Result<Reply, Failure>> {
        self.worker
            .ask(Priority::Foreground, move |store| store.call(&request))
    }

    fn call_apart(self: Arc<Self>, requests: Vec<Request>) -> Answer<Vec<Result<Reply, Failure>>> {
        let count = requests.len();
        let answers = self.worker.ask(Priority::Background, move |store| {
            Ok(store.call_all(&requests))
        });
        Box::pin(async move {
            let answers = answers.await;
            answers.unwrap_or_else(|failure| vec![Err(failure); count])
        })
    }

    fn place(&self) -> String {
        self.place.clone()
    }

    fn listen(self: Arc<Self>, channel: Channel) -> Answer<Result<Listener, Failure>> {
        let engine = self.clone();
        // Made on the worker: if the caller has gone, dropping the answer unregisters the listener.
        self.worker.ask(Priority::Foreground, move |store| {
            let (channel, ear) = store.listen(&channel)?;
            let gone = Arc::downgrade(&ear);
            Ok(Listener::new(ear, move || {
                engine.stop_listening(channel, &gone)
            }))
        })
    }

    fn overhear(self: Arc<Self>, pattern: String) -> Answer<Result<Feed, Failure>> {
        let engine = self.clone();
        // Made on the worker, as in `listen`.
        self.worker.ask(Priority::Foreground, move |store| {
            let (channel, ear, newest) = store.overhear()?;
            let gone = Arc::downgrade(&ear);
            let reader = Reader {
                engine: engine.clone(),
                names: Names::new(&store.prefix, pattern),
            };
            let listener = Listener::new(ear, move || engine.stop_listening(channel, &gone));
            Ok(Feed::new(listener, reader, newest))
        })
    }

    fn find(self: Arc<Self>, pattern: String, from: u64) -> Answer<Result<Page, Failure>> {
        self.worker.ask(Priority::Foreground, move |store| {
            store.find(&pattern, from)
        })
    }

    fn announce(
        self: Arc<Self>,
        _client: Arc<str>,
        label: Option<Arc<str>>,
        ttl: Duration,
    ) -> Answer<Result<(), Failure>> {
        self.worker.ask(Priority::Foreground, move |store| {
            store.announce(label.as_deref(), ttl)
        })
    }

    fn labels(
        self: Arc<Self>,
        clients: Vec<String>,
    ) -> Answer<Result<Vec<Option<String>>, Failure>> {
        self.worker
            .ask(Priority::Foreground, move |store| store.labels(&clients))
    }

    fn examine(self: Arc<Self>, probe: bool) -> Answer<Result<Vec<Finding>, Failure>> {
        self.worker
            .ask(Priority::Foreground, move |store| store.examine(probe))
    }

    fn leave(self: Arc<Self>) -> Answer<()> {
        let (left, has_left) = oneshot::channel();
        // Also if the caller does not wait for it, and behind all requests that came before.
        self.worker.tell(Priority::Foreground, |store| {
            store.leave();
            let _ = left.send(());
        });
        Box::pin(async move {
            // What is left behind is found by others, as after a crash.
            let _ = has_left.await;
        })
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        if !self.process.has_forked() {
            self.watching.abort();
        }
    }
}
