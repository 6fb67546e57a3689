//! Numbers that are nobody's: what they are, and changes of them that are carried out once.

use std::sync::Arc;
use std::time::Duration;

use tracing::field::debug;

use super::acquire::{AcquireParams, WaitLimit, acquire};
use super::release::retain;
use super::{Core, DriverError, unexpected_reply};
use crate::engine::events::emit_in_call;
use crate::engine::{StoreError, StoreErrorKind};
use crate::protocol::acquire::WaitMode;
use crate::protocol::dedup::is_remembered;
use crate::protocol::jitter::spread;
use crate::protocol::lease::LeaseTerms;
use crate::protocol::tombstones::TOMBSTONE_TTL;
use crate::protocol::{Action, CounterOp, PermitRequest, Reply, SemaphoreOp, Subject};

/// Before a change is asked for again.
const MIN_BACKOFF: Duration = Duration::from_millis(10);
const MAX_BACKOFF: Duration = Duration::from_millis(200);

/// What a number was when it was changed, and what it is since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CounterUpdate {
    pub(crate) before: Option<i64>,
    pub(crate) after: Option<i64>,
}

/// Changes a number. Asked for again, as the same request, while no answer comes and time is left: until a command's time is
/// over, and once more if that took all of it.
pub(crate) async fn update(
    core: &Core,
    subject: &Subject,
    change: CounterOp,
) -> Result<CounterUpdate, DriverError> {
    // A store that answers on the spot must not keep other tasks from running.
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
        // After a long sleep of this process, or a very patient wait, the store would take it for another.
        let forgotten = in_doubt && !is_remembered(begun, now);
        let is_final = !failure.is_transient() || core.ensure_usable().is_err();
        if is_final || forgotten || !(in_time || once_more) {
            return Err(DriverError::StoreError(with_doubt(failure, in_doubt)));
        }
        emit_in_call!(
            core.events,
            DEBUG,
            { name: debug(subject.name.clone()), why: failure.detail.clone() },
            "no answer; asking again"
        );
        // Not all at the same instant, where many lost the same server.
        let rest = backoff / 2 + spread(backoff / 2, core.fresh_seed());
        core.clock.sleep_until(Some(core.clock.now() + rest)).await;
        backoff = (backoff * 2).min(MAX_BACKOFF);
    }
}

/// Takes so many off the number, for the caller to keep; says whether it has before patience is over.
pub(crate) async fn take(
    core: &Arc<Core>,
    subject: &Subject,
    count: u32,
    wait_limit: WaitLimit,
) -> Result<bool, DriverError> {
    let params = AcquireParams {
        subject: subject.clone(),
        terms: LeaseTerms {
            // For as long as the store knows which request took them: they are given back by that until the caller has
            // them.
            lease: TOMBSTONE_TTL,
            keep_alive: false,
            max_hold: None,
            peer_ttl_cap: None,
        },
        wait_mode: WaitMode::Subscribe,
        local_owner: None,
        upgrade_from: None,
        permits: PermitRequest { count, of: None },
    };
    match acquire(core, &params, wait_limit).await? {
        Some(hold_ref) => retain(hold_ref).map(|()| true),
        None => Ok(false),
    }
}

/// What the number is; none if there is none.
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

/// Whoever asked is to know that it must not ask again as if nothing had happened, whatever was in the way last.
fn with_doubt(failure: StoreError, in_doubt: bool) -> StoreError {
    if !in_doubt {
        return failure;
    }
    let cause = match failure.is_transient() {
        true => StoreErrorKind::TimedOut,
        false => failure.kind,
    };
    StoreError::new(cause, failure.detail + "; it may have been done")
}
