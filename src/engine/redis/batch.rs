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

use redis::Value;
use tokio::sync::oneshot;

use super::connection::Connection;
use super::failure;
use super::scripts::Call;
use crate::engine::{Cause, Failure};

/// How many items travel in one call: more gain little, and hold up the server for everyone else.
const MOST: usize = 64;

/// The calls on one connection.
#[derive(Debug)]
pub(crate) struct Batches {
    connection: Connection,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// How many calls the server has not answered yet.
    under_way: usize,
    /// What goes out next; somebody has been told to take it.
    waiting: Vec<Item>,
}

/// One caller's call.
#[derive(Debug)]
struct Item {
    call: Call,
    answer: oneshot::Sender<Answer>,
}

type Answer = Result<Value, Failure>;

/// How a call goes out.
enum Entered {
    Alone(Call),
    InCompany(oneshot::Receiver<Answer>),
}

/// Takes what is waiting with it. If it never gets to, whoever waits hears of that.
struct Departure(Option<Arc<Batches>>);

/// A call that the server has not answered yet.
struct UnderWay<'a>(&'a Batches);

impl Batches {
    pub(crate) fn new(connection: Connection) -> Arc<Self> {
        let queue = Mutex::default();
        Arc::new(Self { connection, queue })
    }

    /// The connection itself, for what travels alone.
    pub(crate) const fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Runs a script, alone or in company. Dropping this leaves open whether it ran.
    pub(crate) async fn run(self: &Arc<Self>, call: Call) -> Answer {
        if !call.may_travel() {
            return self.connection.run(&call).await;
        }
        match self.enter(call) {
            Entered::Alone(call) => {
                let _under_way = UnderWay(self);
                self.connection.run(&call).await
            }
            Entered::InCompany(answer) => answer.await.unwrap_or_else(|_| {
                let why = "the connection's runtime has gone";
                Err(Failure::new(Cause::Interrupted, why))
            }),
        }
    }

    fn enter(self: &Arc<Self>, call: Call) -> Entered {
        let mut queue = self.lock();
        // On the connection's own runtime: where that stands still, so does everything else.
        let runtime = self.connection.runtime();
        let Some(runtime) = runtime.filter(|_| queue.under_way > 0) else {
            queue.under_way += 1;
            return Entered::Alone(call);
        };
        let (sender, answer) = oneshot::channel();
        queue.waiting.push(Item {
            call,
            answer: sender,
        });
        let first = queue.waiting.len() == 1;
        drop(queue);
        if first {
            // Not under the lock: a runtime that has gone drops it here and now.
            runtime.spawn(Departure(Some(self.clone())).leave());
        }
        Entered::InCompany(answer)
    }

    /// One call with all these items.
    async fn send(&self, mut items: Vec<Item>) {
        let _under_way = UnderWay(self);
        // What frees a lock comes before what takes one.
        items.sort_by_key(|item| !item.call.gives_back());
        let answers = {
            let calls: Vec<_> = items.iter().map(|item| &item.call).collect();
            let batch = Call::batch(&calls);
            // Whoever gave up is not waited for; without anyone left, the connection is to know that.
            tokio::select! {
                answer = self.connection.run(&batch) => answer,
                () = all_gone(&mut items) => return,
            }
        };
        match answers {
            Ok(Value::Array(answers)) if answers.len() == items.len() => {
                for (item, answer) in items.into_iter().zip(answers) {
                    // A text is the item's own error.
                    let answer = match answer {
                        Value::BulkString(error) => {
                            Err(failure::from_text(&String::from_utf8_lossy(&error)))
                        }
                        answer => Ok(answer),
                    };
                    let _ = item.answer.send(answer);
                }
            }
            Ok(other) => {
                let failure = Failure::new(Cause::Unexpected, format!("unexpected {other:?}"));
                answer_all(items, &failure);
            }
            // One key we may not touch fails the whole call: find out which, and spare the others.
            Err(failure) if failure.cause == Cause::Denied => {
                for mut item in items {
                    let answer = tokio::select! {
                        answer = self.connection.run(&item.call) => answer,
                        () = item.answer.closed() => continue,
                    };
                    let _ = item.answer.send(answer);
                }
            }
            Err(failure) => answer_all(items, &failure),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Departure {
    async fn leave(mut self) {
        // Those who were woken by the same answers get to say what they want next.
        tokio::task::yield_now().await;
        let Some(batches) = self.0.take() else { return };
        let mut items = {
            let mut queue = batches.lock();
            let items = std::mem::take(&mut queue.waiting);
            queue.under_way += items.len().div_ceil(MOST);
            items
        };
        while items.len() > MOST {
            let rest = items.split_off(MOST);
            let full = std::mem::replace(&mut items, rest);
            let batches = batches.clone();
            tokio::spawn(async move { batches.send(full).await });
        }
        batches.send(items).await;
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        if let Some(batches) = self.0.take() {
            let left_behind = std::mem::take(&mut batches.lock().waiting);
            drop(left_behind);
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.lock().under_way -= 1;
    }
}

/// Resolves when nobody waits for any of these any more.
async fn all_gone(items: &mut [Item]) {
    for item in items {
        item.answer.closed().await;
    }
}

fn answer_all(items: Vec<Item>, failure: &Failure) {
    for item in items {
        let _ = item.answer.send(Err(failure.clone()));
    }
}
