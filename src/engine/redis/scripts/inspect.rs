//! Inspection of a name, whatever kind of lock it is: one script that only reads, for all kinds of locks.

use std::borrow::Cow;
use std::sync::LazyLock;

use redis::{FromRedisValue, Value};

use super::arg_writer::ArgWriter;
use super::replies::{remaining, text, unexpected};
use super::{KeyRole, Script, write_alias};
use crate::engine::redis::keys::Keys;
use crate::engine::{StoreError, StoreErrorKind};
use crate::protocol::semaphore::holding;
use crate::protocol::{
    ClientId, FencingToken, HolderSnapshot, Kind, LockSnapshot, PermitId, Permits, Reply, Request,
    StateKind,
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

/// The keys that the script may read. A user may lack the right to read all of them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum InspectScope {
    All,
    /// Keys of a plain, fenced or fair lock.
    Exclusive,
    /// Keys of a read/write lock.
    Shared,
    /// Keys of a semaphore.
    Semaphore,
    Lock,
}

impl InspectScope {
    /// All scopes, in the order in which they are tried.
    pub(crate) const EACH: [Self; 5] = [
        Self::All,
        Self::Exclusive,
        Self::Shared,
        Self::Semaphore,
        Self::Lock,
    ];

    pub(super) const fn key_roles(self) -> &'static [KeyRole] {
        use KeyRole::{Clients, Lock, PermitTimeouts, Queue, SemaphoreQueue, Token, Writers};
        match self {
            Self::All => &[
                Lock,
                Token,
                Queue,
                Writers,
                PermitTimeouts,
                Clients,
                SemaphoreQueue,
            ],
            Self::Exclusive => &[Lock, Token, Queue],
            Self::Shared => &[Lock, Writers],
            Self::Semaphore => &[Lock, PermitTimeouts, Clients, SemaphoreQueue],
            Self::Lock => &[Lock],
        }
    }

    /// Returns a letter for each of the keys.
    const fn key_letters(self) -> &'static str {
        match self {
            Self::All => "ltqwocn",
            Self::Exclusive => "ltq",
            Self::Shared => "lw",
            Self::Semaphore => "locn",
            Self::Lock => "l",
        }
    }
}

/// Cursor of the first page. The same cursor after a page means that there is no further one.
pub(super) const FIRST_CURSOR: &str = "0";

/// Suffix of a writer's owner.
const WRITE: &str = ":write";

pub(super) fn args(
    request: &Request,
    keys: &Keys,
    (scope, cursor): (InspectScope, &str),
    args: &mut ArgWriter,
) {
    args.text(&keys.reader_timeout_prefix(&request.subject.name));
    args.bytes(cursor.as_bytes());
    args.bytes(scope.key_letters().as_bytes());
    write_alias(request, keys, args);
}

/// The first page, with all keys.
pub(super) const WHOLE: (InspectScope, &str) = (InspectScope::All, FIRST_CURSOR);
pub(super) const KEY_ROLES: &[KeyRole] = InspectScope::All.key_roles();

/// Result of the script.
#[derive(Debug, Default)]
pub(crate) struct Inspection {
    found: FoundState,
    /// Cursor of the next page, if there is one.
    next: Option<String>,
}

#[derive(Debug, Default)]
enum FoundState {
    #[default]
    Free,
    /// An integer without permits in use: a counter of any kind.
    Number,
    /// A lock with this kind of state.
    Lock(StateKind, LockSnapshot),
    /// Permits in use, each with its owner.
    Permits(OutstandingPermits),
}

#[derive(Debug, Default)]
struct OutstandingPermits {
    available: i64,
    count: u64,
    /// By id: a page may repeat permits of the page before.
    permits: std::collections::BTreeMap<Vec<u8>, i64>,
    clients: Vec<ClientId>,
    waiting: Vec<String>,
}

impl Inspection {
    /// Reads the result of one call.
    pub(crate) fn read(reply: Value) -> Result<Self, StoreError> {
        let Value::Array(reply) = reply else {
            return Err(unexpected(&reply));
        };
        let mut reply = reply.into_iter();
        let word = text(reply.next().unwrap_or(Value::Nil))?;
        let fields = ReplyReader(reply);
        match &*word {
            "free" => Ok(Self::default()),
            "number" => Ok(Self::of(FoundState::Number)),
            "hash" => fields.hash(),
            "shared" => fields.shared(),
            "value" => fields.value(),
            "permits" => fields.permits(),
            other => Err(unexpected(&other)),
        }
    }

    const fn of(found: FoundState) -> Self {
        Self { found, next: None }
    }

    /// Returns whether a wider scope would not have reported more.
    pub(crate) const fn is_complete(&self, scope: InspectScope) -> bool {
        match (&self.found, scope) {
            (_, InspectScope::All)
            | (FoundState::Lock(StateKind::Simple, _), _)
            | (FoundState::Lock(StateKind::Mutex, _), InspectScope::Exclusive)
            | (FoundState::Lock(StateKind::ReadWrite, _), InspectScope::Shared)
            | (
                FoundState::Free | FoundState::Number | FoundState::Permits(_),
                InspectScope::Semaphore,
            ) => true,
            (
                FoundState::Free
                | FoundState::Number
                | FoundState::Lock(..)
                | FoundState::Permits(_),
                _,
            ) => false,
        }
    }

    /// Returns the cursor of the next page.
    pub(crate) fn next(&self) -> Option<&str> {
        self.next.as_deref()
    }

    /// Adds the next page. If the name belongs to another kind of lock by then, the last page alone counts.
    pub(crate) fn add(&mut self, page: Self) {
        self.next = page.next;
        match (&mut self.found, page.found) {
            (
                FoundState::Lock(StateKind::ReadWrite, all),
                FoundState::Lock(StateKind::ReadWrite, more),
            ) => {
                let known =
                    |held: &HolderSnapshot| all.owners.iter().any(|all| all.owner == held.owner);
                let more: Vec<_> = more
                    .owners
                    .into_iter()
                    .filter(|held| !known(held))
                    .collect();
                all.owners.extend(more);
            }
            (FoundState::Permits(all), FoundState::Permits(more)) => {
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

    /// Returns the kind of the lock and its holders, or `None` if it is free.
    pub(crate) fn into_lock(self) -> Option<(Kind, LockSnapshot)> {
        let (shape, holding) = self.found.into_holding()?;
        let kind = match shape {
            StateKind::Mutex if !holding.waiting.is_empty() => Kind::Fair,
            StateKind::Mutex if holding.token.is_some() => Kind::Fenced,
            StateKind::Mutex => Kind::Mutex,
            StateKind::ReadWrite if holding.writes => Kind::Write,
            StateKind::ReadWrite => Kind::Read,
            StateKind::Simple => Kind::Simple,
            StateKind::Semaphore | StateKind::Counter | StateKind::Countdown => Kind::Semaphore,
        };
        Some((kind, holding))
    }

    /// Returns the reply to a request for a lock of this kind.
    pub(super) fn reply_as(self, kind: Kind) -> Result<Reply, StoreError> {
        let wrong = || {
            StoreError::new(
                StoreErrorKind::WrongKind,
                "the key holds a lock of another kind",
            )
        };
        let shape = kind.state_kind();
        match self.found {
            FoundState::Free => Ok(Reply::Inspected(None)),
            FoundState::Number if shape == StateKind::Semaphore => Ok(Reply::Inspected(None)),
            FoundState::Number => Err(wrong()),
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

impl FoundState {
    fn into_holding(self) -> Option<(StateKind, LockSnapshot)> {
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
                    // The ids of Redisson's permits do not identify the owner.
                    let owner = permit.map_or_else(
                        |_| permit_text(id),
                        |permit| permit.owner_text(&out.clients),
                    );
                    (owner, remaining(*ttl))
                });
                let mut holding = holding(out.available, owners, out.waiting);
                // Permits may have been acquired or released between two pages.
                holding.permits = Some(Permits {
                    available: out.available,
                    out: out.count,
                });
                Some((StateKind::Semaphore, holding))
            }
        }
    }
}

/// The rest of a result, after its first word.
struct ReplyReader(std::vec::IntoIter<Value>);

impl ReplyReader {
    fn next<T: FromRedisValue>(&mut self) -> Result<T, StoreError> {
        let value = self.0.next().unwrap_or(Value::Nil);
        redis::from_redis_value(value).map_err(|error| unexpected(&error))
    }

    fn texts(&mut self) -> Result<Vec<String>, StoreError> {
        let texts: Vec<Vec<u8>> = self.next()?;
        let texts = texts.iter();
        // Data of another program need not be text.
        Ok(texts
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            .collect())
    }

    fn hash(mut self) -> Result<Inspection, StoreError> {
        let ttl = remaining(self.next()?);
        let token: Vec<u8> = self.next()?;
        let token = std::str::from_utf8(&token).ok();
        let waiting = self.texts()?;
        let mut owners = Vec::new();
        while let (Some(owner), Some(count)) = (self.0.next(), self.0.next()) {
            let count = text(count)?
                .parse()
                .map_err(|_| unexpected(&"a hold without a count"))?;
            let owner = text(owner)?;
            owners.push(HolderSnapshot { owner, count, ttl });
        }
        let holding = LockSnapshot {
            owners,
            ttl,
            token: token
                .and_then(|token| token.parse().ok())
                .map(FencingToken::new),
            waiting,
            ..LockSnapshot::default()
        };
        Ok(Inspection::of(FoundState::Lock(StateKind::Mutex, holding)))
    }

    fn shared(mut self) -> Result<Inspection, StoreError> {
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
            owners.push(HolderSnapshot {
                owner: owner.strip_suffix(WRITE).unwrap_or(&owner).to_owned(),
                count: text(count)?
                    .parse()
                    .map_err(|_| unexpected(&"a hold without a count"))?,
                ttl: remaining(own),
            });
        }
        let holding = LockSnapshot {
            owners,
            ttl,
            waiting,
            writes,
            ..LockSnapshot::default()
        };
        let found = FoundState::Lock(StateKind::ReadWrite, holding);
        Ok(Inspection { found, next })
    }

    fn value(mut self) -> Result<Inspection, StoreError> {
        let ttl = remaining(self.next()?);
        let owner = text(self.0.next().unwrap_or(Value::Nil))?;
        let count = 1;
        let holding = LockSnapshot {
            owners: vec![HolderSnapshot { owner, count, ttl }],
            ttl,
            ..LockSnapshot::default()
        };
        Ok(Inspection::of(FoundState::Lock(StateKind::Simple, holding)))
    }

    fn permits(mut self) -> Result<Inspection, StoreError> {
        let next = self.cursor()?;
        let (available, count) = (self.next()?, self.next()?);
        let permits: Vec<(Vec<u8>, i64)> = self.next()?;
        let clients = self.texts()?;
        let out = OutstandingPermits {
            available,
            count,
            permits: permits.into_iter().collect(),
            clients: clients
                .iter()
                .filter_map(|uuid| ClientId::parse(uuid))
                .collect(),
            waiting: self.texts()?,
        };
        let found = FoundState::Permits(out);
        Ok(Inspection { found, next })
    }

    fn cursor(&mut self) -> Result<Option<String>, StoreError> {
        let cursor: String = self.next()?;
        Ok((cursor != FIRST_CURSOR).then_some(cursor))
    }
}

/// Returns the text of an id that is not 16 bytes long. Redisson before 3.17 stores the 32 hexadecimal digits themselves.
fn permit_text(id: &[u8]) -> String {
    match std::str::from_utf8(id) {
        Ok(letters) if id.iter().all(u8::is_ascii_hexdigit) => letters.into(),
        _ => id.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}
