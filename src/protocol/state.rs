//! What a store remembers under one name, and the one door to it.
//!
//! Engines that have no language of their own for the rules (memory, and any store with an atomic
//! read-modify-write) load a [`State`], call [`State::apply`] and store it back. The Redis engine says
//! the same in Lua; the model test holds the one against the other.

use super::change::Holders;
use super::marks::Marks;
use super::mutex::{self, Mutex};
use super::simple::{self, Simple};
use super::{
    Action, Channel, ClientId, FencingToken, Kind, Moment, OwnerId, Reply, Request, Shape, Subject,
};

/// Everything under one name.
#[derive(Clone, Debug, Default)]
#[cfg_attr(
    feature = "sqlite",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct State {
    #[cfg_attr(feature = "sqlite", serde(skip_serializing_if = "Option::is_none"))]
    held: Option<Held>,
    #[cfg_attr(feature = "sqlite", serde(skip_serializing_if = "Marks::is_empty"))]
    marks: Marks,
}

/// What is held, by its shape: a name is one thing at a time.
#[derive(Clone, Debug)]
#[cfg_attr(
    feature = "sqlite",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum Held {
    /// A plain lock, or a fenced one.
    Mutex(Mutex),
    /// A simple lock.
    Simple(Simple),
}

/// What a decision depends on beside the state and the request.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings {
    /// When it is made, by the store's clock.
    pub now: Moment,
    /// How many listen at the subject's channel.
    pub listeners: u32,
    /// Greater than every token the store has given, and no less than the microseconds of its calendar.
    pub next_token: FencingToken,
}

/// Something of another kind lives under that name. Nothing was done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WrongKind;

/// What a request did: the answer, and who should hear of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Outcome {
    /// The answer.
    pub reply: Result<Reply, WrongKind>,
    /// Where those listen who wait for what became free.
    pub news: Option<Channel>,
}

impl Outcome {
    /// Of a lock that one owner has at a time: who waits is told when it was free.
    pub(super) fn of(request: &Request, reply: Reply) -> Self {
        let freed = match (&request.action, &reply) {
            (_, Reply::Released { .. } | Reply::Forced(true)) => true,
            // It was free for a moment; who listens may ask, and finds it taken.
            (Action::Pass { .. }, Reply::Granted { .. }) => true,
            (_, _) => false,
        };
        Self {
            reply: Ok(reply),
            news: freed.then(|| request.subject.channel()),
        }
    }
}

impl State {
    /// What is held, and what was undone.
    pub const fn new(held: Option<Held>, marks: Marks) -> Self {
        Self { held, marks }
    }

    /// What is held, be the lease over or not.
    pub const fn held_now(&self) -> Option<&Held> {
        self.held.as_ref()
    }

    /// Carries out one request.
    pub fn apply(&mut self, request: &Request, around: &Surroundings) -> Outcome {
        self.expire(around.now);
        let shape = request.subject.kind.shape();
        if self.held.as_ref().is_some_and(|held| held.shape() != shape) {
            return self.refuse(request, around.now);
        }
        let (held, marks) = (self.held.take(), &mut self.marks);
        match shape {
            Shape::Counted => {
                let mut mutex = held.and_then(Held::mutex);
                let outcome = mutex::apply(&mut mutex, marks, request, around);
                self.held = mutex.map(Held::Mutex);
                outcome
            }
            Shape::Value => {
                let mut simple = held.and_then(Held::simple);
                let outcome = simple::apply(&mut simple, marks, request, around);
                self.held = simple.map(Held::Simple);
                outcome
            }
        }
    }

    /// Something of another kind is there. What was undone is refused for that, and what is undone may still come.
    fn refuse(&mut self, request: &Request, now: Moment) -> Outcome {
        match &request.action {
            Action::Acquire { owner, entry, .. } if self.marks.has(owner, *entry) => {
                Outcome::of(request, Reply::Undone)
            }
            Action::Undo { owner, entry } => {
                self.marks.put(owner, *entry, now);
                Outcome::of(request, Reply::Marked)
            }
            _ => Outcome {
                reply: Err(WrongKind),
                news: None,
            },
        }
    }

    /// Whether nothing is left to remember.
    pub fn is_empty(&mut self, now: Moment) -> bool {
        self.expire(now);
        self.held.is_none() && self.marks.is_empty()
    }

    /// What is held under this name, if anything.
    pub fn held(&mut self, name: &str, now: Moment) -> Option<Subject> {
        self.expire(now);
        let kind = self.held.as_ref().map(Held::kind);
        kind.map(|kind| Subject::new(kind, name))
    }

    /// Who holds something of it, be the lease over or not.
    pub fn holders(&self) -> Holders {
        let holder = self.held.as_ref().map(Held::holder);
        holder.into_iter().collect()
    }

    /// Whose clients hold something of it.
    pub fn clients(&self) -> Vec<ClientId> {
        let holders = self.holders().into_iter();
        holders.map(|(owner, _)| owner.client()).collect()
    }

    /// Takes out all that is a client's: it has gone, and nothing of it can come any more.
    pub fn leave(&mut self, client: ClientId) {
        let gone = |owner: OwnerId| owner.client() == client;
        self.held.take_if(|held| gone(held.holder().0));
        self.marks.leave(client);
    }

    /// Forgets what has run out.
    pub fn expire(&mut self, now: Moment) {
        self.held.take_if(|held| held.holder().1 <= now);
        self.marks.expire(now);
    }
}

impl Surroundings {
    /// The token of a grant to a client that has seen this one.
    pub fn token_after(&self, seen: Option<FencingToken>) -> FencingToken {
        let next = seen.map(FencingToken::next);
        next.map_or(self.next_token, |next| next.max(self.next_token))
    }
}

impl Held {
    /// A hold of this shape.
    pub const fn new(
        shape: Shape,
        owner: OwnerId,
        count: u32,
        until: Moment,
        token: Option<FencingToken>,
    ) -> Self {
        match shape {
            Shape::Counted => Self::Mutex(Mutex::new(owner, count, until, token)),
            Shape::Value => Self::Simple(Simple { owner, until }),
        }
    }

    /// How often its owner holds it, where that is counted.
    pub const fn count(&self) -> u32 {
        match self {
            Self::Mutex(mutex) => mutex.count(),
            Self::Simple(_) => 1,
        }
    }

    /// Which kind it is, as far as that can be told.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Mutex(mutex) if mutex.token().is_some() => Kind::Fenced,
            Self::Mutex(_) => Kind::Mutex,
            Self::Simple(_) => Kind::Simple,
        }
    }

    const fn shape(&self) -> Shape {
        match self {
            Self::Mutex(_) => Shape::Counted,
            Self::Simple(_) => Shape::Value,
        }
    }

    fn mutex(self) -> Option<Mutex> {
        match self {
            Self::Mutex(mutex) => Some(mutex),
            Self::Simple(_) => None,
        }
    }

    fn simple(self) -> Option<Simple> {
        match self {
            Self::Simple(simple) => Some(simple),
            Self::Mutex(_) => None,
        }
    }

    /// Who holds it, and until when.
    pub const fn holder(&self) -> (OwnerId, Moment) {
        match self {
            Self::Mutex(mutex) => (mutex.owner(), mutex.until()),
            Self::Simple(simple) => (simple.owner, simple.until),
        }
    }
}
