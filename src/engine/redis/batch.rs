//! Calls of several callers that wait for the same server, in one.
//!
//! A call goes out at once if none is under way. Otherwise it lets those who are ready have their turn, and goes out
//! with whatever has come by then: the server spends less on one call of many items than on many calls. What each item
//! does is the same script either way.
//!
//! A full call never waits. Of others there are at most [`MAX_FLUSHERS`](queue::CARRIERS) under way in a crowd; behind them
//! one waits for the first answer, because those who were answered together then ask together.

#![expect(
    clippy::disallowed_methods,
    reason = "a call of many is nobody's own: it is a task, which ends when nobody waits any more"
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
use super::durability::{ScriptReply, ScriptResult};
use super::keys::Keys;
use super::scripts::{self, ScriptCall};
use super::{failure, single};
use crate::engine::in_process;
use crate::engine::{self, StoreError, StoreErrorKind};
use crate::protocol::{Reply, Request};

mod queue;

/// The calls on one connection.
#[derive(Debug)]
pub(crate) struct Batcher {
    connection: Connection,
    keys: Keys,
    /// Whether what is in different slots may be.
    batching: bool,
    queue: Mutex<BatchQueue>,
}

type BatchResult = Result<Reply, StoreError>;

const RUNTIME_GONE: &str = "the connection's runtime has gone";

/// One caller's place in a call that others make.
struct BatchedCall {
    batcher: Arc<Batcher>,
    begun: Instant,
    answer: oneshot::Receiver<BatchResult>,
    answered: bool,
}

/// A task that takes to the server what waits, call after call. If it goes with its runtime, whoever waits hears of that.
struct Flusher {
    batcher: Arc<Batcher>,
    connection: Generation,
    /// It has returned, and nobody relies on it.
    ended: bool,
}

/// What fills a call by itself, and leaves at once.
struct FullBatch {
    call: InFlightCall,
    connection: Generation,
    items: Vec<BatchItem>,
}

/// A call that the server has not answered yet: one for each that the queue has counted.
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

    /// The connection itself, for what travels alone.
    pub(crate) const fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Carries out a request, alone or in company. Dropping this leaves open whether it was.
    pub(crate) fn run(self: &Arc<Self>, request: Request) -> engine::BoxFuture<BatchResult> {
        if !self.batching || !scripts::can_batch(&request) {
            let batcher = self.clone();
            return Box::pin(async move { batcher.call_single(&request).await });
        }
        let begun = Instant::now();
        let admission = {
            let mut queue = self.lock();
            // Under the lock, so that nobody comes with an older one later.
            queue.admit(request, self.connection.generation(), begun)
        };
        // Each in a box of its own size: what travels in company needs little, and there are many of it.
        match admission {
            Admission::Single(request) => {
                let in_flight = InFlightCall(self.clone());
                Box::pin(async move { in_flight.0.call_single(&request).await })
            }
            Admission::Batched {
                connection,
                answer,
                full,
                flusher,
            } => {
                // Not under the lock: a runtime that has gone drops what it is given here and now.
                if let Some(items) = full {
                    let full = FullBatch {
                        call: InFlightCall(self.clone()),
                        connection,
                        items,
                    };
                    self.spawn(connection, full.send());
                }
                if flusher {
                    let flusher = Flusher {
                        batcher: self.clone(),
                        connection,
                        ended: false,
                    };
                    self.spawn(connection, flusher.run());
                }
                Box::pin(BatchedCall {
                    batcher: self.clone(),
                    begun,
                    answer,
                    answered: false,
                })
            }
        }
    }

    async fn call_single(&self, request: &Request) -> BatchResult {
        single::call(&self.connection, &self.keys, request, false).await
    }

    /// On the connection's own runtime: where that stands still, so does everything else.
    fn spawn(&self, connection: Generation, task: impl Future<Output = ()> + Send + 'static) {
        let runtime = self.connection.runtime_of(connection);
        if let Some(runtime) = runtime.or_else(|| Handle::try_current().ok()) {
            runtime.spawn(in_process(task));
        }
    }

    /// A call for each kind of lock among these items: most often one.
    async fn send_all(self: &Arc<Self>, items: Vec<BatchItem>) {
        let (items, others) = queue::by_kind(items);
        for others in others {
            self.lock().on_sent();
            tokio::spawn(in_process(InFlightCall(self.clone()).send(others)));
        }
        self.send(items).await;
    }

    /// One call with all these items, which are of one kind.
    async fn send(self: &Arc<Self>, mut items: Vec<BatchItem>) {
        // Who has gone is undone already.
        items.retain(|item| !item.answer.is_closed());
        let Some(first) = items.first() else {
            return;
        };
        let kind = first.request.subject.kind;
        let mut requests = Vec::with_capacity(items.len());
        let mut waiting = Vec::with_capacity(items.len());
        for item in items {
            requests.push(item.request);
            waiting.push(item.answer);
        }
        let Some(batch) = ScriptCall::batch(kind, &requests, &self.keys) else {
            let failure = StoreError::new(
                StoreErrorKind::Unexpected,
                "what goes alone was to go together",
            );
            return fail_callers(waiting, &failure);
        };
        // Whoever gave up is not waited for; without anyone left, the connection is to know that.
        let answers = tokio::select! {
            biased;
            answer = self.connection.run(&batch) => answer,
            () = all_cancelled(&mut waiting) => return,
        };
        match answers {
            // What is new has to wait, but nothing else.
            Ok(ScriptReply::Delayed(_)) => self.send_each(waiting, requests),
            Ok(ScriptReply::Executed(ScriptResult {
                value: Value::Array(answers),
                durable,
            })) if answers.len() == waiting.len() => {
                let mut answers = answers;
                if planted!(RepliesMixedUp) {
                    answers.rotate_left(1);
                }
                let answers = answers.into_iter().zip(&requests);
                for (caller, (answer, request)) in waiting.into_iter().zip(answers) {
                    // A text is the item's own error.
                    let answer = match answer {
                        Value::BulkString(error) => {
                            Err(failure::from_text(&String::from_utf8_lossy(&error)))
                        }
                        answer => scripts::reply(request, answer),
                    };
                    let _ = caller.send(durable.apply_to(answer));
                }
            }
            Ok(ScriptReply::Executed(ScriptResult { value, .. })) => {
                let failure =
                    StoreError::new(StoreErrorKind::Unexpected, format!("unexpected {value:?}"));
                fail_callers(waiting, &failure);
            }
            // One key we may not touch fails the whole call: find out which, and spare the others.
            Err(failure) if failure.kind == StoreErrorKind::Denied => {
                self.send_each(waiting, requests)
            }
            Err(failure) => fail_callers(waiting, &failure),
        }
    }

    /// A call for each. None waits for another's answer.
    fn send_each(
        self: &Arc<Self>,
        waiting: Vec<oneshot::Sender<BatchResult>>,
        requests: Vec<Request>,
    ) {
        for (mut caller, request) in waiting.into_iter().zip(requests) {
            let batcher = self.clone();
            tokio::spawn(in_process(async move {
                tokio::select! {
                    answer = batcher.call_single(&request) => {
                        let _ = caller.send(answer);
                    }
                    () = caller.closed() => {}
                }
            }));
        }
    }

    /// The runtime of a connection has gone, and the connection with it, which does not say so.
    fn fail_all(&self, connection: Generation, items: Vec<BatchItem>) {
        self.connection.mark_dead(connection);
        let callers = items.into_iter().map(|item| item.answer).collect();
        fail_callers(
            callers,
            &StoreError::new(StoreErrorKind::Unreachable, RUNTIME_GONE),
        );
    }

    fn lock(&self) -> MutexGuard<'_, BatchQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Future for BatchedCall {
    type Output = BatchResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<BatchResult> {
        let answer = ready!(Pin::new(&mut self.answer).poll(cx));
        self.answered = true;
        let gone = |_| Err(StoreError::new(StoreErrorKind::Interrupted, RUNTIME_GONE));
        Poll::Ready(answer.unwrap_or_else(gone))
    }
}

impl Drop for BatchedCall {
    fn drop(&mut self) {
        if !self.answered {
            self.batcher.connection.check_stalled(self.begun.elapsed());
        }
    }
}

impl Flusher {
    async fn run(mut self) {
        loop {
            // Those who were woken by the same answers get to say what they want next.
            yield_to_ready_tasks().await;
            // What waits in a forked child was asked for in its parent, which goes on with it.
            if self.is_forked() {
                return;
            }
            let items = self
                .batcher
                .lock()
                .take_for(self.connection, Instant::now());
            let Some(items) = items else {
                break;
            };
            InFlightCall(self.batcher.clone()).flush(items).await;
            if self.is_forked() {
                return;
            }
            if !self.batcher.lock().keep_flushing(self.connection) {
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
        let items = self.batcher.lock().take_abandoned(self.connection);
        self.batcher.fail_all(self.connection, items);
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
        batcher.fail_all(self.connection, items);
    }
}

impl InFlightCall {
    /// With a call beside it for each further kind of lock.
    async fn flush(self, items: Vec<BatchItem>) {
        self.0.send_all(items).await;
    }

    async fn send(self, items: Vec<BatchItem>) {
        self.0.send(items).await;
    }
}

impl Drop for InFlightCall {
    fn drop(&mut self) {
        // A forked child may have nobody who would ever unlock it.
        if !self.0.connection.is_forked() {
            self.0.lock().on_reply();
        }
    }
}

/// Resolves when those have run who are ready now. Tokio's own `yield_now` has the worker look for I/O first,
/// which is too long for a handful of callers.
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

/// Resolves when nobody waits for any of these any more.
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
