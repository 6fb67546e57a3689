//! Calls of several callers that wait for the same server, in one.
//!
//! A call goes out at once if none is under way. Otherwise it lets those who are ready have their turn, and goes out
//! with whatever has come by then: the server spends less on one call of many items than on many calls. What each item
//! does is the same script either way.
//!
//! A full call never waits. Of others there are at most [`CARRIERS`](queue::CARRIERS) under way in a crowd; behind them
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

use self::queue::{Item, Queue, Way};
use super::assurance::{Ran, Said};
use super::connection::{Connection, Generation};
use super::keys::Keys;
use super::scripts::{self, Call};
use super::{alone, failure};
use crate::engine::in_process;
use crate::engine::{self, Cause, Failure};
use crate::protocol::{Reply, Request};

mod queue;

/// The calls on one connection.
#[derive(Debug)]
pub(crate) struct Batches {
    connection: Connection,
    keys: Keys,
    /// Whether what is in different slots may be.
    together: bool,
    queue: Mutex<Queue>,
}

type Answer = Result<Reply, Failure>;

const RUNTIME_GONE: &str = "the connection's runtime has gone";

/// One caller's place in a call that others make.
struct Company {
    batches: Arc<Batches>,
    begun: Instant,
    answer: oneshot::Receiver<Answer>,
    answered: bool,
}

/// A task that takes to the server what waits, call after call. If it goes with its runtime, whoever waits hears of that.
struct Carrier {
    batches: Arc<Batches>,
    connection: Generation,
    /// It has returned, and nobody relies on it.
    ended: bool,
}

/// What fills a call by itself, and leaves at once.
struct Full {
    call: UnderWay,
    connection: Generation,
    items: Vec<Item>,
}

/// A call that the server has not answered yet: one for each that the queue has counted.
struct UnderWay(Arc<Batches>);

impl Batches {
    pub(crate) fn new(connection: Connection, keys: Keys, together: bool) -> Arc<Self> {
        let queue = Mutex::default();
        Arc::new(Self {
            connection,
            keys,
            together,
            queue,
        })
    }

    /// The connection itself, for what travels alone.
    pub(crate) const fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Carries out a request, alone or in company. Dropping this leaves open whether it was.
    pub(crate) fn run(self: &Arc<Self>, request: Request) -> engine::Answer<Answer> {
        if !self.together || !scripts::may_travel(&request) {
            let batches = self.clone();
            return Box::pin(async move { batches.alone(&request).await });
        }
        let begun = Instant::now();
        let way = {
            let mut queue = self.lock();
            // Under the lock, so that nobody comes with an older one later.
            queue.enter(request, self.connection.generation(), begun)
        };
        // Each in a box of its own size: what travels in company needs little, and there are many of it.
        match way {
            Way::Alone(request) => {
                let under_way = UnderWay(self.clone());
                Box::pin(async move { under_way.0.alone(&request).await })
            }
            Way::Together {
                connection,
                answer,
                full,
                carrier,
            } => {
                // Not under the lock: a runtime that has gone drops what it is given here and now.
                if let Some(items) = full {
                    let full = Full {
                        call: UnderWay(self.clone()),
                        connection,
                        items,
                    };
                    self.spawn(connection, full.leave());
                }
                if carrier {
                    let carrier = Carrier {
                        batches: self.clone(),
                        connection,
                        ended: false,
                    };
                    self.spawn(connection, carrier.carry());
                }
                Box::pin(Company {
                    batches: self.clone(),
                    begun,
                    answer,
                    answered: false,
                })
            }
        }
    }

    async fn alone(&self, request: &Request) -> Answer {
        alone::call(&self.connection, &self.keys, request, false).await
    }

    /// On the connection's own runtime: where that stands still, so does everything else.
    fn spawn(&self, connection: Generation, task: impl Future<Output = ()> + Send + 'static) {
        let runtime = self.connection.runtime_of(connection);
        if let Some(runtime) = runtime.or_else(|| Handle::try_current().ok()) {
            runtime.spawn(in_process(task));
        }
    }

    /// A call for each kind of lock among these items: most often one.
    async fn send_all(self: &Arc<Self>, items: Vec<Item>) {
        let (items, others) = queue::by_kind(items);
        for others in others {
            self.lock().another();
            tokio::spawn(in_process(UnderWay(self.clone()).send(others)));
        }
        self.send(items).await;
    }

    /// One call with all these items, which are of one kind.
    async fn send(self: &Arc<Self>, mut items: Vec<Item>) {
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
        let Some(batch) = Call::batch(kind, &requests, &self.keys) else {
            let failure = Failure::new(Cause::Unexpected, "what goes alone was to go together");
            return answer_all(waiting, &failure);
        };
        // Whoever gave up is not waited for; without anyone left, the connection is to know that.
        let answers = tokio::select! {
            biased;
            answer = self.connection.run(&batch) => answer,
            () = all_gone(&mut waiting) => return,
        };
        match answers {
            // What is new has to wait, but nothing else.
            Ok(Ran::HeldBack(_)) => self.send_each(waiting, requests),
            Ok(Ran::Said(Said {
                value: Value::Array(answers),
                kept,
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
                    let _ = caller.send(kept.counted(answer));
                }
            }
            Ok(Ran::Said(Said { value, .. })) => {
                let failure = Failure::new(Cause::Unexpected, format!("unexpected {value:?}"));
                answer_all(waiting, &failure);
            }
            // One key we may not touch fails the whole call: find out which, and spare the others.
            Err(failure) if failure.cause == Cause::Denied => self.send_each(waiting, requests),
            Err(failure) => answer_all(waiting, &failure),
        }
    }

    /// A call for each. None waits for another's answer.
    fn send_each(self: &Arc<Self>, waiting: Vec<oneshot::Sender<Answer>>, requests: Vec<Request>) {
        for (mut caller, request) in waiting.into_iter().zip(requests) {
            let batches = self.clone();
            tokio::spawn(in_process(async move {
                tokio::select! {
                    answer = batches.alone(&request) => {
                        let _ = caller.send(answer);
                    }
                    () = caller.closed() => {}
                }
            }));
        }
    }

    /// The runtime of a connection has gone, and the connection with it, which does not say so.
    fn strand(&self, connection: Generation, items: Vec<Item>) {
        self.connection.give_up(connection);
        let callers = items.into_iter().map(|item| item.answer).collect();
        answer_all(callers, &Failure::new(Cause::Unreachable, RUNTIME_GONE));
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Future for Company {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let answer = ready!(Pin::new(&mut self.answer).poll(cx));
        self.answered = true;
        let gone = |_| Err(Failure::new(Cause::Interrupted, RUNTIME_GONE));
        Poll::Ready(answer.unwrap_or_else(gone))
    }
}

impl Drop for Company {
    fn drop(&mut self) {
        if !self.answered {
            self.batches.connection.doubt(self.begun.elapsed());
        }
    }
}

impl Carrier {
    async fn carry(mut self) {
        loop {
            // Those who were woken by the same answers get to say what they want next.
            after_those_who_are_ready().await;
            // What waits in a forked child was asked for in its parent, which goes on with it.
            if self.is_forked() {
                return;
            }
            let items = self
                .batches
                .lock()
                .taken_by(self.connection, Instant::now());
            let Some(items) = items else {
                break;
            };
            UnderWay(self.batches.clone()).carry(items).await;
            if self.is_forked() {
                return;
            }
            if !self.batches.lock().goes_on(self.connection) {
                break;
            }
        }
        self.ended = true;
    }

    fn is_forked(&self) -> bool {
        self.batches.connection.is_forked()
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        if self.is_forked() {
            return std::mem::forget(self.batches.clone());
        }
        let items = self.batches.lock().forsaken_by(self.connection);
        self.batches.strand(self.connection, items);
    }
}

impl Full {
    async fn leave(mut self) {
        let items = std::mem::take(&mut self.items);
        self.call.0.send_all(items).await;
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        let items = std::mem::take(&mut self.items);
        if items.is_empty() {
            return;
        }
        let batches = &self.call.0;
        if batches.connection.is_forked() {
            return std::mem::forget((batches.clone(), items));
        }
        batches.strand(self.connection, items);
    }
}

impl UnderWay {
    /// With a call beside it for each further kind of lock.
    async fn carry(self, items: Vec<Item>) {
        self.0.send_all(items).await;
    }

    async fn send(self, items: Vec<Item>) {
        self.0.send(items).await;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        // A forked child may have nobody who would ever unlock it.
        if !self.0.connection.is_forked() {
            self.0.lock().answered();
        }
    }
}

/// Resolves when those have run who are ready now. Tokio's own `yield_now` has the worker look for I/O first,
/// which is too long for a handful of callers.
async fn after_those_who_are_ready() {
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
async fn all_gone(waiting: &mut [oneshot::Sender<Answer>]) {
    for caller in waiting {
        caller.closed().await;
    }
}

fn answer_all(waiting: Vec<oneshot::Sender<Answer>>, failure: &Failure) {
    for caller in waiting {
        let _ = caller.send(Err(failure.clone()));
    }
}
