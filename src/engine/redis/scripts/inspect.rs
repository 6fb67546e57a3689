//! What is held under a name, whatever kind of lock it is: one script that reads, for all kinds of locks.

use std::borrow::Cow;
use std::sync::LazyLock;

use redis::{FromRedisValue, Value};

use super::answers::{remaining, text, unexpected};
use super::words::Words;
use super::{Place, Script, write_twin};
use crate::engine::redis::keys::Keys;
use crate::engine::{Cause, Failure};
use crate::protocol::semaphore::holding;
use crate::protocol::{
    ClientId, FencingToken, HeldBy, Holding, Kind, PermitId, Permits, Reply, Request, Shape,
};

pub(super) static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
    let text = concat!(
        include_str!("../lua/format/owner.lua"),
        include_str!("../lua/format/lock.lua"),
        include_str!("../lua/format/read_write.lua"),
        include_str!("../lua/format/number.lua"),
        include_str!("../lua/format/permits.lua"),
        include_str!("../lua/inspect.lua")
    );
    Script::new(Cow::Borrowed(text))
});

/// Which of its keys the script may read: a user may not be allowed all of them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Readable {
    All,
    /// Those of a plain, fenced or fair lock.
    OfExclusive,
    /// Those of a read/write lock.
    OfShared,
    /// Those of a semaphore.
    OfSemaphore,
    Lock,
}

impl Readable {
    /// In this order they are tried.
    pub(crate) const EACH: [Self; 5] = [
        Self::All,
        Self::OfExclusive,
        Self::OfShared,
        Self::OfSemaphore,
        Self::Lock,
    ];

    pub(super) const fn places(self) -> &'static [Place] {
        use Place::{Clients, Line, Lock, Out, Queue, Token, Writers};
        match self {
            Self::All => &[Lock, Token, Queue, Writers, Out, Clients, Line],
            Self::OfExclusive => &[Lock, Token, Queue],
            Self::OfShared => &[Lock, Writers],
            Self::OfSemaphore => &[Lock, Out, Clients, Line],
            Self::Lock => &[Lock],
        }
    }

    /// A letter for each of the keys.
    const fn letters(self) -> &'static str {
        match self {
            Self::All => "ltqwocn",
            Self::OfExclusive => "ltq",
            Self::OfShared => "lw",
            Self::OfSemaphore => "locn",
            Self::Lock => "l",
        }
    }
}

/// The cursor of the first page, and of the last.
pub(super) const START: &str = "0";

/// What stands behind a writer's owner.
const WRITE: &str = ":write";

pub(super) fn args(
    request: &Request,
    keys: &Keys,
    (readable, cursor): (Readable, &str),
    words: &mut Words,
) {
    words.text(&keys.base(&request.subject.name));
    words.bytes(cursor.as_bytes());
    words.bytes(readable.letters().as_bytes());
    write_twin(request, keys, words);
}

/// The first page, by all keys.
pub(super) const WHOLE: (Readable, &str) = (Readable::All, START);
pub(super) const PLACES: &[Place] = Readable::All.places();

/// What the script has found.
#[derive(Debug, Default)]
pub(crate) struct Inspection {
    found: Found,
    /// Where the next page begins, if there is one.
    next: Option<String>,
}

#[derive(Debug, Default)]
enum Found {
    #[default]
    Free,
    /// An integer without permits that are out: any kind of number.
    Number,
    /// A lock of this shape.
    Lock(Shape, Holding),
    /// Permits that are out, each with its owner.
    Permits(Out),
}

#[derive(Debug, Default)]
struct Out {
    available: i64,
    count: u64,
    /// By id: a page may repeat some of the page before.
    permits: std::collections::BTreeMap<Vec<u8>, i64>,
    clients: Vec<ClientId>,
    waiting: Vec<String>,
}

impl Inspection {
    /// What one call has returned.
    pub(crate) fn read(answer: Value) -> Result<Self, Failure> {
        let Value::Array(answer) = answer else {
            return Err(unexpected(&answer));
        };
        let mut answer = answer.into_iter();
        let word = text(answer.next().unwrap_or(Value::Nil))?;
        let rest = Rest(answer);
        match &*word {
            "free" => Ok(Self::default()),
            "number" => Ok(Self::of(Found::Number)),
            "hash" => rest.hash(),
            "shared" => rest.shared(),
            "value" => rest.value(),
            "permits" => rest.permits(),
            other => Err(unexpected(&other)),
        }
    }

    const fn of(found: Found) -> Self {
        Self { found, next: None }
    }

    /// Whether more keys would not have shown more.
    pub(crate) const fn is_complete(&self, readable: Readable) -> bool {
        match (&self.found, readable) {
            (_, Readable::All)
            | (Found::Lock(Shape::Value, _), _)
            | (Found::Lock(Shape::Counted, _), Readable::OfExclusive)
            | (Found::Lock(Shape::Shared, _), Readable::OfShared)
            | (Found::Free | Found::Number | Found::Permits(_), Readable::OfSemaphore) => true,
            (Found::Free | Found::Number | Found::Lock(..) | Found::Permits(_), _) => false,
        }
    }

    /// Where the next page begins.
    pub(crate) fn next(&self) -> Option<&str> {
        self.next.as_deref()
    }

    /// Adds the next page. What has become another kind of lock meanwhile is what the last page shows.
    pub(crate) fn add(&mut self, page: Self) {
        self.next = page.next;
        match (&mut self.found, page.found) {
            (Found::Lock(Shape::Shared, all), Found::Lock(Shape::Shared, more)) => {
                let known = |held: &HeldBy| all.owners.iter().any(|all| all.owner == held.owner);
                let more: Vec<_> = more
                    .owners
                    .into_iter()
                    .filter(|held| !known(held))
                    .collect();
                all.owners.extend(more);
            }
            (Found::Permits(all), Found::Permits(more)) => {
                all.permits.extend(more.permits);
                for client in more.clients {
                    if !all.clients.contains(&client) {
                        all.clients.push(client);
                    }
                }
            }
            (all, other) => *all = other,
        }
    }

    /// Who holds it, and which kind of lock it is; nothing if nobody does.
    pub(crate) fn into_lock(self) -> Option<(Kind, Holding)> {
        let (shape, holding) = self.found.into_holding()?;
        let kind = match shape {
            Shape::Counted if !holding.waiting.is_empty() => Kind::Fair,
            Shape::Counted if holding.token.is_some() => Kind::Fenced,
            Shape::Counted => Kind::Mutex,
            Shape::Shared if holding.writes => Kind::Write,
            Shape::Shared => Kind::Read,
            Shape::Value => Kind::Simple,
            Shape::Tally | Shape::Counter | Shape::Countdown => Kind::Semaphore,
        };
        Some((kind, holding))
    }

    /// The reply to one who expects a lock of this kind.
    pub(super) fn reply_as(self, kind: Kind) -> Result<Reply, Failure> {
        let wrong = || Failure::new(Cause::WrongKind, "a lock of another kind");
        let shape = kind.shape();
        match self.found {
            Found::Free => Ok(Reply::Inspected(None)),
            Found::Number if shape == Shape::Tally => Ok(Reply::Inspected(None)),
            Found::Number => Err(wrong()),
            found => {
                let Some((found, mut holding)) = found.into_holding() else {
                    return Ok(Reply::Inspected(None));
                };
                if found != shape {
                    return Err(wrong());
                }
                if kind == Kind::Mutex {
                    (holding.token, holding.waiting) = (None, Vec::new());
                }
                Ok(Reply::Inspected(Some(holding)))
            }
        }
    }
}

impl Found {
    fn into_holding(self) -> Option<(Shape, Holding)> {
        match self {
            Self::Free | Self::Number => None,
            Self::Lock(_, holding) if holding.owners.is_empty() => None,
            Self::Lock(shape, mut holding) => {
                holding.owners.sort();
                Some((shape, holding))
            }
            Self::Permits(out) => {
                let owners = out.permits.iter().map(|(id, ttl)| {
                    let permit = PermitId::try_from(&**id);
                    // Redisson's say nothing of whose they are.
                    let owner = permit
                        .map_or_else(|_| readable(id), |permit| permit.owner_text(&out.clients));
                    (owner, remaining(*ttl))
                });
                let mut holding = holding(out.available, owners, out.waiting);
                // Between two pages some may have come or gone.
                holding.permits = Some(Permits {
                    available: out.available,
                    out: out.count,
                });
                Some((Shape::Tally, holding))
            }
        }
    }
}

/// What follows the first word of an answer.
struct Rest(std::vec::IntoIter<Value>);

impl Rest {
    fn next<T: FromRedisValue>(&mut self) -> Result<T, Failure> {
        let value = self.0.next().unwrap_or(Value::Nil);
        redis::from_redis_value(value).map_err(|error| unexpected(&error))
    }

    fn texts(&mut self) -> Result<Vec<String>, Failure> {
        let texts: Vec<Vec<u8>> = self.next()?;
        let texts = texts.iter();
        // What another program keeps there need not be text.
        Ok(texts
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            .collect())
    }

    fn hash(mut self) -> Result<Inspection, Failure> {
        let ttl = remaining(self.next()?);
        let token: Vec<u8> = self.next()?;
        let token = std::str::from_utf8(&token).ok();
        let waiting = self.texts()?;
        let mut owners = Vec::new();
        while let (Some(owner), Some(count)) = (self.0.next(), self.0.next()) {
            let count = text(count)?.parse().map_err(|_| unexpected(&"no count"))?;
            let owner = text(owner)?;
            owners.push(HeldBy { owner, count, ttl });
        }
        let holding = Holding {
            owners,
            ttl,
            token: token
                .and_then(|token| token.parse().ok())
                .map(FencingToken::new),
            waiting,
            ..Holding::default()
        };
        Ok(Inspection::of(Found::Lock(Shape::Counted, holding)))
    }

    fn shared(mut self) -> Result<Inspection, Failure> {
        let next = self.cursor()?;
        let ttl = remaining(self.next()?);
        let writes = self.next::<String>()? == "write";
        let waiting = self.texts()?;
        let mut owners = Vec::new();
        while let (Some(owner), Some(count), Some(own)) =
            (self.0.next(), self.0.next(), self.0.next())
        {
            let Value::Int(own) = own else {
                return Err(unexpected(&own));
            };
            let owner = text(owner)?;
            owners.push(HeldBy {
                owner: owner.strip_suffix(WRITE).unwrap_or(&owner).to_owned(),
                count: text(count)?.parse().map_err(|_| unexpected(&"no count"))?,
                ttl: remaining(own),
            });
        }
        let holding = Holding {
            owners,
            ttl,
            waiting,
            writes,
            ..Holding::default()
        };
        let found = Found::Lock(Shape::Shared, holding);
        Ok(Inspection { found, next })
    }

    fn value(mut self) -> Result<Inspection, Failure> {
        let ttl = remaining(self.next()?);
        let owner = text(self.0.next().unwrap_or(Value::Nil))?;
        let count = 1;
        let holding = Holding {
            owners: vec![HeldBy { owner, count, ttl }],
            ttl,
            ..Holding::default()
        };
        Ok(Inspection::of(Found::Lock(Shape::Value, holding)))
    }

    fn permits(mut self) -> Result<Inspection, Failure> {
        let next = self.cursor()?;
        let (available, count) = (self.next()?, self.next()?);
        let permits: Vec<(Vec<u8>, i64)> = self.next()?;
        let clients = self.texts()?;
        let out = Out {
            available,
            count,
            permits: permits.into_iter().collect(),
            clients: clients
                .iter()
                .filter_map(|uuid| ClientId::parse(uuid))
                .collect(),
            waiting: self.texts()?,
        };
        let found = Found::Permits(out);
        Ok(Inspection { found, next })
    }

    fn cursor(&mut self) -> Result<Option<String>, Failure> {
        let cursor: String = self.next()?;
        Ok((cursor != START).then_some(cursor))
    }
}

/// What is no id of 16 bytes. Redisson before 3.17 keeps 32 letters: the id as one reads it.
fn readable(id: &[u8]) -> String {
    match std::str::from_utf8(id) {
        Ok(letters) if id.iter().all(u8::is_ascii_hexdigit) => letters.into(),
        _ => id.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}
