//! Waits until a latch is open: everybody by itself, since all are let through at once.

use std::sync::Arc;

use super::clock::within;
use super::number::ask;
use super::trouble::LastFailure;
use super::{Core, Trouble, needs_a_runtime, no_answer};
use crate::engine::{Failure, Listener};
use crate::protocol::acquire::{Acquire, Hearing, Step};
use crate::protocol::{Moment, Subject};

/// Waits for the latch to open; says whether it has before the deadline.
pub(crate) async fn wait(
    core: &Arc<Core>,
    subject: &Subject,
    deadline: Option<Moment>,
) -> Result<bool, Trouble> {
    tokio::task::coop::consume_budget().await;
    core.usable()?;
    let seed = core.fresh_seed();
    let mut waiter = Waiter {
        core,
        subject,
        machine: Acquire::new(subject.kind, Hearing::Notify, deadline, seed),
        listener: None,
        failure: LastFailure::default(),
    };
    tokio::select! {
        biased;
        () = core.closed() => Err(Trouble::Closed),
        open = waiter.wait() => open,
    }
}

struct Waiter<'a> {
    core: &'a Arc<Core>,
    subject: &'a Subject,
    machine: Acquire,
    listener: Option<Listener>,
    failure: LastFailure,
}

impl Waiter<'_> {
    async fn wait(&mut self) -> Result<bool, Trouble> {
        let mut step = Step::Ask;
        loop {
            step = match step {
                Step::Ask => match self.count().await {
                    Ok(Some(1..)) => {
                        if self.listener.as_ref().is_some_and(Listener::is_dismissed) {
                            self.listener = None;
                            self.machine.not_listening();
                        }
                        self.machine.busy(None, self.now())
                    }
                    Ok(_) => return Ok(true),
                    Err(failure) => {
                        self.core.usable()?;
                        let passing = failure.is_passing();
                        let next = self.machine.failed(passing, self.now());
                        self.failure.note(failure, next);
                        next
                    }
                },
                Step::Listen => match self.listen().await {
                    Ok(listener) => {
                        self.listener = Some(listener);
                        self.machine.listening()
                    }
                    Err(failure) if failure.is_passing() => self.machine.deaf(self.now()),
                    Err(failure) => return Err(Trouble::Failure(failure)),
                },
                Step::Sleep(until) => {
                    needs_a_runtime().map_err(Trouble::Failure)?;
                    let heard = async {
                        match &self.listener {
                            Some(listener) => listener.heard().await,
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        () = self.core.wakeups.shielded(heard) => {}
                        () = self.core.clock.sleep_until(Some(until)) => {}
                    }
                    self.machine.woken(self.now())
                }
                Step::Busy => return Ok(false),
                Step::TimedOut => return Err(self.failure.out_of_time()),
                Step::Fail => return Err(self.failure.fatal()),
            }
        }
    }

    async fn count(&self) -> Result<Option<i64>, Failure> {
        if self.machine.deadline().is_none() {
            return ask(self.core, self.subject).await;
        }
        let limit = self.core.limit(self.machine.deadline());
        let count = within(limit, std::pin::pin!(ask(self.core, self.subject))).await;
        count.unwrap_or_else(|| Err(no_answer(limit)))
    }

    async fn listen(&self) -> Result<Listener, Failure> {
        needs_a_runtime()?;
        let limit = self.core.limit(self.machine.deadline());
        let listening = self.core.engine.clone().listen(self.subject.channel());
        let listening = within(limit, self.core.wakeups.shield(listening)).await;
        listening.unwrap_or_else(|| Err(no_answer(limit)))
    }

    fn now(&self) -> Moment {
        self.core.clock.now()
    }
}
