//! Inspects locks from outside, and force-releases them.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use super::clock::with_timeout;
use super::hold::Hold;
use super::{Core, DriverError, NamedDriverError, no_reply, unexpected_reply};
use crate::engine::{ChangeFeed, Diagnostic, Page, StoreError, StoreErrorKind};
use crate::protocol::event_diff::LabeledSnapshot;
use crate::protocol::lease::LostReason;
use crate::protocol::{Action, HolderSnapshot, Kind, LockSnapshot, OwnerId, Reply, Subject};

/// The kinds as which a name is force-released, in this order; the first one usually fits. A fair lock comes before a
/// plain one, so that the first waiter in its queue is notified; but the queue has keys of its own, to which a user may
/// have no access.
const FORCE_RELEASE_KINDS: [Kind; 5] = [
    Kind::Fair,
    Kind::Write,
    Kind::Mutex,
    Kind::Semaphore,
    Kind::Simple,
];

/// The kinds as which a name is released, in this order: a plain lock would take a reader for its owner.
const RELEASE_KINDS: [Kind; 5] = [
    Kind::Write,
    Kind::Fair,
    Kind::Mutex,
    Kind::Semaphore,
    Kind::Simple,
];

/// Progress of a listing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct ListProgress {
    /// Approximate number of keys that were scanned; 0 for a store that knows which names are locks.
    pub scanned: u64,
    /// Number of locks that were found.
    pub found: u64,
}

/// Lists the locks that are held under names that match a pattern, sorted by name. Reports its progress after each
/// step.
pub(crate) async fn list(
    core: &Core,
    pattern: &str,
    mut report: impl FnMut(ListProgress) + Send,
) -> Result<Vec<LabeledSnapshot>, NamedDriverError> {
    let (mut locks, mut names) = (Vec::new(), HashSet::new());
    let (mut progress, mut from) = (ListProgress::default(), Some(0));
    while let Some(cursor) = from {
        let page = find(core, pattern, cursor).await;
        let page = page.map_err(|error| error.with(&pattern.into()))?;
        let mut held = Vec::new();
        for subject in page.found {
            if !names.insert(subject.name.clone()) {
                continue;
            }
            match inspect_unlabelled(core, &subject.name).await {
                Ok(lock) => held.extend(lock.map(|lock| (subject.name, lock))),
                Err(error) if is_foreign_or_denied(&error) => {}
                Err(error) => return Err(error.with(&subject.name)),
            }
        }
        let labelled = labelled(core, held).await;
        locks.extend(labelled.map_err(|error| error.with(&pattern.into()))?);
        progress.scanned += page.scanned;
        progress.found = locks.len() as u64;
        report(progress);
        from = page.next;
    }
    locks.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(locks)
}

/// Returns whether the key holds another program's data, or the user may not read it.
pub(super) fn is_foreign_or_denied(error: &DriverError) -> bool {
    let foreign_or_denied = |cause| {
        matches!(
            cause,
            StoreErrorKind::Denied
                | StoreErrorKind::PartiallyDenied
                | StoreErrorKind::InvalidName
                | StoreErrorKind::WrongKind
        )
    };
    matches!(error, DriverError::StoreError(failure) if foreign_or_denied(failure.kind))
}

/// Returns one page of keys that may be locks.
async fn find(core: &Core, pattern: &str, from: u64) -> Result<Page, DriverError> {
    core.ensure_usable()?;
    // However long the whole listing takes, each step is short.
    let page = core.engine.clone().scan(pattern.to_owned(), from);
    core.with_command_timeout(page)
        .await
        .map_err(DriverError::StoreError)
}

/// Returns the holders of the lock with this name, if it is held.
pub(crate) async fn inspect(
    core: &Core,
    name: &str,
) -> Result<Option<LabeledSnapshot>, DriverError> {
    let name: Arc<str> = name.into();
    let lock = inspect_unlabelled(core, &name).await?;
    let lock = lock.map(|lock| (name, lock)).into_iter();
    let lock = labelled(core, lock.collect()).await?;
    Ok(lock.into_iter().next())
}

/// Returns the holders without their labels.
async fn inspect_unlabelled(
    core: &Core,
    name: &Arc<str>,
) -> Result<Option<(Kind, LockSnapshot)>, DriverError> {
    core.ensure_usable()?;
    let lock = core.engine.clone().inspect(name.clone());
    core.with_command_timeout(lock)
        .await
        .map_err(DriverError::StoreError)
}

/// Adds the labels of all clients that hold these locks, with one request.
async fn labelled(
    core: &Core,
    locks: Vec<(Arc<str>, (Kind, LockSnapshot))>,
) -> Result<Vec<LabeledSnapshot>, DriverError> {
    let holders = locks.iter().flat_map(|(_, (_, holding))| &holding.owners);
    let clients: BTreeSet<String> = holders.map(client).collect();
    let clients: Vec<String> = clients.into_iter().collect();
    let labels = match clients.is_empty() {
        true => Vec::new(),
        false => labels(core, clients.clone()).await?,
    };
    let labels: BTreeMap<String, Option<String>> = clients.into_iter().zip(labels).collect();
    let locks = locks.into_iter().map(|(name, (kind, holding))| {
        let owners = holding.owners.iter();
        let labels = owners.map(|held| labels.get(&client(held)).cloned().flatten());
        LabeledSnapshot {
            name: name.to_string(),
            kind,
            labels: labels.collect(),
            holding,
        }
    });
    Ok(locks.collect())
}

/// Returns the uuid of the client that an owner belongs to.
fn client(held: &HolderSnapshot) -> String {
    let client = held.owner.split(':').next();
    client.unwrap_or(&held.owner).to_owned()
}

/// Returns the labels of the clients with these uuids.
pub(crate) async fn labels(
    core: &Core,
    clients: Vec<String>,
) -> Result<Vec<Option<String>>, DriverError> {
    core.ensure_usable()?;
    let count = clients.len();
    let labels = core.engine.clone().labels(clients);
    match core.with_command_timeout(labels).await {
        // A user that may not read labels may still see the owners.
        Err(failure) if failure.kind == StoreErrorKind::Denied => Ok(vec![None; count]),
        labels => labels.map_err(DriverError::StoreError),
    }
}

/// Subscribes to the changes of the locks whose names match a pattern. The store may need long for this, perhaps for a
/// new connection: no caller should have to wait for it.
pub(crate) async fn monitor(core: &Core, pattern: String) -> Result<ChangeFeed, DriverError> {
    core.ensure_usable()?;
    let feed = core.engine.clone().monitor(pattern);
    let feed = core.waker_executor.with_waker_proxy_unpin(feed).await;
    feed.map_err(DriverError::StoreError)
}

/// Force-releases the lock, and notifies its holders if they belong to this client; returns whether it was held.
pub(crate) async fn force_release(core: &Arc<Core>, name: &str) -> Result<bool, DriverError> {
    // Collected before the request: the next holder of the lock does not lose it.
    let before = holders(core, name);
    let (subject, reply) = call_any(core, name, &FORCE_RELEASE_KINDS, Action::ForceRelease).await?;
    let forced = match reply {
        Reply::Forced(forced) => forced,
        other => return Err(DriverError::StoreError(unexpected_reply(&other))),
    };
    let state_kind = subject.kind.state_kind();
    let before = before.filter(|hold| hold.subject.kind.state_kind() == state_kind);
    for before in before.filter(|_| forced) {
        before.lose(LostReason::Removed);
        // The lock may have been handed off in memory meanwhile, under the same owner id in the store.
        let now = core.wait_queues.holder(&before.subject);
        if let Some(now) = now.filter(|now| now.owner == before.owner) {
            now.lose(LostReason::Removed);
        }
    }
    Ok(forced)
}

/// Releases what this owner holds, and notifies its guard if it belongs to this client; returns whether the owner held
/// anything.
pub(crate) async fn release(
    core: &Arc<Core>,
    name: &str,
    owner: OwnerId,
) -> Result<bool, DriverError> {
    // Inspected first, because the release would remove a waiting owner from its queue.
    let seen = inspect(core, name).await?;
    let holding = seen.map(|seen| seen.holding.owners).unwrap_or_default();
    let text = owner.to_string();
    if !holding.iter().any(|held| held.owner == text) {
        return Ok(false);
    }
    let release = Action::Release { owner, left: 0 };
    let (subject, mut reply) = call_any(core, name, &RELEASE_KINDS, release.clone()).await?;
    if subject.kind == Kind::Write && matches!(reply, Reply::Gone | Reply::Taken) {
        // The owner is not the writer, but may be one of the readers.
        let read = Subject::new(Kind::Read, name);
        let released = core.call(read.request(release)).await;
        reply = released.map_err(DriverError::StoreError)?;
    }
    match reply {
        Reply::Released { .. } => {}
        Reply::Gone | Reply::Taken => return Ok(false),
        other => return Err(DriverError::StoreError(unexpected_reply(&other))),
    }
    let ours = holders(core, name).find(|hold| hold.owner == owner);
    if let Some(hold) = ours {
        hold.lose(LostReason::Removed);
    }
    Ok(true)
}

/// Returns the store's report about itself.
pub(crate) async fn diagnose(core: &Core, probe: bool) -> Result<Vec<Diagnostic>, DriverError> {
    core.ensure_usable()?;
    // Replicas that do not acknowledge the probe's lock may take nearly the time of one request; the report is about
    // that.
    let limit = core.settings.command_timeout.saturating_mul(2);
    let diagnostics = core.engine.clone().diagnose(probe);
    let diagnostics = with_timeout(
        limit,
        core.waker_executor.with_waker_proxy_unpin(diagnostics),
    )
    .await;
    let diagnostics = diagnostics.unwrap_or_else(|| Err(no_reply(limit)));
    diagnostics.map_err(DriverError::StoreError)
}

/// Returns the holds of this client under a name.
fn holders(core: &Core, name: &str) -> impl Iterator<Item = Arc<Hold>> + use<> {
    let holders = Kind::ALL.map(|kind| core.wait_queues.holder(&Subject::new(kind, name)));
    // Other kinds may have many holds, and no queue waits for one of them.
    let mut others = core.schedule.all();
    others.retain(|hold| !hold.subject.kind.is_exclusive() && *hold.subject.name == *name);
    holders.into_iter().flatten().chain(others)
}

/// Sends an action to the primitive under a name, as whichever of these kinds it is.
async fn call_any(
    core: &Core,
    name: &str,
    kinds: &[Kind],
    action: Action,
) -> Result<(Subject, Reply), DriverError> {
    core.ensure_usable()?;
    let (mut nothing, mut refusal) = (None, None);
    for kind in kinds {
        let subject = Subject::new(*kind, name);
        match core.call(subject.request(action.clone())).await {
            // A number may be of any kind to a server; this reply may also come from a semaphore without permits in
            // use.
            Ok(reply) if *kind == Kind::Semaphore && is_nothing(&reply) => {
                nothing = Some((subject, reply));
            }
            Ok(reply) => return Ok((subject, reply)),
            Err(failure)
                if matches!(
                    failure.kind,
                    StoreErrorKind::WrongKind | StoreErrorKind::Denied
                ) =>
            {
                refusal = Some(failure);
            }
            Err(failure) => return Err(DriverError::StoreError(failure)),
        }
    }
    let refusal = refusal
        .unwrap_or_else(|| StoreError::new(StoreErrorKind::WrongKind, "the key holds no lock"));
    nothing.ok_or(DriverError::StoreError(refusal))
}

/// Returns whether nothing is held there.
const fn is_nothing(reply: &Reply) -> bool {
    matches!(reply, Reply::Forced(false) | Reply::Gone)
}
