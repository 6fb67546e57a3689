//! Takes several locks, all or none, of any clients.
//!
//! All callers acquire them in one global order. The first requests for consecutive locks are sent together; those that are
//! granted behind one that is not are released again, so a caller that waits holds only what comes before the lock it waits
//! for. Others may nest the same locks in another order, so no caller holds them for long while it waits: then it releases
//! everything and begins anew. Other clients can see a part of the locks taken for a moment.

use std::sync::Arc;
use std::time::Duration;

pub(crate) mod parts;
mod pipelined;

use self::pipelined::{Attempts, WINDOW, try_all, try_unwaited};
use super::acquire::{Patience, Wish, acquire};
use super::at_once::at_once;
use super::claim::Claim;
use super::clock::within;
use super::hold::Hold;
use super::reenter::reenter;
use super::release::{self, HandOff};
use super::{Core, Trouble, TroubleWith};
use crate::engine::wakeups::Wakeups;
use crate::protocol::jitter::spread;
use crate::protocol::lease::LostReason;
use crate::protocol::{Moment, Subject};

/// For how long, for each lock, the others are held while one is waited for. Redisson's own.
const HELD_MEANWHILE: Duration = Duration::from_millis(1500);
/// Before it begins anew, so that those get in who wait for what was given back.
const REST: Duration = Duration::from_millis(50);
/// Who never stands in a line asks now and then, seldom at last.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Leases that end so much apart, by a hundredth, end together.
const LONG_LEASE: Duration = Duration::from_secs(30);

/// One of several locks.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) core: Arc<Core>,
    pub(crate) wish: Wish,
}

/// Gets all of these, which are [`in_order`](parts::in_order); `None` if one of them is somebody else's and patience
/// is over.
pub(crate) async fn take(
    parts: &[Part],
    patience: Patience,
) -> Result<Option<Vec<Claim>>, TroubleWith> {
    tokio::task::coop::consume_budget().await;
    let Some(first) = parts.first() else {
        return Ok(Some(Vec::new()));
    };
    let home = &first.core;
    if matches!(patience, Patience::Once) {
        return once(parts).await;
    }
    let mut search = Search {
        parts,
        home,
        deadline: patience.deadline(home.clock.now()),
        told_busy: false,
    };
    search.run().await
}

/// Gives all of these back, whatever becomes of each; says what went wrong.
pub(crate) async fn give_back(claims: Vec<Claim>) -> Result<(), Vec<TroubleWith>> {
    let wakeups = wakeups_of(claims.first().map(Claim::hold));
    let giving = claims.into_iter().map(|claim| {
        let name = claim.hold().subject.name.clone();
        async move {
            let released = release::release(claim, HandOff::InMemory).await;
            released.map_err(|trouble| trouble.with(&name))
        }
    });
    all_well(at_once(&wakeups, giving).await)
}

/// Releases all of these after work that was done under them; fails only if one of them was not held until now.
pub(crate) async fn conclude(claims: Vec<Claim>) -> Result<(), Vec<TroubleWith>> {
    let wakeups = wakeups_of(claims.first().map(Claim::hold));
    let concluding = claims.into_iter().map(|claim| {
        let name = claim.hold().subject.name.clone();
        async move {
            let concluded = release::conclude(claim).await;
            concluded.map_err(|trouble| trouble.with(&name))
        }
    });
    all_well(at_once(&wakeups, concluding).await)
}

/// Makes each of these last this long from now, if it would end sooner; says what went wrong.
pub(crate) async fn extend(holds: Vec<Arc<Hold>>, lease: Duration) -> Result<(), Vec<TroubleWith>> {
    let wakeups = wakeups_of(holds.first());
    let extending = holds.into_iter().map(|hold| async move {
        let extended = hold.extend(lease).await;
        extended.map_err(|trouble| trouble.with(&hold.subject.name))
    });
    all_well(at_once(&wakeups, extending).await)
}

/// Where a task is woken that waits for the client of this hold.
fn wakeups_of(hold: Option<&Arc<Hold>>) -> Wakeups {
    hold.map_or_else(Wakeups::inline, |hold| hold.core.wakeups.clone())
}

fn all_well(answers: Vec<Result<(), TroubleWith>>) -> Result<(), Vec<TroubleWith>> {
    let troubles: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
    match troubles.is_empty() {
        true => Ok(()),
        false => Err(troubles),
    }
}

/// Takes what its owner holds already once more; the rest is to be asked for.
async fn reentered(parts: &[Part]) -> Result<(Vec<Claim>, Vec<&Part>), TroubleWith> {
    let (mut claims, mut rest) = (Vec::new(), Vec::new());
    for part in parts {
        let Part { core, wish } = part;
        core.usable().map_err(|trouble| part.with(trouble))?;
        match reenter(core, wish, None).await {
            Ok(Some(claim)) => claims.push(claim),
            Ok(None) => rest.push(part),
            Err(trouble) => return Err(part.with(trouble)),
        }
    }
    Ok((claims, rest))
}

/// Tries to acquire all of these, and releases what was granted if one of them is not free.
async fn once(parts: &[Part]) -> Result<Option<Vec<Claim>>, TroubleWith> {
    let (mut claims, rest) = reentered(parts).await?;
    for group in rest.chunks(WINDOW) {
        let Attempts { granted, beyond } = try_all(group).await?;
        let all = granted.len() == group.len();
        claims.extend(granted);
        if !all {
            claims.extend(beyond);
            if planted!(PartOfManyKept) {
                std::mem::forget(std::mem::take(&mut claims));
            }
            let _ = give_back(claims).await;
            return Ok(None);
        }
    }
    Ok(Some(claims))
}

/// One caller that waits.
struct Search<'a> {
    parts: &'a [Part],
    /// The deadline is by this client's clock; others may have another.
    home: &'a Arc<Core>,
    deadline: Option<Moment>,
    /// A store has said that somebody else has one of them: from then on it waits through outages.
    told_busy: bool,
}

/// How far one round came.
enum Round {
    All {
        claims: Vec<Claim>,
        /// Some were there before others.
        late: bool,
    },
    /// Not for all of them in time; what is held by then, and whether the next is known to be somebody else's.
    Stopped(Vec<Claim>, Stop),
}

struct Stop {
    subject: Subject,
    busy: bool,
}

impl Search<'_> {
    async fn run(&mut self) -> Result<Option<Vec<Claim>>, TroubleWith> {
        loop {
            let (claims, stop) = match self.round().await? {
                Round::All {
                    claims,
                    late: false,
                } => return Ok(Some(claims)),
                Round::All { claims, late: true } => match self.level(&claims).await {
                    None => return Ok(Some(claims)),
                    Some(stop) => (claims, stop),
                },
                Round::Stopped(claims, stop) => (claims, stop),
            };
            self.told_busy |= stop.busy;
            let limit = self.home.limit(self.deadline);
            // What is not answered by then goes on in the background.
            let _ = within(limit, Box::pin(give_back(claims))).await;
            if self.left() == Some(Duration::ZERO) {
                return match stop.busy {
                    true => Ok(None),
                    false => Err(Trouble::TimedOut(None).with(&stop.subject.name)),
                };
            }
            let rest = REST / 10 + spread(REST, self.home.fresh_seed());
            self.sleep(self.left().map_or(rest, |left| left.min(rest)))
                .await;
        }
    }

    /// Takes them in order, and holds the earlier ones meanwhile, but not for long.
    async fn round(&mut self) -> Result<Round, TroubleWith> {
        let (mut claims, rest) = reentered(self.parts).await?;
        let mut holds_until = None;
        let (mut next, mut steps) = (0, 0);
        while let Some(part) = rest.get(next) {
            let group = &rest[next..rest.len().min(next + WINDOW)];
            let limit = self.left();
            let deadline = |part: &Part| limit.map(|limit| part.core.clock.now() + limit);
            let granted = match try_unwaited(group, deadline).await {
                Ok(Some(Attempts { granted, beyond })) => {
                    self.told_busy |= granted.len() < group.len();
                    // Before this caller waits: to hold a later lock meanwhile would break the order.
                    let _ =
                        within(self.home.limit(self.deadline), Box::pin(give_back(beyond))).await;
                    granted
                }
                Ok(None) => Vec::new(),
                Err(trouble) => return self.ride(claims, part, trouble),
            };
            let all = granted.len() == group.len();
            steps += usize::from(!granted.is_empty());
            next += granted.len();
            claims.extend(granted);
            if all {
                continue;
            }
            let part = rest[next];
            let mut wait = self.left();
            if !claims.is_empty() {
                let now = self.home.clock.now();
                let all = u32::try_from(self.parts.len()).unwrap_or(u32::MAX);
                let until = *holds_until.get_or_insert(now + HELD_MEANWHILE * all);
                let patience = until.since(now);
                wait = Some(wait.map_or(patience, |wait| wait.min(patience)));
            }
            match self.wait_for(part, wait).await {
                Ok(Some(claim)) => {
                    claims.push(claim);
                    steps += 1;
                    next += 1;
                }
                Ok(None) => return Ok(Round::Stopped(claims, part.stop(true))),
                Err(trouble) => return self.ride(claims, part, part.with(trouble)),
            }
        }
        let late = steps > 1;
        Ok(Round::All { claims, late })
    }

    /// Whether it goes on in spite of this trouble.
    fn ride(
        &self,
        claims: Vec<Claim>,
        part: &Part,
        trouble: TroubleWith,
    ) -> Result<Round, TroubleWith> {
        let goes_on = match &trouble.trouble {
            Trouble::TimedOut(_) | Trouble::TooYoung(..) | Trouble::Lost(_) => true,
            Trouble::Failure(failure) => self.told_busy && failure.is_passing(),
            Trouble::Closed
            | Trouble::Forked
            | Trouble::TooLong(_)
            | Trouble::TooManyReads
            | Trouble::WouldDeadlock => false,
        };
        match goes_on {
            true => Ok(Round::Stopped(claims, part.stop(false))),
            false => Err(trouble),
        }
    }

    /// Waits for one in its line here, or, where the store keeps the line, by asking now and then: two that stand in two such
    /// lines would wait for each other.
    async fn wait_for(
        &mut self,
        part: &Part,
        wait: Option<Duration>,
    ) -> Result<Option<Claim>, Trouble> {
        let Part { core, wish } = part;
        if !wish.subject.kind.has_line() {
            let patience = wait.map_or(Patience::Endless, Patience::within);
            return acquire(core, wish, patience).await;
        }
        let until = wait.map(|wait| self.home.clock.now() + wait);
        let mut pause = FIRST_PAUSE;
        loop {
            let busy = match acquire(core, wish, Patience::Once).await {
                Ok(Some(claim)) => return Ok(Some(claim)),
                Ok(None) => true,
                Err(Trouble::Failure(failure)) if self.told_busy && failure.is_passing() => false,
                Err(trouble) => return Err(trouble),
            };
            self.told_busy |= busy;
            let left = until.map(|until| until.since(self.home.clock.now()));
            if left == Some(Duration::ZERO) {
                return if busy {
                    Ok(None)
                } else {
                    Err(Trouble::TimedOut(None))
                };
            }
            let rest = pause / 2 + spread(pause / 2, core.fresh_seed());
            self.sleep(left.map_or(rest, |left| left.min(rest))).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Makes the leases of those that were taken early end with the last one's, and finds out whether they are still ours
    /// by that. Says if one is not.
    async fn level(&self, claims: &[Claim]) -> Option<Stop> {
        let longest = claims.iter().map(|claim| claim.hold().remaining()).max()?;
        let behind = claims.iter().map(Claim::hold).filter(|hold| {
            longest.saturating_sub(hold.remaining()) > hold.terms.lease.min(LONG_LEASE) / 100
        });
        let extending = behind.cloned().map(|hold| async move {
            let extended = hold.extend(hold.terms.lease).await;
            extended.err().map(|_| hold)
        });
        let wakeups = wakeups_of(claims.first().map(Claim::hold));
        let failed = at_once(&wakeups, extending).await.into_iter().flatten();
        let lost = claims
            .iter()
            .map(Claim::hold)
            .filter(|hold| !hold.is_held());
        let hold = failed.chain(lost.cloned()).next()?;
        let subject = hold.subject.clone();
        let busy = hold.lost() == Some(LostReason::TakenOver);
        Some(Stop { subject, busy })
    }

    fn left(&self) -> Option<Duration> {
        self.deadline
            .map(|deadline| deadline.since(self.home.clock.now()))
    }

    async fn sleep(&self, time: Duration) {
        let clock = &self.home.clock;
        clock.sleep_until(Some(clock.now() + time)).await;
    }
}

impl Part {
    /// Where it is: which machine, whatever else is told apart there.
    pub(crate) fn server(&self) -> String {
        self.core.engine.server()
    }

    pub(super) fn with(&self, trouble: Trouble) -> TroubleWith {
        trouble.with(&self.wish.subject.name)
    }

    fn stop(&self, busy: bool) -> Stop {
        let subject = self.wish.subject.clone();
        Stop { subject, busy }
    }
}
