//! Numbers without an owner: their values, and changes that are carried out once.

use std::sync::Arc;
use std::time::Duration;

use tracing::field::debug;

use super::acquire::{AcquireParams, WaitLimit, acquire};
use super::release::detach_permits;
use super::{Core, DriverError, unexpected_reply};
use crate::engine::events::emit_in_call;
use crate::engine::{StoreError, StoreErrorKind};
use crate::protocol::acquire::WaitMode;
use crate::protocol::dedup::is_remembered;
use crate::protocol::jitter::spread;
use crate::protocol::lease::LeaseTerms;
use crate::protocol::tombstones::TOMBSTONE_TTL;
use crate::protocol::{Action, CounterOp, PermitRequest, Reply, SemaphoreOp, Subject};

/// Backoff before a change is requested again.
const MIN_BACKOFF: Duration = Duration::from_millis(10);
const MAX_BACKOFF: Duration = Duration::from_millis(200);

/// The value of a number before a change, and after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CounterUpdate {
    pub(crate) before: Option<i64>,
    pub(crate) after: Option<i64>,
}

/// Changes a number. The same request is retried while no reply arrives and time is left: until the command timeout,
/// and once more if the first attempt took all of it.
pub(crate) async fn update(
    core: &Core,
    subject: &Subject,
    change: CounterOp,
) -> Result<CounterUpdate, DriverError> {
    // A store that replies without I/O must not starve other tasks.
    tokio::task::coop::consume_budget().await;
    core.ensure_usable()?;
    let pending_key = core.pending_key(subject);
    let begun = core.clock.now();
    let give_up_at = begun + core.settings.command_timeout;
    let mut in_doubt = false;
    let mut backoff = MIN_BACKOFF;
    loop {
        let mut key = pending_key.key;
        if planted!(RetryIsNew) {
            key = core.new_idempotency_key(subject);
        }
        let request = subject.request(Action::CounterOp { key, change });
        let failure = match core.call(request).await {
            Ok(Reply::Altered { before, after }) => return Ok(CounterUpdate { before, after }),
            Ok(other) => unexpected_reply(&other),
            Err(failure) => failure,
        };
        let now = core.clock.now();
        let in_time = now < give_up_at;
        let once_more = failure.is_indeterminate() && !in_doubt;
        in_doubt |= failure.is_indeterminate();
        // After a long suspension of this process, or a very long command timeout, the store would take the request for
        // a new one.
        let forgotten = in_doubt && !is_remembered(begun, now);
        let is_final = !failure.is_transient() || core.ensure_usable().is_err();
        if is_final || forgotten || !(in_time || once_more) {
            return Err(DriverError::StoreError(with_doubt(failure, in_doubt)));
        }
        emit_in_call!(
            core.events,
            "distlock::acquire",
            DEBUG,
            { lock: debug(subject.name.clone()), error: failure.detail.clone() },
            "no reply; sending the request again"
        );
        // Spread out, because many clients may have lost the same server at the same instant.
        let pause = backoff / 2 + spread(backoff / 2, core.fresh_seed());
        core.clock.sleep_until(Some(core.clock.now() + pause)).await;
        backoff = (backoff * 2).min(MAX_BACKOFF);
    }
}

/// Takes `count` off the number, for the caller to keep; returns whether that succeeded within the wait limit.
pub(crate) async fn take(
    core: &Arc<Core>,
    subject: &Subject,
    count: u32,
    wait_limit: WaitLimit,
) -> Result<bool, DriverError> {
    let params = AcquireParams {
        subject: subject.clone(),
        terms: LeaseTerms {
            // As long as the store remembers which request took them: until the caller has them, they can be released
            // by that request.
            lease: TOMBSTONE_TTL,
            keep_alive: false,
            max_hold: None,
            redisson_ttl_cap: None,
        },
        wait_mode: WaitMode::Subscribe,
        local_owner: None,
        other_side: None,
        permits: PermitRequest { count, of: None },
    };
    match acquire(core, &params, wait_limit).await? {
        Some(hold_ref) => detach_permits(hold_ref).map(|()| true),
        None => Ok(false),
    }
}

/// Returns the number; `None` if there is none.
pub(crate) async fn get(core: &Core, subject: &Subject) -> Result<Option<i64>, DriverError> {
    core.ensure_usable()?;
    fetch(core, subject).await.map_err(DriverError::StoreError)
}

pub(super) async fn fetch(core: &Core, subject: &Subject) -> Result<Option<i64>, StoreError> {
    match core
        .call(subject.request(Action::SemaphoreOp(SemaphoreOp::Get)))
        .await?
    {
        Reply::Counted { permits, .. } => Ok(permits.map(|permits| permits.available)),
        other => Err(unexpected_reply(&other)),
    }
}

/// Marks the error if the change may have been carried out: the caller has to know, whatever went wrong last, that it
/// cannot simply request it again.
fn with_doubt(failure: StoreError, in_doubt: bool) -> StoreError {
    if !in_doubt {
        return failure;
    }
    let cause = match failure.is_transient() {
        true => StoreErrorKind::TimedOut,
        false => failure.kind,
    };
    StoreError::new(cause, failure.detail + "; the change may have been made")
}
