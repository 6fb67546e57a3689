//! The state that a store keeps under one name, with [`State::apply`] as its single entry point.
//!
//! Engines without a language of their own for the rules (memory, and any store with an atomic
//! read-modify-write) load a [`State`], call [`State::apply`] and store it back. The Redis engine
//! implements the same rules in Lua; the model test compares the two.

use super::change::Holders;
use super::counting;
use super::dedup::DedupTable;
use super::fair;
use super::latch;
use super::mutex;
use super::rw;
use super::semaphore;
use super::simple;
use super::store_queue::StoreQueue;
use super::tombstones::Tombstones;
use super::writers::WaitingWriters;
use super::{
    Action, Channel, ClientId, FencingToken, Kind, Moment, OwnerId, Reply, Request, StateKind,
    Subject,
};

mod primitive;

pub use self::primitive::PrimitiveState;

/// Everything that is stored under one name.
#[derive(Clone, Debug, Default)]
#[cfg_attr(
    feature = "sqlite",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct State {
    #[cfg_attr(feature = "sqlite", serde(skip_serializing_if = "Option::is_none"))]
    held: Option<PrimitiveState>,
    #[cfg_attr(
        feature = "sqlite",
        serde(rename = "marks", skip_serializing_if = "Tombstones::is_empty")
    )]
    tombstones: Tombstones,
    #[cfg_attr(
        feature = "sqlite",
        serde(skip_serializing_if = "WaitingWriters::is_empty")
    )]
    writers: WaitingWriters,
    #[cfg_attr(
        feature = "sqlite",
        serde(rename = "deeds", skip_serializing_if = "DedupTable::is_empty")
    )]
    dedup: DedupTable,
}

/// The inputs of a decision apart from the state and the request.
#[derive(Clone, Copy, Debug)]
pub struct ApplyContext {
    /// The time of the decision, by the store's clock.
    pub now: Moment,
    /// The number of subscribers of the subject's channel.
    pub subscribers: u32,
    /// Greater than every token the store has granted, and at least its calendar time in
    /// microseconds.
    pub next_token: FencingToken,
}

/// The error that a primitive of another kind exists under the name. The request changed nothing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WrongKind;

/// The result of a request: the reply, and the channel to notify.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Outcome {
    /// The reply.
    pub reply: Result<Reply, WrongKind>,
    /// The channel on which waiters wait for what became free.
    pub notify: Option<Channel>,
}

impl Outcome {
    /// Creates the outcome for a lock with one owner at a time: its waiters are notified when it
    /// was free.
    pub(super) fn of(request: &Request, reply: Reply) -> Self {
        let freed = match (&request.action, &reply) {
            (_, Reply::Released { .. } | Reply::Forced(true)) => true,
            // It was free for a moment; a subscriber may send a request, and finds it taken.
            (Action::Transfer { .. }, Reply::Granted { .. }) => true,
            (_, _) => false,
        };
        Self {
            reply: Ok(reply),
            notify: freed.then(|| request.subject.channel()),
        }
    }
}

impl State {
    /// Creates a state from what is held and what was undone.
    pub fn new(held: Option<PrimitiveState>, tombstones: Tombstones) -> Self {
        Self {
            held,
            tombstones,
            ..Self::default()
        }
    }

    /// Returns what is held, whether or not the lease has expired.
    pub const fn held_now(&self) -> Option<&PrimitiveState> {
        self.held.as_ref()
    }

    /// Applies one request, with the queue of the lock's waiters.
    pub fn apply(
        &mut self,
        request: &Request,
        ctx: &ApplyContext,
        queue: &mut dyn StoreQueue,
    ) -> Outcome {
        self.expire(ctx.now);
        let state_kind = request.subject.kind.state_kind();
        if self
            .held
            .as_ref()
            .is_some_and(|held| held.state_kind() != state_kind)
        {
            return self.refuse(request, ctx.now);
        }
        let (held, tombstones) = (self.held.take(), &mut self.tombstones);
        match state_kind {
            StateKind::Mutex => {
                let mut mutex = held.and_then(PrimitiveState::mutex);
                let outcome = if request.subject.kind.has_server_queue() {
                    fair::apply(&mut mutex, tombstones, queue, request, ctx)
                } else {
                    mutex::apply(&mut mutex, tombstones, request, ctx)
                };
                self.held = mutex.map(PrimitiveState::Mutex);
                with_queue(outcome, request, queue)
            }
            StateKind::ReadWrite => {
                let mut lock = held.and_then(PrimitiveState::read_write);
                let outcome = rw::apply(&mut lock, tombstones, &mut self.writers, request, ctx);
                self.held = lock.map(PrimitiveState::ReadWrite);
                outcome
            }
            StateKind::Simple => {
                let mut simple = held.and_then(PrimitiveState::simple);
                let outcome = simple::apply(&mut simple, tombstones, request, ctx);
                self.held = simple.map(PrimitiveState::Simple);
                outcome
            }
            StateKind::Semaphore => {
                let mut semaphore = held.and_then(PrimitiveState::semaphore);
                let outcome = semaphore::apply(&mut semaphore, tombstones, queue, request, ctx);
                self.held = semaphore.map(PrimitiveState::Tally);
                outcome
            }
            StateKind::Counter => {
                let mut available = held.as_ref().and_then(PrimitiveState::permits);
                let dedup = &mut self.dedup;
                let outcome = counting::apply(&mut available, dedup, queue, request, ctx);
                self.held = available.map(PrimitiveState::Counter);
                outcome
            }
            StateKind::Countdown => {
                let mut left = held.as_ref().and_then(PrimitiveState::countdown);
                let outcome = latch::apply(&mut left, &mut self.dedup, request, ctx);
                self.held = left.map(PrimitiveState::Countdown);
                outcome
            }
        }
    }

    /// Refuses a request because a primitive of another kind exists. A request that was undone gets
    /// that reply, and an undo is recorded all the same: its request may still arrive.
    fn refuse(&mut self, request: &Request, now: Moment) -> Outcome {
        match &request.action {
            Action::Acquire { owner, entry, .. } if self.tombstones.contains(owner, *entry) => {
                Outcome::of(request, Reply::Undone)
            }
            Action::CounterOp { key, .. } if self.dedup.recorded(key.id).is_some() => {
                let known = self.dedup.recorded(key.id).map(Reply::from);
                Outcome::of(request, known.unwrap_or(Reply::Undone))
            }
            Action::Undo { owner, .. } if request.subject.kind.is_ownerless() => {
                self.dedup.undo(*owner, now);
                Outcome::of(request, Reply::Tombstoned)
            }
            Action::Undo { owner, entry } => {
                self.tombstones.insert(owner, *entry, now);
                Outcome::of(request, Reply::Tombstoned)
            }
            _ => Outcome {
                reply: Err(WrongKind),
                notify: None,
            },
        }
    }

    /// Reports whether nothing is left to remember.
    pub fn is_empty(&mut self, now: Moment) -> bool {
        self.expire(now);
        let nothing = self.held.is_none() && self.tombstones.is_empty();
        nothing && self.writers.is_empty() && self.dedup.is_empty()
    }

    /// Returns the lock that is held under this name, if any.
    pub fn held(&mut self, name: &str, now: Moment) -> Option<Subject> {
        let there = self.there(name, now);
        there.filter(|_| self.held.as_ref().is_some_and(|held| held.is_held(now)))
    }

    /// Returns the primitive under this name, held or not.
    pub fn there(&mut self, name: &str, now: Moment) -> Option<Subject> {
        self.expire(now);
        let kind = self.held.as_ref().map(PrimitiveState::kind);
        kind.map(|kind| Subject::new(kind, name))
    }

    /// Returns the holders, whether or not their leases have expired.
    pub fn holders(&self) -> Holders {
        self.held
            .as_ref()
            .map(PrimitiveState::holders)
            .unwrap_or_default()
    }

    /// Returns the clients of the holders.
    pub fn clients(&self) -> Vec<ClientId> {
        let mut clients = Vec::new();
        for (owner, _) in self.holders() {
            // One client may hold many permits of one semaphore.
            if clients.last() != Some(&owner.client()) {
                clients.push(owner.client());
            }
        }
        clients
    }

    /// Removes everything that belongs to a client that has gone: none of its requests can still
    /// arrive.
    pub fn remove_client(&mut self, client: ClientId) {
        let is_kept = |owner: OwnerId| owner.client() != client;
        self.held.take_if(|held| !held.retain(is_kept));
        self.tombstones.remove_client(client);
        self.writers.remove_client(client);
        self.dedup.remove_client(client);
    }

    /// Removes everything that has expired.
    pub fn expire(&mut self, now: Moment) {
        self.held.take_if(|held| !held.expire(now));
        self.tombstones.expire(now);
        self.writers.expire(now);
        self.dedup.expire(now);
    }
}

/// Adds the waiters to a snapshot, unless the request asks about a plain lock, which has no queue.
fn with_queue(mut outcome: Outcome, request: &Request, queue: &mut dyn StoreQueue) -> Outcome {
    if let Ok(Reply::Inspected(Some(holding))) = &mut outcome.reply
        && request.subject.kind != Kind::Mutex
    {
        let waiting = queue.first_n(fair::SHOWN).into_iter();
        holding.waiting = waiting.map(|owner| owner.to_string()).collect();
    }
    outcome
}

impl ApplyContext {
    /// Returns the token for a grant to a client that has seen this one.
    pub fn token_after(&self, min_token: Option<FencingToken>) -> FencingToken {
        let next = min_token.map(FencingToken::next);
        next.map_or(self.next_token, |next| next.max(self.next_token))
    }
}
