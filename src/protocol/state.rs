//! What a store remembers under one name, and the one door to it.
//!
//! Engines that have no language of their own for the rules (memory, and any store with an atomic
//! read-modify-write) load a [`State`], call [`State::apply`] and store it back. The Redis engine says
//! the same in Lua; the model test holds the one against the other.

use super::change::Holders;
use super::fair;
use super::line::Line;
use super::marks::Marks;
use super::mutex::{self, Mutex};
use super::rw;
use super::rw::ReadWrite;
use super::simple::{self, Simple};
use super::writers::Writers;
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
    #[cfg_attr(feature = "sqlite", serde(skip_serializing_if = "Writers::is_empty"))]
    writers: Writers,
}

/// What is held, by its shape: a name is one thing at a time.
#[derive(Clone, Debug)]
#[cfg_attr(
    feature = "sqlite",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum Held {
    /// A plain lock, a fenced or a fair one.
    Mutex(Mutex),
    /// A read/write lock.
    ReadWrite(ReadWrite),
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
    pub fn new(held: Option<Held>, marks: Marks) -> Self {
        let writers = Writers::default();
        Self {
            held,
            marks,
            writers,
        }
    }

    /// What is held, be the lease over or not.
    pub const fn held_now(&self) -> Option<&Held> {
        self.held.as_ref()
    }

    /// Carries out one request, with those who stand in line for the lock.
    pub fn apply(
        &mut self,
        request: &Request,
        around: &Surroundings,
        line: &mut dyn Line,
    ) -> Outcome {
        self.expire(around.now);
        let shape = request.subject.kind.shape();
        if self.held.as_ref().is_some_and(|held| held.shape() != shape) {
            return self.refuse(request, around.now);
        }
        let (held, marks) = (self.held.take(), &mut self.marks);
        match shape {
            Shape::Counted => {
                let mut mutex = held.and_then(Held::mutex);
                let outcome = if request.subject.kind.has_line() {
                    fair::apply(&mut mutex, marks, line, request, around)
                } else {
                    mutex::apply(&mut mutex, marks, request, around)
                };
                self.held = mutex.map(Held::Mutex);
                with_line(outcome, request, line)
            }
            Shape::Shared => {
                let mut lock = held.and_then(Held::read_write);
                let outcome = rw::apply(&mut lock, marks, &mut self.writers, request, around);
                self.held = lock.map(Held::ReadWrite);
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
        self.held.is_none() && self.marks.is_empty() && self.writers.is_empty()
    }

    /// What is held under this name, if anything.
    pub fn held(&mut self, name: &str, now: Moment) -> Option<Subject> {
        self.expire(now);
        let kind = self.held.as_ref().map(Held::kind);
        kind.map(|kind| Subject::new(kind, name))
    }

    /// Who holds something of it, be the lease over or not.
    pub fn holders(&self) -> Holders {
        self.held.as_ref().map(Held::holders).unwrap_or_default()
    }

    /// Whose clients hold something of it.
    pub fn clients(&self) -> Vec<ClientId> {
        let holders = self.holders().into_iter();
        holders.map(|(owner, _)| owner.client()).collect()
    }

    /// Takes out all that is a client's: it has gone, and nothing of it can come any more.
    pub fn leave(&mut self, client: ClientId) {
        let stays = |owner: OwnerId| owner.client() != client;
        self.held.take_if(|held| !held.retain(stays));
        self.marks.leave(client);
        self.writers.forget(client);
    }

    /// Forgets what has run out.
    pub fn expire(&mut self, now: Moment) {
        self.held.take_if(|held| !held.expire(now));
        self.marks.expire(now);
        self.writers.expire(now);
    }
}

/// A look shows who waits, unless a plain lock's is asked for, which has nobody in line.
fn with_line(mut outcome: Outcome, request: &Request, line: &mut dyn Line) -> Outcome {
    if let Ok(Reply::Inspected(Some(holding))) = &mut outcome.reply
        && request.subject.kind != Kind::Mutex
    {
        let waiting = line.some(fair::SHOWN).into_iter();
        holding.waiting = waiting.map(|owner| owner.to_string()).collect();
    }
    outcome
}

impl Surroundings {
    /// The token of a grant to a client that has seen this one.
    pub fn token_after(&self, seen: Option<FencingToken>) -> FencingToken {
        let next = seen.map(FencingToken::next);
        next.map_or(self.next_token, |next| next.max(self.next_token))
    }
}

impl Held {
    /// A hold of this shape, if one owner alone has such.
    pub const fn new(
        shape: Shape,
        owner: OwnerId,
        count: u32,
        until: Moment,
        token: Option<FencingToken>,
    ) -> Option<Self> {
        match shape {
            Shape::Counted => Some(Self::Mutex(Mutex::new(owner, count, until, token))),
            Shape::Value => Some(Self::Simple(Simple { owner, until })),
            Shape::Shared => None,
        }
    }

    /// How often its owner holds it, where that is counted.
    pub const fn count(&self) -> u32 {
        match self {
            Self::Mutex(mutex) => mutex.count(),
            Self::ReadWrite(_) | Self::Simple(_) => 1,
        }
    }

    /// Which kind it is, as far as that can be told.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Mutex(mutex) if mutex.token().is_some() => Kind::Fenced,
            Self::Mutex(_) => Kind::Mutex,
            Self::ReadWrite(lock) if lock.writes() => Kind::Write,
            Self::ReadWrite(_) => Kind::Read,
            Self::Simple(_) => Kind::Simple,
        }
    }

    const fn shape(&self) -> Shape {
        match self {
            Self::Mutex(_) => Shape::Counted,
            Self::ReadWrite(_) => Shape::Shared,
            Self::Simple(_) => Shape::Value,
        }
    }

    fn mutex(self) -> Option<Mutex> {
        match self {
            Self::Mutex(mutex) => Some(mutex),
            Self::ReadWrite(_) | Self::Simple(_) => None,
        }
    }

    fn read_write(self) -> Option<ReadWrite> {
        match self {
            Self::ReadWrite(lock) => Some(lock),
            Self::Mutex(_) | Self::Simple(_) => None,
        }
    }

    fn simple(self) -> Option<Simple> {
        match self {
            Self::Simple(simple) => Some(simple),
            Self::Mutex(_) | Self::ReadWrite(_) => None,
        }
    }

    /// Who holds it and until when, if one owner alone does.
    pub const fn holder(&self) -> Option<(OwnerId, Moment)> {
        match self {
            Self::Mutex(mutex) => Some((mutex.owner(), mutex.until())),
            Self::ReadWrite(_) => None,
            Self::Simple(simple) => Some((simple.owner, simple.until)),
        }
    }

    /// Who holds it, and until when each.
    pub fn holders(&self) -> Holders {
        match self {
            Self::Mutex(mutex) => vec![(mutex.owner(), mutex.until())],
            Self::ReadWrite(lock) => lock.holders(),
            Self::Simple(simple) => vec![(simple.owner, simple.until)],
        }
    }

    /// Forgets who has run out; says whether anybody is left.
    fn expire(&mut self, now: Moment) -> bool {
        match self {
            Self::Mutex(mutex) => mutex.until() > now,
            Self::ReadWrite(lock) => lock.expire(now),
            Self::Simple(simple) => simple.until > now,
        }
    }

    /// Forgets everybody who is not to be kept; says whether anybody is left.
    fn retain(&mut self, keep: impl Fn(OwnerId) -> bool) -> bool {
        match self {
            Self::Mutex(mutex) => keep(mutex.owner()),
            Self::ReadWrite(lock) => lock.retain(keep),
            Self::Simple(simple) => keep(simple.owner),
        }
    }
}
