//! Calls of several callers that wait for the same server, in one.
//!
//! A call goes out at once if none is under way. Otherwise it lets those who are ready have their turn,
//! never waits for company, and goes out with whatever has come by then: the server spends less on one
//! call of many items than on many calls. What each item does is the same script either way.

#![expect(
    clippy::disallowed_methods,
    reason = "a call of many is a task of none"
)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use redis::Value;
use tokio::sync::oneshot;

use super::connection::Connection;
use super::failure;
use super::keys::Keys;
use super::scripts::{self, Call};
use crate::engine::{Cause, Failure};
use crate::protocol::{Reply, Request};

/// How many items travel in one call: more gain little, and hold up the server for everyone else.
const MOST: usize = 64;

/// The calls on one connection.
#[derive(Debug)]
pub(crate) struct Batches {
    connection: Connection,
    keys: Keys,
    queue: Mutex<Queue>,
}

/// What goes out next; somebody has been told to take it.
#[derive(Debug, Default)]
struct Queue {
    /// How many calls the server has not answered yet.
    under_way: usize,
    /// What frees a lock comes before what takes one.
    giving: Vec<Item>,
    taking: Vec<Item>,
}

/// One caller's request.
#[derive(Debug)]
struct Item {
    request: Request,
    answer: oneshot::Sender<Answer>,
}

type Answer = Result<Reply, Failure>;

/// How a request goes out.
enum Entered {
    Alone(Request),
    InCompany(oneshot::Receiver<Answer>),
}

/// Takes what is waiting with it. If it never gets to, whoever waits hears of that.
struct Departure(Option<Arc<Batches>>);

/// A call that the server has not answered yet.
struct UnderWay(Arc<Batches>);

impl Batches {
    pub(crate) fn new(connection: Connection, keys: Keys) -> Arc<Self> {
        let queue = Mutex::default();
        Arc::new(Self {
            connection,
            keys,
            queue,
        })
    }

    /// The connection itself, for what travels alone.
    pub(crate) const fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Carries out a request, alone or in company. Dropping this leaves open whether it was.
    pub(crate) async fn run(self: &Arc<Self>, request: Request) -> Answer {
        if !scripts::may_travel(&request) {
            return self.alone(&request).await;
        }
        match self.enter(request) {
            Entered::Alone(request) => {
                let under_way = UnderWay(self.clone());
                under_way.0.alone(&request).await
            }
            Entered::InCompany(answer) => answer.await.unwrap_or_else(|_| {
                let why = "the connection has gone, or its runtime";
                Err(Failure::new(Cause::Interrupted, why))
            }),
        }
    }

    async fn alone(&self, request: &Request) -> Answer {
        let call = Call::new(request, &self.keys);
        scripts::reply(request, self.connection.run(&call).await?)
    }

    fn enter(self: &Arc<Self>, request: Request) -> Entered {
        let mut queue = self.lock();
        // On the connection's own runtime: where that stands still, so does everything else.
        let first = queue.is_empty();
        let runtime = first.then(|| self.connection.runtime()).flatten();
        if queue.under_way == 0 || (first && runtime.is_none()) {
            queue.under_way += 1;
            return Entered::Alone(request);
        }
        let (sender, answer) = oneshot::channel();
        let gives = scripts::gives_back(&request);
        let line = if gives {
            &mut queue.giving
        } else {
            &mut queue.taking
        };
        line.push(Item {
            request,
            answer: sender,
        });
        // A full one leaves at once: behind a crowd of callers the server would have nothing to do.
        let full = queue.leave_if_full();
        drop(queue);
        let full = full.map(|items| UnderWay(self.clone()).send(items));
        // Not under the lock: a runtime that has gone drops what it is given here and now.
        if let Some(full) = full
            && let Some(runtime) = self.connection.runtime()
        {
            runtime.spawn(full);
        }
        if let Some(runtime) = runtime {
            runtime.spawn(Departure(Some(self.clone())).leave());
        }
        Entered::InCompany(answer)
    }

    /// One call with all these items.
    async fn send(&self, items: Vec<Item>) {
        let mut requests = Vec::with_capacity(items.len());
        let mut waiting = Vec::with_capacity(items.len());
        for item in items {
            requests.push(item.request);
            waiting.push(item.answer);
        }
        let batch = Call::batch(&requests, &self.keys);
        // Whoever gave up is not waited for; without anyone left, the connection is to know that.
        let answers = tokio::select! {
            biased;
            answer = self.connection.run(&batch) => answer,
            () = all_gone(&mut waiting) => return,
        };
        match answers {
            Ok(Value::Array(answers)) if answers.len() == waiting.len() => {
                let answers = answers.into_iter().zip(&requests);
                for (caller, (answer, request)) in waiting.into_iter().zip(answers) {
                    // A text is the item's own error.
                    let answer = match answer {
                        Value::BulkString(error) => {
                            Err(failure::from_text(&String::from_utf8_lossy(&error)))
                        }
                        answer => scripts::reply(request, answer),
                    };
                    let _ = caller.send(answer);
                }
            }
            Ok(other) => {
                let failure = Failure::new(Cause::Unexpected, format!("unexpected {other:?}"));
                answer_all(waiting, &failure);
            }
            // One key we may not touch fails the whole call: find out which, and spare the others.
            Err(failure) if failure.cause == Cause::Denied => {
                for (mut caller, request) in waiting.into_iter().zip(&requests) {
                    let answer = tokio::select! {
                        answer = self.alone(request) => answer,
                        () = caller.closed() => continue,
                    };
                    let _ = caller.send(answer);
                }
            }
            Err(failure) => answer_all(waiting, &failure),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    const fn is_empty(&self) -> bool {
        self.giving.is_empty() && self.taking.is_empty()
    }

    fn leave_if_full(&mut self) -> Option<Vec<Item>> {
        if self.giving.len() + self.taking.len() < MOST {
            return None;
        }
        self.leave()
    }

    /// Takes what is there, for a call that is under way from now on.
    fn leave(&mut self) -> Option<Vec<Item>> {
        if self.is_empty() {
            return None;
        }
        self.under_way += 1;
        let mut items = std::mem::take(&mut self.giving);
        items.append(&mut self.taking);
        Some(items)
    }
}

impl Departure {
    async fn leave(mut self) {
        // Those who were woken by the same answers get to say what they want next.
        after_those_who_are_ready().await;
        let Some(batches) = self.0.take() else { return };
        let items = batches.lock().leave();
        if let Some(items) = items {
            UnderWay(batches).send(items).await;
        }
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        if let Some(batches) = self.0.take() {
            let left_behind = {
                let mut queue = batches.lock();
                (
                    std::mem::take(&mut queue.giving),
                    std::mem::take(&mut queue.taking),
                )
            };
            drop(left_behind);
        }
    }
}

impl UnderWay {
    async fn send(self, items: Vec<Item>) {
        self.0.send(items).await;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.lock().under_way -= 1;
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
