//! Waits in the line that the store itself keeps: everybody in it asks for itself, and has a channel of its own.
//!
//! One owner stands there from the first question to the last. A question whose answer was lost is asked again by the same
//! owner, which keeps its place: asking twice is asking once. Since the lost one may still come, such an owner is refused
//! for good when its hold has ended.

use std::sync::Arc;
use std::time::Duration;

use super::acquire::Wish;
use super::claim::Claim;
use super::clock::Sleeping;
use super::hold::Hold;
use super::job::Job;
use super::reenter::reenter;
use super::trouble::LastFailure;
use super::unfinished::Unfinished;
use super::waiters::Asker;
use super::{Core, Trouble, needs_a_runtime, no_answer, unexpected};
use crate::engine::{Failure, Listener};
use crate::protocol::acquire::{Acquire, Step};
use crate::protocol::lease::LostReason;
use crate::protocol::{Action, Channel, Entry, Moment, OwnerId, Reply, Wanted};

/// How long a waiter is believed to be there without asking. It asks several times in that.
const ALIVE: Duration = Duration::from_secs(10);

/// Waits for its turn; `None` if the deadline has passed and somebody else has the lock.
pub(super) async fn queue(
    core: &Arc<Core>,
    wish: &Wish,
    deadline: Option<Moment>,
) -> Result<Option<Claim>, Trouble> {
    let mut waiter = Waiter {
        place: Place::new(core, wish),
        machine: Acquire::new(wish.subject.kind, wish.hearing, deadline, core.fresh_seed()),
        listener: None,
        failure: LastFailure::default(),
    };
    tokio::select! {
        biased;
        () = core.closed() => Err(Trouble::Closed),
        got = waiter.wait() => got,
    }
}

struct Waiter<'a> {
    place: Place<'a>,
    machine: Acquire,
    listener: Option<Listener>,
    failure: LastFailure,
}

impl Waiter<'_> {
    async fn wait(&mut self) -> Result<Option<Claim>, Trouble> {
        let (core, wish) = (self.place.core, self.place.wish);
        let mut step = Step::Ask;
        loop {
            needs_a_runtime().map_err(Trouble::Failure)?;
            step = match step {
                Step::Ask => {
                    let sent = core.clock.now();
                    let answer = self.place.ask(self.machine.deadline()).await;
                    let now = core.clock.now();
                    match answer {
                        Ok(Reply::Granted { token }) => {
                            let owner = self.place.owner;
                            let claim = Hold::granted(core, wish, owner, token, sent, now);
                            let Some(claim) = claim else {
                                return Err(Trouble::Lost(LostReason::Expired));
                            };
                            self.place.became(&claim);
                            core.waiters.granted(claim.hold(), Asker::PastTheLine, now);
                            return Ok(Some(claim));
                        }
                        Ok(Reply::Busy { ttl }) => {
                            // Perhaps this very owner has got it meanwhile: it is not busy for itself.
                            if let Some(claim) =
                                reenter(core, wish, self.machine.deadline()).await?
                            {
                                return Ok(Some(claim));
                            }
                            if self.listener.as_ref().is_some_and(Listener::is_dismissed) {
                                self.listener = None;
                                self.machine.not_listening();
                            }
                            self.failure.forget();
                            self.machine.busy(ttl, now)
                        }
                        Ok(other) => return Err(Trouble::Failure(unexpected(&other))),
                        Err(failure) => {
                            core.usable()?;
                            let passing = failure.is_passing();
                            let next = self.machine.failed(passing, now);
                            self.failure.note(failure, next);
                            next
                        }
                    }
                }
                Step::Listen => match self.listen().await {
                    Ok(listener) => {
                        self.listener = Some(listener);
                        self.machine.listening()
                    }
                    Err(failure) if failure.is_passing() => self.machine.deaf(core.clock.now()),
                    Err(failure) => return Err(Trouble::Failure(failure)),
                },
                Step::Sleep(until) => {
                    tokio::select! {
                        biased;
                        () = core.wakeups.shielded(heard(self.listener.as_ref())) => {}
                        () = self.sleep(until) => {}
                    }
                    self.machine.woken(core.clock.now())
                }
                Step::Busy => return Ok(None),
                Step::TimedOut => return Err(self.failure.out_of_time()),
                Step::Fail => return Err(self.failure.fatal()),
            }
        }
    }

    async fn listen(&self) -> Result<Listener, Failure> {
        let Place {
            core, wish, owner, ..
        } = &self.place;
        let limit = core.limit(self.machine.deadline());
        let channel = Channel::Waiter(wish.subject.name.clone(), *owner);
        let listening = core.engine.clone().listen(channel);
        tokio::select! {
            listener = core.wakeups.shield(listening) => listener,
            () = self.sleep(core.clock.now() + limit) => Err(no_answer(limit)),
        }
    }

    fn sleep(&self, until: Moment) -> Sleeping<'_> {
        self.place.core.clock.sleep_until(Some(until))
    }
}

/// One owner's place in the line. Dropping it leaves the line.
struct Place<'a> {
    core: &'a Arc<Core>,
    wish: &'a Wish,
    owner: OwnerId,
    /// The store may know it.
    known: bool,
    /// A question of it was not answered, and may still come.
    echoes: bool,
}

impl<'a> Place<'a> {
    fn new(core: &'a Arc<Core>, wish: &'a Wish) -> Self {
        let owner = core.fresh_owner();
        let undo = Job::undo(core, &wish.subject, owner, wish.terms.lease);
        core.lines.enter(owner, undo);
        Self {
            core,
            wish,
            owner,
            known: false,
            echoes: false,
        }
    }

    async fn ask(&mut self, deadline: Option<Moment>) -> Result<Reply, Failure> {
        let Wish { subject, terms, .. } = self.wish;
        let request = subject.request(Action::Acquire {
            owner: self.owner,
            entry: Entry::First,
            lease: terms.lease,
            seen: self.core.tokens.seen(subject),
            waits: Some(ALIVE),
            beside: None,
            past: false,
            permits: Wanted::ONE,
        });
        let core = self.core;
        let undo = Job::undo(core, subject, self.owner, terms.lease);
        // If this is dropped while it is asked, that is undone; not the place beside it.
        let known = std::mem::replace(&mut self.known, false);
        let mut unfinished = Unfinished::new(core, || [undo]);
        let answer = unfinished.ask(request, deadline).await;
        unfinished.settled();
        let in_doubt = answer.as_ref().is_err_and(Failure::leaves_doubt);
        self.echoes |= in_doubt;
        self.known = known || in_doubt || answer.is_ok();
        answer
    }

    /// The lock is ours.
    fn became(&mut self, claim: &Claim) {
        self.known = false;
        if self.echoes {
            claim.hold().echoes();
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.core.is_forked() {
            return;
        }
        // A client that is closed has seen to it.
        if !self.core.lines.leave(&self.owner) || !self.known {
            return;
        }
        let Wish { subject, terms, .. } = self.wish;
        let job = if self.echoes {
            Job::undo(self.core, subject, self.owner, terms.lease)
        } else {
            Job::leave(self.core, subject, self.owner, terms.lease)
        };
        self.core.cleanup.push(job);
    }
}

async fn heard(listener: Option<&Listener>) {
    match listener {
        Some(listener) => listener.heard().await,
        None => std::future::pending().await,
    }
}
