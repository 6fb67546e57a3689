//! Looks at locks from outside, and takes them from their holders.

use std::collections::HashSet;
use std::sync::Arc;

use super::clock::within;
use super::hold::Hold;
use super::{Core, Trouble, TroubleWith, no_answer, unexpected};
use crate::engine::{Cause, Failure, Feed, Finding};
use crate::protocol::lease::LostReason;
use crate::protocol::ledger::Seen;
use crate::protocol::{Action, Kind, OwnerId, Reply, Shape, Subject};

/// What lives under a name is forced open as one of these, most often as the first. As a fair lock before a plain one:
/// whoever is first in line then hears of it; but the line has keys of its own, which a user may not be allowed to touch.
const FORCED_AS: [Kind; 5] = [
    Kind::Fair,
    Kind::Write,
    Kind::Mutex,
    Kind::Semaphore,
    Kind::Simple,
];

/// And given back as one of these: a reader would pass for the owner of a plain lock.
const GIVEN_BACK_AS: [Kind; 5] = [
    Kind::Write,
    Kind::Fair,
    Kind::Mutex,
    Kind::Semaphore,
    Kind::Simple,
];

/// The locks that are held under names that match a pattern, sorted by name.
pub(crate) async fn list(core: &Core, pattern: &str) -> Result<Vec<Seen>, TroubleWith> {
    let found = find(core, pattern).await;
    let found = found.map_err(|trouble| trouble.with(&pattern.into()))?;
    let mut locks = Vec::new();
    for subject in found {
        match inspect_first_as(core, subject.kind, &subject.name).await {
            Ok(lock) => locks.extend(lock),
            Err(trouble) if !is_ours_to_see(&trouble) => {}
            Err(trouble) => return Err(trouble.with(&subject.name)),
        }
    }
    locks.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(locks)
}

/// Whether it may be a lock that we may look at, for all that this trouble says.
pub(super) fn is_ours_to_see(trouble: &Trouble) -> bool {
    let not_ours = |cause| {
        matches!(
            cause,
            Cause::Denied | Cause::DeniedInPart | Cause::WrongKind
        )
    };
    !matches!(trouble, Trouble::Failure(failure) if not_ours(failure.cause))
}

async fn find(core: &Core, pattern: &str) -> Result<HashSet<Subject>, Trouble> {
    core.usable()?;
    let mut found = HashSet::new();
    let mut from = Some(0);
    while let Some(place) = from {
        // However long it takes in all, each step is short.
        let page = core.engine.clone().find(pattern.to_owned(), place);
        let page = core.within_limit(page).await.map_err(Trouble::Failure)?;
        found.extend(page.found);
        from = page.next;
    }
    Ok(found)
}

/// Who holds what lives under this name, if anyone.
pub(crate) async fn inspect(core: &Core, name: &str) -> Result<Option<Seen>, Trouble> {
    inspect_first_as(core, Kind::Mutex, name).await
}

/// The same, where it is probably of this kind.
async fn inspect_first_as(core: &Core, kind: Kind, name: &str) -> Result<Option<Seen>, Trouble> {
    use Kind::{Fenced, Mutex, Semaphore, Simple, Write};
    let kinds: &[Kind] = match kind.shape() {
        // Tokens have a key of their own, which a user may not be allowed to read.
        Shape::Counted => &[Fenced, Write, Mutex, Semaphore, Simple],
        Shape::Shared => &[Write, Fenced, Mutex, Semaphore, Simple],
        Shape::Value => &[Simple, Semaphore, Fenced, Write, Mutex],
        // To a server they are all numbers.
        Shape::Tally | Shape::Counter | Shape::Countdown => {
            &[Semaphore, Simple, Fenced, Write, Mutex]
        }
    };
    let (subject, reply) = call_any(core, name, kinds, Action::Inspect).await?;
    let holding = match reply {
        Reply::Inspected(Some(holding)) => holding,
        Reply::Inspected(None) => return Ok(None),
        other => return Err(Trouble::Failure(unexpected(&other))),
    };
    let kind = match subject.kind {
        Kind::Fenced if !holding.waiting.is_empty() => Kind::Fair,
        Kind::Fenced if holding.token.is_none() => Kind::Mutex,
        Kind::Write if !holding.writes => Kind::Read,
        kind => kind,
    };
    let client = |owner: &str| owner.split(':').next().unwrap_or(owner).to_owned();
    let clients = holding.owners.iter().map(|held| client(&held.owner));
    let labels = labels(core, clients.collect()).await?;
    Ok(Some(Seen {
        name: subject.name.to_string(),
        kind,
        holding,
        labels,
    }))
}

/// What the clients with these uuids call themselves.
pub(crate) async fn labels(
    core: &Core,
    clients: Vec<String>,
) -> Result<Vec<Option<String>>, Trouble> {
    core.usable()?;
    let count = clients.len();
    let labels = core.engine.clone().labels(clients);
    match core.within_limit(labels).await {
        // A user that may not read labels may still see who holds the lock.
        Err(failure) if failure.cause == Cause::Denied => Ok(vec![None; count]),
        labels => labels.map_err(Trouble::Failure),
    }
}

/// Hears what happens to the locks whose names match a pattern. Takes as long as it takes the store to listen, on a connection
/// of its own perhaps, which has to be made: nobody is to wait for it.
pub(crate) async fn overhear(core: &Core, pattern: String) -> Result<Feed, Trouble> {
    core.usable()?;
    let feed = core.engine.clone().overhear(pattern).await;
    feed.map_err(Trouble::Failure)
}

/// Takes it from whoever holds it, and tells them if they are ours; says whether anyone held it.
pub(crate) async fn force_release(core: &Arc<Core>, name: &str) -> Result<bool, Trouble> {
    // Looked up before: whoever gets the lock next is not to blame.
    let before = holders(core, name);
    let (subject, reply) = call_any(core, name, &FORCED_AS, Action::ForceRelease).await?;
    let forced = match reply {
        Reply::Forced(forced) => forced,
        other => return Err(Trouble::Failure(unexpected(&other))),
    };
    let shape = subject.kind.shape();
    let before = before.filter(|hold| hold.subject.kind.shape() == shape);
    for before in before.filter(|_| forced) {
        before.lose(LostReason::Removed);
        // It may have been passed on in memory meanwhile, with the same standing in the store.
        let now = core.waiters.holder(&before.subject);
        if let Some(now) = now.filter(|now| now.owner == before.owner) {
            now.lose(LostReason::Removed);
        }
    }
    Ok(forced)
}

/// Gives back what this owner holds, and tells its guard if that is ours; says whether it held anything.
pub(crate) async fn release(core: &Arc<Core>, name: &str, owner: OwnerId) -> Result<bool, Trouble> {
    // Who waits would be sent out of its line by what follows.
    let seen = inspect(core, name).await?;
    let holding = seen.map(|seen| seen.holding.owners).unwrap_or_default();
    let text = owner.to_string();
    if !holding.iter().any(|held| held.owner == text) {
        return Ok(false);
    }
    let release = Action::Release { owner, left: 0 };
    let (subject, mut reply) = call_any(core, name, &GIVEN_BACK_AS, release.clone()).await?;
    if subject.kind == Kind::Write && matches!(reply, Reply::Gone | Reply::Taken) {
        // Not the writer: one of the readers, perhaps.
        let read = Subject::new(Kind::Read, name);
        let released = core.call(read.request(release)).await;
        reply = released.map_err(Trouble::Failure)?;
    }
    match reply {
        Reply::Released { .. } => {}
        Reply::Gone | Reply::Taken => return Ok(false),
        other => return Err(Trouble::Failure(unexpected(&other))),
    }
    let ours = holders(core, name).find(|hold| hold.owner == owner);
    if let Some(hold) = ours {
        hold.lose(LostReason::Removed);
    }
    Ok(true)
}

/// What the store has to say about itself.
pub(crate) async fn examine(core: &Core) -> Result<Vec<Finding>, Trouble> {
    core.usable()?;
    // Replicas that do not acknowledge the lock that is tried may take nearly the time of one question; the report is about that.
    let limit = core.settings.command_timeout.saturating_mul(2);
    let findings = within(limit, core.engine.clone().examine()).await;
    let findings = findings.unwrap_or_else(|| Err(no_answer(limit)));
    findings.map_err(Trouble::Failure)
}

/// The holds of this client under a name.
fn holders(core: &Core, name: &str) -> impl Iterator<Item = Arc<Hold>> + use<> {
    let holders = Kind::ALL.map(|kind| core.waiters.holder(&Subject::new(kind, name)));
    // Of others there may be many, and nobody waits for one of them.
    let mut others = core.schedule.all();
    others.retain(|hold| !hold.subject.kind.is_exclusive() && *hold.subject.name == *name);
    holders.into_iter().flatten().chain(others)
}

/// Asks something of what lives under a name, of whichever of these kinds that is.
async fn call_any(
    core: &Core,
    name: &str,
    kinds: &[Kind],
    action: Action,
) -> Result<(Subject, Reply), Trouble> {
    core.usable()?;
    let (mut nothing, mut refusal) = (None, None);
    for kind in kinds {
        let subject = Subject::new(*kind, name);
        match core.call(subject.request(action.clone())).await {
            // To a server a number may be anything; that there is a semaphore none of whose permits is out.
            Ok(reply) if *kind == Kind::Semaphore && is_nothing(&reply) => {
                nothing = Some((subject, reply));
            }
            Ok(reply) => return Ok((subject, reply)),
            Err(failure) if matches!(failure.cause, Cause::WrongKind | Cause::Denied) => {
                refusal = Some(failure);
            }
            Err(failure) => return Err(Trouble::Failure(failure)),
        }
    }
    let refusal = refusal.unwrap_or_else(|| Failure::new(Cause::WrongKind, "no lock"));
    nothing.ok_or(Trouble::Failure(refusal))
}

/// Whether nobody holds anything there.
const fn is_nothing(reply: &Reply) -> bool {
    matches!(
        reply,
        Reply::Forced(false) | Reply::Gone | Reply::Inspected(None)
    )
}
