//! What a store remembers under one name, and the one door to it.
//!
//! Engines that have no language of their own for the rules (memory, and any store with an atomic
//! read-modify-write) load a [`State`], call [`State::apply`] and store it back. The Redis engine says
//! the same in Lua; the model test holds the one against the other.

use std::time::Duration;

use super::change::Holders;
use super::mutex::Mutex;
use super::{Channel, ClientId, Entry, Kind, Moment, OwnerId, Reply, Request, Subject};

/// How long an undone request is remembered. A request still under way is given up by the network
/// (TCP_USER_TIMEOUT) long before.
pub const MARK_TTL: Duration = Duration::from_secs(5 * 60);

/// Everything under one name.
#[derive(Clone, Debug, Default)]
#[cfg_attr(
    feature = "sqlite",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct State {
    #[cfg_attr(feature = "sqlite", serde(skip_serializing_if = "Option::is_none"))]
    mutex: Option<Mutex>,
    #[cfg_attr(feature = "sqlite", serde(skip_serializing_if = "Vec::is_empty"))]
    marks: Vec<Mark>,
}

/// What a request did: the answer, and who should hear of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Outcome {
    /// The answer.
    pub reply: Reply,
    /// Where those listen who wait for what became free.
    pub news: Option<Channel>,
}

impl State {
    /// Carries out one request at `now`, with so many `listeners` on the subject's channel.
    pub fn apply(&mut self, request: &Request, now: Moment, listeners: u32) -> Outcome {
        self.expire(now);
        match request.subject.kind {
            Kind::Mutex => super::mutex::apply(self, request, now, listeners),
        }
    }

    /// Whether nothing is left to remember.
    pub fn is_empty(&mut self, now: Moment) -> bool {
        self.expire(now);
        self.mutex.is_none() && self.marks.is_empty()
    }

    /// What is held under this name, if anything.
    pub fn held(&mut self, name: &str, now: Moment) -> Option<Subject> {
        self.expire(now);
        let mutex = self.mutex.is_some().then_some(Kind::Mutex);
        mutex.map(|kind| Subject::new(kind, name))
    }

    /// Who holds something of it, be the lease over or not.
    pub fn holders(&self) -> Holders {
        let holder = self.mutex.as_ref();
        holder
            .map(|mutex| (mutex.owner(), mutex.until()))
            .into_iter()
            .collect()
    }

    /// Whose clients hold something of it.
    pub fn clients(&self) -> Vec<ClientId> {
        let holder = self.mutex.as_ref().map(|mutex| mutex.owner().client());
        holder.into_iter().collect()
    }

    /// Takes out all that is a client's: it has gone, and nothing of it can come any more.
    pub fn leave(&mut self, client: ClientId) {
        let gone = |owner: OwnerId| owner.client() == client;
        self.mutex.take_if(|mutex| gone(mutex.owner()));
        self.marks.retain(|mark| !gone(mark.owner));
    }

    pub(super) fn mutex(&mut self) -> &mut Option<Mutex> {
        &mut self.mutex
    }

    pub(super) fn mark(&mut self, owner: &OwnerId, entry: Entry, now: Moment) {
        let attempt = entry.attempt();
        self.marks.retain(|mark| !mark.is(owner, attempt));
        self.marks.push(Mark {
            owner: *owner,
            attempt,
            until: now + MARK_TTL,
        });
    }

    pub(super) fn is_marked(&self, owner: &OwnerId, entry: Entry) -> bool {
        let attempt = entry.attempt();
        self.marks.iter().any(|mark| mark.is(owner, attempt))
    }

    /// Forgets what has run out.
    pub fn expire(&mut self, now: Moment) {
        if self
            .mutex
            .as_ref()
            .is_some_and(|mutex| mutex.has_expired(now))
        {
            self.mutex = None;
        }
        self.marks.retain(|mark| mark.until > now);
    }
}

/// An acquire that was taken back before it came.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlite", derive(serde::Serialize, serde::Deserialize))]
struct Mark {
    owner: OwnerId,
    attempt: u32,
    until: Moment,
}

impl Mark {
    fn is(&self, owner: &OwnerId, attempt: u32) -> bool {
        self.attempt == attempt && self.owner == *owner
    }
}
