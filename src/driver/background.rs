//! The runtime or thread on which the watchdog and cleanup run.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::{Core, cleanup, thread, watchdog};
use crate::engine::events::Events;
use crate::engine::supervise::{Restarts, catch_panic};
use crate::engine::tag_simulated_process;
use crate::engine::waker_executor::{WakerExecutor, is_lease_thread, trust_current_waker};

/// The place for work that must not stop when the caller's runtime is busy, blocked or gone.
pub(crate) enum Background {
    /// The caller's runtime: for a store that replies without I/O, under a clock that may be paused.
    Caller(Handle),
    /// A thread with a runtime of its own, which waits for a client.
    Thread(Thread),
    /// The caller's runtime, for a server on a simulated network: it does all that a thread would do.
    #[cfg(feature = "simulation")]
    Simulated(Handle),
}

/// A thread that waits to be given a client, and ends with it.
pub(crate) struct Thread {
    runtime: Handle,
    work: oneshot::Sender<ThreadWork>,
    events: Events,
    waker_executor: WakerExecutor,
}

type ThreadWork = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

impl Background {
    /// Starts a thread. It ends when the client's last work is done, or at once if this is dropped without having been
    /// given a client.
    pub(crate) fn thread() -> std::io::Result<Self> {
        let (work, given) = oneshot::channel::<ThreadWork>();
        let main = async {
            if let Ok(work) = given.await {
                work.await;
            }
        };
        Ok(Self::Thread(Thread {
            runtime: thread::start("distlock", main)?,
            work,
            events: Events::queued(),
            waker_executor: WakerExecutor::threads(),
        }))
    }

    /// Returns where background tasks emit their events: not on the thread that keeps leases alive.
    pub(crate) fn events(&self) -> Events {
        match self {
            // For blocking calls the caller's runtime is the library's own.
            Self::Caller(_) if is_lease_thread() => Events::queued(),
            Self::Caller(_) => Events::inline(),
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => Events::inline(),
            Self::Thread(thread) => thread.events.clone(),
        }
    }

    /// Returns where the application's tasks are woken: not on the thread that keeps leases alive.
    pub(crate) fn waker_executor(&self) -> WakerExecutor {
        match self {
            Self::Caller(_) => WakerExecutor::inline(),
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => WakerExecutor::inline(),
            Self::Thread(thread) => thread.waker_executor.clone(),
        }
    }

    /// Returns the runtime for the background tasks of engines.
    pub(crate) const fn runtime(&self) -> &Handle {
        match self {
            Self::Caller(runtime) => runtime,
            #[cfg(feature = "simulation")]
            Self::Simulated(runtime) => runtime,
            Self::Thread(thread) => &thread.runtime,
        }
    }

    /// Runs a client's watchdog and cleanup. When the client is dropped the watchdog ends, and so does cleanup when it
    /// has nothing left to do.
    #[expect(clippy::disallowed_methods, reason = "the driver owns these tasks")]
    pub(super) fn run(self, core: &Arc<Core>) {
        let schedule = core.schedule.clone();
        let engine = core.engine.clone();
        let watchdog = watchdog::run(schedule, engine, core.settings.clone(), core.id.clone());
        let watchdog = async {
            trust_current_waker().await;
            watchdog.await;
        };
        match self {
            // No call ever times out there.
            Self::Caller(runtime) => {
                runtime.spawn(watchdog);
            }
            Self::Thread(thread) => {
                // The thread is waiting: it ends only when it has been given work or was dropped.
                let _ = thread.work.send(Box::pin(background_tasks(core, watchdog)));
            }
            #[cfg(feature = "simulation")]
            Self::Simulated(runtime) => {
                runtime.spawn(tag_simulated_process(background_tasks(core, watchdog)));
            }
        }
    }
}

/// Runs the watchdog, cleanup and the timer of all calls, for as long as the client needs them.
#[expect(clippy::disallowed_methods, reason = "the driver owns these tasks")]
fn background_tasks(
    core: &Arc<Core>,
    watchdog: impl Future<Output = ()> + Send + 'static,
) -> impl Future<Output = ()> + Send + 'static {
    let mut jobs = core.cleanup.open();
    let call_timeouts = core.call_timeouts.clone();
    let events = core.events.clone();
    async move {
        let timeouts = call_timeouts.count(events.clone());
        let tasks = [
            tokio::spawn(tag_simulated_process(watchdog)),
            tokio::spawn(tag_simulated_process(timeouts)),
        ];
        let mut working = JoinSet::new();
        let mut restarts = Restarts::new("cleanup", &events);
        while let Err(panicked) = catch_panic(cleanup::run(&mut jobs, &mut working, &events)).await
        {
            restarts.report_and_wait(panicked).await;
        }
        for task in tasks {
            task.abort();
        }
    }
}
