//! Batches requests of several callers to the same server into one script call.
//!
//! A call is sent at once if none is in flight. Otherwise it first lets the tasks run that are ready now, and is sent
//! with all requests that have arrived by then: the server spends less on one call of many items than on many calls.
//! Each item runs the same script either way.
//!
//! A full call never waits. Of other calls, at most [`MAX_FLUSHERS`](queue::MAX_FLUSHERS) are in flight under load;
//! beyond that, requests wait for the first reply, because callers that were answered together then send their next
//! requests together.

#![expect(
    clippy::disallowed_methods,
    reason = "a batch has several callers: it runs in a task, which ends when no caller waits any more"
)]

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use redis::Value;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use self::queue::{Admission, BatchItem, BatchQueue};
use super::connection::{Connection, Generation};
use super::durability::{ScriptOutcome, ScriptReply};
use super::keys::Keys;
use super::scripts::{self, ScriptCall};
use super::{failure, single};
use crate::engine::tag_simulated_process;
use crate::engine::{self, StoreError, StoreErrorKind};
use crate::protocol::{Reply, Request};

mod queue;

/// Batches the calls on one connection.
#[derive(Debug)]
pub(crate) struct Batcher {
    connection: Connection,
    keys: Keys,
    /// Whether requests may be batched: their keys have to be in one slot.
    batching: bool,
    queue: Mutex<BatchQueue>,
}

type BatchResult = Result<Reply, StoreError>;

const RUNTIME_SHUT_DOWN: &str = "the runtime of the connection has shut down";

/// The future of one caller whose request is an item of a batch.
struct BatchedCall {
    batcher: Arc<Batcher>,
    begun: Instant,
    reply: oneshot::Receiver<BatchResult>,
    has_replied: bool,
}

/// A task that sends the queued requests, call after call. If it is dropped with its runtime, the waiting callers get
/// an error.
struct Flusher {
    batcher: Arc<Batcher>,
    generation: Generation,
    /// The task has returned, and no caller depends on it.
    ended: bool,
}

/// A full batch, which is sent at once.
struct FullBatch {
    call: InFlightCall,
    generation: Generation,
    items: Vec<BatchItem>,
}

/// A call that the server has not replied to yet: one for each that the queue counts as in flight.
struct InFlightCall(Arc<Batcher>);

impl Batcher {
    pub(crate) fn new(connection: Connection, keys: Keys, batching: bool) -> Arc<Self> {
        let queue = Mutex::default();
        Arc::new(Self {
            connection,
            keys,
            batching,
            queue,
        })
    }

    /// Returns the connection itself, for requests that are not batched.
    pub(crate) const fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Carries out a request, alone or in a batch. If the future is dropped, the request may or may not be carried out.
    pub(crate) fn run(self: &Arc<Self>, request: Request) -> engine::BoxFuture<BatchResult> {
        if !self.batching || !scripts::can_batch(&request) {
            let batcher = self.clone();
            return Box::pin(async move { batcher.call_single(&request).await });
        }
        let begun = Instant::now();
        let admission = {
            let mut queue = self.lock();
            // The generation is read under the lock, so that no later caller enters with an older one.
            queue.admit(request, self.connection.generation(), begun)
        };
        // Each future is boxed at its own size: a batched request needs little memory, and there are many of them.
        match admission {
            Admission::Single(request) => {
                let in_flight = InFlightCall(self.clone());
                Box::pin(async move { in_flight.0.call_single(&request).await })
            }
            Admission::Batched {
                generation,
                reply,
                full,
                flusher,
            } => {
                // Spawn outside the lock: a runtime that has shut down drops the task at once, in this thread.
                if let Some(items) = full {
                    let full = FullBatch {
                        call: InFlightCall(self.clone()),
                        generation,
                        items,
                    };
                    self.spawn(generation, full.send());
                }
                if flusher {
                    let flusher = Flusher {
                        batcher: self.clone(),
                        generation,
                        ended: false,
                    };
                    self.spawn(generation, flusher.run());
                }
                Box::pin(BatchedCall {
                    batcher: self.clone(),
                    begun,
                    reply,
                    has_replied: false,
                })
            }
        }
    }

    async fn call_single(&self, request: &Request) -> BatchResult {
        single::call(&self.connection, &self.keys, request, false).await
    }

    /// Spawns on the connection's own runtime: if that runtime stalls, so does the connection itself.
    fn spawn(&self, generation: Generation, task: impl Future<Output = ()> + Send + 'static) {
        let runtime = self.connection.runtime_of(generation);
        if let Some(runtime) = runtime.or_else(|| Handle::try_current().ok()) {
            runtime.spawn(tag_simulated_process(task));
        }
    }

    /// Sends one call for each kind of lock among these items: most often one.
    async fn send_all(self: &Arc<Self>, items: Vec<BatchItem>) {
        let (items, others) = queue::by_kind(items);
        for others in others {
            self.lock().on_sent();
            tokio::spawn(tag_simulated_process(
                InFlightCall(self.clone()).send(others),
            ));
        }
        self.send(items).await;
    }

    /// Sends one call with all these items, which are of one kind.
    async fn send(self: &Arc<Self>, mut items: Vec<BatchItem>) {
        // The request of a caller that has gone is undone already.
        items.retain(|item| !item.reply_to.is_closed());
        let Some(first) = items.first() else {
            return;
        };
        let kind = first.request.subject.kind;
        let mut requests = Vec::with_capacity(items.len());
        let mut waiting = Vec::with_capacity(items.len());
        for item in items {
            requests.push(item.request);
            waiting.push(item.reply_to);
        }
        let Some(batch) = ScriptCall::batch(kind, &requests, &self.keys) else {
            let failure = StoreError::new(
                StoreErrorKind::Unexpected,
                "a request that cannot be batched was in a batch",
            );
            return fail_callers(waiting, &failure);
        };
        // A cancelled caller is not waited for. If all have cancelled, the call is dropped, so that the connection
        // counts it as abandoned.
        let replies = tokio::select! {
            biased;
            reply = self.connection.run(&batch) => reply,
            () = all_cancelled(&mut waiting) => return,
        };
        match replies {
            // New grants have to wait, but no other request does.
            Ok(ScriptOutcome::Delayed(_)) => self.send_each(waiting, requests),
            Ok(ScriptOutcome::Executed(ScriptReply {
                value: Value::Array(values),
                durable,
            })) if values.len() == waiting.len() => {
                let mut values = values;
                if planted!(RepliesMixedUp) {
                    values.rotate_left(1);
                }
                let values = values.into_iter().zip(&requests);
                for (caller, (value, request)) in waiting.into_iter().zip(values) {
                    // A text is the error of this item.
                    let reply = match value {
                        Value::BulkString(error) => {
                            Err(failure::from_text(&String::from_utf8_lossy(&error)))
                        }
                        value => scripts::reply(request, value),
                    };
                    let _ = caller.send(durable.apply_to(reply));
                }
            }
            Ok(ScriptOutcome::Executed(ScriptReply { value, .. })) => {
                let failure = StoreError::new(
                    StoreErrorKind::Unexpected,
                    format!("unexpected reply {value:?}"),
                );
                fail_callers(waiting, &failure);
            }
            // One key that this user may not access fails the whole call: find out which one, and spare the others.
            Err(failure) if failure.kind == StoreErrorKind::Denied => {
                self.send_each(waiting, requests)
            }
            Err(failure) => fail_callers(waiting, &failure),
        }
    }

    /// Sends a call for each request. No call waits for the reply to another.
    fn send_each(
        self: &Arc<Self>,
        waiting: Vec<oneshot::Sender<BatchResult>>,
        requests: Vec<Request>,
    ) {
        for (mut caller, request) in waiting.into_iter().zip(requests) {
            let batcher = self.clone();
            tokio::spawn(tag_simulated_process(async move {
                tokio::select! {
                    reply = batcher.call_single(&request) => {
                        let _ = caller.send(reply);
                    }
                    () = caller.closed() => {}
                }
            }));
        }
    }

    /// Fails these items: the runtime of a connection has shut down, and the connection with it, without a disconnect
    /// event.
    fn fail_all(&self, generation: Generation, items: Vec<BatchItem>) {
        self.connection.mark_dead(generation);
        let callers = items.into_iter().map(|item| item.reply_to).collect();
        fail_callers(
            callers,
            &StoreError::new(StoreErrorKind::Unreachable, RUNTIME_SHUT_DOWN),
        );
    }

    fn lock(&self) -> MutexGuard<'_, BatchQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Future for BatchedCall {
    type Output = BatchResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<BatchResult> {
        let reply = ready!(Pin::new(&mut self.reply).poll(cx));
        self.has_replied = true;
        let interrupted = |_| {
            Err(StoreError::new(
                StoreErrorKind::Interrupted,
                RUNTIME_SHUT_DOWN,
            ))
        };
        Poll::Ready(reply.unwrap_or_else(interrupted))
    }
}

impl Drop for BatchedCall {
    fn drop(&mut self) {
        if !self.has_replied {
            self.batcher.connection.check_stalled(self.begun.elapsed());
        }
    }
}

impl Flusher {
    async fn run(mut self) {
        loop {
            // Let the callers that were woken by the same replies send their next requests first.
            yield_to_ready_tasks().await;
            // In a forked child, the queued requests belong to the parent, which goes on with them.
            if self.is_forked() {
                return;
            }
            let items = self
                .batcher
                .lock()
                .take_for(self.generation, Instant::now());
            let Some(items) = items else {
                break;
            };
            InFlightCall(self.batcher.clone()).flush(items).await;
            if self.is_forked() {
                return;
            }
            if !self.batcher.lock().keep_flushing(self.generation) {
                break;
            }
        }
        self.ended = true;
    }

    fn is_forked(&self) -> bool {
        self.batcher.connection.is_forked()
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        if self.is_forked() {
            return std::mem::forget(self.batcher.clone());
        }
        let items = self.batcher.lock().take_abandoned(self.generation);
        self.batcher.fail_all(self.generation, items);
    }
}

impl FullBatch {
    async fn send(mut self) {
        let items = std::mem::take(&mut self.items);
        self.call.0.send_all(items).await;
    }
}

impl Drop for FullBatch {
    fn drop(&mut self) {
        let items = std::mem::take(&mut self.items);
        if items.is_empty() {
            return;
        }
        let batcher = &self.call.0;
        if batcher.connection.is_forked() {
            return std::mem::forget((batcher.clone(), items));
        }
        batcher.fail_all(self.generation, items);
    }
}

impl InFlightCall {
    /// Sends one call for these items, and another one beside it for each further kind of lock.
    async fn flush(self, items: Vec<BatchItem>) {
        self.0.send_all(items).await;
    }

    async fn send(self, items: Vec<BatchItem>) {
        self.0.send(items).await;
    }
}

impl Drop for InFlightCall {
    fn drop(&mut self) {
        // In a forked child, the thread that holds this lock may not exist, so the lock may never be released.
        if !self.0.connection.is_forked() {
            self.0.lock().on_reply();
        }
    }
}

/// Resolves when the tasks that are ready now have run. Tokio's own `yield_now` makes the worker poll for I/O first,
/// which takes too long for a handful of callers.
async fn yield_to_ready_tasks() {
    let mut waited = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Resolves when all of these callers have cancelled.
async fn all_cancelled(waiting: &mut [oneshot::Sender<BatchResult>]) {
    for caller in waiting {
        caller.closed().await;
    }
}

fn fail_callers(waiting: Vec<oneshot::Sender<BatchResult>>, failure: &StoreError) {
    for caller in waiting {
        let _ = caller.send(Err(failure.clone()));
    }
}
