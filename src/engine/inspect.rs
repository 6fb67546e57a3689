//! Inspects a lock of any kind, on stores whose requests are about one kind at a time.

use std::sync::Arc;

use super::{Engine, StoreError, StoreErrorKind};
use crate::protocol::{Action, Kind, LockSnapshot, Reply, Subject};

/// The kinds that together tell all locks apart. The fenced kind reports tokens and waiters of
/// every exclusive lock.
const KINDS: [Kind; 5] = [
    Kind::Fenced,
    Kind::Write,
    Kind::Mutex,
    Kind::Semaphore,
    Kind::Simple,
];

/// Sends an inspection for each kind until one fits.
pub(super) async fn inspect_each_kind<E: Engine + ?Sized>(
    engine: Arc<E>,
    name: Arc<str>,
) -> Result<Option<(Kind, LockSnapshot)>, StoreError> {
    let (mut free, mut refusal) = (false, None);
    for kind in KINDS {
        let request = Subject::new(kind, name.clone()).request(Action::Inspect);
        match engine.call(request).await {
            // A stored number may belong to any kind, also to a semaphore without permits that are
            // out.
            Ok(Reply::Inspected(None)) if kind == Kind::Semaphore => free = true,
            Ok(Reply::Inspected(None)) => return Ok(None),
            Ok(Reply::Inspected(Some(holding))) => {
                return Ok(Some((kind_of(kind, &holding), holding)));
            }
            Ok(other) => {
                let why = format!("unexpected reply {other:?}");
                return Err(StoreError::new(StoreErrorKind::Unexpected, why));
            }
            Err(failure)
                if matches!(
                    failure.kind,
                    StoreErrorKind::WrongKind | StoreErrorKind::Denied
                ) =>
            {
                refusal = Some(failure);
            }
            Err(failure) => return Err(failure),
        }
    }
    match refusal.filter(|_| !free) {
        Some(refusal) => Err(refusal),
        None => Ok(None),
    }
}

/// Returns the kind that a snapshot shows, among the kinds with the same form of state.
pub(super) const fn kind_of(kind: Kind, holding: &LockSnapshot) -> Kind {
    match kind {
        Kind::Fenced if !holding.waiting.is_empty() => Kind::Fair,
        Kind::Fenced if holding.token.is_none() => Kind::Mutex,
        Kind::Write if !holding.writes => Kind::Read,
        kind => kind,
    }
}
