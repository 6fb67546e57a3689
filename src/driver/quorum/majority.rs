//! A lock that most of several servers have granted, while that lasts.
//!
//! Each grant is a hold of its own, with its client's watchdog. The whole is held while most of them are; servers that answer
//! late, or have a vote again, may join, but only while it is held: what was lost once stays lost, though most may come to be
//! granted again.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tracing::Level;

use super::vote::{Rules, patience};
use crate::driver::at_once::at_once;
use crate::driver::claim::Claim;
use crate::driver::clock::within;
use crate::driver::hold::Hold;
use crate::driver::multi::Part;
use crate::driver::release::{self, HandOff};
use crate::driver::{Trouble, TroubleWith, no_answer};
use crate::engine::wakeups::Wakeups;
use crate::protocol::lease::{LostReason, Risk};
use crate::protocol::quorum::{majority, relied_on};

/// What is held on most of several servers.
pub(crate) struct Majority {
    parts: Vec<Part>,
    rules: Rules,
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    /// One for each part, where it is granted.
    claims: Vec<Option<Claim>>,
    end: Option<(End, Instant)>,
    keeper: Option<AbortHandle>,
}

#[derive(Clone, Debug)]
pub(crate) enum End {
    /// With the lock that made it too few, and why that was lost.
    Lost(Arc<str>, LostReason),
    Released,
}

impl Majority {
    pub(super) fn new(parts: Vec<Part>, granted: Vec<(usize, Claim)>, rules: Rules) -> Arc<Self> {
        let mut claims: Vec<Option<Claim>> = parts.iter().map(|_| None).collect();
        for (place, claim) in granted {
            claims[place] = Some(claim);
        }
        Arc::new(Self {
            parts,
            rules,
            state: Mutex::new(State {
                claims,
                end: None,
                keeper: None,
            }),
            changed: Notify::new(),
        })
    }

    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    pub(super) const fn rules(&self) -> Rules {
        self.rules
    }

    /// How many servers there are.
    pub(crate) fn members(&self) -> usize {
        self.parts.len()
    }

    /// How long a lease others wait for after a server's restart; none if they do not.
    pub(crate) fn longest_lease(&self) -> Option<Duration> {
        let own = self.parts[0].wish.terms.lease;
        let longest = Some(self.rules.longest_lease).filter(|longest| !longest.is_zero());
        longest.map(|longest| longest.max(own))
    }

    /// The task that looks after it, and ends with it.
    pub(super) fn kept_by(&self, keeper: AbortHandle) {
        self.state().keeper = Some(keeper);
    }

    /// Another server has granted it. Too late if it is over: that is given back.
    pub(super) fn join(&self, place: usize, claim: Claim) {
        let mut state = self.state();
        // Looked at under the same lock: lost between the two, it would be held again and nobody would know.
        let held = state.end.is_none() && state.is_held(self.needed());
        let left_over = match held {
            true => state.claims[place].replace(claim),
            false => Some(claim),
        };
        drop(state);
        drop(left_over);
        self.look();
        self.changed.notify_waiters();
    }

    /// Where it is not held, and may be asked for again.
    pub(super) fn missing(&self) -> Vec<usize> {
        let state = self.state();
        let places = state.claims.iter().enumerate();
        let missing = places.filter(|(_, claim)| match claim {
            None => true,
            Some(claim) => match claim.hold().lost() {
                // It was not to be held for longer.
                Some(LostReason::Closed | LostReason::MaxHold) | None => false,
                Some(LostReason::Expired | LostReason::Removed | LostReason::TakenOver) => true,
            },
        });
        missing.map(|(place, _)| place).collect()
    }

    /// How it ended, if it has, noticed or not. What is left of it is then given back in the background.
    pub(crate) fn look(&self) -> Option<End> {
        let state = self.state();
        if let Some((end, _)) = &state.end {
            return Some(end.clone());
        }
        if state.is_held(self.needed()) {
            return None;
        }
        let lost = state
            .holds()
            .find_map(|hold| Some((hold.subject.name.clone(), hold.lost()?)));
        let (name, reason) = lost.unwrap_or_else(|| (self.name().clone(), LostReason::Expired));
        let end = End::Lost(name.clone(), reason);
        let rest = self.finish(state, end.clone());
        drop(rest);
        // Behind the lock: a subscriber may ask the guard that it reads of.
        self.parts[0].core.events.emit(Level::WARN, move || {
            tracing::warn!(?name, ?reason, "lost on most servers");
        });
        Some(end)
    }

    /// For how long it can still be relied on.
    pub(crate) fn remaining(&self) -> Duration {
        let state = self.state();
        if state.end.is_some() {
            return Duration::ZERO;
        }
        let each = state.holds().map(|hold| hold.remaining());
        relied_on(each.collect(), self.parts.len())
    }

    /// The same as a point on the standard library's clock.
    pub(crate) fn valid_until(&self) -> Instant {
        let state = self.state();
        if let Some((_, at)) = state.end {
            return at;
        }
        let held = state.holds().filter(|hold| hold.is_held());
        let mut ends: Vec<_> = held.map(|hold| hold.valid_until_instant()).collect();
        ends.sort_unstable_by(|a, b| b.cmp(a));
        let last = ends.get(self.needed() - 1).copied();
        last.unwrap_or_else(|| self.instant())
    }

    /// How many servers hold it now.
    pub(crate) fn votes(&self) -> usize {
        let state = self.state();
        match state.end {
            Some(_) => 0,
            None => state.holds().filter(|hold| hold.is_held()).count(),
        }
    }

    /// What threatens it: fewer than most are renewed as they should be.
    pub(crate) fn risk(&self) -> Option<Risk> {
        let state = self.state();
        if state.end.is_some() || !state.is_held(self.needed()) {
            return None;
        }
        let held = state.holds().filter(|hold| hold.is_held());
        let risks: Vec<_> = held.map(|hold| hold.risk()).collect();
        let safe = risks.iter().filter(|risk| risk.is_none()).count();
        match safe < self.needed() {
            true => risks
                .into_iter()
                .flatten()
                .next()
                .or(Some(Risk::RenewalFailed)),
            false => None,
        }
    }

    /// Resolves when it is over.
    pub(crate) async fn ended(self: Arc<Self>) -> End {
        loop {
            // Before it is looked at: whoever changes it tells afterwards.
            let wakeups = self.wakeups();
            let mut changed = wakeups.shield(Box::pin(self.changed.notified()));
            if let Some(end) = self.look() {
                return end;
            }
            let holds: Vec<Arc<Hold>> = {
                let state = self.state();
                let held = state.holds().filter(|hold| hold.is_held());
                held.cloned().collect()
            };
            let mut ends: Vec<_> = holds
                .into_iter()
                .map(|hold| Box::pin(hold.ended()))
                .collect();
            poll_fn(|cx| {
                let told = Pin::new(&mut changed).poll(cx).is_ready();
                // Every one, so that each knows whom to wake.
                let ended = ends
                    .iter_mut()
                    .fold(false, |any, end| end.as_mut().poll(cx).is_ready() | any);
                match told || ended {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            })
            .await;
        }
    }

    /// The lock's name on every server.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.parts[0].wish.subject.name
    }

    /// Whether it is renewed by itself.
    pub(crate) fn keeps_alive(&self) -> bool {
        self.parts[0].wish.terms.keep_alive
    }

    /// Makes it last this long from now, if it would end sooner. Says what went wrong if too few servers have agreed.
    pub(crate) async fn extend(&self, lease: Duration) -> Result<(), Vec<TroubleWith>> {
        let holds: Vec<_> = {
            let state = self.state();
            let places = state.claims.iter().enumerate();
            let holds =
                places.filter_map(|(place, claim)| Some((place, claim.as_ref()?.hold().clone())));
            holds.collect()
        };
        let extending = holds.into_iter().map(|(place, hold)| {
            let part = &self.parts[place];
            in_time(part, async move { hold.extend(lease).await })
        });
        self.agreed(at_once(self.wakeups(), extending).await)
    }

    /// Gives it back everywhere at once. Says what went wrong if too few servers have agreed that it was ours; what is not
    /// answered in time goes on in the background.
    pub(crate) async fn give_back(&self) -> Result<(), Vec<TroubleWith>> {
        let claims = self.end()?;
        let giving = claims.into_iter().map(|(place, claim)| {
            let released = release::release(claim, HandOff::InMemory);
            in_time(&self.parts[place], released)
        });
        self.agreed(at_once(self.wakeups(), giving).await)
    }

    /// Releases it everywhere after work that was done under it; fails only if too few servers can have held it until now. A
    /// server that does not reply may have.
    pub(crate) async fn conclude(&self) -> Result<(), Vec<TroubleWith>> {
        let claims = self.end()?;
        let concluding = claims.into_iter().map(|(place, claim)| {
            let part = &self.parts[place];
            async move {
                let concluded = within(patience(part), Box::pin(release::conclude(claim))).await;
                concluded
                    .unwrap_or(Ok(()))
                    .map_err(|trouble| part.with(trouble))
            }
        });
        self.agreed(at_once(self.wakeups(), concluding).await)
    }

    /// Ends it and returns what it held; fails if it was lost.
    fn end(&self) -> Result<Vec<(usize, Claim)>, Vec<TroubleWith>> {
        if self.is_forked() {
            return Err(vec![Trouble::Forked.with(self.name())]);
        }
        let lost = self.look();
        let state = self.state();
        let claims = self.finish(state, End::Released);
        match lost {
            Some(End::Lost(name, reason)) => Err(vec![Trouble::Lost(reason).with(&name)]),
            _ => Ok(claims),
        }
    }

    /// Whether most have; what was wrong with the others if not.
    fn agreed(&self, answers: Vec<Result<(), TroubleWith>>) -> Result<(), Vec<TroubleWith>> {
        let agreed = answers.iter().filter(|answer| answer.is_ok()).count();
        match agreed >= self.needed() {
            true => Ok(()),
            false => Err(answers.into_iter().filter_map(Result::err).collect()),
        }
    }

    /// The same in the background.
    pub(crate) fn abandon(self: &Arc<Self>) {
        if self.is_forked() {
            // Another process's locks and threads: not even their memory is ours to free.
            return std::mem::forget(self.clone());
        }
        let state = self.state();
        drop(self.finish(state, End::Released));
    }

    /// Leaves each server's part to its lease.
    pub(crate) fn forget(&self) {
        if self.is_forked() {
            return;
        }
        let state = self.state();
        let claims = self.finish(state, End::Released);
        claims
            .into_iter()
            .for_each(|(_, claim)| release::forget(claim));
    }

    fn wakeups(&self) -> &Wakeups {
        &self.parts[0].core.wakeups
    }

    fn instant(&self) -> Instant {
        self.parts[0].core.clock.instant()
    }

    fn is_forked(&self) -> bool {
        self.parts.iter().any(|part| part.core.is_forked())
    }

    /// Ends it, unless it has ended; what is held is no longer its own.
    fn finish(&self, mut state: MutexGuard<'_, State>, end: End) -> Vec<(usize, Claim)> {
        state.end.get_or_insert_with(|| (end, self.instant()));
        let claims = state.claims.iter_mut().enumerate();
        let claims = claims.filter_map(|(place, claim)| Some((place, claim.take()?)));
        let claims = claims.collect();
        let keeper = state.keeper.take();
        drop(state);
        // What it is still asking for is undone.
        if let Some(keeper) = keeper {
            keeper.abort();
        }
        self.changed.notify_waiters();
        claims
    }

    fn needed(&self) -> usize {
        majority(self.parts.len())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What this server answers, within the time that it has.
async fn in_time(
    part: &Part,
    answer: impl Future<Output = Result<(), Trouble>> + Send,
) -> Result<(), TroubleWith> {
    let limit = patience(part);
    let answer = within(limit, Box::pin(answer)).await;
    let answer = answer.unwrap_or_else(|| Err(Trouble::Failure(no_answer(limit))));
    answer.map_err(|trouble| part.with(trouble))
}

impl State {
    fn holds(&self) -> impl Iterator<Item = &Arc<Hold>> {
        self.claims.iter().flatten().map(Claim::hold)
    }

    fn is_held(&self, needed: usize) -> bool {
        self.holds().filter(|hold| hold.is_held()).count() >= needed
    }
}

impl fmt::Debug for Majority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Majority")
            .field("members", &self.parts.len())
            .field("votes", &self.votes())
            .finish_non_exhaustive()
    }
}
