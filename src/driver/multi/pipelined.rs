//! Requests for several locks that are sent together, without a wait for the replies between them.

use super::LockTarget;
use crate::driver::acquire::{WaitLimit, acquire};
use crate::driver::acquire_request::{AcquireOutcome, AttemptOptions, send_acquire};
use crate::driver::hold_ref::HoldRef;
use crate::driver::join_all::join_all;
use crate::driver::queue_entry::QueueEntry;
use crate::driver::wait_queues::GrantSource;
use crate::driver::waiter::WakeReason;
use crate::driver::{DriverError, NamedDriverError};
use crate::protocol::Moment;
use crate::protocol::lease::LostReason;

/// Maximum number of locks that one caller requests without a reply: if the first of them is busy, the others are
/// acquired in vain.
pub(super) const WINDOW: usize = 64;

/// The result of a group of attempts.
pub(super) struct Attempts {
    /// The locks that were granted up to the first refusal, in order.
    pub(super) granted: Vec<HoldRef>,
    /// The locks that were granted behind the first refusal, which are to be released.
    pub(super) beyond_first_refusal: Vec<HoldRef>,
}

/// Tries to acquire all of these, bypassing the queues of this client.
pub(super) async fn try_all(targets: &[&LockTarget]) -> Result<Attempts, NamedDriverError> {
    let Some(first) = targets.first() else {
        return split(Vec::new());
    };
    let waker_executor = first.core.waker_executor.clone();
    let attempts = targets.iter().map(|target| async move {
        let got = acquire(&target.core, &target.params, WaitLimit::TryOnce).await;
        got.map_err(|error| target.with(error))
    });
    split(join_all(&waker_executor, attempts).await)
}

/// Tries to acquire as many of these as no other caller of this client waits for, up to the first that one does. `None`
/// if there are fewer than two: a single lock is acquired as always.
pub(super) async fn try_unwaited(
    targets: &[&LockTarget],
    deadline: impl Fn(&LockTarget) -> Option<Moment> + Send + Sync,
) -> Result<Option<Attempts>, NamedDriverError> {
    let entries: Vec<_> = targets
        .iter()
        .map_while(|target| target.queue_entry())
        .collect();
    if entries.len() < 2 {
        return Ok(None);
    }
    let deadline = &deadline;
    let waker_executor = targets[0].core.waker_executor.clone();
    let attempts = targets
        .iter()
        .zip(entries)
        .map(|(target, entry)| async move {
            let got = first_attempt(target, entry, deadline(target)).await;
            got.map_err(|error| target.with(error))
        });
    split(join_all(&waker_executor, attempts).await).map(Some)
}

/// Keeps the grants up to the first refusal apart from those behind it. An error drops all of them, which releases them.
fn split(
    attempts: Vec<Result<Option<HoldRef>, NamedDriverError>>,
) -> Result<Attempts, NamedDriverError> {
    let attempts = attempts.into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut attempts = attempts.into_iter();
    let granted = attempts.by_ref().map_while(|hold_ref| hold_ref).collect();
    let beyond_first_refusal = attempts.flatten().collect();
    Ok(Attempts {
        granted,
        beyond_first_refusal,
    })
}

async fn first_attempt(
    target: &LockTarget,
    entry: Option<QueueEntry<'_>>,
    deadline: Option<Moment>,
) -> Result<Option<HoldRef>, DriverError> {
    let LockTarget { core, params } = target;
    core.ensure_usable()?;
    let owner = core.fresh_owner_for(params);
    let outcome = send_acquire(
        core,
        params,
        owner,
        AttemptOptions::default(),
        core.clock.now(),
        deadline,
    );
    match outcome.await {
        Ok(AcquireOutcome::Granted(hold_ref, now)) => {
            // From now on waiters of this client wait for this hold.
            match entry {
                Some(entry) => entry.granted(hold_ref.hold(), now),
                None => core
                    .wait_queues
                    .granted(hold_ref.hold(), GrantSource::Bypass, now),
            }
            core.ensure_usable()?;
            Ok(Some(hold_ref))
        }
        Ok(AcquireOutcome::Busy { .. }) => Ok(None),
        Ok(AcquireOutcome::LeaseExpired) => Err(DriverError::Lost(LostReason::Expired)),
        Err(failure) => {
            core.ensure_usable()?;
            Err(DriverError::StoreError(failure))
        }
    }
}

impl LockTarget {
    /// Enters the head of the lock's queue, if no other caller of this client is there. A lock whose queue the store
    /// keeps has no local entry.
    fn queue_entry(&self) -> Option<Option<QueueEntry<'_>>> {
        let Self { core, params } = self;
        if params.subject.kind.has_server_queue() {
            return Some(None);
        }
        if core.other_side(params).is_some() {
            return None;
        }
        let (entry, reason) = QueueEntry::enter(core, params, core.clock.now());
        matches!(reason, Some(WakeReason::SendRequest { not_before: None })).then_some(Some(entry))
    }
}
