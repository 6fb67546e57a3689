//! Acquires several locks, all or none, of any clients.
//!
//! All callers acquire them in one global order. The first requests for consecutive locks are sent together; locks that
//! are granted behind one that is not are released again, so a caller that waits holds only the locks before the one it
//! waits for. Other callers may nest the same locks in another order, so no caller holds them for long while it waits:
//! then it releases everything and begins anew. Other clients can see a part of the locks held for a moment.

use std::sync::Arc;
use std::time::Duration;

pub(crate) mod order;
mod pipelined;

use self::pipelined::{Attempts, WINDOW, try_all, try_unwaited};
use super::acquire::{AcquireParams, WaitLimit, acquire};
use super::clock::with_timeout;
use super::hold::Hold;
use super::hold_ref::HoldRef;
use super::join_all::join_all;
use super::reenter::reenter;
use super::release::{self, HandOff};
use super::{Core, DriverError, NamedDriverError};
use crate::engine::waker_executor::WakerExecutor;
use crate::protocol::jitter::spread;
use crate::protocol::lease::LostReason;
use crate::protocol::{Moment, Subject};

/// How long, per lock, the earlier locks are held while the next one is waited for. The same as Redisson's.
const MAX_HELD_WHILE_WAITING: Duration = Duration::from_millis(1500);
/// Pause before a new round, so that waiters for the released locks can acquire them.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Backoff of a caller that polls because it never joins a queue of the store.
const MIN_BACKOFF: Duration = Duration::from_millis(5);
const MAX_BACKOFF: Duration = Duration::from_millis(250);

/// Leases end together if their ends differ by at most a hundredth of the lease, or of this duration if that is
/// shorter.
const LONG_LEASE: Duration = Duration::from_secs(30);

/// One of several locks, and its client.
#[derive(Clone, Debug)]
pub(crate) struct LockTarget {
    pub(crate) core: Arc<Core>,
    pub(crate) params: AcquireParams,
}

/// Acquires all of these, which are [`in_order`](order::in_order); `None` if another owner holds one of them and the
/// wait limit has passed.
pub(crate) async fn acquire_all(
    targets: &[LockTarget],
    wait_limit: WaitLimit,
) -> Result<Option<Vec<HoldRef>>, NamedDriverError> {
    tokio::task::coop::consume_budget().await;
    let Some(first) = targets.first() else {
        return Ok(Some(Vec::new()));
    };
    let primary = &first.core;
    if matches!(wait_limit, WaitLimit::TryOnce) {
        return try_once(targets).await;
    }
    let mut attempt = MultiAcquire {
        targets,
        primary,
        deadline: wait_limit.deadline(primary.clock.now()),
        seen_busy: false,
    };
    attempt.run().await
}

/// Releases all of these, whatever becomes of each; returns the errors.
pub(crate) async fn release_all(hold_refs: Vec<HoldRef>) -> Result<(), Vec<NamedDriverError>> {
    let waker_executor = waker_executor_of(hold_refs.first().map(HoldRef::hold));
    let releasing = hold_refs.into_iter().map(|hold_ref| {
        let name = hold_ref.hold().subject.name.clone();
        async move {
            let released = release::release(hold_ref, HandOff::InMemory).await;
            released.map_err(|error| error.with(&name))
        }
    });
    collect_errors(join_all(&waker_executor, releasing).await)
}

/// Releases all of these after work that was done under them; fails only if one of them was not held until now.
pub(crate) async fn release_after_run(
    hold_refs: Vec<HoldRef>,
) -> Result<(), Vec<NamedDriverError>> {
    let waker_executor = waker_executor_of(hold_refs.first().map(HoldRef::hold));
    let releasing = hold_refs.into_iter().map(|hold_ref| {
        let name = hold_ref.hold().subject.name.clone();
        async move {
            let outcome = release::release_after_run(hold_ref).await;
            outcome.map_err(|error| error.with(&name))
        }
    });
    collect_errors(join_all(&waker_executor, releasing).await)
}

/// Extends each of these leases to end `lease` from now at the earliest; returns the errors.
pub(crate) async fn extend(
    holds: Vec<Arc<Hold>>,
    lease: Duration,
) -> Result<(), Vec<NamedDriverError>> {
    let waker_executor = waker_executor_of(holds.first());
    let extending = holds.into_iter().map(|hold| async move {
        let extended = hold.extend(lease).await;
        extended.map_err(|error| error.with(&hold.subject.name))
    });
    collect_errors(join_all(&waker_executor, extending).await)
}

/// Returns where a task is woken that waits for the client of this hold.
fn waker_executor_of(hold: Option<&Arc<Hold>>) -> WakerExecutor {
    hold.map_or_else(WakerExecutor::inline, |hold| {
        hold.core.waker_executor.clone()
    })
}

fn collect_errors(
    outcomes: Vec<Result<(), NamedDriverError>>,
) -> Result<(), Vec<NamedDriverError>> {
    let errors: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
    match errors.is_empty() {
        true => Ok(()),
        false => Err(errors),
    }
}

/// Re-enters the locks that their owner holds already; returns the other locks, which have to be requested.
async fn reenter_held(
    targets: &[LockTarget],
) -> Result<(Vec<HoldRef>, Vec<&LockTarget>), NamedDriverError> {
    let (mut hold_refs, mut remaining) = (Vec::new(), Vec::new());
    for target in targets {
        let LockTarget { core, params } = target;
        core.ensure_usable().map_err(|error| target.with(error))?;
        match reenter(core, params, None).await {
            Ok(Some(hold_ref)) => hold_refs.push(hold_ref),
            Ok(None) => remaining.push(target),
            Err(error) => return Err(target.with(error)),
        }
    }
    Ok((hold_refs, remaining))
}

/// Tries to acquire all of these, and releases what was granted if one of them is not free.
async fn try_once(targets: &[LockTarget]) -> Result<Option<Vec<HoldRef>>, NamedDriverError> {
    let (mut hold_refs, remaining) = reenter_held(targets).await?;
    for group in remaining.chunks(WINDOW) {
        let Attempts {
            granted,
            beyond_first_refusal,
        } = try_all(group).await?;
        let all = granted.len() == group.len();
        hold_refs.extend(granted);
        if !all {
            hold_refs.extend(beyond_first_refusal);
            if planted!(PartOfManyKept) {
                std::mem::forget(std::mem::take(&mut hold_refs));
            }
            let _ = release_all(hold_refs).await;
            return Ok(None);
        }
    }
    Ok(Some(hold_refs))
}

/// One caller that waits for several locks.
struct MultiAcquire<'a> {
    targets: &'a [LockTarget],
    /// The client whose clock measures the deadline; other clients may have another clock.
    primary: &'a Arc<Core>,
    deadline: Option<Moment>,
    /// A store has reported that another owner holds one of the locks: from then on the wait continues through outages.
    seen_busy: bool,
}

/// The outcome of one round.
enum MultiRound {
    All {
        hold_refs: Vec<HoldRef>,
        /// Some locks were acquired earlier than others.
        needs_alignment: bool,
    },
    /// Not all locks were acquired in time: the locks that are held by then, and whether another owner is known to hold
    /// the next one.
    Stopped(Vec<HoldRef>, StoppedAt),
}

struct StoppedAt {
    subject: Subject,
    busy: bool,
}

impl MultiAcquire<'_> {
    async fn run(&mut self) -> Result<Option<Vec<HoldRef>>, NamedDriverError> {
        loop {
            let (hold_refs, stop) = match self.round().await? {
                MultiRound::All {
                    hold_refs,
                    needs_alignment: false,
                } => return Ok(Some(hold_refs)),
                MultiRound::All {
                    hold_refs,
                    needs_alignment: true,
                } => match self.align_leases(&hold_refs).await {
                    None => return Ok(Some(hold_refs)),
                    Some(stop) => (hold_refs, stop),
                },
                MultiRound::Stopped(hold_refs, stop) => (hold_refs, stop),
            };
            self.seen_busy |= stop.busy;
            let limit = self.primary.request_timeout(self.deadline);
            // A release without a reply by then continues in the background.
            let _ = with_timeout(limit, Box::pin(release_all(hold_refs))).await;
            if self.left() == Some(Duration::ZERO) {
                return match stop.busy {
                    true => Ok(None),
                    false => Err(DriverError::TimedOut(None).with(&stop.subject.name)),
                };
            }
            let pause = RETRY_PAUSE / 10 + spread(RETRY_PAUSE, self.primary.fresh_seed());
            self.sleep(self.left().map_or(pause, |left| left.min(pause)))
                .await;
        }
    }

    /// Acquires the locks in order, and holds the earlier ones meanwhile, but not for long.
    async fn round(&mut self) -> Result<MultiRound, NamedDriverError> {
        let (mut hold_refs, remaining) = reenter_held(self.targets).await?;
        let mut holds_until = None;
        let (mut next, mut steps) = (0, 0);
        while let Some(target) = remaining.get(next) {
            let group = &remaining[next..remaining.len().min(next + WINDOW)];
            let limit = self.left();
            let deadline = |target: &LockTarget| limit.map(|limit| target.core.clock.now() + limit);
            let granted = match try_unwaited(group, deadline).await {
                Ok(Some(Attempts {
                    granted,
                    beyond_first_refusal,
                })) => {
                    self.seen_busy |= granted.len() < group.len();
                    // Released before this caller waits: to hold a later lock meanwhile would break the order.
                    let _ = with_timeout(
                        self.primary.request_timeout(self.deadline),
                        Box::pin(release_all(beyond_first_refusal)),
                    )
                    .await;
                    granted
                }
                Ok(None) => Vec::new(),
                Err(error) => return self.stop_or_fail(hold_refs, target, error),
            };
            let all = granted.len() == group.len();
            steps += usize::from(!granted.is_empty());
            next += granted.len();
            hold_refs.extend(granted);
            if all {
                continue;
            }
            let target = remaining[next];
            let mut wait = self.left();
            if !hold_refs.is_empty() {
                let now = self.primary.clock.now();
                let all = u32::try_from(self.targets.len()).unwrap_or(u32::MAX);
                let until = *holds_until.get_or_insert(now + MAX_HELD_WHILE_WAITING * all);
                let wait_limit = until.since(now);
                wait = Some(wait.map_or(wait_limit, |wait| wait.min(wait_limit)));
            }
            match self.wait_for(target, wait).await {
                Ok(Some(hold_ref)) => {
                    hold_refs.push(hold_ref);
                    steps += 1;
                    next += 1;
                }
                Ok(None) => return Ok(MultiRound::Stopped(hold_refs, target.stop(true))),
                Err(error) => return self.stop_or_fail(hold_refs, target, target.with(error)),
            }
        }
        let needs_alignment = steps > 1;
        Ok(MultiRound::All {
            hold_refs,
            needs_alignment,
        })
    }

    /// Ends the round after this error if the wait continues in spite of it; returns the error if not.
    fn stop_or_fail(
        &self,
        hold_refs: Vec<HoldRef>,
        target: &LockTarget,
        error: NamedDriverError,
    ) -> Result<MultiRound, NamedDriverError> {
        let goes_on = match &error.error {
            DriverError::TimedOut(_)
            | DriverError::RecentlyRestarted(..)
            | DriverError::Lost(_) => true,
            DriverError::StoreError(failure) => self.seen_busy && failure.is_transient(),
            DriverError::Closed
            | DriverError::Forked
            | DriverError::LeaseTooLong(_)
            | DriverError::TooManyReads
            | DriverError::WouldDeadlock => false,
        };
        match goes_on {
            true => Ok(MultiRound::Stopped(hold_refs, target.stop(false))),
            false => Err(error),
        }
    }

    /// Waits for one lock in its local queue, or, where the store keeps the queue, by polling: two callers in two such
    /// queues would wait for each other.
    async fn wait_for(
        &mut self,
        target: &LockTarget,
        wait: Option<Duration>,
    ) -> Result<Option<HoldRef>, DriverError> {
        let LockTarget { core, params } = target;
        if !params.subject.kind.has_server_queue() {
            let wait_limit = wait.map_or(WaitLimit::Forever, WaitLimit::timeout);
            return acquire(core, params, wait_limit).await;
        }
        let until = wait.map(|wait| self.primary.clock.now() + wait);
        let mut backoff = MIN_BACKOFF;
        loop {
            let busy = match acquire(core, params, WaitLimit::TryOnce).await {
                Ok(Some(hold_ref)) => return Ok(Some(hold_ref)),
                Ok(None) => true,
                Err(DriverError::StoreError(failure))
                    if self.seen_busy && failure.is_transient() =>
                {
                    false
                }
                Err(error) => return Err(error),
            };
            self.seen_busy |= busy;
            let left = until.map(|until| until.since(self.primary.clock.now()));
            if left == Some(Duration::ZERO) {
                return if busy {
                    Ok(None)
                } else {
                    Err(DriverError::TimedOut(None))
                };
            }
            let pause = backoff / 2 + spread(backoff / 2, core.fresh_seed());
            self.sleep(left.map_or(pause, |left| left.min(pause))).await;
            backoff = (backoff * 2).min(MAX_BACKOFF);
        }
    }

    /// Extends the leases of locks that were acquired early to end with the last one's, which also verifies that they
    /// are still held. Returns a lock that is not.
    async fn align_leases(&self, hold_refs: &[HoldRef]) -> Option<StoppedAt> {
        let longest = hold_refs
            .iter()
            .map(|hold_ref| hold_ref.hold().remaining())
            .max()?;
        let behind = hold_refs.iter().map(HoldRef::hold).filter(|hold| {
            longest.saturating_sub(hold.remaining()) > hold.terms.lease.min(LONG_LEASE) / 100
        });
        let extending = behind.cloned().map(|hold| async move {
            let extended = hold.extend(hold.terms.lease).await;
            extended.err().map(|_| hold)
        });
        let waker_executor = waker_executor_of(hold_refs.first().map(HoldRef::hold));
        let failed = join_all(&waker_executor, extending)
            .await
            .into_iter()
            .flatten();
        let lost = hold_refs
            .iter()
            .map(HoldRef::hold)
            .filter(|hold| !hold.is_held());
        let hold = failed.chain(lost.cloned()).next()?;
        let subject = hold.subject.clone();
        let busy = hold.lost() == Some(LostReason::TakenOver);
        Some(StoppedAt { subject, busy })
    }

    fn left(&self) -> Option<Duration> {
        self.deadline
            .map(|deadline| deadline.since(self.primary.clock.now()))
    }

    async fn sleep(&self, time: Duration) {
        let clock = &self.primary.clock;
        clock.sleep_until(Some(clock.now() + time)).await;
    }
}

impl LockTarget {
    /// Returns the server of the lock, regardless of the namespaces on that server.
    pub(crate) fn server(&self) -> String {
        self.core.engine.server_id()
    }

    pub(super) fn with(&self, error: DriverError) -> NamedDriverError {
        error.with(&self.params.subject.name)
    }

    fn stop(&self, busy: bool) -> StoppedAt {
        let subject = self.params.subject.clone();
        StoppedAt { subject, busy }
    }
}
